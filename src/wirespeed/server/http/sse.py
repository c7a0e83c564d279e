"""HTTP+SSE of 2024-11-05 (basic/transports, "HTTP with SSE"), which later revisions replaced: a GET
is a connection, whose stream has all messages of the server; each message of the client is a POST.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from wirespeed.server.http.exchange import refuse
from wirespeed.server.http.media_types import accepts, is_json
from wirespeed.server.http.session_link import SessionLink
from wirespeed.server.http.sessions import Session, SessionLimit, Sessions
from wirespeed.server.http.streams import Streams
from wirespeed.transport.http.exchange import Elsewhere, Exchange, HttpTarget
from wirespeed.transport.service import Peer

if TYPE_CHECKING:
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.service import McpService
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.taskpool import TaskPool

PARAMETER = "session_id"  # of the query that says which stream a POST belongs to


class SseSession(Session):
    """A client: its GET, and the connection that serves it. It lives as long as the GET."""

    def __init__(
        self, id: str, connection: ServerConnection, exchange: Exchange, end: Callable[[], None]
    ) -> None:
        super().__init__(id, connection)
        self._exchange = exchange
        assert isinstance(connection.link, SessionLink)
        self._link = connection.link
        self._link.carry = self.carry
        self._end = end
        self.held: deque[tuple[Exchange, bytes]] = deque()
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

    def hold(self, exchange: Exchange, body: bytes) -> None:
        """Keep a POST waiting: too many requests of the session wait already."""
        self.held.append((exchange, body))
        self._link.on_room = self._read_on

    def _read_on(self) -> None:
        """Take one POST that waits. The next one follows in a later turn of the loop."""
        while self.held:
            exchange, body = self.held.popleft()
            if not exchange.gone:
                exchange.respond(202)
                self.connection.session.receive_message(body)
                self._link.wrote()
                break
        if not self.held:
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
        while self.held:
            exchange, _ = self.held.popleft()
            if not exchange.gone:
                refuse(exchange, 404, "there is no such session")

    def _ended(self, closed: asyncio.Future[BaseException | None]) -> None:
        self._exchange.on_gone = None
        self._exchange.close_stream()
        self._end()


class SseEndpoint(HttpTarget):
    """Serves one server at the path of ``HttpOptions(sse_path=…)``."""

    methods = ("GET", "POST")

    def __init__(
        self,
        service: McpService,
        options: HttpOptions,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
    ) -> None:
        self._service = service
        self._loop = loop
        self._pool = pool
        self._streams = Streams(loop, options)
        self._sessions: Sessions[SseSession] = Sessions(
            loop,
            ttl=options.session_ttl,
            max_sessions=options.max_sessions,
            max_per_principal=options.max_sessions_per_principal,
        )

    def take(self, exchange: Exchange, body: bytes) -> None:
        method = exchange.method
        if method == "GET":
            self._open(exchange)
        elif method == "POST":
            self._post(exchange, body)
        else:
            refuse(exchange, 405, "this endpoint takes GET and POST", [("Allow", "GET, POST")])

    def _open(self, exchange: Exchange) -> None:
        if not accepts(exchange.headers.get("accept", "*/*"))[1]:
            refuse(exchange, 406, "the response is text/event-stream")
            return

        def make(id: str) -> SseSession:
            connection = self._service.connect(
                lambda endpoint: SessionLink(self._loop, endpoint),
                loop=self._loop,
                pool=self._pool,
            )
            connection.principal = exchange.principal
            connection.peer = Peer(exchange.address, exchange.user, lambda: exchange.headers)
            connection.closed.add_done_callback(lambda _: self._streams.closed(exchange))
            session = SseSession(id, connection, exchange, lambda: self._sessions.end(session))
            return session

        try:
            session = self._sessions.open(exchange.principal, make)
        except SessionLimit as exc:
            refuse(exchange, 503, str(exc), [("Retry-After", str(exc.retry_after))])
            return
        exchange.open_stream()
        self._streams.opened(exchange)
        self._streams.end_at(exchange, session.drain)
        place = f"{exchange.path}?{PARAMETER}={session.id}"
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
            worker = self._sessions.owner(ids[0])
            if worker is not None:
                raise Elsewhere(worker)
            refuse(exchange, 404, "there is no such session")
            return
        connection = session.connection
        if connection.link is None or session.held or not connection.session.want_read:
            session.hold(exchange, body)
        else:
            exchange.respond(202)
            connection.session.receive_message(body)
            connection.link.deliver()

    def share(self, worker: int, n: int) -> None:
        self._sessions.share(worker, n)

    def drain(self) -> None:
        self._sessions.drain()

    def close(self) -> None:
        self._sessions.close()

    async def aclose(self) -> None:
        self._streams.stop()
