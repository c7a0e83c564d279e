"""One session of a client of a legacy era (2025-11-25 basic/transports, "Session Management")."""

from __future__ import annotations

import base64
import logging
import re
import secrets
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from wirespeed._core.envelope import parse
from wirespeed.errors import StoreUnavailable
from wirespeed.peer.http.event_store import EventLog
from wirespeed.peer.http.exchange import BUSY, CUT_OFF, dismiss_all, refuse
from wirespeed.peer.http.sessions import SessionEntry

if TYPE_CHECKING:
    from wirespeed.peer.connection import SessionConnection
    from wirespeed.peer.http.exchange import McpExchange, Streams

logger = logging.getLogger("wirespeed.server")

MAX_RESUMABLE = 64  # streams of a session that have ended and can still be resumed
MAX_GETS = 8  # open GETs of a session
MAX_DIGITS = 18  # of the number of an event
MAX_NAMED = 8  # ids of requests in the name of a stream
MAX_ID = 64  # bytes of one of them
_DIGITS = re.compile("[0-9]+")
_CUT_OFF = msgspec.json.encode(CUT_OFF)
UNKNOWN_EVENT = "the stream cannot be resumed after this Last-Event-ID"


def _encoded(id: bytes) -> str:
    """The id of a request, JSON text, in the name of a stream; empty for a long one."""
    return base64.urlsafe_b64encode(id).decode() if len(id) <= MAX_ID else ""


def _decoded(text: str) -> bytes:
    try:
        id = base64.urlsafe_b64decode(text)
        msgspec.json.decode(id, type=str | int)
    except ValueError:
        return b""
    return id


def _answered(event: bytes) -> bytes:
    """The id of the request that an event answers, JSON text; empty for another message."""
    message = parse(event)
    return (message.raw_id or b"") if message.kind in ("result", "error") else b""


def _put_off(exchange: McpExchange) -> None:
    """Let a client come back for what the store cannot give now."""
    if exchange.status:
        exchange.close_stream()
    elif not exchange.gone:
        refuse(exchange, *BUSY)


class _Get:
    """A GET that is open: the messages of one stream of the server's own."""

    __slots__ = ("_most_late", "exchange", "live", "log")

    def __init__(self, exchange: McpExchange, log: EventLog | None, live: bool) -> None:
        self.exchange = exchange
        self.log = log
        self.live = live  # False while earlier events are sent once more
        self._most_late = 0  # bytes that were late at once, since the client fell behind

    def send(self, message: bytes) -> None:
        event_id = None
        carrier = self.exchange.carrier if self.live else None
        if self.log is not None and carrier is not None:
            event_id = self.log.add(message, carrier.link, len(carrier.wire.outbox))
        elif self.log is not None:
            event_id = self.log.add(message)
        if self.live:
            self.exchange.send_event(message, id=event_id)

    def is_stuck(self, most: int) -> bool:
        """Whether the client leaves ``most`` bytes unread. What the store has held back, and what
        is sent once more, reaches the client at once, so that much may be unread besides."""
        if self.exchange.carrier is None:
            return False
        out = self.exchange.carrier.wire.outbox
        if out.ready < most:
            self._most_late = 0
        late = len(out) - out.ready if self.live else len(out)
        self._most_late = max(self._most_late, late)
        return out.ready >= most + self._most_late


class SessionKeeper(Protocol):
    """Writes the state of sessions: `wirespeed.peer.http.endpoint.StreamableHttp`."""

    async def save_session(self, session: HttpSession, /) -> None: ...


