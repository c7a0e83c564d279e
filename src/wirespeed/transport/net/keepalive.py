"""Keep-alive: one timer for all connections finds peers that are gone and peers that do not read.

A connection needs neither a timer nor a task. Each tick checks a part of the connections in turn,
so that no tick takes long. A deadline is met within half of the shortest deadline: each peer gets a
second look, a quarter later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirespeed._core.framing.rfc6455 import CloseCode

if TYPE_CHECKING:
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.transport.link import Endpoint

logger = logging.getLogger("wirespeed.server")

PARTS = 8
LONGEST_ROUND = 5.0
SHORTEST_ROUND = 0.02


class WatchedConnection:
    """The state of one connection between two checks.

    Args:
        endpoint: The owner of the wire.
        framer: The framer that sends pings; None for a stream without pings.
    """

    __slots__ = (
        "_asked_twice",
        "_bytes_in",
        "_bytes_out",
        "_ending",
        "_life",
        "_part",
        "_pinged",
        "_queued",
        "_stuck",
        "endpoint",
        "framer",
    )

    def __init__(self, endpoint: Endpoint, framer: WebSocketFramer | None) -> None:
        self.endpoint = endpoint
        self.framer = framer
        self._part = 0
        self._bytes_in = -1
        self._bytes_out = -1
        self._life = 0.0  # the time of its last byte
        self._pinged = False
        self._asked_twice = False
        self._queued = False
        self._ending = 0.0
        self._stuck = 0.0  # the time since which the peer reads nothing

    def check(self, now: float) -> None:
        """Override: what else ends a connection that is open."""


class KeepAlive:
    """Watches the connections of one listener.

    Args:
        loop: The event loop.
        ping_interval: Seconds of silence after which a peer is pinged; None for never.
        ping_timeout: Seconds of silence after that until the connection is ended.
        slow_reader_timeout: Seconds that a peer may leave a full outbox unread.
        close_timeout: The time limit of the closing handshake in seconds.
        others: The time limits of `WatchedConnection.check`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        ping_interval: float | None,
        ping_timeout: float,
        slow_reader_timeout: float,
        close_timeout: float,
        others: Sequence[float] = (),
    ) -> None:
        self._loop = loop
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._slow_reader_timeout = slow_reader_timeout
        self._close_timeout = close_timeout
        shortest = min(slow_reader_timeout, close_timeout, *others)
        if ping_interval is not None:
            shortest = min(shortest, ping_interval, ping_timeout)
        self._tick = min(max(shortest / 4, SHORTEST_ROUND), LONGEST_ROUND) / PARTS
        self._parts: list[set[WatchedConnection]] = [set() for _ in range(PARTS)]
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def all(self) -> list[WatchedConnection]:
        """The watched connections."""
        return [watched for part in self._parts for watched in part]

    def watch(self, watched: WatchedConnection) -> None:
        """Watch a connection, too."""
        watched._part = (self._next - 1) % PARTS  # the connection has just been checked
        watched._life = watched._stuck = self._loop.time()
        self._parts[watched._part].add(watched)
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick, self._look)

    def forget(self, watched: WatchedConnection) -> None:
        """Stop watching a connection that is closed."""
        self._parts[watched._part].discard(watched)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        part = self._parts[self._next]
        self._next = (self._next + 1) % PARTS
        now = self._loop.time()
        for watched in list(part):
            try:
                self._check(watched, now)
            except Exception:
                logger.exception("internal error while watching a connection")
        if any(self._parts):
            self._timer = self._loop.call_later(self._tick, self._look)

    def _check(self, watched: WatchedConnection, now: float) -> None:
        link = watched.endpoint.link
        if link is None:
            return
        framer = watched.framer
        if framer is not None:
            framer.allow_control()
        if link.ending:
            # of a shutdown; the link's own deadline may be later
            watched._ending = watched._ending or now
            if now - watched._ending >= self._close_timeout:
                link.close()
            return
        wire = watched.endpoint.wire
        bytes_in, bytes_out, queued = wire.bytes_in, wire.bytes_out, len(wire.outbox)
        # The peer's side has taken the bytes that have left the queue since the last check. (Our
        # own side buffers the first bytes for a peer that is gone.)
        takes = watched._queued and bytes_out != watched._bytes_out
        high = wire.limits.output_high
        full = queued >= high
        if takes or wire.outbox.ready < high:  # the rest waits for something else than the peer
            watched._stuck = now
        elif now - watched._stuck >= self._slow_reader_timeout:
            if not watched._asked_twice:
                # a busy loop runs its due timers before it sends further bytes
                watched._asked_twice = True
                return
            logger.warning("a client left %d bytes unread: the connection is closed", queued)
            watched.endpoint.on_slow()
            link.end(CloseCode.POLICY, "too slow a reader", self._close_timeout)
            if not link.ending:
                link.close()  # its framing has no goodbye, and the client reads nothing
            return
        watched.check(now)
        watched._bytes_out = bytes_out
        watched._queued = queued > 0
        if bytes_in != watched._bytes_in or takes or full or link.closing or not wire.want_read:
            # the peer lives, or its state is unknown: we do not read, or its own input is full
            watched._bytes_in = bytes_in
            watched._life = now
            watched._pinged = watched._asked_twice = False
        elif framer is None or self._ping_interval is None:
            return
        elif not watched._pinged:
            if now - watched._life >= self._ping_interval:
                watched._pinged = True
                watched._life = now
                framer.ping()
                link.wrote()
        elif now - watched._life >= self._ping_timeout:
            if not watched._asked_twice:
                # a busy loop runs its due timers before it reads the received bytes
                watched._asked_twice = True
                return
            link.lose(TimeoutError(f"no answer to a ping within {self._ping_timeout:g} s"))
