"""HTTP+SSE of 2024-11-05 (basic/transports, "HTTP with SSE"), which later revisions replaced: a GET
opens a connection that lives as long as it, whose stream has all messages of the server; each
message of the client is a POST.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from wirespeed._core.envelope import Message, parse
from wirespeed._exports import set_public_home
from wirespeed.peer.http.exchange import Streams, not_passed, refuse
from wirespeed.peer.http.headers import accepts, is_json
from wirespeed.peer.http.sessions import SessionEntry, SessionLimit, SessionLink, Sessions, is_id
from wirespeed.transport.gate import Refused
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.options import Refusal
from wirespeed.transport.service import Connecting, Graceful, Peer

if TYPE_CHECKING:
    from wirespeed.peer.connection import SessionConnection
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.taskpool import TaskPool

PARAMETER = "session_id"  # of the query that says which stream a POST belongs to
_OVER = "there is no such session: open a new stream, and send initialize again"
_PASSING = frozenset(("notification", "result", "error"))


class SseSession(SessionEntry):
    """A client: its GET, and the connection that serves it. It lives as long as the GET."""

    def __init__(
        self, id: str, connection: SessionConnection, exchange: Exchange, end: Callable[[], None]
    ) -> None:
        super().__init__(id, connection)
        self._exchange = exchange
        assert isinstance(connection.link, SessionLink)
        self._link = connection.link
        self._link.carry = self.carry
        self._end = end
        self._held: dict[Exchange, tuple[bytes, Message]] = {}
        exchange.on_gone = end
        exchange.on_drained = self._drained
        connection.closed.add_done_callback(self._ended)

    def carry(self, messages: list[bytes]) -> None:
        """Send messages. Further ones wait in the session while the client does not read."""
        for message in messages:
            self._exchange.send_event(message, event="message")
        wire = None if self._exchange.carrier is None else self._exchange.carrier.wire
        if wire is not None and len(wire.outbox) >= wire.limits.output_high:
            self._link.full = True

    def _drained(self) -> None:
        self._link.full = False
        self._link.flush_now()
        self.connection.on_drained()

    def post(self, exchange: Exchange, body: bytes) -> None:
        """Take a POST. While too many requests of the session wait, further ones are held. Other
        messages pass them, and a cancellation drops the request that it names."""
        session = self.connection.session
        if self.connection.link is not None and session.want_read and not self._held:
            self._take(exchange, body)
            self._link.deliver()
            return
        message = parse(body, max_depth=session.limits.max_depth)
        passes = message.kind in _PASSING or (message.kind, message.method) == ("request", "ping")
        if self.connection.link is None or not passes:
            self._held[exchange] = body, message
            exchange.on_gone = partial(self._held.pop, exchange)
            self._link.on_room = self._read_on
        elif message.method == "notifications/cancelled" and self._withdraw(message):
            exchange.respond(202)
        else:
            self._take(exchange, body)
            self._link.deliver()

    def _take(self, exchange: Exchange, body: bytes) -> None:
        exchange.on_gone = None
        exchange.respond(202)
        self.connection.session.receive_message(body)

    def _withdraw(self, cancellation: Message) -> bool:
        """Drop a request that is held. Returns whether there is one."""
        id = cancellation.lease("params.requestId")
        for exchange, (_, message) in self._held.items():
            if message.kind == "request" and id is not None and message.raw_id == bytes(id):
                del self._held[exchange]
                exchange.on_gone = None
                exchange.respond(202)
                return True
        return False

    def _read_on(self) -> None:
        """Take one POST that is held. The next one follows in a later turn of the loop."""
        if self._held:
            exchange = next(iter(self._held))
            self._take(exchange, self._held.pop(exchange)[0])
            self._link.wrote()
        if not self._held:
            self._link.on_room = None

    @property
    def busy(self) -> bool:
        """Always: its GET is open."""
        return True

    def drain(self) -> None:
        """Answer the requests that are worked on, then end."""
        self.connection.drain()

    def close(self) -> None:
        """End now."""
        self.connection.abort()
        while self._held:
            exchange, _ = self._held.popitem()
            exchange.on_gone = None
            refuse(exchange, 404, _OVER)

    def _ended(self, closed: asyncio.Future[BaseException | None]) -> None:
        self._exchange.on_gone = None
        self._exchange.close_stream()
        self._end()


class _Served(Connecting, Graceful, Protocol):
    """The service behind an `SseEndpoint`."""


class SseEndpoint(HttpTarget):
    """Serves one server at the path of ``HttpOptions(sse_path=…)``."""

    methods = ("GET", "POST")

    def __init__(
        self,
        service: _Served,
        options: HttpOptions,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
    ) -> None:
        self._service = service
        self._loop = loop
        self._pool = pool
        self._streams = Streams(loop, options)
        self._directory = options.directory
        self._draining = False
        self._sessions: Sessions[SseSession] = Sessions(
            loop,
            name=options.name,
            ttl=options.session_ttl,
            max_sessions=options.max_sessions,
            max_per_principal=options.max_sessions_per_principal,
        )

    @property
    def shutdown_grace(self) -> float:
        return self._service.shutdown_grace

    def take(self, exchange: Exchange, body: bytes) -> None:
        method = exchange.method
        if method == "GET":
            self._open(exchange)
        elif method == "POST":
            self._post(exchange, body)
        else:
            refuse(exchange, 405, "this endpoint takes GET and POST", [("Allow", "GET, POST")])

    def _open(self, exchange: Exchange) -> None:
        if self._draining:
            raise Refused(Refusal(503, "the server is shutting down"))
        if not accepts(exchange.headers.get("accept", "*/*"))[1]:
            refuse(exchange, 406, "the response is text/event-stream")
            return

        def make(id: str) -> SseSession:
            connection = self._service.connect(
                lambda endpoint: SessionLink(self._loop, endpoint), loop=self._loop, pool=self._pool
            )
            connection.principal = exchange.principal
            connection.peer = Peer(exchange.address, exchange.user, lambda: exchange.headers)
            connection.closed.add_done_callback(lambda _: self._streams.closed(exchange))
            session = SseSession(id, connection, exchange, lambda: self._sessions.end(session))
            return session

        try:
            session = self._sessions.open(exchange.principal, make)
        except SessionLimit as exc:
            refuse(exchange, exc.status, str(exc), [("Retry-After", str(exc.retry_after))])
            return
        exchange.open_stream()
        self._streams.opened(exchange)
        self._streams.end_at(exchange, session.drain)
        # relative: a proxy or an application before the server may have cut the path at its front
        place = f"{exchange.path.rpartition('/')[2]}?{PARAMETER}={session.id}"
        exchange.send_event(place.encode("latin-1"), event="endpoint")

    def _post(self, exchange: Exchange, body: bytes) -> None:
        if not is_json(exchange.headers.get("content-type", "")):
            refuse(exchange, 415, "the body must be application/json")
            return
        ids = parse_qs(exchange.query).get(PARAMETER)
        if ids is None:
            refuse(exchange, 400, f"the URI needs the parameter {PARAMETER}")
            return
        session = self._sessions.find(ids[0], exchange.principal)
        if session is None:
            self._pass_on(exchange, ids[0], body)
        else:
            session.post(exchange, body.removeprefix(BOM_UTF8))

    def _pass_on(self, exchange: Exchange, id: str, body: bytes) -> None:
        """Let the process that has a session answer. A session lives as long as its GET, so nobody
        adopts it."""
        carrier: Any = exchange.carrier
        passed = carrier.passed
        host: str | int | None
        if self._directory is None:
            host = self._sessions.owner(id)
        elif not is_id(id) or (passed is not None and not passed.far):
            host = None
        else:
            host = self._directory.host_of(id, None if passed is None else passed.worker)
        if isinstance(host, int):
            carrier.pass_on(exchange, host, body, partial(not_passed, exchange, body))
        elif host is not None and self._directory is not None:
            self._directory.pass_on(exchange, id, host, body, partial(not_passed, exchange, body))
        else:
            refuse(exchange, 404, _OVER)

    def share(self, worker: int, n: int) -> None:
        self._sessions.share(worker, n)

    def drain(self) -> None:
        self._draining = True
        self._sessions.drain()

    async def drained(self) -> None:
        """Wait for the requests of the sessions."""
        await self._sessions.drained()

    def close(self) -> None:
        self._sessions.close()

    async def aclose(self) -> None:
        self._streams.stop()


set_public_home(globals())
