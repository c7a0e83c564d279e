"""The endpoints of a service over HTTP. What a client on a stream asks of another process goes by
them, too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from wirespeed.errors import ProtocolError
from wirespeed.peer.http.exchange import CUT_OFF
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_MODERN
from wirespeed.proxy.downstream import DeferredRequest

if TYPE_CHECKING:
    import asyncio

    from wirespeed._core.envelope import Message
    from wirespeed.peer.http.endpoint import StreamableHttp
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.peer.http.sessions import Sessions
    from wirespeed.proxy.downstream import Downstream

_FIELDS = (
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", LATEST_MODERN.encode()),
)
_EVENTS = (b"content-type", b"text/event-stream")


class OverHttp:
    """The endpoints of one service."""

    def __init__(self) -> None:
        self._endpoints: list[StreamableHttp] = []

    def add(self, endpoint: StreamableHttp) -> StreamableHttp:
        """Take one more endpoint, until it drains. Returns it."""
        self._endpoints.append(endpoint)
        return endpoint

    @property
    def endpoints(self) -> list[StreamableHttp]:
        """Those that take requests."""
        self._endpoints = [one for one in self._endpoints if not one.draining]
        return self._endpoints

    @property
    def sessions(self) -> list[Sessions[HttpSession]]:
        """The tables of their sessions."""
        return [one.sessions for one in self.endpoints if one.sessions is not None]

    def passes_on(self, downstream: Downstream, message: Message, text: bytes) -> bool:
        """Let another process answer a request of a client on a stream, if the request names one.
        ``text``: The request as it came."""
        for endpoint in self.endpoints:
            if endpoint.site is not None and endpoint.elsewhere(message)[1] is not None:
                StreamRequest(downstream, message, text, endpoint)
                return True
        return False


class StreamRequest(DeferredRequest):
    """A request of a client on a stream that another process answers. It goes the way of a request
    over HTTP, without header fields of its own (`PassedClient.streams`)."""

    sent = True  # what becomes of it is noted where it is answered

    def __init__(
        self, downstream: Downstream, message: Message, text: bytes, endpoint: StreamableHttp
    ) -> None:
        from wirespeed.transport.http.asgi_link import AsgiLink
        from wirespeed.transport.http.exchange import PassedClient

        peer: Any = downstream.peer_of(message)
        address, user = ("a client", None) if peer is None else (peer.address, peer.user)
        client = PassedClient(
            address, user, downstream.principal, math.inf, -1, far=False, streams=True
        )
        self._closed = downstream.closed
        self._link = AsgiLink(endpoint.site, endpoint.pool, client=client)
        path = next(path for path, one in endpoint.site.targets.items() if one is endpoint)
        scope = {"method": "POST", "path": path.decode("latin-1"), "headers": _FIELDS}
        self._link.begin(scope, text, False)
        super().__init__(downstream, message, self._answer(downstream, message), set())
        self._closed.add_done_callback(self._left)
        self.task.add_done_callback(self._over)

    async def _answer(self, downstream: Downstream, message: Message) -> None:
        """Send what the other process says."""
        from wirespeed.transport.http.sse import EventReader

        link, status, body = self._link, 0, b""
        events: EventReader | None = None
        over = False
        while not over and not link.gone:
            start, data, over = link.take()
            if start is not None:
                status = start["status"]
                if _EVENTS in start["headers"]:
                    events = EventReader(max_event=downstream.service.limits.max_message)
            if events is None:
                body += data
            else:
                for _, event, _, _ in events.feed(data):
                    downstream.tell(message, bytes(event))
            while (room := downstream.wait_for_room()) is not None:
                await room
            link.go_on()
            if not over and not link.has_output and not link.over:
                await link.changed()
        if body:
            downstream.tell(message, body)
        if downstream.is_open(message):
            if status < 400:
                raise ProtocolError(codes.CUT_OFF, str(CUT_OFF["message"]))
            code = codes.OVERLOADED if status == 503 else codes.INTERNAL_ERROR
            raise ProtocolError(code, f"the host of the request answers with the status {status}")

    def _left(self, closed: asyncio.Future[BaseException | None]) -> None:
        """The client has left."""
        self.task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        """The request is answered, or the client wants no answer."""
        self._closed.remove_done_callback(self._left)
        self._link.close()

    def drain(self) -> None:
        """As of the base class."""
        self._link.drain()
