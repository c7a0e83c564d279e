"""A client and the server that it has for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.proxy.supervision.upstream import Life, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.operation.meter import Meter
    from wirespeed.proxy.side import Side


# Seconds that a server has for its first answer to its client, until other servers are started, and
# between two looks.
_START, _LOOK = 3.0, 0.02


class Pair:
    """What the server of one client belongs to. A spare server has no client yet.

    Attributes:
        life: The server.
        backend: The connection to it, once there is one.
    """

    life: Life

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self._front: Front | None = None
        self._first: Message | None = None
        self._failed: Callable[[Pair], None] | None = None
        self._silent_since: float | None = None
        self._limit: asyncio.TimerHandle | None = None

    @classmethod
    def start(cls, config: BackendConfig, limits: Limits, meter: Meter, *, restarts: bool) -> Self:
        """Start a server. ``restarts``: until it has a client."""
        pair = cls()
        upstream = Upstream(config, pair, limits, meter, restarts=restarts)
        pair.life = Life(upstream, asyncio.ensure_future(upstream.run()))
        return pair

    @classmethod
    def of(cls, life: Life, backend: Backend) -> Self:
        """Take a server that runs already, and that nobody has greeted."""
        pair = cls()
        pair.life = life
        if not backend.session.messages_in:
            pair._silent_since = backend.began
        pair._take(backend)
        life.upstream.owner = backend.owner = pair
        return pair

    def join(self, front: Front, first: Message | None, failed: Callable[[Pair], None]) -> None:
        """A client gets the server. ``first``: one of its requests, which waits for the
        server. ``failed``: called when the server fails."""
        self._front, self._first, self._failed = front, first, failed
        self.life.upstream.restarts = False  # what it knows of its client is lost with it
        if self.backend is not None:
            self._connect(front, self.backend)

    def _connect(self, front: Front, backend: Backend) -> None:
        backend.across, front.across = front, backend
        first, self._first = self._first, None
        if first is not None and front.is_open(first):
            to = front.route(first)
            if to is not None:
                front.pass_request(first, to)
        front.release()

    def greets(self, seconds: float) -> None:
        """The server is asked for its handshake: it ends if `greeted` is not called in time. One
        that has said nothing since its start has had a part of the time."""
        backend = self.backend
        if backend is None:
            return
        loop = backend.loop
        left = seconds
        if self._silent_since is not None:
            left = max(self._silent_since + seconds - loop.time(), seconds / 2)
        text = f"it did not answer initialize within {seconds:g} s"
        self.greeted()
        self._limit = loop.call_later(left, backend.end, text)

    def greeted(self) -> None:
        """The server has answered, or its client has left."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _take(self, backend: Backend) -> None:
        backend.admits_legacy = backend.admits_modern = True
        # a server of 2025-03-26 may answer in a batch
        backend.session.batches = True
        self.backend = backend

    async def opened(self, backend: Backend) -> None:
        """The server is there."""
        self._take(backend)
        if self._front is None:
            return
        self._connect(self._front, backend)
        await asyncio.sleep(_LOOK)
        # its first answer is the end of its start: others start then
        while backend.session.pending.live and not backend.session.messages_in:
            if backend.loop.time() >= backend.began + _START:
                break
            await asyncio.sleep(_LOOK)
        if backend.lost.done():
            raise TransportError("it ended in its handshake")

    def closed(self, backend: Backend) -> None:
        """The server is gone."""
        self.greeted()
        if self._front is None:
            self.backend = None
        elif self._front.across is backend:
            self.failed()
            self._end(backend.loss(None))

    def failed(self) -> None:
        """The server has failed. Where the client stays, the end of the server is reported twice;
        it counts once."""
        if self._failed is not None and not (self.backend is not None and self.backend.lost.done()):
            self._failed(self)

    def again(self, asker: Side, message: Message) -> bool:
        """Nothing is sent again: the next server would not know the client."""
        return False

    def down(self, reason: str | None) -> None:
        """The server cannot be started."""
        if reason is not None:
            self._end(reason)

    def _end(self, reason: str) -> None:
        """The client leaves as well: what its server knew of it is lost."""
        if self._front is not None:
            self._front.session.refusal = (codes.SERVER_LOST, reason)
            if self._first is not None and self._front.is_open(self._first):
                self._front.refuse(self._first, codes.SERVER_LOST, reason)
            self._first = None
            self._front.release()
            self._front.drain()

    def server_asks(self, backend: Backend, message: Message) -> Side | None:
        """Ask the client."""
        if self._front is None:
            backend.refuse(message, "there is no client yet")
        return self._front

    def server_said(self, backend: Backend, message: Message) -> None:
        """Tell the client."""
        if self._front is None:
            return
        if message.method == "notifications/message" or backend.stream() is not None:
            backend.pass_on(message, self._front)
        else:
            backend.pass_notification(message, self._front)
