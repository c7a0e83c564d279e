"""SIGTERM and SIGINT end a server in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import Protocol


class Drainable(Protocol):
    """What can be told to end: a connection, or everything that listens."""

    @property
    def draining(self) -> bool:
        """Whether it was told to."""

    def drain(self) -> None:
        """Finish what is in flight, take nothing new, end."""

    def abort(self) -> None:
        """End at once."""


@contextlib.contextmanager
def signals_drain(
    loop: asyncio.AbstractEventLoop,
    served: Drainable,
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> Iterator[None]:
    """The signals let the server finish what is in flight; a second one ends it at once."""

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
