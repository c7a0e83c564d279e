"""Programs that people have at hand call our server over HTTP: MCP Inspector, and curl."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
from pairings import said

from wirespeed.demo.calculator import server as calculator

META = {
    "io.modelcontextprotocol/protocolVersion": pairings.MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ACCEPT = "Accept: application/json, text/event-stream"


# -- MCP Inspector ---------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
@pytest.mark.parametrize("peer", ["inspector"])
async def test_inspector(peer: str, era: str, tmp_path: Path) -> None:
    node = str((await asyncio.to_thread(peers.npm)) / "node_modules" / ".bin" / "node")
    folder = await asyncio.to_thread(peers.npm, peer)
    launcher = folder / "node_modules/@modelcontextprotocol/inspector/clients/launcher"
    program = [node, str(launcher / "build" / "index.js"), "--cli"]

    async def asked(url: str, method: str, *more: str) -> Any:
        where = [url, "--transport", "http", "--protocol-era", era, "--method", method]
        home = ["env", f"HOME={tmp_path}"]  # it writes there
        status, text = await said(*home, *program, *where, *more, "--format", "json")
        return status, json.loads(text.splitlines()[0])

    async with pairings.listening(None, pairings.OUR_SERVER, (), "http") as url:
        status, listed = await asked(url, "tools/list")
        assert status == 0
        assert {"add", "echo"} <= {tool["name"] for tool in listed["result"]["tools"]}
        add = ["--tool-name", "add", "--tool-args-json", '{"a": 2, "b": 3}']
        status, called = await asked(url, "tools/call", *add)
        assert (status, called["result"]["structuredContent"]) == (0, {"result": 5})
        status, called = await asked(url, "tools/call", "--tool-name", "fail")
        assert status == 5


# What a person types for each tool of the calculator.
TYPED = {
    "add": (["a=1", "b=2"], 3),
    "subtract": (["a=1", "b=2.5"], -1.5),
    "multiply": (["a=3", "b=2"], 6),
    "divide": (["a=3", "b=2"], 1.5),
    "power": (["base=2", "exponent=10"], 1024),
    "sqrt": (["x=9"], 3),
    "mean": (["numbers=[1,2]"], 1.5),
    "statistics": (["numbers=[1,2]"], None),
    "slow_sum": (["numbers=[1,2]", "pause=0"], 3),
}


@pytest.mark.parametrize("peer", ["inspector"])
async def test_what_a_person_types_for_the_inspector(peer: str, tmp_path: Path) -> None:
    """It makes numbers of texts as the type of each parameter says."""
    node = str((await asyncio.to_thread(peers.npm)) / "node_modules" / ".bin" / "node")
    folder = await asyncio.to_thread(peers.npm, peer)
    launcher = folder / "node_modules/@modelcontextprotocol/inspector/clients/launcher"
    program = [node, str(launcher / "build" / "index.js"), "--cli"]
    assert calculator.tools.keys() == TYPED.keys()
    server = [sys.executable, "-m", "wirespeed.demo.calculator"]
    for tool, (typed, expected) in TYPED.items():
        call = ["--method", "tools/call", "--tool-name", tool, "--tool-arg", *typed]
        status, text = await said(
            *("env", f"HOME={tmp_path}"), *program, *server, *call, "--format", "json"
        )
        assert status == 0, text
        found = json.loads(text.splitlines()[0])["result"]["structuredContent"]
        assert expected is None or found == {"result": expected}


# -- curl ------------------------------------------------------------------------------------------


class Curl:
    """curl, with what each request to our server needs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.heads = folder / "heads"

    async def post(self, message: dict[str, Any], *fields: str) -> tuple[int, str]:
        """The status of the response to a message, and its body."""
        body = json.dumps({"jsonrpc": "2.0", **message})
        return await self.run(
            *("-H", "Content-Type: application/json", "-H", ACCEPT, "--data-binary", body),
            *(part for field in fields for part in ("-H", field)),
        )

    async def run(self, *arguments: str) -> tuple[int, str]:
        program = shutil.which("curl")
        assert program is not None, "no curl"
        write = ["-s", "-D", str(self.heads), "-w", "\\n%{http_code}"]
        status, text = await said(program, *write, *arguments, self.url)
        assert status == 0, text
        body, _, code = text.rpartition("\n")
        return int(code), body

    def field(self, name: str) -> str | None:
        """A header field of the last response."""
        for line in self.heads.read_text().splitlines():
            found, _, value = line.partition(":")
            if found.lower() == name:
                return value.strip()
        return None


def modern(method: str, **params: Any) -> tuple[dict[str, Any], list[str]]:
    """A request of 2026-07-28, and its header fields."""
    meta = META | params.pop("_meta", {})
    fields = [f"MCP-Protocol-Version: {pairings.MODERN}", f"Mcp-Method: {method}"]
    if "name" in params:
        fields.append(f"Mcp-Name: {params['name']}")
    return {"id": 1, "method": method, "params": {**params, "_meta": meta}}, fields


@pytest.mark.parametrize("peer", ["curl"])
async def test_curl_in_the_modern_era(peer: str, tmp_path: Path) -> None:
    async with pairings.listening(None, pairings.OUR_SERVER, (), "http") as url:
        curl = Curl(url, tmp_path)
        message, fields = modern("tools/call", name="add", arguments={"a": 2, "b": 3})
        status, text = await curl.post(message, *fields)
        assert (status, curl.field("content-type")) == (200, "application/json")
        assert json.loads(text)["result"]["structuredContent"] == {"result": 5}
        status, text = await curl.post(message, *fields[:-1])  # without Mcp-Name
        assert (status, json.loads(text)["error"]["code"]) == (400, -32020)
        message, fields = modern(
            "tools/call", name="count", arguments={"n": 2}, _meta={"progressToken": 1}
        )
        status, text = await curl.post(message, *fields)
        assert (status, curl.field("content-type")) == (200, "text/event-stream")
        data = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
        assert [event.get("method", "answer") for event in data] == [
            *["notifications/progress"] * 2,
            "answer",
        ]
        status, text = await curl.post({"id": 1, "method": "initialize"}, *fields[:1])
        assert status == 400
        status, _ = await curl.run("-X", "DELETE")
        assert status in (400, 405)


@pytest.mark.parametrize("peer", ["curl"])
async def test_curl_in_the_legacy_era(peer: str, tmp_path: Path) -> None:
    async with pairings.listening(None, pairings.OUR_SERVER, (), "http") as url:
        curl = Curl(url, tmp_path)
        params = {
            "protocolVersion": pairings.LATEST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "curl", "version": "8"},
        }
        status, text = await curl.post({"id": 0, "method": "initialize", "params": params})
        assert status == 200
        assert json.loads(text)["result"]["protocolVersion"] == pairings.LATEST_LEGACY
        session = f"Mcp-Session-Id: {curl.field('mcp-session-id')}"
        status, text = await curl.post({"method": "notifications/initialized"}, session)
        assert (status, text) == (202, "")
        call = {"name": "add", "arguments": {"a": 2, "b": 3}}
        message = {"id": 1, "method": "tools/call", "params": call}
        status, text = await curl.post(message, session)
        assert (status, json.loads(text)["result"]["structuredContent"]) == (200, {"result": 5})
        assert (await curl.post(message))[0] == 400
        assert (await curl.run("-X", "DELETE", "-H", session))[0] in (200, 204)
        assert (await curl.post(message, session))[0] == 404
