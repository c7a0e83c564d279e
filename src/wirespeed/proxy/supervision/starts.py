"""How many servers start at once. Their limit of time counts from their own start."""

from __future__ import annotations

import asyncio
import os
import weakref

# Starts at once for each processor.
_FOR_EACH = 2
# Seconds after which a start does not hold up others: a server that says nothing costs them this.
_HOLD = 3.0

_gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    weakref.WeakKeyDictionary()
)


class Starting:
    """The start of one server, among those of its event loop. An asynchronous context manager: it
    is entered when the start may begin."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in _gates:
            _gates[loop] = asyncio.Semaphore(_FOR_EACH * _processors())
        self._gate = _gates[loop]
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        self._timer = self._loop.call_later(_HOLD, self._free)

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._gate.release()


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
