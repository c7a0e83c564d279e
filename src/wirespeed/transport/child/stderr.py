"""Reading a child's stderr, so that no write of the child to stderr blocks for ever.

MCP, basic/transports#stdio: stderr is UTF-8 logging that a client may capture, forward or ignore,
and (from 2025-11-25) should not take for a sign of failure. stderr is read in every case, and its
last lines are kept for error messages.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import logging
import os
import re
import select
import threading
from collections.abc import Callable
from typing import IO, Any, Protocol

log = logging.getLogger("wirespeed.stdio")

TAIL_LINES = 20
TAIL_BYTES = 8192
# A longer line reaches a callback in pieces, so that a line without end takes no more memory.
MAX_LINE = 65536

# Bytes that are read in a second. A child that writes more waits, as at any pipe that is full.
MAX_RATE = 1 << 20

# Bytes of the one read in a turn of the loop. Line callbacks get less: 64 Ki empty lines in one
# turn would stall the loop.
_CHUNK = 65536
_LINES_CHUNK = 16384
# Bytes that `finish` reads at most: those of the largest pipe, but not an endless flood of a
# process that outlives the child.
_FINISH_BYTES = 1 << 20

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
del _CONTROLS[9]


class Sink(Protocol):
    """The target of the bytes of a pipe. Exceptions are logged once and never stop the drain."""

    def feed(self, data: memoryview) -> None: ...

    def close(self) -> None:
        """Take notice that the pipe has ended."""


class _Lines:
    """Call a function with each line as str, without its line end."""

    def __init__(self, call: Callable[[str], object]) -> None:
        self._call = call
        self._partial = bytearray()
        self._guard = _Guard("the stderr callback")

    def feed(self, data: memoryview) -> None:
        *lines, rest = bytes(data).split(b"\n")
        for line in lines:
            self._partial += line
            self._cut()
            self._emit(self._partial)
            self._partial.clear()
        self._partial += rest
        self._cut()

    def close(self) -> None:
        if self._partial:
            self._emit(self._partial)
            self._partial.clear()

    def _cut(self) -> None:
        """Emit the front of an overlong line, cut between two characters."""
        partial = self._partial
        while len(partial) > MAX_LINE:
            end = MAX_LINE
            # At most three steps back: bytes that are not UTF-8 are cut, too.
            for _ in range(3):
                end -= partial[end] & 0xC0 == 0x80
            self._emit(partial[:end])
            del partial[:end]

    def _emit(self, line: bytearray) -> None:
        text = line.decode("utf-8", "replace")
        text = text.removesuffix("\r")
        with self._guard:
            self._call(text)


class _TextFile:
    """Decode into a text file, which stays open."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._guard = _Guard("writing the child's stderr")

    def feed(self, data: memoryview) -> None:
        self._write(self._decoder.decode(data))

    def close(self) -> None:
        self._write(self._decoder.decode(b"", True))

    def _write(self, text: str) -> None:
        with self._guard:
            if text:
                self._file.write(text)
                self._file.flush()


class _BinaryFile:
    """Copy bytes into a binary file, which is closed at the end only if it is ours."""

    def __init__(self, file: IO[bytes], owned: bool) -> None:
        self._file = file
        self._owned = owned
        self._guard = _Guard("writing the child's stderr")

    def feed(self, data: memoryview) -> None:
        with self._guard:
            # A raw file may write a part of the data; a file that returns None wrote all of it.
            while data:
                written = self._file.write(data)
                data = data[len(data) if written is None else written :]
            if not self._owned:
                self._file.flush()

    def close(self) -> None:
        if self._owned:
            with self._guard:
                self._file.close()


