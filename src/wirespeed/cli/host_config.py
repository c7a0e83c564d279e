"""``wirespeed config``: the entry of a server in the configuration of an MCP host."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from wirespeed.cli import modules
from wirespeed.cli.failures import Exit, usage
from wirespeed.cli.targets import check_file, is_url
from wirespeed.client.targets import from_file, python_file
from wirespeed.transport.address import parse

_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]+")


def config(word: str, *, key: str | None, vscode: bool) -> int:
    """Print the JSON object that a host needs to start ``FILE.py[:NAME]``, or to reach a URL.

    Failure (2 or 3): the file cannot be served, the URL is not one of HTTP or WebSocket, or the key
    is not valid.
    """
    if key is not None and (not key or _UNUSUAL.search(key)):
        raise usage("--key: letters, digits, - and _ only, because hosts refuse other characters")
    if is_url(word):
        name, entry = "server", _reached(word)
    else:
        name, entry = _started(word, vscode)
    if key is None:
        key = _UNUSUAL.sub("-", name).strip("-") or "server"
    whole = {"servers" if vscode else "mcpServers": {key: entry}}
    sys.stdout.write(json.dumps(whole, indent=2) + "\n")
    return Exit.OK


def _reached(url: str) -> dict[str, Any]:
    """The entry of a server elsewhere. Failure (2): hosts reach no such URL."""
    try:
        address = parse(url)
    except ValueError as exc:
        raise usage(str(exc)) from None
    if not address.has_paths:
        raise usage("hosts reach servers at http://, https://, ws:// and wss:// URLs only")
    return {"type": "ws" if address.is_websocket else "http", "url": url}


def _started(word: str, vscode: bool) -> tuple[str, dict[str, Any]]:
    """The name and the entry of the server of a file."""
    from wirespeed.transport.stdio import claimed

    path, name = python_file(word) or (word, None)
    check_file(path)
    with claimed():  # the import of the file must not write into the JSON
        module = modules.load(path)
        served = modules.pick(module, path, name)
    assert not isinstance(served, dict)
    absolute = os.path.abspath(path)
    target = from_file(absolute if name is None else f"{absolute}:{name}")
    assert target is not None
    entry: dict[str, Any] = {"command": os.path.abspath(target.command), "args": list(target.args)}
    return served.name, {"type": "stdio", **entry} if vscode else entry
