"""The connections of a listener: of a stream socket or a WebSocket, and of HTTP."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from wirespeed._core.framing.rfc6455 import CloseCode
from wirespeed.transport.net.keepalive import WatchedConnection
from wirespeed.transport.net.sockets import Stream

if TYPE_CHECKING:
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.transport.http.connection import HttpConnection
    from wirespeed.transport.http.upgrade import Opening
    from wirespeed.transport.net.listener import Listener
    from wirespeed.transport.service import Connection

logger = logging.getLogger("wirespeed.server")


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
