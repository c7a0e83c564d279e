"""The stdio transports of the SDK on links: the descriptors of a server, the child of a client."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import mcp.client.stdio as stock_client
import mcp.server.stdio as stock_server

from wirespeed.adapters.descriptors import ChildPipes, close_link, server_links
from wirespeed.adapters.mcp.streams import ReadStream, StdioStreams, WriteStream
from wirespeed.adapters.programs import of_child
from wirespeed.transport.fd import FdLink

if TYPE_CHECKING:
    from mcp.client.stdio import StdioServerParameters

    from wirespeed.transport.link import Link

Streams = tuple[ReadStream, WriteStream]

# A program that has put another function in this place starts its servers by itself.
_stock_launch = stock_client._create_platform_compatible_process


def is_usual(server: StdioServerParameters) -> bool:
    """Whether a server is started as the SDK starts it, and writes UTF-8."""
    launches = stock_client._create_platform_compatible_process is _stock_launch
    return launches and server.encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def is_claimed() -> bool:
    """Whether another server of this process uses stdin and stdout."""
    return bool(stock_server._claims)


@contextlib.asynccontextmanager
async def serve_stdio_streams() -> AsyncIterator[Streams]:
    """The streams of a server to the client at descriptors 0 and 1."""
    with stock_server._claims_lock:
        for fd in (0, 1):  # so that the stock transport refuses them
            stock_server._claims[fd] = stock_server._StreamClaim(fd)
    try:
        with server_links() as make_link:
            streams = StdioStreams("server", make_link)
            yield streams.read, streams.write
    finally:
        with stock_server._claims_lock:
            for fd in (0, 1):
                del stock_server._claims[fd]


@contextlib.asynccontextmanager
async def child_streams(server: StdioServerParameters, errlog: TextIO) -> AsyncIterator[Streams]:
    """The streams of a client to a server that is started as a child process.

    The process is started, awaited and ended as by the stock transport, whose functions are
    called. Its pipes are ours.
    """
    loop = asyncio.get_running_loop()
    command = await stock_client._get_executable_command(server.command)
    with ChildPipes() as pipes:
        environ = of_child(stock_client.get_default_environment() | (server.env or {}))
        process = await pipes.start([command, *server.args], environ, server.cwd, errlog)
        links: list[Link] = []

        def make_link(endpoint: Any) -> Link:
            link = FdLink(loop, endpoint, pipes.stdout, pipes.stdin)
            links.append(link)
            return link

        streams = StdioStreams("client", make_link)
        try:
            yield streams.read, streams.write
        finally:
            with anyio.CancelScope(shield=True):
                for link in links:
                    close_link(link)
                pipes.close(pipes.stdin)
                await finish(process, pipes.stdout)


async def finish(process: Any, stdout: int) -> None:
    """Wait for the exit of a process whose stdin was closed; else end its process group."""
    loop = asyncio.get_running_loop()
    loop.add_reader(stdout, _drain, loop, stdout)  # it may be writing still
    try:
        seconds = stock_client.PROCESS_TERMINATION_TIMEOUT
        if not await stock_client._wait_for_process_exit(process, seconds):
            await stock_client._terminate_process_tree(process)
            if not await stock_client._wait_for_process_exit(process, seconds):
                stock_client.logger.warning("MCP server process %d is still alive", process.pid)
    finally:
        loop.remove_reader(stdout)
        stock_client._close_subprocess_transport(process)


def _drain(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    try:
        if not os.read(fd, 65536):
            loop.remove_reader(fd)
    except BlockingIOError:
        pass
    except OSError:
        loop.remove_reader(fd)
