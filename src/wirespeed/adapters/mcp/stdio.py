"""The stdio transports of the SDK on links: the descriptors of a server, the child of a client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Self, TextIO

import anyio
import mcp.client.stdio as stock_client
import mcp.server.stdio as stock_server

from wirespeed.adapters.mcp.streams import ReadStream, StdioStreams, WriteStream
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

    from wirespeed._core.outbox import Chunk
    from wirespeed.transport.link import Link

Streams = tuple[ReadStream, WriteStream]
Missing = Callable[[object, str], AttributeError]

# A program that has put another function in this place starts its servers by itself.
_stock_launch = stock_client._create_platform_compatible_process


def is_usual(server: StdioServerParameters) -> bool:
    """Whether a server is started as the SDK starts it, and writes UTF-8."""
    launches = stock_client._create_platform_compatible_process is _stock_launch
    return launches and server.encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def own_descriptors() -> bool:
    """Whether ``sys.stdin`` and ``sys.stdout`` are those of the process, which nobody has replaced
    or claimed."""
    if stock_server._claims:
        return False
    try:
        os.fstat(2)  # where what handlers print goes
        return sys.stdin.buffer.fileno() == 0 and sys.stdout.buffer.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


@contextlib.asynccontextmanager
async def serve_stdio_streams(missing: Missing) -> AsyncIterator[Streams]:
    """The streams of a server to the client at descriptors 0 and 1."""
    loop = asyncio.get_running_loop()
    with stock_server._claims_lock:
        for fd in (0, 1):  # so that the stock transport refuses them
            stock_server._claims[fd] = stock_server._StreamClaim(fd)
    try:
        with claimed() as (read_fd, write_fd), contextlib.ExitStack() as stack:
            # stderr on the same pipe would become non-blocking, too, and lose lines of the log
            shared = sys.__stderr__ is not None and same_file(write_fd, 2)
            polled = pollable(read_fd) and pollable(write_fd) and not shared
            if polled:
                stack.enter_context(non_blocking(read_fd, write_fd))
                enlarge_pipe(read_fd, PIPE_SIZE)
                enlarge_pipe(write_fd, PIPE_SIZE)
            links: list[Link] = []

            def make_link(endpoint: Any) -> Link:
                link: Link
                if polled:
                    link = FdLink(loop, endpoint, read_fd, write_fd)
                else:
                    link = FileLink(loop, endpoint, read_fd, write_fd)
                links.append(link)
                return link

            streams = StdioStreams("server", make_link, missing)
            rest: list[Chunk] = []
            try:
                yield streams.read, streams.write
            finally:
                for link in links:
                    rest += close_link(link)
                    if isinstance(link, FileLink):
                        link.join(LAST_WAIT)
                write_rest(write_fd, rest, LAST_WAIT)
    finally:
        with stock_server._claims_lock:
            for fd in (0, 1):
                del stock_server._claims[fd]


def close_link(link: Link) -> list[Chunk]:
    """Send what the peer reads at once, and close. Returns the rest of the output."""
    rest: list[Chunk] = []
    endpoint = link.endpoint
    if endpoint.link is link:
        link.flush()
        if endpoint.link is link:
            rest = endpoint.wire.data_to_send()
            link.close()
    return rest


@contextlib.asynccontextmanager
async def child_streams(
    server: StdioServerParameters, errlog: TextIO, missing: Missing
) -> AsyncIterator[Streams]:
    """The streams of a client to a server that is started as a child process.

    The process is started, awaited and ended as by the stock transport, whose functions are
    called. Its pipes are ours.
    """
    loop = asyncio.get_running_loop()
    command = await stock_client._get_executable_command(server.command)
    with _Pipes() as pipes:
        process = await anyio.open_process(
            [command, *server.args],
            stdin=pipes.their_stdin,
            stdout=pipes.their_stdout,
            stderr=errlog,
            env=stock_client.get_default_environment() | (server.env or {}),
            cwd=server.cwd,
            start_new_session=True,
        )
        pipes.close(pipes.their_stdin, pipes.their_stdout)
        links: list[Link] = []

        def make_link(endpoint: Any) -> Link:
            link = FdLink(loop, endpoint, pipes.stdout, pipes.stdin)
            links.append(link)
            return link

        streams = StdioStreams("client", make_link, missing)
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


class _Pipes:
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
        """Close some of the descriptors."""
        for fd in fds:
            if fd in self.open:
                self.open.discard(fd)
                os.close(fd)

    def __exit__(self, *exc: object) -> None:
        self.close(*self.open)
