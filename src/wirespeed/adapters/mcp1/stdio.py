"""The stdio transports of `mcp` 1.x on links: the descriptors of a server, the child process of a
client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Self, TextIO

import anyio
import mcp.client.stdio as stock_client

from wirespeed.adapters.mcp1.streams import ConnectionEnd, ReadStream, WriteStream
from wirespeed.transport.fd import FdLink, enlarge_pipe
from wirespeed.transport.stdio import (
    PIPE_SIZE,
    FileLink,
    claimed,
    non_blocking,
    pollable,
    same_file,
    write_rest,
)
from wirespeed.transport.taskpool_choice import LAST_WAIT

if TYPE_CHECKING:
    from mcp.client.stdio import StdioServerParameters

    from wirespeed.transport.link import Link

Streams = tuple[ReadStream, WriteStream]


def on_asyncio() -> bool:
    """Whether the caller runs in a task of asyncio: on trio the stock transports serve."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def own_descriptors() -> bool:
    """Whether ``sys.stdin`` and ``sys.stdout`` are those of the process, which nobody replaced."""
    try:
        return sys.stdin.fileno() == 0 and sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


@contextlib.asynccontextmanager
async def serve_stdio_streams(make_end: Callable[[str], ConnectionEnd]) -> AsyncIterator[Streams]:
    """The streams of a server to the client at descriptors 0 and 1."""
    loop = asyncio.get_running_loop()
    with claimed() as (read_fd, write_fd), contextlib.ExitStack() as stack:
        end = make_end("server")
        link: Link
        # stderr on the same pipe would become non-blocking, too, and lose lines of the log
        shared = sys.__stderr__ is not None and same_file(write_fd, 2)
        if pollable(read_fd) and pollable(write_fd) and not shared:
            stack.enter_context(non_blocking(read_fd, write_fd))
            enlarge_pipe(read_fd, PIPE_SIZE)
            enlarge_pipe(write_fd, PIPE_SIZE)
            link = FdLink(loop, end, read_fd, write_fd)
        else:
            link = FileLink(loop, end, read_fd, write_fd)
        link.start()
        try:
            yield end.streams()
        finally:
            rest = []
            if end.link is not None:
                link.flush()
                rest = end.wire.data_to_send()
            if end.link is not None:
                link.close()
            if isinstance(link, FileLink):
                link.join(LAST_WAIT)
            write_rest(write_fd, rest, LAST_WAIT)


@contextlib.asynccontextmanager
async def child_streams(
    server: StdioServerParameters, errlog: TextIO, make_end: Callable[[str], ConnectionEnd]
) -> AsyncIterator[Streams]:
    """The streams of a client to a server that is started as a child process.

    The process is started, awaited and ended as by the stock transport, whose functions are
    called. Its pipes are ours.
    """
    environ = stock_client.get_default_environment() | (server.env or {})
    command = stock_client._get_executable_command(server.command)
    with Pipes() as pipes:
        process = await anyio.open_process(
            [command, *server.args],
            stdin=pipes.their_stdin,
            stdout=pipes.their_stdout,
            stderr=errlog,
            env=environ,
            cwd=server.cwd,
            start_new_session=True,
        )
        pipes.close(pipes.their_stdin, pipes.their_stdout)
        end = make_end("client")
        link = FdLink(asyncio.get_running_loop(), end, pipes.stdout, pipes.stdin)
        link.start()
        async with process:
            try:
                yield end.streams()
            finally:
                if end.link is not None:
                    link.flush()
                if end.link is not None:
                    link.close()
                pipes.close(pipes.stdin)
                await finish(process)


class Pipes:
    """The pipes to a child's stdin and from its stdout. What is open at the end is closed."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def __enter__(self) -> Self:
        self.their_stdin, self.stdin = os.pipe()
        self.open |= {self.their_stdin, self.stdin}
        self.stdout, self.their_stdout = os.pipe()
        self.open |= {self.stdout, self.their_stdout}
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        return self

    def close(self, *fds: int) -> None:
        for fd in fds:
            self.open.discard(fd)
            os.close(fd)

    def __exit__(self, *exc: object) -> None:
        self.close(*self.open)


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
        ours = on_asyncio() and server.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
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
