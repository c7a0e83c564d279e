"""Memory of connections that goes back to the system: the allocator keeps what a burst has used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wirespeed._core.slab import give_back

MAX_KEPT = 8 * 1024 * 1024  # bytes that the allocator may keep after a burst


class MemoryReturn:
    """Gives memory back after each burst of connections.

    Args:
        loop: The event loop.
        burst: A burst is at least so many connections at once.
        quiet: A burst is over if half of its connections have left, and none of these comes back
            within so many seconds.
        give: Gives memory back, but for a number of bytes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        burst: int = 32,
        quiet: float = 5.0,
        give: Callable[[int], object] = give_back,
    ) -> None:
        self._loop = loop
        self._burst = burst
        self._quiet = quiet
        self._give = give
        self._n = 0
        self._most = 0  # connections at once since memory went back
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def came(self, n: int) -> None:
        """A connection has come: there are n."""
        self._n = n
        self._most = max(self._most, n)

    def left(self, n: int) -> None:
        """A connection has left: there are n."""
        self._n = n
        if self._timer is None and not self._is_stopped and self._is_over():
            self._timer = self._loop.call_later(self._quiet, self._give_back)

    def stop(self) -> None:
        """Give nothing back any more: the listener ends."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _is_over(self) -> bool:
        return self._most >= self._burst and 2 * self._n <= self._most

    def _give_back(self) -> None:
        self._timer = None
        if self._is_over():
            self._most = self._n
            self._give(MAX_KEPT)
