"""The stdio transports of `mcp` 1.x on links: the descriptors of a server, the child process of a
client."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import mcp.client.stdio as stock_client

from wirespeed.adapters.descriptors import (
    ChildPipes,
    close_link,
    on_asyncio,
    own_descriptors,
    server_links,
)
from wirespeed.adapters.mcp1.streams import ConnectionEnd, ReadStream, WriteStream
from wirespeed.adapters.programs import of_child
from wirespeed.transport.fd import FdLink

if TYPE_CHECKING:
    from mcp.client.stdio import StdioServerParameters

Streams = tuple[ReadStream, WriteStream]

# A program that has put another function in this place starts its servers by itself.
_stock_launch = stock_client._create_platform_compatible_process


@contextlib.asynccontextmanager
async def serve_stdio_streams(make_end: Callable[[str], ConnectionEnd]) -> AsyncIterator[Streams]:
    """The streams of a server to the client at descriptors 0 and 1."""
    with server_links() as make_link:
        end = make_end("server")
        make_link(end).start()
        yield end.streams()


@contextlib.asynccontextmanager
async def child_streams(
    server: StdioServerParameters, errlog: TextIO, make_end: Callable[[str], ConnectionEnd]
) -> AsyncIterator[Streams]:
    """The streams of a client to a server that is started as a child process.

    The process is started, awaited and ended as by the stock transport, whose functions are
    called. Its pipes are ours.
    """
    environ = of_child(stock_client.get_default_environment() | (server.env or {}))
    command = stock_client._get_executable_command(server.command)
    with ChildPipes() as pipes:
        process = await pipes.start([command, *server.args], environ, server.cwd, errlog)
        end = make_end("client")
        link = FdLink(asyncio.get_running_loop(), end, pipes.stdout, pipes.stdin)
        link.start()
        async with process:
            try:
                yield end.streams()
            finally:
                close_link(link)
                pipes.close(pipes.stdin)
                await finish(process)


def server_transport(stock: Any) -> Any:
    """Makes the replacement of `stdio_server`."""

    @contextlib.asynccontextmanager
    async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[Any]:
        ours = stdin is None and stdout is None and on_asyncio() and own_descriptors()
        transport = serve_stdio_streams(ConnectionEnd) if ours else stock(stdin, stdout)
        async with transport as streams:
            yield streams

    return stdio_server


def client_transport(stock: Any) -> Any:
    """Makes the replacement of `stdio_client`."""

    @contextlib.asynccontextmanager
    async def stdio_client(server: Any, errlog: Any = sys.stderr) -> AsyncIterator[Any]:
        launches = stock_client._create_platform_compatible_process is _stock_launch
        utf8 = server.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        ours = launches and utf8 and on_asyncio()
        transport = child_streams(server, errlog, ConnectionEnd) if ours else stock(server, errlog)
        async with transport as streams:
            yield streams

    return stdio_client


async def finish(process: Any) -> None:
    """Wait for the exit of a process whose stdin was closed; else end its process group."""
    try:
        with anyio.fail_after(stock_client.PROCESS_TERMINATION_TIMEOUT):
            await process.wait()
    except TimeoutError:
        await stock_client._terminate_process_tree(process)
    except ProcessLookupError:
        pass
