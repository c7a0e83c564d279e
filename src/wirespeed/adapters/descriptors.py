"""The descriptors of stdio under an SDK: 0 and 1 of a server, the pipes to a client's child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

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
    from wirespeed._core.outbox import Chunk
    from wirespeed.transport.link import Link


def on_asyncio() -> bool:
    """Whether the caller runs in a task of asyncio: on trio the SDK's own transports serve."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def own_descriptors() -> bool:
    """Whether ``sys.stdin`` and ``sys.stdout`` are those of the process, which nobody replaced."""
    try:
        os.fstat(2)  # where what handlers print goes
        return sys.stdin.buffer.fileno() == 0 and sys.stdout.buffer.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


@contextlib.contextmanager
def server_links() -> Iterator[Callable[[Any], Link]]:
    """The function that makes the link of an endpoint over descriptors 0 and 1; the caller starts
    it. At the end it is closed, when the client has read the output or does not read."""
    loop = asyncio.get_running_loop()
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
            kind = FdLink if polled else FileLink
            links.append(kind(loop, endpoint, read_fd, write_fd))
            return links[-1]

        rest: list[Chunk] = []
        try:
            yield make_link
        finally:
            for link in links:
                rest += close_link(link)
                if isinstance(link, FileLink):
                    link.join(LAST_WAIT)
            write_rest(write_fd, rest, LAST_WAIT)


def close_link(link: Link) -> list[Chunk]:
    """Send as much as the peer reads at once, and close. Returns the rest of the output."""
    rest: list[Chunk] = []
    endpoint = link.endpoint
    if endpoint.link is link:
        link.flush()
        if endpoint.link is link:
            rest = endpoint.wire.data_to_send()
            link.close()
    return rest


class ChildPipes:
    """The pipes to a child's stdin and from its stdout. Those that are open at the end are
    closed."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def __enter__(self) -> Self:
        self.their_stdin, self.stdin = os.pipe()
        self.open |= {self.their_stdin, self.stdin}
        try:
            self.stdout, self.their_stdout = os.pipe()
        except OSError:  # there are too many open files
            self.close(*self.open)
            raise
        self.open |= {self.stdout, self.their_stdout}
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        return self

    async def start(
        self, command: Sequence[str], environ: Mapping[str, str], cwd: Any, stderr: TextIO
    ) -> Any:
        """Start the child, as both generations of the SDK do: a process of anyio."""
        import anyio

        process = await anyio.open_process(
            command,
            stdin=self.their_stdin,
            stdout=self.their_stdout,
            stderr=stderr,
            env=environ,
            cwd=cwd,
            start_new_session=True,
        )
        self.close(self.their_stdin, self.their_stdout)
        return process

    def close(self, *fds: int) -> None:
        """Close some of the descriptors."""
        for fd in fds:
            if fd in self.open:
                self.open.discard(fd)
                os.close(fd)

    def __exit__(self, *exc: object) -> None:
        self.close(*self.open)
