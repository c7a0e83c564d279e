"""One session of a client of a legacy era (2025-11-25 basic/transports, "Session Management")."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.server.connection import ServerConnection
    from wirespeed.transport.http.exchange import Exchange


class HttpSession:
    """A session: the server's connection, and the stream of what it says of its own accord.

    Attributes:
        id: The value of ``Mcp-Session-Id``.
        connection: What serves its requests.
        stream: The response to its GET that is open, or None.
    """

    __slots__ = ("_queue", "_queued", "connection", "id", "stream")

    def __init__(self, id: str, connection: ServerConnection) -> None:
        self.id = id
        self.connection = connection
        self.stream: Exchange | None = None
        self._queue: deque[bytes] = deque()
        self._queued = 0

    @property
    def busy(self) -> bool:
        """Whether a request of the session is worked on, or its stream is open."""
        return self.stream is not None or self.connection.session.inflight.live != 0

    def carry(self, messages: list[bytes]) -> None:
        """Send messages on the stream, or keep the last ones until it is opened."""
        if self.stream is not None:
            for message in messages:
                self.stream.send_event(message)
            return
        self._queue.extend(messages)
        self._queued += sum(map(len, messages))
        while self._queued > self.connection.session.limits.output_high:
            self._queued -= len(self._queue.popleft())

    def open_stream(self, exchange: Exchange) -> None:
        """Make a GET the stream of the session, in place of an earlier one."""
        if self.stream is not None:
            self.stream.close_stream()
        self.stream = exchange
        exchange.on_gone = self._stream_gone
        exchange.open_stream()
        queue, self._queue, self._queued = self._queue, deque(), 0
        self.carry(list(queue))

    def _stream_gone(self) -> None:
        self.stream = None

    def close(self) -> None:
        """End the session: what it works on is cancelled, and its stream is closed."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.on_gone = None
            stream.close_stream()
        self.connection.abort()
