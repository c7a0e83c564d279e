"""The stdio transport of a server: descriptors 0 and 1 become the wire of the server alone.

MCP basic/transports/stdio: a server writes nothing but messages to its stdout. The real descriptors
are duplicated and 0 and 1 diverted, so that ``print()`` in a tool, or a child process that inherits
them, writes to stderr and reads nothing.

Descriptors that cannot be polled (regular files and terminals) get a `FileLink`. Two threads do
blocking reads and writes, so that a terminal is never made non-blocking (the shell shares its open
file description) and a regular file never blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import queue
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wirespeed._exports import set_public_home
from wirespeed.errors import TransportError
from wirespeed.transport.fd import FdLink, enlarge_pipe
from wirespeed.transport.link import Endpoint, Link
from wirespeed.transport.service import Alive, service_of
from wirespeed.transport.signals import signals_drain
from wirespeed.transport.taskpool_choice import LAST_WAIT, close_pool, open_pool

if TYPE_CHECKING:
    from wirespeed._core.outbox import Chunk
    from wirespeed.transport.service import Service

READ_SIZE = 128 * 1024


class FileLink(Link):
    """Joins an endpoint to a pair of blocking file descriptors."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint, read_fd: int, write_fd: int
    ) -> None:
        super().__init__(loop, endpoint)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._may_read = threading.Event()
        self._may_read.set()
        self._to_write: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write_all, name="wirespeed-writer", daemon=True
        )
        self._writing = False
        self._lost = False
        self._saw_eof = False

    def start(self) -> None:
        """Begin to read and write."""
        threading.Thread(target=self._read_all, name="wirespeed-reader", daemon=True).start()
        self._writer.start()

    # -- in the threads --------------------------------------------------------------------------

    def _call(self, function: Any, *args: Any) -> bool:
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _read_all(self) -> None:
        while True:
            self._may_read.wait()
            if self._lost:
                return
            try:
                data = os.read(self._read_fd, READ_SIZE)
            except BlockingIOError:  # another process made it non-blocking
                select.select([self._read_fd], [], [])
                continue
            except OSError as exc:
                self._call(self._lose, exc)
                return
            # one read at a time: the session says whether it wants another
            self._may_read.clear()
            if self._lost or not self._call(self._received, data) or not data:
                return

    def _write_all(self) -> None:
        while True:
            chunks = self._to_write.get()
            if chunks is None:
                return
            try:
                for chunk in chunks:
                    view = memoryview(chunk)
                    while view:
                        try:
                            view = view[os.write(self._write_fd, view) :]
                        except BlockingIOError:
                            select.select([], [self._write_fd], [])
            except OSError as exc:
                self._call(self._lose, exc)
                return
            if not self._call(self._written):
                return

    # -- on the loop -----------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._lost:
            return
        wire = self.endpoint.wire
        try:
            if data:
                wire.receive_data(data)
            else:
                self._saw_eof = True
                wire.receive_eof()
            self.deliver()
            if not data and not self._lost:
                self.ended()
        except Exception as exc:
            self.failed(exc)

    def update_reading(self) -> None:
        if self._saw_eof or self._lost or self.closing or not self.endpoint.wire.want_read:
            return
        self._may_read.set()

    def flush(self) -> None:
        wire = self.endpoint.wire
        if self._writing or self._lost or not len(wire.outbox):
            return
        self._writing = True
        self._to_write.put(wire.data_to_send())

    def _written(self) -> None:
        self._writing = False
        if self._lost:
            return
        try:
            self.flush()
            self.check_drained()
            self.deliver()
        except Exception as exc:
            self.failed(exc)

    @property
    def idle(self) -> bool:
        """Whether everything queued is written."""
        return not self._writing and not len(self.endpoint.wire.outbox)

    def _lose(self, exc: BaseException | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._may_read.set()
        self._to_write.put(None)
        self.detach()
        self.endpoint.on_lost(exc)

    def lose(self, exc: BaseException | None) -> None:
        """Stop now, because of ``exc``; ``on_lost(exc)`` follows at once."""
        self._lose(exc)

    def close(self) -> None:
        """Stop now; ``on_lost(None)`` follows at once."""
        self._lose(None)

    def join(self, seconds: float) -> None:
        """After the end: wait for the end of the last write, so that the descriptors may be
        closed. A write that blocks longer than this is left behind."""
        if self._writer.is_alive():
            self._writer.join(seconds)


# Bytes. Linux lets the pipes of a user have 64 MiB in all, and a user may run many servers.
PIPE_SIZE = 256 * 1024


@contextlib.contextmanager
def claimed() -> Iterator[tuple[int, int]]:
    """Take descriptors 0 and 1 as the wire: (read, write). Both are restored at the end.

    Text that ``print()`` left in the buffer of ``sys.stdout`` goes to stderr. TransportError: the
    process was started without stdin or stdout.
    """
    # not fstat: the loop's own descriptors may have taken the numbers of closed ones
    if sys.__stdin__ is None or sys.__stdout__ is None:
        raise TransportError("stdin and stdout must be open: a client talks to the server there")
    saved_in = _duplicate(0)
    try:
        saved_out = _duplicate(1)
    except BaseException:
        os.close(saved_in)
        raise
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        if sys.__stderr__ is not None:
            os.dup2(2, 1)
        else:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.close(nothing)
        with line_buffered():
            yield saved_in, saved_out
    finally:
        if sys.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()  # text that tools printed: still to stderr
        os.dup2(saved_in, 0)
        os.dup2(saved_out, 1)
        os.close(saved_in)
        os.close(saved_out)


@contextlib.contextmanager
def line_buffered() -> Iterator[None]:
    """Text that tools print appears on stderr line by line, not when a buffer is full."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or out.closed or out.line_buffering:
        yield
        return
    out.reconfigure(line_buffering=True)
    try:
        yield
    finally:
        if not out.closed:
            with contextlib.suppress(OSError):  # it flushes
                out.reconfigure(line_buffering=False)


def _duplicate(fd: int) -> int:
    """A duplicate above the standard descriptors, not inherited by children."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def pollable(fd: int) -> bool:
    """Whether a descriptor can be read or written without blocking, and made so safely: a pipe or
    a socket. Not a terminal, whose mode the user's shell shares, nor a file."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def same_file(a: int, b: int) -> bool:
    """Whether two descriptors are open on the same thing."""
    try:
        one, two = os.fstat(a), os.fstat(b)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


@contextlib.contextmanager
def non_blocking(*fds: int) -> Iterator[None]:
    """Make descriptors non-blocking; restore their modes at the end."""
    before = {fd: os.get_blocking(fd) for fd in fds}
    try:
        for fd in fds:
            os.set_blocking(fd, False)
        yield
    finally:
        for fd, blocking in before.items():
            with contextlib.suppress(OSError):
                os.set_blocking(fd, blocking)


async def serve_stdio(server: Any) -> None:
    """Serve the client at stdin and stdout until it closes stdin, or a signal comes.

    StartupError: the lifespan of the server failed.
    """
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None:
        name = getattr(server, "name", "the server")
        sys.stderr.write(
            f"wirespeed: {name} waits on stdin for the messages of a host; Ctrl-D ends it\n"
        )
    with claimed() as (read_fd, write_fd):
        service: Service = service_of(server)
        async with Alive((service,)):
            await _serve(service, read_fd, write_fd)


async def _serve(service: Service, read_fd: int, write_fd: int) -> None:
    loop = asyncio.get_running_loop()
    pool = open_pool(loop)
    with contextlib.ExitStack() as stack:
        # stderr on the same pipe would become non-blocking, too, and lose lines of the log
        shared = sys.__stderr__ is not None and same_file(write_fd, 2)
        polled = pollable(read_fd) and pollable(write_fd) and not shared
        if polled:
            stack.enter_context(non_blocking(read_fd, write_fd))
            enlarge_pipe(read_fd, PIPE_SIZE)
            enlarge_pipe(write_fd, PIPE_SIZE)
            connection = service.connect(
                lambda endpoint: FdLink(loop, endpoint, read_fd, write_fd), loop=loop, pool=pool
            )
        else:
            connection = service.connect(
                lambda endpoint: FileLink(loop, endpoint, read_fd, write_fd), loop=loop, pool=pool
            )
        stack.enter_context(signals_drain(loop, connection))
        link = connection.link
        assert link is not None  # `connect` made it
        rest: list[Chunk] = []
        try:
            link.start()
            fault = await connection.closed
        finally:
            if connection.link is not None:  # cancelled: queued answers still leave
                link.flush()
                rest = link.endpoint.wire.data_to_send()
                connection.abort()
            await close_pool(pool)
            if isinstance(link, FileLink):
                link.join(LAST_WAIT)
            write_rest(write_fd, rest, LAST_WAIT)
    if isinstance(fault, OSError) and not isinstance(fault, ConnectionError):
        raise TransportError(f"the client cannot be served over stdin and stdout: {fault}")


def write_rest(fd: int, chunks: list[Chunk], seconds: float) -> None:
    """Write the output that was queued at the end of the service: all of it, unless the client is
    gone or has not read it after some seconds. The loop, which is about to end, does nothing else
    meanwhile."""
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    if not select.select([], [fd], [], max(0.0, end - time.monotonic()))[1]:
                        return


set_public_home(globals())
