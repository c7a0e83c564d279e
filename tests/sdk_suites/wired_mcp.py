"""A pytest plugin that puts the adapter below the official SDK's own tests (`run.py` uses it).

A client that the tests connect to a server of the same process talks to it over a socket pair, in
both eras, with our dispatcher at each end. The transports of stdio are those of `install()`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import mcp.client.client as stock_client

from wirespeed.adapters.descriptors import on_asyncio
from wirespeed.adapters.mcp import install
from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
from wirespeed.adapters.mcp.eras import ServedConnection
from wirespeed.transport import FdLink

stock_connector = stock_client._connect_inproc


def make_link(sock: socket.socket) -> Callable[[Any], FdLink]:
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    return lambda endpoint: FdLink(loop, endpoint, sock.fileno(), sock.fileno())


def connect_over_sockets(server: Any) -> Any:
    stock = stock_connector(server)

    async def connect(stack: AsyncExitStack, mode: str, raise_exceptions: bool) -> Any:
        if not on_asyncio():
            return await stock(stack, mode, raise_exceptions)
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        stack.callback(theirs.close)
        state = await stack.enter_async_context(server.lifespan(server))
        group = await stack.enter_async_context(anyio.create_task_group())
        served_end = SdkDispatcher(None, loop, make_link=make_link(theirs))

        async def serve() -> None:
            served = ServedConnection(
                server,
                served_end,
                state,
                init_options=server.create_initialization_options(),
                raise_exceptions=raise_exceptions,
            )
            try:
                await served_end.serve_until_closed()
            finally:
                await served.aclose()

        group.start_soon(serve)
        stack.callback(group.cancel_scope.cancel)
        return SdkDispatcher(None, loop, role="client", make_link=make_link(ours))

    return connect


stock_client._connect_inproc = connect_over_sockets
if not install():
    raise RuntimeError("the adapter does not know this version of the SDK")
