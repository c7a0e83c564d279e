"""A client of the proxy."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.session import Session
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.proxy.side import Side

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.proxy.isolation.assignment import Router
    from wirespeed.proxy.service import ProxyService

logger = logging.getLogger("wirespeed.proxy")


class Front(Side):
    """A `wirespeed.transport.service.Connection`: what the client asks is passed to a server.

    Attributes:
        router: What decides to which server.
        revision: The `Revision` that `initialize` agreed on.
    """

    __slots__ = ("_grace_timer", "router", "service")  # a dict for each idle client is too much

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
        self._grace_timer: asyncio.TimerHandle | None = None

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was answered."""
        return self.router.route(self, message)

    def on_eof(self) -> None:
        """The client sends no more: answer its requests, then close."""
        self._drain()

    def on_lost(self, exc: BaseException | None) -> None:
        """The client has left."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        if exc is not None:
            logger.info("connection lost: %s", exc)
        super().on_lost(exc)
        self.service.fronts.discard(self)
        self.service.meter.client_left(self)
        self.router.left(self)
        if not self.closed.done():
            self.closed.set_result(exc)

    def notified(self, message: Message) -> None:
        """Take a notification that belongs to no request."""
        self.router.client_said(self, message)

    def refuse(self, message: Message, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error, unless the client has left."""
        if self.link is not None:
            self.session.send_error(message, code, text, data)
            self.link.wrote()
            if self.draining:
                self.check_drained()

    def release(self) -> None:
        """Let the requests go on that waited for a server."""
        self.session.pauses_requests = False
        if self.link is not None:
            self.link.wrote()

    def drain(self) -> None:
        """Take no more requests, answer those in flight within the grace time, then close."""
        if not self.draining:
            if self.session.refusal is None:  # else its server is not there
                self.session.refusal = (codes.SHUTTING_DOWN, "the proxy is shutting down")
            self._drain()

    def _drain(self) -> None:
        if self.draining:
            return
        self.draining = True
        if self.link is not None:
            self._grace_timer = self.loop.call_later(self.service.shutdown_grace, self.abort)
            self.check_drained()

    def speak(self, version: object) -> None:
        """Go on in the revision that `initialize` agreed on, if it is a known one."""
        self.revision = REVISIONS.get(version) if isinstance(version, str) else None
        self.session.batches = self.revision is not None and self.revision.batches

    def agreed(self, message: Message) -> None:
        """A server has answered `initialize`."""
        assert message.result is not None
        result = msgspec.json.decode(message.result)
        self.speak(result.get("protocolVersion") if isinstance(result, dict) else None)
        if self.across is not None:
            self.across.revision = self.revision
