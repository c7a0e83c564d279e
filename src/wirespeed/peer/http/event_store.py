"""Stores for the events of a legacy session's streams, so that a client can resume a stream
("Resumability and Redelivery" of 2025-11-25 basic/transports).

An `EventLog` numbers the events of one stream. `SQLiteEventStore` is in
`wirespeed.peer.http.sqlite_events`, the protocol of all stores in
`wirespeed.transport.http.options`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, runtime_checkable

from wirespeed._exports import set_public_home
from wirespeed.errors import StoreUnavailable

if TYPE_CHECKING:
    from wirespeed.peer.http.exchange import McpExchange, Streams
    from wirespeed.transport.link import Hold, Link

MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes of events that wait for a store, and one event more


class EventLog:
    """Gives events their numbers and the store its events, in order.

    An event is sent without waiting for the store, except where other hosts may go on with the
    session: there it is sent when the store has it, or has failed, or was waited for as long as
    its `store_timeout`. So a client can resume after the last event that it saw, although the host
    crashed. A client that resumes the stream gets what the store has, and behind that what waits
    for the store, as any other event.

    Args:
        streams: Their store, and what logs that it fails.
        name, route: As below.
        holds: Whether other hosts may go on with the session.

    Attributes:
        name: The name of the stream.
        n: The number of the last event; 0 before the first.
        own: Whether the stream is the answer to a GET.
        route: The exchange whose answers are the events; None when all are there.
    """

    __slots__ = (
        "_ending",
        "_failed",
        "_holds",
        "_quiet",
        "_shared",
        "_size",
        "_store",
        "_task",
        "_wait",
        "_waiting",
        "_writing",
        "n",
        "name",
        "own",
        "route",
    )

    def __init__(
        self, streams: Streams, name: str, route: McpExchange | None, *, holds: bool
    ) -> None:
        self.name = name
        self.n = 0
        self.own = route is None
        self.route = route
        assert streams.store is not None
        self._store = streams.store
        self._shared = streams.shared
        self._wait = self._shared.store_timeout if holds and self._shared is not None else 0.0
        self._quiet = streams.quiet
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._holds: list[Hold] = []  # of what waits
        self._writing: Sequence[tuple[int, bytes]] = ()  # what the store is given now
        self._ending: list[Hold] = []  # of that
        self._task: asyncio.Task[None] | None = None  # it writes to a store that has to be awaited
        self._failed = False

    def id_of(self, n: int) -> str:
        """The id of an event, unique among all streams of all sessions."""
        return f"{self.name}-{n}"

    def add(self, data: bytes, link: Link | None = None, at: int = 0) -> str:
        """Keep one more event. Returns its id. ``link``: Sends it, behind the first ``at`` bytes
        that are queued there; None: nothing sends it now."""
        self.n += 1
        if self._size > MAX_UNWRITTEN:
            self._fail("the store is too slow")
        if self._failed:
            pass
        elif self._task is not None or self._shared is not None:
            self._size += len(data)
            self._waiting.append((self.n, data))
            self.hold(link, at)
            if self._task is None:
                self._task = asyncio.create_task(self._write(None))
        else:
            try:
                result = self._store.append(self.name, self.n, data)
            except Exception as exc:
                self._fail(exc)
            else:
                if result is not None:
                    self._writing = ((self.n, data),)
                    self._task = asyncio.create_task(self._write(result))
        return self.id_of(self.n)

    def hold(self, link: Link | None, at: int) -> None:
        """Hold what a link sends behind the first ``at`` bytes that are queued there, until the
        store has the events that wait for it now: one hold for all of a link."""
        holds = self._holds if self._waiting else self._ending
        if self._wait and link is not None and (not holds or holds[-1].link is not link):
            holds.append(link.hold(at, self._wait))

    async def _write(self, first: Awaitable[None] | None) -> None:
        try:
            if first is not None:
                await first
            while self._waiting:
                if self._shared is not None:
                    await self._write_all(self._shared)
                    continue
                n, data = self._waiting.popleft()
                self._writing = ((n, data),)
                self._size -= len(data)
                await value_of(self._store.append(self.name, n, data))
        except Exception as exc:
            self._fail(exc)
        finally:
            self._writing = ()
            self._task = None

    async def _write_all(self, store: SharedEventStore) -> None:
        """Give the store what waits, and let it be sent then."""
        self._writing, self._waiting = self._waiting, deque()
        self._ending, self._holds = self._holds, []
        self._size = 0
        try:
            events = [data for _, data in self._writing]
            await store.append_all(self.name, self._writing[0][0], events)
        finally:
            self._writing = ()
            for hold in self._ending:
                hold.end()

    async def written(self) -> None:
        """Wait until the store has all events, or has failed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def rest(self, n: int) -> list[tuple[int, bytes]] | None:
        """The events after number `n`, if the store is not needed for any of them; else None."""
        kept = [*self._writing, *self._waiting]
        first = kept[0][0] if kept else self.n + 1
        if n == self.n or (first <= n + 1 <= self.n and not self._failed):
            return [event for event in kept if event[0] > n]
        return None

    async def after(self, n: int) -> Sequence[tuple[int, bytes]] | None:
        """The events after number `n` that the store has; None if some are missing.
        StoreUnavailable: they may be there."""
        if self._failed or not 0 <= n < self.n:
            return None
        try:
            found: Sequence[tuple[int, bytes]] | None = await value_of(
                self._store.after(self.name, n)
            )
        except StoreUnavailable:
            raise
        except Exception as exc:
            self._fail(exc)
            return None
        return found

    async def forget(self) -> None:
        """Drop the events."""
        self._failed = True
        self._drop_waiting()
        await self.written()
        if not self.n:
            return  # the store has heard nothing of the stream
        with contextlib.suppress(Exception):  # the store may have failed before
            await value_of(self._store.forget(self.name))

    def _fail(self, why: Exception | str) -> None:
        if not self._failed:
            self._failed = True
            self._drop_waiting()
            if not isinstance(why, StoreUnavailable):  # logged where it was found
                self._quiet.log(
                    logging.ERROR,
                    "a stream cannot be resumed: the event store failed: %s",
                    str(why) or type(why).__name__,
                )

    def _drop_waiting(self) -> None:
        """Keep nothing of what waits, which is sent without that."""
        self._waiting.clear()
        holds, self._holds = self._holds, []
        for hold in holds:
            hold.end()


