"""A proxy whose configuration changes while clients are there."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab.proxy import BACKEND, MODERN, Raw

from wirespeed import Client, Stdio
from wirespeed.proxy import BackendConfig, Changes, Proxy, ProxyConfig


class ReloadLab:
    """A proxy with servers of the proxy's lab, at any URLs.

    Attributes:
        urls: The URLs that clients connect to, of each listener.
    """

    def __init__(
        self,
        folder: Path,
        *servers: BackendConfig,
        listen: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        self.folder = folder
        (folder / "backend.py").write_text(BACKEND)
        self.path = folder / "s"
        listen = listen or (f"unix:{self.path}",)
        self.config = ProxyConfig(backends=servers, listen=listen, ready_within=60.0, **options)
        self.urls: list[tuple[str, ...]] = []
        self.clients: list[Raw] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxy]:
        proxy = self.proxy = Proxy(self.config)
        task = asyncio.ensure_future(proxy.serve(on_listening=self.urls.append))
        while len(self.urls) < len(self.config.listen) and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
        try:
            yield proxy
        finally:
            for client in self.clients:
                await client.close()
            task.cancel()
            await asyncio.wait((task,))

    async def reload(self, *servers: BackendConfig, **fields: Any) -> Changes:
        """Let the proxy have other servers, or other fields of its configuration."""
        if servers:
            fields["backends"] = servers
        return await self.proxy.reload(dataclasses.replace(self.proxy.config, **fields))

    async def connect(self, version: str | None = "2025-11-25") -> Raw:
        """A client at the UNIX socket."""
        client = Raw(*await asyncio.open_unix_connection(str(self.path), limit=1 << 24), version)
        self.clients.append(client)
        if version not in (None, MODERN):
            await client.initialize(version)
        return client


def server(
    folder: Path, name: str = "b", *, mark: str = "", versions: str = "", **fields: Any
) -> BackendConfig:
    """A server. Another ``mark`` makes it another one."""
    arguments = ["-S", str(folder / "backend.py"), str(folder / f"seen-{name}")]
    env = {"MARK": mark, "VERSIONS": versions}
    target = Stdio(sys.executable, arguments, env)
    return BackendConfig(target=target, name=name, **{"isolation": "shared", **fields})


async def pid(client: Client, tool: str = "echo") -> int:
    """The process that answers."""
    result = await client.call_tool(tool, {})
    assert result.meta is not None
    found = result.meta["pid"]
    assert isinstance(found, int)
    return found
