"""A client of one era with a server of the other."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.backend_config import DELAYS, BackendDelays
from wirespeed.proxy.binding import UNBOUND, Binding
from wirespeed.proxy.downstream import DeferredRequest
from wirespeed.proxy.isolation.instance import guarded
from wirespeed.proxy.isolation.modern import Waiting
from wirespeed.proxy.upstream import BAD_MESSAGE, told

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.binding import Functions
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream, UpstreamOwner

logger = logging.getLogger("wirespeed.proxy")


class Translator:
    """The base of `ModernClient` and `LegacyClient`: a `Router` of one client, and the
    `UpstreamOwner` of its connection to a server.

    Args:
        downstream: The client.
        join: Makes both ends of one more connection to the server.
        own: The client's own connection, which is used instead; None: it has none.

    Attributes:
        upstream: The connection; None while there is none, or it is not ready.
    """

    def __init__(
        self,
        downstream: Downstream,
        join: Callable[[UpstreamOwner, Downstream], tuple[Upstream, Downstream]],
        own: Upstream | None,
    ) -> None:
        self.downstream = downstream
        self.upstream: Upstream | None = None
        self._before: UpstreamOwner | None = None
        self._join = join
        self._own = own
        self._earlier = downstream.router
        self._connecting: Upstream | None = None
        self._starting: asyncio.Task[None] | None = None
        self._waiting = Waiting()
        self._works: set[DeferredRequest] = set()

    def take(self, requests: Functions) -> None:
        """Take the requests of the client over. ``requests``: What the translator answers."""
        flow = self.downstream.service.flow
        if self._own is None:
            self._earlier.left(self.downstream)  # the translator is a client of that router now
            flow = None  # the limits are those of its connection
        self.downstream.bind(Binding.to_translator(self, flow, requests, self.end))

    @property
    def is_shared(self) -> bool:
        """Whether other clients have the same server."""
        return self._own is None and self._earlier.is_shared

    # -- for subclasses --------------------------------------------------------------------------

    async def greet(self, upstream: Upstream, message: Message) -> None:
        """Shake hands with the server, for the first message of the client. WirespeedError: it
        failed."""
        raise NotImplementedError

    def handle(self, message: Message) -> Upstream | None:
        """Return the server of a request, or None if it was or will be answered."""
        raise NotImplementedError

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Take a request of the server."""
        raise NotImplementedError

    def said(self, message: Message) -> None:
        """Take a notification of the server. ProtocolError, DecodeError: it is malformed."""
        raise NotImplementedError

    def end(self) -> None:
        """The client is to leave: end what has no end of its own."""

    def lost(self) -> None:
        """The connection is gone."""

    # -- the client ------------------------------------------------------------------------------

    def joined(self, downstream: Downstream) -> None:
        """Not called."""

    def failed(self) -> None:
        """Report a failure to the earlier owner of the connection, if that is the client's own."""
        if self._before is not None:
            self._before.failed()

    def again(self, asker: Side, message: Message) -> bool:
        """Returns False: the owner of the server sends requests again."""
        return False

    def left(self, downstream: Downstream) -> None:
        """The client has left."""
        if self._starting is not None:
            self._starting.cancel()
        self.lost()
        for upstream in (self.upstream, self._connecting):
            if upstream is not None and upstream.link is not None:
                upstream.abort()
        self.upstream = None
        if self._own is not None:
            self._earlier.left(downstream)

    def hand_back(self, message: Message) -> bool:
        """Let what served the client before serve it from this legacy request on. Returns whether
        it can."""
        downstream = self.downstream
        if self._own is not None or downstream.link is None or self._starting is not None:
            return False
        self.left(downstream)
        downstream.bind(Binding.to_router(self._earlier, downstream.service.flow))
        self._earlier.joined(downstream)
        downstream.requests["initialize"](downstream, message)
        return True

    def route(self, downstream: Downstream, message: Message) -> Upstream | None:
        """Return the server that a request goes to, or None if it waits or was answered."""
        if self.upstream is not None:
            return self.handle(message)
        self._waiting.add(downstream, message)
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start(message))
        return None

    async def _start(self, message: Message) -> None:
        """Connect to the server, and let the requests go on."""
        refusal: tuple[int, str, Any]
        try:
            upstream = self._connecting = self._connect()
            async with asyncio.timeout(self._patience):
                await self.greet(upstream, message)
            self.upstream = upstream
            refusal = codes.SERVER_LOST, "the server is not there", None
        except (ProtocolError, RemoteError) as exc:
            refusal = exc.code, exc.message, exc.data
        except (WirespeedError, TimeoutError) as exc:
            logger.info("%s: %s: %s", self.downstream.service.name, message.method, exc)
            refusal = codes.SERVER_LOST, told(self.downstream.service.name, exc), None
        except Exception:
            logger.exception("internal error of the proxy at %s", message)
            refusal = codes.INTERNAL_ERROR, "Internal error", None
        finally:
            self._starting = None
        if self.upstream is None:
            self._hang_up()
        self.downstream.release()
        for _, one in self._waiting.take():
            if not self.downstream.is_open(one):
                continue
            if self.upstream is None:
                self.downstream.refuse(one, *refusal)
            else:
                with guarded(self.downstream, one):
                    if (to := self.handle(one)) is not None:
                        self.downstream.pass_request(one, to)

    def _connect(self) -> Upstream:
        if self._own is None:
            return self._join(self, self.downstream)[0]
        self._before = self._own.pass_to(self)
        self._own.bind(UNBOUND)
        return self._own

    @property
    def delays(self) -> BackendDelays:
        """The delays around the server."""
        config = self.downstream.service.config
        return DELAYS if config is None else config.delays

    @property
    def _patience(self) -> float | None:
        """Seconds for the handshake with a server of the client's own. Who owns a shared one limits
        that."""
        config = self.downstream.service.config
        return None if self._own is None or config is None else config.start_timeout

    def _hang_up(self) -> None:
        upstream, self._connecting = self._connecting, None
        if upstream is not None and upstream.link is not None:
            upstream.abort()

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Drop a notification: none has a counterpart in the other era."""

    # -- the server ------------------------------------------------------------------------------

    async def opened(self, upstream: Upstream) -> None:
        """Not called: who owns the server has opened it."""

    def down(self, reason: str | None) -> None:
        """Not called."""

    def closed(self, upstream: Upstream) -> None:
        """The connection is gone. The next request makes another."""
        if upstream is self._connecting:
            self._connecting = None
        if upstream is self.upstream:
            self.upstream = None
            self.downstream.bind(self.downstream.binding.lost())
            self.lost()

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Take a notification that belongs to no request. One that is malformed is counted."""
        try:
            self.said(message)
        except (ProtocolError, msgspec.DecodeError):
            upstream.garbage.add(upstream, BAD_MESSAGE, f"a malformed {message.method}")

    def work(self, message: Message, work: Coroutine[Any, Any, None]) -> None:
        """Answer a request of the client later: see `DeferredRequest`."""
        if self.downstream.is_open(message):
            DeferredRequest(self.downstream, message, work, self._works)
        else:
            work.close()

    def stop_works(self) -> None:
        """Cancel what is answered later: the client or the server is gone."""
        for one in list(self._works):
            one.task.cancel()
