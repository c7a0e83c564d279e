"""A pytest plugin that puts the adapter below the tests of `mcp` 1.x (`run.py` uses it).

Each pair of streams in memory is a socket pair, with an end of ours at both sides. The transports
of stdio are those of `install()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from mcp.shared import memory

from wirespeed.adapters.descriptors import close_link, on_asyncio
from wirespeed.adapters.mcp1 import install
from wirespeed.adapters.mcp1.streams import ConnectionEnd
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
        with contextlib.ExitStack() as stack:
            ends = []
            for role, sock in zip(("client", "server"), socket.socketpair(), strict=True):
                stack.callback(sock.close)
                sock.setblocking(False)
                end = ConnectionEnd(role)
                end.lost.add_done_callback(lambda _, sock=sock: sock.close())
                link = FdLink(loop, end, sock.fileno(), sock.fileno())
                stack.callback(close_link, link)
                link.start()
                ends.append(end)
            yield tuple(end.streams() for end in ends)

    return streams_over_sockets


wired = over_sockets(memory.create_client_server_memory_streams)
for module, name in list(holders(memory.create_client_server_memory_streams)):
    setattr(module, name, wired)
if not install():
    raise RuntimeError("the adapter does not know this version of the SDK")
