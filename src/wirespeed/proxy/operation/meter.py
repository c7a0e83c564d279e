"""Counts of one endpoint of the proxy: of its clients, and of the server behind it.

Rooms below this one are given a `Meter`, and tell it what comes and goes. The numbers of what is
there are read when somebody asks; those of what has gone are kept as sums. Nobody is to wait until
thousands of clients were looked at: that is work in steps.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from wirespeed.protocol.revisions import REQUEST_METHODS
from wirespeed.proxy.breakdown import Breakdown
from wirespeed.proxy.own_requests import CANCELLED
from wirespeed.proxy.side import totals
from wirespeed.proxy.upstream import BAD_MESSAGE, UNKNOWN_ID
from wirespeed.server.requests.observer import BUCKETS, Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.supervision.supervisor import Supervisor
    from wirespeed.proxy.upstream import Upstream

_T = TypeVar("_T")
Steps = Generator[None, None, _T]  # work in steps, one for each turn of the loop

PART = 256  # clients that are looked at in one step
TICK = 2.0  # seconds of one sample
TICKS = 90  # samples that are kept
MINUTES = 60  # whole minutes whose sums are kept, besides the present one
_A_MINUTE = int(60 / TICK)  # samples
_A_MARK = 5  # samples between two marks of a breakdown
_MARKS = _A_MINUTE // _A_MARK + 1

# Of the sums, what is there now: it goes with its side.
_HELD = ("waiting", "asked", "unsent")


class Sample(msgspec.Struct, array_like=True):
    """The requests that ended within one tick.

    Attributes:
        errors: Without what clients have cancelled.
        tick: The monotonic clock of the machine, in ticks: the same in all workers.
        buckets: By duration, as in `Series`, each for itself.
    """

    tick: int
    requests: int
    errors: int
    bytes: int
    buckets: list[int]


class Meter:
    """The numbers of one endpoint. They go on when another service takes its place.

    Attributes:
        observer: What the requests to the server are measured by; None: they are not.
        supervisors: Those of its running servers, those of its services before this one too.
        n_clients: The clients so far.
        n_replaced: The servers whose place another one has taken.
        history: What happened in the last minutes, if somebody takes samples.
        hour: The same by minutes, with the number of the minute in place of the tick.
        breakdown: Its requests by tool and by principal; None: they are not measured.
    """

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.supervisors: dict[Supervisor, None] = {}
        self.n_clients = 0
        self.n_replaced = 0
        self.history: deque[Sample] = deque(maxlen=TICKS)
        self.hour: deque[Sample] = deque(maxlen=MINUTES + 1)
        self.breakdown: Breakdown | None = None
        self._marks: deque[Marks] = deque(maxlen=_MARKS)
        self._upstreams: dict[Upstream, None] = {}
        # The clients of each service that has some.
        self._downstreams: dict[int, Mapping[Downstream, None]] = {}
        self._starts: Counter[str] = Counter()
        self._garbage = Counter({BAD_MESSAGE: 0, UNKNOWN_ID: 0})
        self._gone: dict[str, Counter[str]] = {"clients": Counter(), "servers": Counter()}
        self._before: tuple[int, int, int, list[int]] | None = None

    def observe(self) -> None:
        """Measure the requests to servers that are started from now on."""
        if self.observer is None:
            self.observer = Observer()
            self.breakdown = Breakdown()

    def refused(self, method: str | None, code: int) -> None:
        """The endpoint itself has refused a request."""
        if self.observer is not None:
            name = method if method in REQUEST_METHODS else "other"
            self.observer.of(name or "other").add(0.0, code)

    # -- what comes and goes ---------------------------------------------------------------------

    def client_came(self, downstream: Downstream, downstreams: Mapping[Downstream, None]) -> None:
        """A client has come, and is one of these of its service."""
        self._downstreams[id(downstreams)] = downstreams
        self.n_clients += not downstream.shared

    def client_left(self, downstream: Downstream, downstreams: Mapping[Downstream, None]) -> None:
        """A client has left. ``downstreams``: those of its service that are left."""
        self._keep("clients", downstream)
        if not downstreams:
            self._downstreams.pop(id(downstreams), None)

    def began(self, supervisor: Supervisor) -> None:
        """A server is to run."""
        self.supervisors[supervisor] = None

    def ended(self, supervisor: Supervisor) -> None:
        """It is not to run any more."""
        del self.supervisors[supervisor]
        self._starts.update(_starts(supervisor))

    def replaced(self) -> None:
        """Another server has taken the place of one."""
        self.n_replaced += 1

    def connected(self, upstream: Upstream) -> None:
        """Count a new connection to a server."""
        upstream.observe(self.observer, self.breakdown)
        self._upstreams[upstream] = None

    def disconnected(self, upstream: Upstream) -> None:
        """It is gone."""
        if upstream in self._upstreams:
            del self._upstreams[upstream]
            self._keep("servers", upstream)
            self._garbage.update(upstream.garbage.counts)

    def _keep(self, kind: str, side: Downstream | Upstream) -> None:
        found = totals((side,))
        for name in _HELD:
            del found[name]
        self._gone[kind].update(found)

    # -- the numbers -----------------------------------------------------------------------------

    def of_clients(self) -> Steps[dict[str, int]]:
        """Return the sums of all clients, those that are there and those that have left. Who leaves
        meanwhile counts once, and who comes meanwhile does not."""
        gone, found = self._gone["clients"].copy(), Counter(totals(()))
        for part in in_parts(chain.from_iterable(self._downstreams.values())):
            found.update(totals(part))
            yield
        return _sum(gone, found)

    def of_servers(self) -> dict[str, int]:
        """Return the sums of all connections to servers."""
        return _sum(self._gone["servers"], totals(self._upstreams))

    @property
    def n_cached(self) -> int:
        """The requests that were answered from kept lists, by connections that are open."""
        return sum(one.lists.n_found for one in self._upstreams if one.lists is not None)

    @property
    def starts(self) -> dict[str, int]:
        """The starts of servers, and how many of these were not the first."""
        found = self._starts.copy()
        for supervisor in self.supervisors:
            found.update(_starts(supervisor))
        return {"starts": found["starts"], "restarts": found["restarts"]}

    @property
    def garbage(self) -> dict[str, int]:
        """The invalid messages that servers wrote, by kind."""
        found = self._garbage.copy()
        for upstream in self._upstreams:
            found.update(upstream.garbage.counts)
        return dict(found)

    def sample(self) -> None:
        """Note what happened since the last sample. It is due at the end of each tick."""
        if self.observer is None:
            return
        buckets = [0] * (len(BUCKETS) + 1)
        errors = 0
        for series in self.observer.series.values():
            errors += sum(n for code, n in series.codes.items() if code != CANCELLED)
            for i, n in enumerate(each(series.buckets)):
                buckets[i] += n
        sums = self.of_servers()
        now = sum(buckets), errors, sums["bytes_in"] + sums["bytes_out"], buckets
        before, self._before = self._before, now
        if before is not None:
            change = [a - b for a, b in zip(buckets, before[3], strict=True)]
            tick = current_tick()
            made = Sample(tick, now[0] - before[0], errors - before[1], now[2] - before[2], change)
            self.history.append(made)
            self._add_to_hour(made)
        if current_tick() % _A_MARK == 0 or not self._marks:
            self._marks.append(marks_of(self.breakdown))

    def _add_to_hour(self, sample: Sample) -> None:
        minute = sample.tick // _A_MINUTE
        if not self.hour or self.hour[-1].tick != minute:
            self.hour.append(Sample(minute, 0, 0, 0, [0] * len(sample.buckets)))
        whole = self.hour[-1]
        whole.requests += sample.requests
        whole.errors += sample.errors
        whole.bytes += sample.bytes
        whole.buckets = [a + b for a, b in zip(whole.buckets, sample.buckets, strict=True)]

    def shares(self, kind: str, names: Callable[[Any], str]) -> list[Share]:
        """Return the numbers of each tool (``tools``) or principal (``principals``), since the
        start and of the last minute. ``names``: Returns the name of a key."""
        now = marks_of(self.breakdown)
        before = self._marks[0] if self._marks else Marks()
        earlier = getattr(before, kind)
        found: dict[str, Share] = {}
        for key, mark in getattr(now, kind).items():
            name = "other" if key == OTHER else names(key)
            share = mark.since(name, earlier.get(key))
            found[name] = share if name not in found else found[name].plus(share)
        return list(found.values())


# The key for all tools or principals without a place of their own in a breakdown.
OTHER = b""


class Share(msgspec.Struct, array_like=True):
    """The requests of one tool or of one principal.

    Attributes:
        codes: The number of failed requests, by the code of the error; 1: cancelled.
        buckets: The number of requests, by duration; not cumulative.
        recent, recent_errors, recent_buckets: The same in the last minute. Requests that clients
            cancelled are not errors.
    """

    name: str
    seconds: float
    codes: dict[int, int]
    buckets: list[int]
    recent: int
    recent_errors: int
    recent_buckets: list[int]

    def plus(self, other: Share) -> Share:
        """Return the sum of both."""
        codes = dict(self.codes)
        for code, n in other.codes.items():
            codes[code] = codes.get(code, 0) + n
        return Share(
            self.name,
            self.seconds + other.seconds,
            codes,
            [a + b for a, b in zip(self.buckets, other.buckets, strict=True)],
            self.recent + other.recent,
            self.recent_errors + other.recent_errors,
            [a + b for a, b in zip(self.recent_buckets, other.recent_buckets, strict=True)],
        )


class _Mark(NamedTuple):
    """The numbers of one tool or principal at a moment."""

    seconds: float
    codes: dict[int, int]
    buckets: list[int]

    def since(self, name: str, earlier: _Mark | None) -> Share:
        """Return the numbers, with those since an earlier moment."""
        before = [0] * len(self.buckets) if earlier is None else earlier.buckets
        recent = [a - b for a, b in zip(self.buckets, before, strict=True)]
        errors = _errors(self.codes) - (0 if earlier is None else _errors(earlier.codes))
        return Share(name, self.seconds, self.codes, self.buckets, sum(recent), errors, recent)


@dataclass
class Marks:
    """The numbers of a breakdown at a moment, by the keys of its tools and principals."""

    tools: dict[Any, _Mark] = field(default_factory=dict)
    principals: dict[Any, _Mark] = field(default_factory=dict)


def marks_of(breakdown: Breakdown | None) -> Marks:
    """Return the numbers of a breakdown now."""
    marks = Marks()
    if breakdown is None:
        return marks
    for into, series, other in (
        (marks.tools, breakdown.tools, breakdown.other_tools),
        (marks.principals, breakdown.principals, breakdown.other_principals),
    ):
        for key, one in (*series.items(), (OTHER, other)):
            mark = _Mark(one.seconds, dict(one.codes), each(one.buckets))
            if key != OTHER or any(mark.buckets):
                into[key] = mark
    return marks


def _errors(codes: Mapping[int, int]) -> int:
    return sum(n for code, n in codes.items() if code != CANCELLED)


async def end_of_tick(
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Wait for the end of the current tick, and no shorter: timers may fire a millisecond early."""
    end = (math.floor(clock() / TICK) + 1) * TICK
    while (left := end - clock()) > 0:
        await sleep(left)


def current_tick() -> int:
    """Return the last tick that is over. Samples are taken shortly after the end of theirs."""
    return int(time.monotonic() / TICK) - 1


def each(cumulative: list[int]) -> list[int]:
    """Return the numbers of buckets, each for itself."""
    return [n - before for n, before in zip(cumulative, [0, *cumulative], strict=False)]


def _sum(gone: Counter[str], now: Mapping[str, int]) -> dict[str, int]:
    return {name: gone[name] + value for name, value in now.items()}


def _starts(supervisor: Supervisor) -> dict[str, int]:
    return {"starts": supervisor.status.restarts + 1, "restarts": supervisor.status.restarts}


# -- work in steps ---------------------------------------------------------------------------------


def in_parts(many: Iterable[_T]) -> Iterator[list[_T]]:
    """Give those that are there now, as many at a time as are for one step."""
    found = list(many)
    for start in range(0, len(found), PART):
        yield found[start : start + PART]


async def in_turns(steps: Steps[_T]) -> _T:
    """Do a step in each turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
        await asyncio.sleep(0)


def at_once(steps: Steps[_T]) -> _T:
    """Do all steps now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
