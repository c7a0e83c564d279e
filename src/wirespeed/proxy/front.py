"""A client of the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed._core.session import Session
from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.eras import unsupported
from wirespeed.proxy.ongoing import Ongoing
from wirespeed.proxy.side import Side
from wirespeed.proxy.subscriptions import end_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.isolation.assignment import Router
    from wirespeed.proxy.service import ProxyService
    from wirespeed.server.http.exchange import McpExchange

logger = logging.getLogger("wirespeed.proxy")


class Front(Side):
    """A `wirespeed.transport.service.Connection`: what the client asks is passed to a server.

    Attributes:
        router: What decides to which server.
        translates: Whether the client is served if its server does not speak its era.
        on_drain: What is called before the last requests are waited for.
        revision: The `Revision` that `initialize` agreed on.
        request_id: What the client calls its HTTP request, if its requests come one by one.
    """

    # a dict for each idle client is too much
    __slots__ = ("_grace_timer", "on_drain", "request_id", "router", "service", "translates")

    def __init__(
        self,
        service: ProxyService,
        loop: asyncio.AbstractEventLoop,
        framer: Framer | None,
        router: Router,
    ) -> None:
        super().__init__(Session(limits=service.limits, role="server", framer=framer), loop)
        self.service = service
        self.closed = loop.create_future()
        self.router = router
        self.request_id: str | None = None
        self.translates = False
        self.on_drain: Callable[[], None] | None = None
        self._grace_timer: asyncio.TimerHandle | None = None

    @property
    def is_client(self) -> bool:
        """Whether it is a client of its service, and not a part of one that is translated."""
        return not isinstance(self.outer, Front) or self.outer.service is not self.service

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was answered."""
        return self.router.route(self, message)

    def on_eof(self) -> None:
        """The client sends no more: answer its requests, then close."""
        self._drain()

    def on_slow(self) -> None:
        """The client has not read for too long: its connection ends."""
        self.service.cut["slow reader"] += 1

    def on_lost(self, exc: BaseException | None) -> None:
        """The client has left."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        if exc is not None:
            logger.info("connection lost: %s", exc)
        super().on_lost(exc)
        if self.is_client:
            self.service.left(self)
        self.router.left(self)
        if not self.closed.done():
            self.closed.set_result(exc)

    def notified(self, message: Message) -> None:
        """Take a notification that belongs to no request."""
        self.router.client_said(self, message)

    def overheard(self, message: Message) -> None:
        """The server has told this client of a change."""
        if message.method == "notifications/tools/list_changed":
            self.service.mirrored.forget()

    def answer(self, message: Message, result: bytes) -> None:
        """Answer a request with a result, unless the client has left."""
        if self.link is not None:
            self.session.send_result(message, result)
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error, unless the client has left."""
        if self.link is not None:
            if code == codes.SERVER_LOST:
                self.unserved(message)
            self.refused(message, code)
            self.session.send_error(message, code, text, data)
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def other_era(
        self,
        message: Message,
        versions: Sequence[str],
        wanted: object,
        backend: Backend | None = None,
    ) -> None:
        """A server does not speak the era of a request: translate it, or refuse it.

        ``versions``: What the server speaks. ``wanted``: What the request names. ``backend``: The
        client's own connection to the server.
        """
        if self.translates:
            self.service.translate(self, message, backend)
        else:
            code, text, data = unsupported(versions, wanted)
            text = f"{text}; {self.service.name}: its translate is off"
            self.refuse(message, code, text, data)

    async def ask(self, method: str, params: bytes, about: int) -> msgspec.Raw:
        """Send a request of the proxy itself to the client, about one of its own. Returns the
        result. RemoteError, TransportError: there is none."""
        if self.link is None:
            raise TransportError("the client has left")
        future: asyncio.Future[msgspec.Raw] = self.loop.create_future()
        id = self.session.send_request(method, params, token=future, about=about)
        self.link.wrote()
        try:
            return await future
        finally:
            if self.link is not None and self.awaits(id):
                self.session.cancel(id, about=about)
                self.link.wrote()

    def answered(self, message: Message | None, token: Any) -> None:
        """Take the answer to a request of the proxy itself. A client without a session was asked
        nothing."""
        if self.shared and self.head is not None:
            cast("McpExchange", self.peer).refuse_response()
        if not isinstance(token, asyncio.Future) or token.done():
            return
        if message is None:
            token.set_exception(TransportError("the client has left"))
        elif message.error is not None:
            token.set_exception(remote_error(message.error))
        else:
            token.set_result(msgspec.Raw(bytes(message.result or b"{}")))

    def notified_about(self, message: Message, token: Any) -> None:
        """Take a notification about a request that the proxy answers."""
        if isinstance(token, Ongoing):
            token.notified(message)
        else:
            super().notified_about(message, token)

    def release(self) -> None:
        """Let the requests go on that waited for a server."""
        self.session.pauses_requests = False
        if self.link is not None:
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def drain(self) -> None:
        """Take no more requests, answer those in flight within the grace time, then close."""
        if not self.draining:
            if self.session.refusal is None:  # else its server is not there
                self.session.refusal = (codes.SHUTTING_DOWN, self.service.farewell)
            end_subscriptions(self)
            self._drain()

    def _drain(self) -> None:
        if self.draining:
            return
        self.draining = True
        if self.on_drain is not None:
            self.on_drain()
        if self.link is not None:
            self._grace_timer = self.loop.call_later(self.service.shutdown_grace, self._grace_over)
            self.check_drained()

    def _grace_over(self) -> None:
        """Requests are not waited for any more."""
        end_subscriptions(self)
        n = self.session.inflight.live
        if n:
            logger.warning(
                "%s: %d requests of a client did not end within %g s, and were cut off",
                self.service.name,
                n,
                self.service.shutdown_grace,
            )
        refusal = self.session.refusal
        self.cut_off("the client sends no more" if refusal is None else refusal[1])

    def speak(self, version: object) -> None:
        """Go on in the revision that `initialize` agreed on, if it is a known one."""
        self.revision = REVISIONS.get(version) if isinstance(version, str) else None
        self.session.batches = self.revision is not None and self.revision.batches

    def agreed(self, message: Message) -> None:
        """A server has answered `initialize`."""
        assert message.result is not None
        result: Any = None
        with contextlib.suppress(msgspec.DecodeError):  # it is JSON, but more than Python can hold
            result = msgspec.json.decode(message.result)
        self.speak(result.get("protocolVersion") if isinstance(result, dict) else None)
        if self.across is not None:
            self.across.revision = self.revision


def outermost(front: Front) -> Front:
    """Return the connection of a client, of which another one is a part."""
    while isinstance(front.outer, Front):
        front = front.outer
    return front


def principal_of(front: Front) -> bytes | None:
    """Return the digest of the principal whose request is served; None: there is no principal. A
    client of several servers has a connection to each. Over HTTP the next request on these
    connections may be of another principal."""
    found: bytes | None = outermost(front).principal
    return found
