"""The connections of a listener, of a stream socket or a WebSocket and of HTTP, and the memory that
they leave."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed._core.framing.rfc6455 import CloseCode
from wirespeed._core.slab import give_back
from wirespeed.transport.net.keepalive import WatchedConnection
from wirespeed.transport.net.sockets import Stream

if TYPE_CHECKING:
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.transport.http.connection import HttpConnection
    from wirespeed.transport.http.upgrade import Opening
    from wirespeed.transport.net.listener import Listener
    from wirespeed.transport.service import Connection

logger = logging.getLogger("wirespeed.server")

MAX_KEPT = 8 * 1024 * 1024  # bytes that the allocator may keep after a burst


class ServedConnection(WatchedConnection):
    """One connection of a listener."""

    __slots__ = ("connection", "expires", "listener", "origin", "since", "stream")

    def __init__(
        self, listener: Listener, connection: Any, framer: WebSocketFramer | None, stream: Stream
    ) -> None:
        super().__init__(connection, framer)
        self.connection: Connection = connection
        self.listener = listener
        self.stream = stream
        self.expires = math.inf  # of the client's credentials, in Unix seconds
        self.origin: object = None  # the WebSocketTarget or service that the client has come for
        self.since = math.inf  # when it was opened (`time.monotonic`), if that is logged

    def check(self, now: float) -> None:
        """End a connection whose client's credentials have ended: running requests are answered."""
        link = self.connection.link
        if self.expires != math.inf and time.time() >= self.expires and link is not None:
            self.expires = math.inf
            link.farewell = (CloseCode.POLICY, "the access token has expired")
            self.connection.drain()

    def gone(self, closed: asyncio.Future[BaseException | None]) -> None:
        """The connection is closed: release its socket."""
        self.stream.close()
        if self.since != math.inf:
            self.listener.log_end(self)
        self.listener.left(self)


class ServedHttp(ServedConnection):
    """One connection of a listener that reads HTTP requests.

    Args:
        since: When the client was accepted, by the clock of the loop.
    """

    __slots__ = ("_late", "_opened", "_seen", "_since")

    connection: HttpConnection

    def __init__(
        self, listener: Listener, connection: HttpConnection, stream: Stream, since: float
    ) -> None:
        super().__init__(listener, connection, None, stream)
        connection.on_upgrade = self.upgrade
        self._opened: tuple[Opening, bytes] | None = None
        self._since = since
        self._seen: tuple[object, ...] = ()
        self._late = False

    def check(self, now: float) -> None:
        """End a connection whose client, or whose `authenticate`, takes too long."""
        connection = self.connection
        stage = connection.waits_for
        seen: tuple[object, ...] = ()  # an opening handshake has its time for all stages together
        if self.listener.address.is_http:
            seen = stage, connection.n_requests, stage == "body" and connection.wire.bytes_in
        if seen != self._seen or stage is None:
            self._seen, self._since, self._late = seen, now, False
        elif now - self._since >= self.listener.limits[stage]:
            if not self._late:
                # a busy loop runs its due timers before it reads the received bytes
                self._late = True
                return
            if stage == "verdict":
                logger.warning("authenticate took more than %g s", self.listener.limits[stage])
            connection.time_out()

    def upgrade(self, opening: Opening, rest: bytes) -> None:
        """Leave the stream to another protocol. ``rest``: the bytes that were read behind the
        request for it."""
        assert self.connection.link is not None
        self._opened = opening, rest
        self.stream.take_back(self.connection.link)

    def gone(self, closed: asyncio.Future[BaseException | None]) -> None:
        self.connection.on_upgrade = None
        if self._opened is not None and not self.listener.aborting:
            self.listener.open(self.stream, *self._opened)
            self.listener.left(self)
        else:
            super().gone(closed)


class MemoryReturn:
    """Gives memory back to the system after each burst of connections: the allocator would keep it.

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
