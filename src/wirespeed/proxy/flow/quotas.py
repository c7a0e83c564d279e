"""Quotas: how many calls of tools a client may have in a day. A day begins at midnight UTC."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wirespeed.proxy.flow.rates import credentials_of
from wirespeed.transport.token_buckets import MAX_OWNERS

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.proxy.flow.host_table import HostTable
    from wirespeed.proxy.side import Side

DAY = 86_400  # seconds
MAX_TOOLS = 1000  # names of tools whose quotas are remembered

_Clock = Callable[[], float]


class Counts(Protocol):
    """Counts calls: in this process, for all workers, or for all hosts."""

    def take(self, owner: bytes, limit: int) -> float | Future[float]:
        """Count one more call of today. Return the seconds until tomorrow if there are as many as
        there may be; 0: it is counted. A future has them later."""

    def give_back(self, owner: bytes, age: float) -> None:
        """Count one call less, of the day on which it was counted, ``age`` seconds ago."""


class ProcessCounts:
    """The calls of one process.

    Args:
        clock: Seconds since 1970.
    """

    def __init__(self, clock: _Clock = time.time) -> None:
        self._clock = clock
        self._day = 0
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def take(self, owner: bytes, limit: int) -> float:
        """See `Counts`."""
        now = self._clock()
        if now // DAY != self._day:
            self._day = int(now // DAY)
            self._counts.clear()
        n = self._counts.pop(owner, 0)
        self._counts[owner] = min(n + 1, limit)
        if len(self._counts) > MAX_OWNERS:
            self._counts.popitem(last=False)
        return 0.0 if n < limit else DAY - now % DAY

    def give_back(self, owner: bytes, age: float) -> None:
        """See `Counts`."""
        if (self._clock() - age) // DAY == self._day and self._counts.get(owner):
            self._counts[owner] -= 1


class HostCounts:
    """The calls of all workers of a host.

    Args:
        table: Where they are.
        clock: Seconds since 1970.
        steady: Seconds of the clock that the table needs.
    """

    def __init__(
        self, table: HostTable, clock: _Clock = time.time, steady: _Clock = time.monotonic
    ) -> None:
        self._table = table
        self._clock = clock
        self._steady = steady

    def take(self, owner: bytes, limit: int) -> float:
        """See `Counts`."""
        return self._add(owner, 1, limit, self._clock())

    def give_back(self, owner: bytes, age: float) -> None:
        """See `Counts`."""
        self._add(owner, -1, 0, self._clock() - age)

    def _add(self, owner: bytes, n: int, limit: int, when: float) -> float:
        day, since = divmod(when, DAY)
        now = self._steady()
        with self._table.entry(b"q%d %b" % (day, owner), now) as entry:
            if n > 0 and entry.value >= limit:
                return DAY - since
            if entry.value + n >= 0:
                entry.keep(entry.value + n, now + DAY - since)
        return 0.0


class Spending(NamedTuple):
    """A call that a quota counts.

    Attributes:
        delay: As of `Counts.take`.
        at: When it was counted, by the monotonic clock.
    """

    counts: Counts
    owner: bytes
    delay: float | Future[float]
    at: float

    def give_back(self) -> None:
        """The call was never sent to a server."""
        self.counts.give_back(self.owner, time.monotonic() - self.at)


class Quotas:
    """The quotas of all clients of a proxy.

    Args:
        default: Globs of tools, and the calls of the tools that match one together. The first glob
            that matches a tool decides.
        by_principal: Other quotas, by the principals of connections.
        counts: Where the calls are counted.
    """

    def __init__(
        self,
        default: Mapping[str, int],
        by_principal: Mapping[bytes, Mapping[str, int]],
        counts: Counts,
    ) -> None:
        self._default = default
        self._by_principal = by_principal
        self._counts = counts

    def at(self, names: Callable[[str], Iterable[str]]) -> EndpointQuotas:
        """Return the quotas at an endpoint. ``names``: As of `Principals.grants`."""
        return EndpointQuotas(self, names)

    def spend(self, who: bytes | str, tool: str) -> Spending | None:
        """Count a call of a client. None: its quotas do not count this tool."""
        quotas, owner = self._default, b"s"
        if isinstance(who, bytes):
            quotas, owner = self._by_principal.get(who, quotas), b"b"
        else:
            who = who.encode()
        for glob, limit in quotas.items():
            if fnmatchcase(tool, glob):
                owner += b"%b %b" % (who, glob.encode())
                taken = self._counts.take(owner, limit)
                return Spending(self._counts, owner, taken, time.monotonic())
        return None


class EndpointQuotas:
    """The quotas at one endpoint, where tools have the names of that endpoint."""

    def __init__(self, quotas: Quotas, names: Callable[[str], Iterable[str]]) -> None:
        self._quotas = quotas
        self._names = names

    def spend(self, side: Side, tool: str) -> Spending | None:
        """Count a call of a connection. None: no quota counts it."""
        return self._quotas.spend(credentials_of(side), next(iter(self._names(tool))))
