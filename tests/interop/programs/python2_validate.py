"""Reads what was written on a wire with mcp 2's models of the revision it was written in.

python python2_validate.py    (lines on stdin: {"wire": […], "writer": "<" or ">"};
                               one line each on stdout: a list of what is wrong)
"""

import json
import sys
from typing import Any

import mcp_types as types
from mcp_types import methods
from mcp_types.jsonrpc import jsonrpc_message_adapter

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


def problems(wire: list[list[str]], writer: str) -> list[str]:
    found = []
    asked: dict[str, tuple[str, str]] = {}  # who asked and the id as JSON: method and version
    version = "2025-11-25"
    for side, line in wire:
        try:
            version = check(side, json.loads(line), asked, version, side == writer, line)
        except Exception as exc:
            found.append(f"{side} {line[:500]}: {type(exc).__name__}: {str(exc)[:500]}")
    return found


def check(
    side: str,
    message: dict[str, Any],
    asked: dict[str, tuple[str, str]],
    version: str,
    ours: bool,
    line: str,
) -> str:
    if ours:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    method, params = message.get("method"), message.get("params")
    other = "<" if side == ">" else ">"
    number = json.dumps(message.get("id"))
    if method is not None and "id" in message:
        named = ((params or {}).get("_meta") or {}).get(VERSION_KEY, version)
        if method == "initialize":
            named = "2025-11-25"
        asked[side + number] = (method, named)
        if side == ">":
            version = named
            if ours:
                methods.validate_client_request(method, named, params)
        elif ours:
            methods.parse_server_request(method, named, params)
    elif method is not None:
        if ours and side == ">":
            methods.validate_client_notification(method, version, params)
        elif ours:
            methods.parse_server_notification(method, version, params)
    elif "result" in message:
        of, named = asked[other + number]
        if of == "initialize":
            version = named = message["result"]["protocolVersion"]
        if ours and side == "<":
            methods.validate_server_result(of, named, message["result"])
        elif ours:
            methods.validate_client_result(of, named, message["result"])
    elif ours:
        types.ErrorData.model_validate(message["error"], by_name=False)
    return version


for job in sys.stdin:
    wanted = json.loads(job)
    print(json.dumps(problems(wanted["wire"], wanted["writer"])), flush=True)
