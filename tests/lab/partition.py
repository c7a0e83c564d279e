"""Hosts and a store, among which a network of this machine is cut (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lab.hosts import Deployment, deployed
from lab.store import StoreServer, free_port

STORE = "store"


class Partition:
    """What passes between hosts, and between hosts and the store: all, at first.

    Attributes:
        hosts: The hosts.
        pause: Seconds before a new connection reaches a host.
    """

    def __init__(self, store: StoreServer, hosts: Deployment) -> None:
        self.hosts = hosts
        self.pause = 0.0
        self._store = store
        self._parts: list[set[str]] = []
        self._open: set[tuple[str, str, asyncio.StreamWriter]] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self, *names: str, **options: Any) -> None:
        """Start hosts. One with a mark behind its name, as ``b'``, has the name without it."""
        for name in names:
            port = free_port()
            given = {
                "port": port,
                "store": f"redis://127.0.0.1:{await self._way(name, STORE, 0)}",
                "url": f"http://127.0.0.1:{await self._way(None, name, port)}",
            }
            await self.hosts.begin(name, name.rstrip("'"), **(given | options))

    def cut(self, *parts: set[str]) -> None:
        """Cut the network into parts, in each of which all passes."""
        self._parts = list(parts)
        for source, to, writer in list(self._open):
            if not self._passes(source, to):
                writer.close()

    def heal(self) -> None:
        self._parts = []

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for _, _, writer in self._open:
            writer.close()

    def _passes(self, source: str, to: str) -> bool:
        return not self._parts or any({source, to} <= part for part in self._parts)

    async def _way(self, source: str | None, to: str, port: int) -> int:
        """Open a port that leads to a host or to the store, and return it."""

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sender = source or self._sender(writer)
            await asyncio.sleep(0 if to == STORE else self.pause)
            if not self._passes(sender, to):
                writer.close()
                return
            others = await (
                asyncio.open_connection("127.0.0.1", port)
                if port
                else asyncio.open_unix_connection(self._store.path)
            )
            ends = {(sender, to, writer), (sender, to, others[1])}
            self._open |= ends
            ways = _pass(reader, others[1]), _pass(others[0], writer)
            await asyncio.gather(*ways, return_exceptions=True)
            self._open -= ends

        server = await asyncio.start_server(join, "127.0.0.1", 0)
        self._servers.append(server)
        own: int = server.sockets[0].getsockname()[1]
        return own

    def _sender(self, writer: asyncio.StreamWriter) -> str:
        """The host at the other end of a connection."""
        port = writer.get_extra_info("peername")[1]
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {f"socket:[{row[9]}]" for row in rows if int(row[1].partition(":")[2], 16) == port}
        for name, host in self.hosts.hosts.items():
            for link in Path(f"/proc/{host.process.pid}/fd").glob("*"):
                with contextlib.suppress(OSError):
                    if str(link.readlink()) in inodes:
                        return name
        return ""


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def divided(
    folder: Path, store: StoreServer, *names: str, **options: Any
) -> AsyncIterator[Partition]:
    """Hosts that know each other, whose network can be cut."""
    async with deployed(folder, store.url) as hosts:
        partition = Partition(store, hosts)
        try:
            await partition.start(*names, **options)
            await hosts.know_each_other()
            yield partition
        finally:
            partition.close()
