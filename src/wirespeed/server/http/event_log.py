"""The events of one stream of a session, numbered, and kept in an event store."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.server.http.exchange import McpExchange
    from wirespeed.transport.http.options import EventStore
    from wirespeed.transport.rate_limited_log import RateLimitedLog


MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes of events that wait for a store


class EventLog:
    """Gives events their numbers and the store its events, in order.

    An event is sent without waiting for the store. A client that resumes the stream waits until the
    store has all events.

    Attributes:
        name: The name of the stream.
        n: The number of the last event; 0 before the first.
        own: Whether the stream is the answer to a GET.
        route: The exchange whose answers are the events; None when all are there.
    """

    __slots__ = (
        "_failed",
        "_quiet",
        "_size",
        "_store",
        "_task",
        "_waiting",
        "n",
        "name",
        "own",
        "route",
    )

    def __init__(
        self, store: EventStore, name: str, route: McpExchange | None, quiet: RateLimitedLog
    ) -> None:
        self.name = name
        self.n = 0
        self.own = route is None
        self.route = route
        self._store = store
        self._quiet = quiet
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None  # it writes to a store that has to be awaited
        self._failed = False

    def id_of(self, n: int) -> str:
        """The id of an event, unique among all streams of all sessions."""
        return f"{self.name}-{n}"

    def add(self, data: bytes) -> str:
        """Keep one more event. Returns its id."""
        self.n += 1
        if self._failed:
            pass
        elif self._task is not None:
            self._size += len(data)
            self._waiting.append((self.n, data))
            if self._size > MAX_UNWRITTEN:
                self._fail("the store is too slow")
        else:
            try:
                result = self._store.append(self.name, self.n, data)
            except Exception as exc:
                self._fail(exc)
            else:
                if result is not None:
                    self._task = asyncio.create_task(self._write(result))
        return self.id_of(self.n)

    async def _write(self, first: Awaitable[None]) -> None:
        try:
            await first
            while self._waiting:
                n, data = self._waiting.popleft()
                self._size -= len(data)
                await value_of(self._store.append(self.name, n, data))
        except Exception as exc:
            self._fail(exc)
        finally:
            self._task = None

    async def after(self, n: int) -> Sequence[tuple[int, bytes]] | None:
        """The events after number `n`, once the store has them; None if some are missing."""
        if n == self.n:
            return ()
        if not 0 <= n < self.n:
            return None
        while self._task is not None:
            await asyncio.wait([self._task])
        if self._failed:
            return None
        try:
            found: Sequence[tuple[int, bytes]] | None = await value_of(
                self._store.after(self.name, n)
            )
        except Exception as exc:
            self._fail(exc)
            return None
        return found

    async def forget(self) -> None:
        """Drop the events."""
        self._failed = True
        self._waiting.clear()
        while self._task is not None:
            await asyncio.wait([self._task])
        with contextlib.suppress(Exception):  # the store may have failed before
            await value_of(self._store.forget(self.name))

    def _fail(self, why: Exception | str) -> None:
        if not self._failed:
            self._failed = True
            self._waiting.clear()
            self._quiet.log(
                logging.ERROR,
                "a stream cannot be resumed: the event store failed: %s",
                str(why) or type(why).__name__,
            )


async def value_of(result: Any) -> Any:
    """What a method returned, which may be a coroutine function."""
    return await result if inspect.isawaitable(result) else result
