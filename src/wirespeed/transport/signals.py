"""Signals: SIGTERM and SIGINT drain a server and end it; SIGHUP, and changed files, reload it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias


class Drainable(Protocol):
    """A connection or a listener: something that can finish its requests and end."""

    @property
    def draining(self) -> bool:
        """Whether `drain` was called."""

    def drain(self) -> None:
        """Finish the requests in flight, take no new ones, then end."""

    def abort(self) -> None:
        """End at once."""


@contextlib.contextmanager
def signals_drain(
    loop: asyncio.AbstractEventLoop,
    served: Drainable,
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> Iterator[None]:
    """While this lasts, the first signal drains the server, and the second one aborts it."""

    def end(number: int) -> None:
        if served.draining:
            served.abort()
        else:
            served.drain()

    handled = []
    for number in numbers:
        try:
            loop.add_signal_handler(number, end, number)
        except (ValueError, RuntimeError, NotImplementedError):
            continue  # not the main thread
        handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


class Delayed(Drainable, Protocol):
    """A listener, which may say that its end is near before it drains."""

    def drain(self, delay: float = 0.0) -> None:
        """The same after some seconds, in which it serves as before."""


class Together:
    """Several listeners of one process, which drain and end together.

    Args:
        delay: Returns the seconds for which they serve as before when they are told to end.
    """

    def __init__(self, delay: Callable[[], float] = lambda: 0.0) -> None:
        self.draining = False
        self._delay = delay
        self._all: list[Delayed] = []
        self._last: list[Delayed] = []

    def drain(self) -> None:
        """Drain all of them, and those that start later."""
        self._drain(self._delay())

    def drain_now(self) -> None:
        """The same at once: no request comes to them."""
        self._drain(0.0)

    def _drain(self, delay: float) -> None:
        self.draining = True
        for one in self._all or self._last:
            one.drain(delay)

    def abort(self) -> None:
        """End all of them at once."""
        for one in (*self._all, *self._last):
            one.abort()

    @contextlib.contextmanager
    def obeyed(
        self, loop: asyncio.AbstractEventLoop, served: Delayed, *, last: bool = False
    ) -> Iterator[None]:
        """While this lasts, a listener is one of them. ``last``: it drains when the others have
        ended."""
        those = self._last if last else self._all
        those.append(served)
        if self.draining:
            served.drain()
        try:
            yield
        finally:
            those.remove(served)
            if self.draining and not self._all:
                for one in self._last:
                    one.drain()


logger = logging.getLogger("wirespeed.server")

# Seconds between two looks at the files.
INTERVAL = 0.5

# Device, inode, size and time of change; None for a file that is not there.
Stamp: TypeAlias = "tuple[int, int, int, int] | None"


class FileWatch:
    """Calls a function when files have changed, and on SIGHUP unless it is told otherwise.

    A file counts as changed when it differs from what it was at the last call and has stayed the
    same for one interval: editors write a file in steps, or put another one in its place. One call
    runs at a time, and begins one interval after the last at the earliest. What happens meanwhile
    causes one more call.

    Args:
        files: The files now.
        act: The function that is called.
        on_hangup: Whether SIGHUP counts as a change.

    Attributes:
        polls: Whether the files are polled.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[str]],
        act: Callable[[], Awaitable[object]],
        *,
        on_hangup: bool = True,
    ) -> None:
        self.polls = True
        self._on_hangup = on_hangup
        self._files = files
        self._act = act
        self._known = self._look()
        self._due: asyncio.Event | None = None
        self._n = 0
        self._task: asyncio.Task[None] | None = None

    def _look(self) -> dict[str, Stamp]:
        return {path: _stamp(path) for path in self._files()}

    def notice(self) -> None:
        """Look at files that are new among them: what changes from now on counts."""
        self._has_changed(self._look())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch meanwhile. Several may do so at once."""
        self._n += 1
        if self._n == 1:
            self._start()
        try:
            yield
        finally:
            self._n -= 1
            if self._n == 0:
                self._stop()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        if self._on_hangup:
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):
                loop.add_signal_handler(signal.SIGHUP, self._due.set)  # in the main thread only
        self._task = loop.create_task(self._run(self._due))

    def _stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        if not self._on_hangup:
            return
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end is near

    def _has_changed(self, seen: dict[str, Stamp]) -> bool:
        """Whether a file has. One that is looked at for the first time has not."""
        return any(self._known.setdefault(path, stamp) != stamp for path, stamp in seen.items())

    async def _run(self, due: asyncio.Event) -> None:
        seen = self._look()
        if self._has_changed(seen):
            due.set()  # in a worker that was forked later
        loop = asyncio.get_running_loop()
        earliest = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await due.wait()
            if not due.is_set():
                if not self.polls:
                    continue
                before, seen = seen, self._look()
                if seen != before or not self._has_changed(seen):
                    continue
            await asyncio.sleep(earliest - loop.time())
            earliest = loop.time() + INTERVAL
            due.clear()
            seen = self._known = self._look()
            try:
                await self._act()
            except Exception:
                logger.exception("what has changed cannot be read")


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
