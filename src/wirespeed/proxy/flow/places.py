"""Places: how many clients at a time have a server of their own, of one configured server."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.proxy.flow.host_table import HostTable


CLAIM = 5.0  # seconds for which a process has a claim to the next place


class Places(Protocol):
    """Counts the clients of one server: in this process, for all workers, or for all hosts."""

    def take(self, limit: int, part: int) -> int | Future[int]:
        """Count one more client, if there are fewer than ``limit``. Return how many have to leave
        before it is counted; 0: it is. A future has that later. ``part``: A process that has fewer
        clients, and is refused, has a claim to the next place."""

    def give_back(self) -> None:
        """Count one client less."""

    def is_claimed(self) -> bool:
        """Return whether a client of this process has to leave: there are as many as there may be,
        this process has more than its part, and another one has a claim."""


class ProcessPlaces:
    """The clients of one process."""

    def __init__(self) -> None:
        self._n = 0

    def take(self, limit: int, part: int) -> int:
        """See `Places`."""
        if self._n < limit:
            self._n += 1
            return 0
        return self._n + 1 - limit

    def give_back(self) -> None:
        """See `Places`."""
        self._n -= 1

    def is_claimed(self) -> bool:
        """See `Places`. There is no other process."""
        return False


class HostPlaces:
    """The clients of all workers of a host. One that takes the place of a worker that has died has
    no clients yet.

    Args:
        table: Where they are.
        server: The name of the server.
        worker: The number of this worker.
        n_workers: How many there are.
    """

    def __init__(self, table: HostTable, server: str, worker: int, n_workers: int) -> None:
        self._table = table
        name = server.encode("utf-8", "surrogatepass")
        self._all = b"places %b" % name  # whether there is a claim; its lock is that of all
        self._each = [b"places %d %b" % (n, name) for n in range(n_workers)]
        self._own = self._each[worker]
        self._n = self._limit = self._part = 0
        self._tell()

    def take(self, limit: int, part: int) -> int:
        """See `Places`."""
        self._limit, self._part = limit, part
        is_short = self._n < part
        now = time.monotonic()
        with self._table.entry(self._all, now) as claim:
            n = self._sum(now)
            if n + (claim.value and not is_short) < limit:
                if is_short:
                    claim.keep(0, now)
                self._n += 1
                self._tell()
                return 0
            if is_short:
                claim.keep(1, now + CLAIM)
        return max(1, n + 1 - limit)

    def is_claimed(self) -> bool:
        """See `Places`."""
        if self._n <= self._part:
            return False
        now = time.monotonic()
        with self._table.entry(self._all, now) as claim:
            return claim.value > 0 and self._sum(now) >= self._limit

    def _sum(self, now: float) -> int:
        n = 0
        for key in self._each:
            with self._table.entry(key, now) as entry:
                n += int(entry.value)
        return n

    def give_back(self) -> None:
        """See `Places`."""
        self._n -= 1
        self._tell()

    def _tell(self) -> None:
        with self._table.entry(self._own, time.monotonic()) as entry:
            entry.keep(self._n, math.inf)
