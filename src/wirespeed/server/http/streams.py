"""What the streams of events of one endpoint share: the store of events, and comments that keep
silent connections open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from wirespeed.server.http.event_log import value_of

if TYPE_CHECKING:
    from wirespeed.server.http.event_store import EventStore
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.http.options import HttpOptions

logger = logging.getLogger("wirespeed.server")

PARTS = 8
LAST_WAIT = 5.0  # seconds for a store, at the end


class Streams:
    """The streams of one endpoint. One timer looks at a part of them at a time.

    Attributes:
        store: Keeps their events; or None.
        retry: Seconds after which clients come back; None: when they like.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: HttpOptions) -> None:
        self.store: EventStore | None = options.event_store
        self.retry = options.retry
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._keepalive = options.sse_keepalive
        # The open ones, and the bytes that their connections had sent when they were looked at.
        self._parts: list[dict[Exchange, int]] = [{} for _ in range(PARTS)]
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, exchange: Exchange) -> None:
        """A stream begins, or goes on at another connection."""
        if self._keepalive is not None:
            part = self._parts[hash(exchange) % PARTS]
            part[exchange] = -1
            if self._timer is None:
                self._arm(self._keepalive)

    def closed(self, exchange: Exchange) -> None:
        """The connection of a stream has ended, or the stream."""
        self._parts[hash(exchange) % PARTS].pop(exchange, None)

    def _arm(self, seconds: float) -> None:
        # a comment comes after half of the seconds of silence at the earliest
        self._timer = self._loop.call_later(seconds / (2 * PARTS), self._look)

    def _look(self) -> None:
        self._timer = None
        part = self._parts[self._next]
        self._next = (self._next + 1) % PARTS
        for exchange, before in list(part.items()):
            if exchange.carrier is None:
                del part[exchange]
                continue
            wire = exchange.carrier.wire
            if wire.bytes_out + len(wire.outbox) == before:
                exchange.send_text(b":\n\n")
            part[exchange] = wire.bytes_out + len(wire.outbox)
        if self._keepalive is not None and any(self._parts):
            self._arm(self._keepalive)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a stream; `aclose` waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Send no more comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def aclose(self) -> None:
        """End what is running, and close the store."""
        self.stop()
        try:
            async with asyncio.timeout(LAST_WAIT):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self.store is not None:
                    await value_of(self.store.close())
        except TimeoutError:
            logger.warning("the event store did not end within %g s", LAST_WAIT)
            for task in self._tasks:
                task.cancel()
        except Exception:
            logger.exception("the event store failed at its end")