class HttpSession(SessionEntry):
    """A session: the server's connection, and the streams that its client can resume.

    What the server says of its own accord goes to the GET that was opened last. While none is open
    it waits, `Limits.output_high` bytes of it; then the oldest messages are dropped.

    The name of a stream has the name of all of them, the epoch, a number, and what it answers: the
    ids of requests in Base64, or nothing for the answer to a GET.

    Args:
        id: The value of ``Mcp-Session-Id``.
        connection: What serves its requests.
        streams: What the streams of the endpoint share.
        streams_name: The beginning of the names of its streams; None makes one.
        epoch: How many processes have had the session before.

    Attributes:
        id, connection, streams_name: As above.
        keeper: Writes its state where other hosts read it; None: nobody does.
        keeps_state: Whether each request may change its state.
        resumable: Whether events are kept, so that they have ids.
    """

    __slots__ = (
        "_absent",
        "_epoch",
        "_gets",
        "_keeps",
        "_logs",
        "_n_logs",
        "_queue",
        "_queued",
        "_streams",
        "keeper",
        "keeps_state",
        "resumable",
        "streams_name",
    )

    def __init__(
        self,
        id: str,
        connection: SessionConnection,
        streams: Streams,
        streams_name: str | None = None,
        epoch: int = 0,
    ) -> None:
        super().__init__(id, connection)
        self.keeper: SessionKeeper | None = None
        self.keeps_state = False
        self._streams = streams
        self.resumable = streams.store is not None
        # The id is a secret, which a store need not know.
        self.streams_name = streams_name or secrets.token_urlsafe(9)
        self._epoch = epoch
        self._keeps = False
        self._n_logs = 0
        self._logs: dict[str, EventLog] = {}  # by name, the oldest first
        self._gets: list[_Get] = []  # the newest last
        self._absent: EventLog | None = None  # of the GET that was lost last, while none is open
        self._queue: deque[bytes] = deque()
        self._queued = 0

    @property
    def busy(self) -> bool:
        """Whether a request of the session is worked on, or a GET is open."""
        return bool(self._gets) or self.connection.session.inflight.live != 0

    def keep_at(self, keeper: SessionKeeper) -> None:
        """From now on, the state of the session is written where other hosts read it."""
        self.keeper = keeper

    def keep_state(self) -> None:
        """A handler keeps something for the session, which each request may change."""
        self.keeps_state = self.keeper is not None

    async def save(self) -> None:
        """The state of the session has changed: wait until other hosts know, or cannot know.
        StoreUnavailable: another host may go on with an older state."""
        if self.keeper is not None:
            await self.keeper.save_session(self)

    def drain(self) -> None:
        """Answer the requests that are worked on, and close the GETs. Where other hosts go on with
        the session, further requests are answered and the GETs stay while one is worked on."""
        if self.keeper is not None and self.connection.session.inflight.live:
            self.connection.drain_at_rest()
            return
        gets, self._gets = self._gets, []
        for get in gets:
            self._close_get(get)
        self.connection.drain()

    def close(self) -> None:
        """End the session: what it works on is cancelled, its streams are closed and forgotten,
        unless another process goes on with it."""
        gets, self._gets = self._gets, []
        for get in gets:
            self._close_get(get)
        dismiss_all(self.connection, "the session has ended")
        self.connection.abort()
        if self._logs:
            self._streams.run(self._end_logs(list(self._logs.values())))
        self._logs.clear()

    def keep_events(self) -> None:
        """Forget no stream at the end: another process goes on with the session."""
        self._keeps = True

    # -- messages of the server's own ----------------------------------------------------------

    def carry(self, messages: list[bytes]) -> None:
        """Send messages on the stream of the last GET, or keep them until there is one."""
        high = self.connection.session.limits.output_high
        for message in messages:
            if self._gets and self._gets[-1].is_stuck(4 * high):
                logger.warning("a client does not read its GET: the stream is closed")
                self._lose(self._gets[-1])
            if self._gets:
                self._gets[-1].send(message)
                continue
            if self._absent is not None:
                self._absent.add(message)
            self._queue.append(message)
            self._queued += len(message)
        while self._queued > high:
            self._queued -= len(self._queue.popleft())

    def open_stream(self, exchange: McpExchange, last_event_id: str | None) -> None:
        """Answer a GET: with a new stream, or with the rest of one."""
        if last_event_id is None or not self.resumable:
            self._open_new(exchange)
            return
        name, _, number = last_event_id.rpartition("-")
        log = self._logs.get(name)
        if len(number) > MAX_DIGITS or not _DIGITS.fullmatch(number):
            refuse(exchange, 400, UNKNOWN_EVENT)
        elif log is None and self._is_older(name):
            self._streams.run(self._resume_older(exchange, name, int(number)))
        elif log is None or int(number) > log.n:
            refuse(exchange, 400, UNKNOWN_EVENT)
        elif log.own:
            self._resume_own(exchange, log, int(number))
        else:
            if log.route is not None:
                log.route.leave()  # the client noticed the loss before we did
            self._streams.run(self._resume(exchange, log, int(number)))

    def _open_new(self, exchange: McpExchange) -> None:
        exchange.open_stream()
        self._go_on(exchange)

    def _go_on(self, exchange: McpExchange) -> None:
        """Send what the server says from now on."""
        get = _Get(exchange, None, True)
        if self.resumable:
            get.log = self.new_log()
            self.prime(exchange, get.log)
        self._add_get(get)
        self._take_queue(get)

    def _resume_own(self, exchange: McpExchange, log: EventLog, n: int) -> None:
        for get in list(self._gets):
            if get.log is log:
                self._gets.remove(get)
                self._close_get(get)
        get = _Get(exchange, log, False)
        self._add_get(get)
        if self._absent is log:  # it has what waits
            self._absent = None
            self._queue.clear()
            self._queued = 0
        self._take_queue(get)
        self._streams.run(self._replay_own(get, log, n))

    async def _replay_own(self, get: _Get, log: EventLog, n: int) -> None:
        get.live = await self._replay(get.exchange, log, n)
        if not get.live:
            self._gone(get)

    async def _resume(self, exchange: McpExchange, log: EventLog, n: int) -> None:
        if await self._replay(exchange, log, n):
            if log.route is None:
                exchange.close_stream()
            else:
                log.route.move(exchange)

    async def _replay(self, exchange: McpExchange, log: EventLog, n: int) -> bool:
        """Send the events of a stream after number `n`. True: the stream goes on from here."""
        while not exchange.gone:
            rest = log.rest(n)
            try:
                events = await log.after(n) if rest is None else rest
            except StoreUnavailable:
                _put_off(exchange)
                break
            carrier = exchange.carrier
            if carrier is None:
                break
            if events is None or (not events and rest is None):
                if exchange.status:
                    exchange.close_stream()
                else:
                    refuse(exchange, 400, UNKNOWN_EVENT)
                break
            if not exchange.status:
                exchange.open_stream()
            if rest:
                log.hold(carrier.link, len(carrier.wire.outbox))
            for n, data in events:
                exchange.send_event(data, id=log.id_of(n))
            if rest is not None:
                return True
        return False

    # -- streams of a process that had the session before ----------------------------------------

    def _is_older(self, name: str) -> bool:
        """Whether a stream may be one of an earlier epoch."""
        key, _, rest = name.partition(".")
        epoch = rest.partition(".")[0]
        return (
            self.resumable
            and key == self.streams_name
            and len(epoch) <= MAX_DIGITS
            and _DIGITS.fullmatch(epoch) is not None
            and int(epoch) < self._epoch
        )

    async def _resume_older(self, exchange: McpExchange, name: str, n: int) -> None:
        ids = name.split(".")[3:]
        seen: Sequence[tuple[int, bytes]] = ()
        try:
            events = await self._streams.events_of(name, n)
            if events is None and n == 0:
                events = ()  # nothing was said there
            elif events is None and ids:
                seen = await self._streams.events_of(name, 0) or ()
                if seen and seen[-1][0] < n:
                    events = ()  # the host was lost before the store had what the client has
        except StoreUnavailable:
            _put_off(exchange)
            return
        if exchange.gone:
            return
        if events is None:
            refuse(exchange, 400, UNKNOWN_EVENT)
            return
        exchange.open_stream()
        for number, data in events:
            exchange.send_event(data, id=f"{name}-{number}")
        if not ids and self.connection.link is None:
            exchange.close_stream()  # the session has ended meanwhile
            return
        if not ids:
            self._go_on(exchange)  # in another stream: the earlier process may still write to this
            return
        answered = {b"", *(_answered(data) for _, data in (*seen, *events))}
        for id in map(_decoded, ids):
            if id not in answered:
                exchange.send_event(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, _CUT_OFF))
        exchange.close_stream()

    def _add_get(self, get: _Get) -> None:
        get.exchange.on_gone = partial(self._gone, get)
        self._streams.end_at(get.exchange, partial(self._lose, get))
        self._gets.append(get)
        if len(self._gets) > MAX_GETS:
            self._close_get(self._gets.pop(0))

    def _gone(self, get: _Get) -> None:
        self.rest()
        if get in self._gets:
            self._gets.remove(get)
            if not self._gets:
                self._absent = get.log

    def _lose(self, get: _Get) -> None:
        """Close a GET whose client may come back."""
        self._close_get(get)
        self._gone(get)

    def _close_get(self, get: _Get) -> None:
        get.exchange.on_gone = None
        if get.exchange.status:
            get.exchange.close_stream()
        else:
            refuse(get.exchange, 400, UNKNOWN_EVENT)

    def _take_queue(self, get: _Get) -> None:
        """Send what waits. It belongs to this stream now, and to no other one."""
        absent, self._absent = self._absent, None
        if absent is not None and self._queue:
            del self._logs[absent.name]
            self._streams.run(absent.forget())
        queue, self._queue, self._queued = self._queue, deque(), 0
        for message in queue:
            get.send(message)

    # -- streams that can be resumed -----------------------------------------------------------

    def pause(self, retry: float | None = None) -> bool:
        """Close the GETs; the client comes back for the rest. ``retry``: the seconds until then;
        None for the option of the server. Returns whether the client will come back."""
        gets = list(self._gets) if self.polls else ()
        for get in gets:
            self.send_retry(get.exchange, retry)
            self._lose(get)
        return bool(gets)

    def new_log(self, route: McpExchange | None = None) -> EventLog:
        """The log of a new stream: of an exchange, or of a GET."""
        self._n_logs += 1
        parts = [self.streams_name, str(self._epoch), str(self._n_logs)]
        if route is not None:
            parts += map(_encoded, route.request_ids()[:MAX_NAMED] or [b""])
        log = EventLog(self._streams, ".".join(parts), route, holds=self.keeper is not None)
        self._logs[log.name] = log
        if len(self._logs) > MAX_RESUMABLE:
            used = [self._absent, *(get.log for get in self._gets)]
            over = [
                one
                for one in self._logs.values()
                if one.route is None and one is not log and one not in used
            ]
            for one in over[:-MAX_RESUMABLE]:
                del self._logs[one.name]
                self._streams.run(one.forget())
        return log

    def prime(self, exchange: McpExchange, log: EventLog) -> None:
        """Tell the client the id to come back with ("Sending Messages to the Server", 6). Clients
        of older revisions may take the empty text for a message."""
        if self.polls:
            exchange.send_event(b"", id=log.id_of(0))
            self.send_retry(exchange)

    def send_retry(self, exchange: McpExchange, seconds: float | None = None) -> None:
        """Tell the client when to come back, by default as the option says."""
        if seconds is None:
            seconds = self._streams.retry
        if seconds is not None:
            exchange.send_text(b"retry: %d\n\n" % round(seconds * 1000))

    @property
    def polls(self) -> bool:
        """Whether the client comes back to a stream whose connection the server closed."""
        revision = self.connection.revision
        return self.resumable and revision is not None and revision.polls

    async def _end_logs(self, logs: list[EventLog]) -> None:
        for log in logs:
            await (log.written() if self._keeps else log.forget())