class _Guard:
    """Suppress exceptions of a user's code, and log the first one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._logged = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _tb: object
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if not self._logged:
            self._logged = True
            log.error("%s failed; further failures are not logged", self._what, exc_info=exc)
        return True


def open_sink(target: Any) -> Sink | None:
    """Return the sink for a ``Stdio.stderr`` other than ``"inherit"``; None for "discard".

    Raises OSError if a path cannot be opened for appending.
    """
    if target == "discard":
        return None
    if isinstance(target, (str, os.PathLike)):
        return _BinaryFile(open(target, "ab", buffering=0), owned=True)
    if isinstance(target, io.TextIOBase) or hasattr(target, "encoding"):
        return _TextFile(target)
    if hasattr(target, "write"):
        return _BinaryFile(target, owned=False)
    return _Lines(target)


class Drain:
    """Read a pipe until its end, and keep the last lines.

    The drain owns ``fd``: it makes ``fd`` non-blocking, and closes it at the end of file or in
    :meth:`close`. All code runs on the thread of the loop, with one bounded read in a turn, so a
    flood neither blocks the writer for ever nor starves the loop. After *max_rate* bytes in a
    period (seconds) the drain reads on in the next one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        sink: Sink | None,
        *,
        max_rate: int = MAX_RATE,
        period: float = 1.0,
    ) -> None:
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd = fd
        self._sink = sink
        self._max_rate = max_rate
        self._period = period
        self._tail = bytearray()
        self._dropped = False
        self._buffer = bytearray(_LINES_CHUNK if isinstance(sink, _Lines) else _CHUNK)
        self._view = memoryview(self._buffer)
        self._since = -period  # the clock of the loop when this period began
        self._count = 0  # bytes of the period
        self._pause: asyncio.TimerHandle | None = None
        self._poller: _Poller | None = None
        try:
            loop.add_reader(fd, self._on_readable)
        except (NotImplementedError, OSError):
            self._poller = _Poller(loop, fd, self._on_readable)

    @property
    def closed(self) -> bool:
        """Whether the end of file was read, or `close` was called."""
        return self._fd < 0

    def lines(self) -> list[str]:
        """Return the last lines, without line ends and terminal escapes: at most 20, 8 KiB."""
        tail = bytes(self._tail)
        if self._dropped:
            # The first line lost its beginning: a part of a line must not look like a whole one.
            cut = tail.find(b"\n", 0, -1) + 1
            tail = tail[cut:] if cut else "…".encode() + tail
        text = _ESCAPES.sub("", tail.decode("utf-8", "replace").removesuffix("\n"))
        if not text:
            return []
        lines = [line.rstrip("\r").translate(_CONTROLS) for line in text.split("\n")]
        return lines[-TAIL_LINES:]

    def finish(self) -> None:
        """Read the bytes that are in the pipe now, up to a limit. Called when the child exited."""
        budget = _FINISH_BYTES
        while budget > 0 and (count := self._read()) > 0:
            budget -= count

    def close(self) -> None:
        """Stop reading, and close the pipe. Idempotent."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        paused, self._pause = self._pause, None
        if paused is not None:
            paused.cancel()
        if self._poller is not None:
            self._poller.stop(fd)
        else:
            if paused is None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)
        if self._sink is not None:
            self._sink.close()

    def __del__(self) -> None:
        # Only after the loop was closed while the child was running: a running loop refers to this
        # object.
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            if self._poller is None:
                os.close(fd)
            else:
                self._poller.stop(fd)

    def _on_readable(self) -> None:
        if self._fd < 0 or self._pause is not None:
            return
        now = self._loop.time()
        if now - self._since >= self._period:
            self._since, self._count = now, 0
        try:
            self._count += self._read()
        except Exception:  # no memory: the loop would call this again at once
            log.exception("reading a child's stderr failed")
            self._count = self._max_rate
        if self._count >= self._max_rate and self._fd >= 0:
            self._wait(self._since + self._period - now)

    def _wait(self, seconds: float) -> None:
        """Read nothing for some time."""
        if self._poller is None:
            self._loop.remove_reader(self._fd)
        else:
            self._poller.pause()
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._since, self._count = self._loop.time(), 0
        if self._poller is None:
            self._loop.add_reader(self._fd, self._on_readable)
        else:
            self._poller.go_on()

    def _read(self) -> int:
        """Read once; return the number of bytes, 0 when no bytes wait and at the end of file."""
        if self._fd < 0:
            return 0
        try:
            count = os.readv(self._fd, (self._buffer,))
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as exc:
            log.warning("reading a child's stderr failed: %s", exc)
            count = 0
        if not count:
            self.close()
            return 0
        data = self._view[:count]
        self._tail += data[-TAIL_BYTES:]
        if len(self._tail) > TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
            self._dropped = True
        self._dropped |= count > TAIL_BYTES
        if self._sink is not None:
            self._sink.feed(data)
        return count


class _Poller:
    """`add_reader` for loops without it: a thread polls, and the thread of the loop reads.

    One call waits at a time, so that a slow loop is not flooded with callbacks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, call: Callable[[], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._call = call
        self._stopped = False
        self._paused = False
        self._done = threading.Semaphore(0)
        self._wake_r, self._wake_w = os.pipe()
        threading.Thread(target=self._run, name="wirespeed-stderr", daemon=True).start()

    def stop(self, fd: int) -> None:
        """End the thread, which closes ``fd``: nothing may close ``fd`` during poll()."""
        assert fd == self._fd
        self._stopped = True
        self._done.release()
        os.close(self._wake_w)

    def pause(self) -> None:
        """Call no more until `go_on`. For the function that is called."""
        self._paused = True

    def go_on(self) -> None:
        self._paused = False
        self._done.release()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake_r, select.POLLIN)
        with contextlib.suppress(RuntimeError):  # the loop was closed
            while not self._stopped:
                poll.poll()
                if self._stopped:
                    break
                self._loop.call_soon_threadsafe(self._tick)
                # A loop that was closed meanwhile never runs `_tick`.
                while not self._done.acquire(timeout=1.0):
                    if self._loop.is_closed():
                        self._stopped = True
                        break
        os.close(self._fd)
        os.close(self._wake_r)

    def _tick(self) -> None:
        try:
            self._call()
        finally:
            if not self._paused:
                self._done.release()