@runtime_checkable
class SharedEventStore(Protocol):
    """An `EventStore` that several hosts share.

    Attributes:
        store_timeout: The longest time in seconds that an event waits for the store.
    """

    store_timeout: float

    def append_all(self, stream: str, n: int, events: Sequence[bytes], /) -> Awaitable[None]:
        """Keep the events number ``n``, ``n + 1`` and so on, in one round trip."""


async def value_of(result: Any) -> Any:
    """Return the result of a method, which may be a coroutine function."""
    return await result if inspect.isawaitable(result) else result


# Bytes that an event counts besides its text.
OVERHEAD = 100


class EventLimits(TypedDict, total=False):
    """Options of the stores of this package; `MemoryEventStore` describes them."""

    max_bytes: int
    max_stream_bytes: int
    max_stream_events: int
    max_age: float


class LimitedEventStore:
    """The limits of a store."""

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_stream_bytes: int = 4 * 1024 * 1024,
        max_stream_events: int = 10_000,
        max_age: float = 3600.0,
    ) -> None:
        if min(max_bytes, max_stream_bytes, max_stream_events) < 1:
            raise ValueError("the limits of an event store must be at least 1")
        if not 0 < max_age < math.inf:
            raise ValueError("max_age must be seconds above 0")
        self.max_bytes = max_bytes
        self.max_stream_bytes = max_stream_bytes
        self.max_stream_events = max_stream_events
        self.max_age = max_age


class _Stream:
    __slots__ = ("events", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: deque[tuple[int, bytes, float]] = deque()
        self.size = 0

    def has(self, n: int) -> bool:
        """Whether event number n, which the stream had, is still kept."""
        return bool(self.events) and self.events[0][0] <= n


class MemoryEventStore(LimitedEventStore):
    """Keeps events in the memory of this process.

    Args:
        max_bytes: The most bytes of all events. Each event counts 100 bytes besides its text.
        max_stream_bytes: The most bytes of the events of one stream, counted in the same way.
        max_stream_events: The most events of one stream.
        max_age: Seconds after which an event is dropped.
        clock: Returns seconds.

    At a limit the oldest events are dropped: of the stream at its own limits, of all streams at
    ``max_bytes``.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, **limits: Unpack[EventLimits]
    ) -> None:
        super().__init__(**limits)
        self._clock = clock
        self._streams: dict[str, _Stream] = {}
        # The stream and number of each event, in the order of arrival. Some events are dropped.
        self._order: deque[tuple[_Stream, int]] = deque()
        self._n_events = 0
        self._size = 0

    def append(self, stream: str, n: int, data: bytes) -> None:
        now = self._clock()
        kept = self._streams.get(stream)
        if kept is None:
            kept = self._streams[stream] = _Stream(stream)
        kept.events.append((n, data, now))
        kept.size += len(data) + OVERHEAD
        self._size += len(data) + OVERHEAD
        self._n_events += 1
        self._order.append((kept, n))
        while kept.size > self.max_stream_bytes or len(kept.events) > self.max_stream_events:
            self._drop(kept)
        self._drop_old(now)
        if len(self._order) > 2 * self._n_events + 100:  # most are dropped
            self._order = deque(entry for entry in self._order if entry[0].has(entry[1]))

    def after(self, stream: str, n: int) -> list[tuple[int, bytes]] | None:
        self._drop_old(self._clock())
        kept = self._streams.get(stream)
        if kept is None or not kept.events[0][0] - 1 <= n <= kept.events[-1][0]:
            return None
        return [(m, data) for m, data, _ in kept.events if m > n]

    def forget(self, stream: str) -> None:
        kept = self._streams.get(stream)
        while kept is not None and kept.events:
            self._drop(kept)

    def close(self) -> None:
        """Does nothing: the events stay as long as the store."""

    def _drop(self, kept: _Stream) -> None:
        """Drop the oldest event of a stream."""
        _, data, _ = kept.events.popleft()
        kept.size -= len(data) + OVERHEAD
        self._size -= len(data) + OVERHEAD
        self._n_events -= 1
        if not kept.events:
            del self._streams[kept.name]

    def _drop_old(self, now: float) -> None:
        """Drop the oldest events of all streams until ``max_bytes`` and ``max_age`` hold."""
        while self._order:
            kept, n = self._order[0]
            if kept.has(n):
                if self._size <= self.max_bytes and kept.events[0][2] > now - self.max_age:
                    return
                self._drop(kept)
            self._order.popleft()


set_public_home(globals())
