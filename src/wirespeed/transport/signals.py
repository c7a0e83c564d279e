"""SIGTERM and SIGINT let a server finish its requests, then end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol


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
