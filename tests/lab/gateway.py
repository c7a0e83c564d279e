"""A proxy in this process in front of servers of this process, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from lab.principals import TOKENS

from wirespeed import Client, Http, WebSocket
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.transport.address import parse


class Gateway:
    """A proxy that serves.

    Attributes:
        url: Of the endpoint of all servers.
        admin_port: Of the admin listener, if there is one.
    """

    def __init__(self, proxy: Proxy, url: str, admin_port: int) -> None:
        self.proxy = proxy
        self.url = url
        self.admin_port = admin_port

    def place(self, path: str) -> str:
        """The URL of another path."""
        address = parse(self.url)
        return f"{address.scheme}://{address.host}:{address.port}{path}"

    @contextlib.asynccontextmanager
    async def client(
        self, name: str | None = None, era: Any = "modern", path: str = "/mcp", **options: Any
    ) -> AsyncIterator[Client]:
        """A client, of a principal."""
        kind = WebSocket if self.url.startswith("ws") else Http
        target = kind(self.place(path), token=None if name is None else TOKENS[name])
        async with Client(target, era=era, **options) as one:
            yield one


@contextlib.asynccontextmanager
async def gateway(
    *backends: BackendConfig, listen: str = "http://127.0.0.1:0/mcp", **options: Any
) -> AsyncIterator[Gateway]:
    """Serve these servers at one address. Options are those of `ProxyConfig`."""
    proxy = Proxy(ProxyConfig(backends=backends, listen=(listen,), **options))
    found: list[str] = []
    complete = asyncio.Event()

    def on_listening(urls: tuple[str, ...]) -> None:
        found.extend(urls)
        has_admin = any(one.endswith("/") for one in found)
        if any(one.endswith("/mcp") for one in found) and (has_admin or proxy.admin is None):
            complete.set()

    task = asyncio.ensure_future(proxy.serve(on_listening=on_listening))
    waiting = asyncio.ensure_future(complete.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    admin = next((one for one in found if one.endswith("/")), "http://none:0/")
    url = next(one for one in found if one.endswith("/mcp"))
    try:
        yield Gateway(proxy, url, int(admin.rstrip("/").rpartition(":")[2]))
    finally:
        task.cancel()
        await asyncio.wait((task,))


def inside(name: str, server: Any, **options: Any) -> BackendConfig:
    """A server of this process."""
    return BackendConfig(target=server, name=name, **{"isolation": "shared", **options})
