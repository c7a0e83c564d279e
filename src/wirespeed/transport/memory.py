"""Two endpoints joined in one process, for tests and for servers used as libraries."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from wirespeed._exports import set_public_home
from wirespeed.transport.link import Endpoint, Link


class MemoryLink(Link):
    """One end of a pair; see `pair`. Bytes cross on a later turn of the loop, never nested.

    Attributes:
        reads_for: The request that the message is about which is delivered, as the peer said
            (`hand_over`); or None.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> None:
        super().__init__(loop, endpoint)
        self.peer: MemoryLink
        self.reads_for: int | None = None
        # bytes; an id of a request that the next ones are about, 0 for none, may stand before them
        self._incoming: deque[Any] = deque()
        self._scheduled = False
        self._ended = False  # the peer sends no more
        self._lost = False

    def start(self) -> None:
        """Begin to read; bytes may wait already."""
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._lost and (self._incoming or self._ended):
            self._scheduled = True
            self.loop.call_soon(self._receive)

    def _receive(self) -> None:
        self._scheduled = False
        if self._lost or self.closing:
            return
        wire = self.endpoint.wire
        while self._incoming and wire.want_read and not self._lost:
            data = self._incoming.popleft()
            if type(data) is int:
                self.reads_for = data or None
                continue
            wire.receive_data(data)
            self.deliver()
        if not self._incoming:
            if not self.peer._lost:
                self.peer.pump()  # it may have been held back
            if self._ended and not self._incoming and not self._lost:
                self._ended = False
                wire.receive_eof()
                self.deliver()
                if not self._lost:
                    self.ended()

    def update_reading(self) -> None:
        """Deliver bytes that arrived, when the session wants them."""
        if self.endpoint.wire.want_read:
            self._schedule()

    def flush(self) -> None:
        """Hand over the queued output, unless the peer has bytes left to take."""
        if self._lost or self.peer._lost or self.peer._incoming:
            return
        wire = self.endpoint.wire
        if len(wire.outbox):
            self.peer._incoming.extend(wire.data_to_send())
            self.check_drained()
            self.peer._schedule()

    def hand_over(self, about: int) -> None:
        """Hand over the queued output, whatever the peer has left to take.

        ``about``: The id of the request of the peer that all of it is about; 0: of no one request.
        """
        if self._lost or self.peer._lost:
            return
        self.peer._incoming += (about, *self.endpoint.wire.data_to_send(), 0)
        self.check_drained()
        self.peer._schedule()

    def close(self) -> None:
        """Stop now; the peer reads the end of its input after the bytes that were sent."""
        if self._lost:
            return
        self.flush()
        self._lost = True
        self._incoming.clear()
        self.detach()
        self.peer._ended = True
        self.peer._schedule()
        self.endpoint.on_lost(None)


def pair(
    loop: asyncio.AbstractEventLoop, one: Endpoint, other: Endpoint
) -> tuple[MemoryLink, MemoryLink]:
    """Join two endpoints; `start` both links to begin."""
    first, second = MemoryLink(loop, one), MemoryLink(loop, other)
    first.peer, second.peer = second, first
    return first, second


set_public_home(globals())
