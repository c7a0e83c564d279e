"""Proxies whose clients have names and tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from lab.merge import MergeLab
from lab.proxy import ENVELOPE

from wirespeed import Client, Http, WebSocket
from wirespeed.auth import hash_token, new_token
from wirespeed.proxy import (
    PrincipalConfig,
    ToolRules,
)
from wirespeed.transport.address import parse

TOKENS = {name: new_token() for name in ("anne", "bob", "root")}


def principal(name: str, **fields: Any) -> PrincipalConfig:
    digits = hash_token(TOKENS[name]).removeprefix("sha256:")
    return PrincipalConfig(name=name, token_sha256=digits, **fields)


PRINCIPALS = (
    principal("anne", servers=("a",), tools=ToolRules(allow=("a_who", "a_s*"), deny=("*secret",))),
    principal("bob", servers=("b",)),
    principal("root"),
)


def target(url: str, name: str, path: str | None = None) -> Any:
    if path is not None:
        address = parse(url)
        url = f"{address.scheme}://{address.host}:{address.port}{path}"
    kind = WebSocket if url.startswith("ws") else Http
    return kind(url, token=TOKENS[name])


@contextlib.asynccontextmanager
async def client(url: str, name: str, era: Any, path: str | None = None) -> AsyncIterator[Client]:
    async with Client(target(url, name, path), era=era) as one:
        yield one


@contextlib.asynccontextmanager
async def serving(
    folder: Path, scheme: str, isolation: str = "shared", **options: Any
) -> AsyncIterator[str]:
    """Two servers, ``a`` and ``b``, behind one endpoint. Gives its URL."""
    lab = MergeLab(folder, principals=PRINCIPALS, **options)
    lab.backends = [lab.inside(name, isolation=isolation) for name in ("a", "b")]
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        yield next(url for url in urls if url.endswith("/mcp"))


class Requests:
    """Sends requests over HTTP as text, on one connection that is kept."""

    def __init__(self, url: str) -> None:
        self.address = parse(url)

    async def __aenter__(self) -> Self:
        assert self.address.port is not None
        streams = await asyncio.open_connection(self.address.host, self.address.port)
        self.reader, self.writer = streams
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def stream(self, name: str, path: str, kind: str) -> None:
        """Open a stream: the GET of a session, or ``subscriptions/listen``."""
        if kind == "listen":
            body, *fields = modern("subscriptions/listen", notifications={"toolsListChanged": True})
            status, _ = await self._send("POST", body, name, *fields, path=path)
        else:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
            _, found, _ = await self.post(body, name, path=path)
            session = f"Mcp-Session-Id: {found['mcp-session-id']}"
            status, _ = await self._send("GET", "", name, session, path=path)
        assert status == 200

    async def post(
        self, body: str, name: str | None, *fields: str, path: str = "/mcp"
    ) -> tuple[int, dict[str, str], Any]:
        """The status, the header fields and the body. ``name``: whose token is sent."""
        status, found = await self._send("POST", body, name, *fields, path=path)
        text = await self.reader.readexactly(int(found.get("content-length", "0")))
        return status, found, json.loads(text) if text[:1] in b"{[" else text

    async def _send(
        self, method: str, body: str, name: str | None, *fields: str, path: str
    ) -> tuple[int, dict[str, str]]:
        """The status and the header fields."""
        token = [] if name is None else [f"Authorization: Bearer {TOKENS.get(name, name)}"]
        head = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body.encode())}",
            *token,
            *fields,
        ]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body.encode())
        top = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = {
            name.lower(): value for name, value in (line.split(": ", 1) for line in top[1:] if line)
        }
        return int(top[0].split()[1]), found


def modern(method: str, **params: Any) -> tuple[str, ...]:
    """A request of 2026-07-28: its body and its header fields."""
    params["_meta"] = ENVELOPE
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    fields = ["MCP-Protocol-Version: 2026-07-28", f"Mcp-Method: {method}"]
    return body, *fields, *([f"Mcp-Name: {params['name']}"] if "name" in params else [])


INFO = {"name": "raw", "version": "1"}
