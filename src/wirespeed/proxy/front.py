"""A client of the proxy."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from wirespeed._core.session import Session
from wirespeed.protocol import codes
from wirespeed.proxy.side import Side

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.proxy.assignment import Assignment
    from wirespeed.proxy.service import ProxyService
    from wirespeed.transport.service import Peer

logger = logging.getLogger("wirespeed.proxy")


class Front(Side):
    """A `wirespeed.transport.service.Connection`: what the client asks is passed to a server.

    Attributes:
        assignment: What decides to which server.
        revision: The revision that `initialize` agreed on, where the proxy answers that itself.
    """

    def __init__(
        self, service: ProxyService, loop: asyncio.AbstractEventLoop, framer: Framer | None
    ) -> None:
        super().__init__(Session(limits=service.limits, role="server", framer=framer), loop)
        self.service = service
        self.closed: asyncio.Future[BaseException | None] = loop.create_future()
        self.principal: bytes | None = None
        self.peer: Peer | None = None
        self.revision: str | None = None
        self.assignment: Assignment = service.assignment
        self._grace_timer: asyncio.TimerHandle | None = None

    def route(self, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was answered."""
        return self.assignment.route(self, message)

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
        self.assignment.left(self)
        if not self.closed.done():
            self.closed.set_result(exc)

    def notified(self, message: Message) -> None:
        """Take a notification that belongs to no request."""
        self.assignment.client_said(self, message)

    def release(self) -> None:
        """Let the requests go on that waited for a server."""
        self.session.pauses_requests = False
        if self.link is not None:
            self.link.wrote()

    def drain(self) -> None:
        """Take no more requests, answer those in flight within the grace time, then close."""
        if not self.draining:
            self.session.refusal = (codes.SHUTTING_DOWN, "the proxy is shutting down")
            self._drain()

    def _drain(self) -> None:
        if self.draining:
            return
        self.draining = True
        if self.link is not None:
            self._grace_timer = self.loop.call_later(self.service.shutdown_grace, self.abort)
            self.check_drained()

    def abort(self) -> None:
        """Close now."""
        if self.link is not None:
            self.link.close()
