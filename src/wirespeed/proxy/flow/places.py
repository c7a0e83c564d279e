"""Places: how many clients at a time have a server of their own, of one configured server."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.proxy.flow.host_table import HostTable


class Places(Protocol):
    """Counts the clients of one server: in this process, for all workers, or for all hosts."""

    def take(self, limit: int) -> int | Future[int]:
        """Count one more client, if there are fewer than ``limit``. Return how many have to leave
        before it is counted; 0: it is. A future has that later."""

    def give_back(self) -> None:
        """Count one client less."""


class ProcessPlaces:
    """The clients of one process."""

    def __init__(self) -> None:
        self._n = 0

    def take(self, limit: int) -> int:
        """See `Places`."""
        if self._n < limit:
            self._n += 1
            return 0
        return self._n + 1 - limit

    def give_back(self) -> None:
        """See `Places`."""
        self._n -= 1


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
        self._all = b"places %b" % name  # its lock is that of all
        self._each = [b"places %d %b" % (n, name) for n in range(n_workers)]
        self._own = self._each[worker]
        self._n = 0
        self._tell()

    def take(self, limit: int) -> int:
        """See `Places`."""
        now = time.monotonic()
        with self._table.entry(self._all, now):
            n = 0
            for key in self._each:
                with self._table.entry(key, now) as entry:
                    n += int(entry.value)
            if n < limit:
                self._n += 1
                self._tell()
                return 0
        return n + 1 - limit

    def give_back(self) -> None:
        """See `Places`."""
        self._n -= 1
        self._tell()

    def _tell(self) -> None:
        with self._table.entry(self._own, time.monotonic()) as entry:
            entry.keep(self._n, math.inf)
