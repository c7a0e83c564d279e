"""A proxy over HTTP, and requests of clients in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab.proxy import ENVELOPE, MODERN, Lab

from wirespeed.proxy import BackendConfig, ClusterConfig, Proxy, ProxyConfig


class Front:
    """A proxy that listens over HTTP, and a client's ``address``."""

    def __init__(
        self, lab: Any, url: str, proxy: Any = None, *, address: str = "127.0.0.1"
    ) -> None:
        self.lab = lab
        self.proxy = proxy
        self.address = address
        self.url = url
        self.path = "/mcp"
        self.port = int(url.split(":")[2].split("/")[0])

    async def post(self, body: Any, *fields: str) -> tuple[int, dict[str, str], Any]:
        """Send one POST on a connection of its own: the status, the fields and the JSON body."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", text, "Content-Type: application/json", *fields)

    async def request(
        self, method: str, body: bytes, *fields: str
    ) -> tuple[int, dict[str, str], Any]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(self.address, 0)
        )
        head = [
            f"{method} {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Accept: application/json, text/event-stream",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *fields,
        ]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        answer = await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        top, _, rest = answer.partition(b"\r\n\r\n")
        lines = top.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:]]
        found = {name.lower(): value for name, value in pairs}
        return int(lines[0].split()[1]), found, json.loads(rest) if rest.startswith(b"{") else rest

    async def initialize(self, id: Any = 1, version: str = "2025-11-25") -> str:
        """Open a session. Returns its id."""
        status, fields, _ = await self.post(hello(id, version))
        assert status == 200
        return fields["mcp-session-id"]


def hello(id: Any = 1, version: str = "2025-11-25") -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    isolation: str,
    versions: str = "",
    others: tuple[BackendConfig, ...] = (),
    delays: dict[str, Any] | None = None,
    cluster: ClusterConfig | None = None,
    **fields: Any,
) -> AsyncIterator[Front]:
    """A proxy over HTTP. ``others``: Further servers. ``cluster``: Of its `ProxyConfig`.
    ``fields``: of its `BackendConfig`."""
    lab = Lab(folder, isolation, versions=versions, delays=delays)
    backend = dataclasses.replace(lab.proxy.config.backends[0], **fields)
    listen = ("http://127.0.0.1:0/mcp",)
    proxy = Proxy(ProxyConfig(backends=(backend, *others), listen=listen, cluster=cluster))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield Front(lab, listening.result(), proxy)
    finally:
        task.cancel()
        await asyncio.wait((task,))


def asked(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": ENVELOPE}}


def fields(method: str, name: str | None = None) -> list[str]:
    found = [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}"]
    return found if name is None else [*found, f"Mcp-Name: {name}"]
