"""A pytest plugin that puts the adapter below FastMCP's own tests (`run.py` uses it).

Each pair of streams in memory is a socket pair, which the dispatchers of the adapter take. The
transports of stdio are those of `install()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator
from typing import Any

from mcp.shared import memory

from wirespeed.adapters.descriptors import close_link, on_asyncio
from wirespeed.adapters.fastmcp import install
from wirespeed.adapters.mcp.streams import StdioStreams
from wirespeed.adapters.seams import holders
from wirespeed.transport import FdLink


def over_sockets(stock: Any) -> Any:
    @contextlib.asynccontextmanager
    async def streams_over_sockets() -> AsyncIterator[Any]:
        if not on_asyncio():
            async with stock() as streams:
                yield streams
            return
        loop = asyncio.get_running_loop()

        def make_link(fd: int, endpoint: Any) -> FdLink:
            return FdLink(loop, endpoint, fd, fd)

        pairs = []
        socks = socket.socketpair()
        try:
            for role, sock in zip(("client", "server"), socks, strict=True):
                sock.setblocking(False)
                link = functools.partial(make_link, sock.fileno())
                pairs.append(StdioStreams(role, link))
            yield tuple((pair.read, pair.write) for pair in pairs)
        finally:
            for pair in pairs:
                if pair.link is not None:
                    close_link(pair.link)
            for sock in socks:
                sock.close()

    return streams_over_sockets


wired = over_sockets(memory.create_client_server_memory_streams)
for module, name in list(holders(memory.create_client_server_memory_streams)):
    setattr(module, name, wired)
if not install():
    raise RuntimeError("the adapter does not know this version of FastMCP")
