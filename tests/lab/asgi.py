"""A server of ASGI in this process: what it gives to an application, and what it gets back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

FOREVER = 20.0
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def message(method: str, params: Any = None, *, modern: bool = True, id: Any = 1) -> bytes:
    """A request; a notification without an id."""
    params = dict(params or {})
    if modern:
        params["_meta"] = META | params.pop("_meta", {})
    found: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        found["id"] = id
    return json.dumps(found).encode()


class Request:
    """One request to an application.

    Args:
        app: The application.
        pieces: The body, in pieces.
        scope: Members of the scope besides the usual ones.
        fields: Header fields; ``_`` stands for ``-``, None leaves one out.
    """

    def __init__(
        self,
        app: Any,
        method: str = "POST",
        path: str = "/mcp",
        *pieces: bytes,
        scope: dict[str, Any] | None = None,
        **fields: str | None,
    ) -> None:
        usual: dict[str, str | None] = {
            "host": "tools.example",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        if len(pieces) <= 1:
            usual["content-length"] = str(sum(map(len, pieces)))
        usual |= {name.replace("_", "-").lower(): value for name, value in fields.items()}
        path, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.encode(), value.encode())
                for name, value in usual.items()
                if value is not None
            ],
            "client": ("203.0.113.9", 4711),
            "server": ("127.0.0.1", 8000),
            **(scope or {}),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.unread = list(pieces) or [b""]
        self.left = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self._told = asyncio.Event()
        self.task = asyncio.create_task(app(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self.unread:
            body = self.unread.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.unread)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.left.is_set():
            raise OSError("the client is gone")
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            assert all(name == name.lower() for name in self.headers)
        else:
            assert message["type"] == "http.response.body"
            assert self.status
            assert not self.ended
            self.body += message["body"]
            self.ended = not message.get("more_body", False)
        self._told.set()
        await self.may_send.wait()

    async def until(self, words: bytes) -> None:
        """Wait for these bytes of the body."""
        async with asyncio.timeout(FOREVER):
            while words not in self.body:
                self._told.clear()
                await self._told.wait()

    async def whole(self) -> Request:
        """Wait for the end of the application."""
        await asyncio.wait_for(self.task, FOREVER)
        return self

    async def leave(self) -> None:
        """The client leaves."""
        self.left.set()
        await asyncio.wait_for(self.task, FOREVER)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    app: Any,
    name: str,
    arguments: Any,
    *,
    token: str | None = None,
    path: str = "/mcp",
    piece: int | None = None,
    **more: Any,
) -> Request:
    """A call of a tool by a modern client. ``piece``: the bytes of each piece of the body."""
    meta = {} if token is None else {"progressToken": token}
    body = message("tools/call", {"name": name, "arguments": arguments, "_meta": meta})
    size = piece or len(body)
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    fields = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": name}
    return Request(app, "POST", path, *pieces, **{**fields, **more})
