"""A POST of Streamable HTTP and its response: JSON, or a stream of events. It is an `Exchange` of
`wirespeed.transport.http`.

`Streams` is what the streams of one endpoint share: the store of events, and comments that keep
silent connections open.
"""

cimport cython
from libc.math cimport INFINITY

import asyncio
import logging
import time

import msgspec

from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.transport.http.exchange cimport Carrier, Exchange

from wirespeed._core.envelope import parse
from wirespeed.errors import StoreUnavailable
from wirespeed.peer.http.event_store import SharedEventStore, value_of
from wirespeed.protocol import codes
from wirespeed.transport.options import NotPassed
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.server")

LAST_WAIT = 5.0        # seconds for a store, at the end
SESSION_OVER = "there is no such session: send initialize again"
# The error of a request whose host is lost.
CUT_OFF = {
    "code": codes.CUT_OFF,
    "message": "the host of the request was lost: the request may have taken effect",
}
BUSY = (503, "the session is not found now: try again", [("Retry-After", "1")])

cdef bytes JSON_FIELDS = b"Content-Type: application/json\r\n"
RETRY_AFTER = 5        # seconds, for a server that is full

cdef object encode = msgspec.json.Encoder().encode

cdef enum:
    PARTS = 8          # of the streams of an endpoint, looked at in turn
    # `wirespeed.protocol.codes`, for the switch below
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    OVERLOADED = -31000
    SHUTTING_DOWN = -31001
    SERVER_LOST = -31004
    INSUFFICIENT_SCOPE = -31003
    STORE_AWAY = -31007


@cython.final
cdef class EventNoticeWriter(FrameWriter):
    """Writes messages about a request before its answer."""

    cdef int begin_c(self) except -1:
        cdef McpExchange exchange = self.exchange
        if exchange.carrier is not None and not exchange.carrier.output.streaming:
            exchange.open_events_c()
            self.size_before = self.out.size     # what is aborted is the message, not the head
        return exchange.begin_event_c()

    cdef int finish_c(self, char last) except -1:
        return self.exchange.finish_event_c(last)


@cython.final
cdef class McpExchange(Exchange):
    """The route of the answers to a body."""

    cdef int watch_c(self) except -1:
        """Let a comment be sent when nothing else is, for long. An answer that is not a stream yet
        becomes one by it: only a connection that is written to shows that its client left."""
        if not self.watched and self.response != JSON:
            self.watched = True
            self.streams.opened(self)
        return 0

    def end_at_expiry(self, end):
        """Call a function when the client's credentials end, unless the stream is closed before."""
        self.streams.end_at(self, end)

    cdef int unwatch_c(self) except -1:
        if self.watched:
            self.watched = False
            self.streams.closed(self)
        return 0

    cdef int open_stream_c(self, bytes fields) except -1:
        if self.opened is not None:    # the answer to `initialize` comes later
            fields += self.line_of_opened_c()
        Exchange.open_stream_c(self, fields)
        return self.watch_c()

    cdef int open_now_c(self) except -1:
        """Open the stream before there is anything to say, so that the client can come back, and so
        that no proxy holds the head back."""
        self.open_events_c()
        self.send_text(b":\n\n")
        return 0

    cdef int done_c(self) except -1:
        self.unwatch_c()
        return Exchange.done_c(self)

    cdef int open_events_c(self) except -1:
        self.open_stream_c(b"")
        if self.session is not None and self.log is None:
            self.log = self.session.new_log(self)
            self.session.prime(self, self.log)
        return 0

    cdef int begin_event_c(self) except -1:
        """Begin a message, which has an id if it is kept."""
        self.event_at = self.out.size
        if self.log is not None and self.carrier is not None:
            self.carrier.output.event = b"id: %b\n" % self.log.id_of(self.log.n + 1).encode()
        if (
            self.opened is not None and self.status == 0
            and b"Mcp-Session-Id: " not in self.more_fields
        ):
            self.more_fields += self.line_of_opened_c()    # the head has room for it
        Exchange.begin_c(self)
        self.begun = self.out.size
        if self.log is None and self.opened is None:
            return 0
        return self.out.mark_c(&self.mark, 0)

    cdef int finish_event_c(self, char last) except -1:
        if self.log is not None:
            self.log.add(
                b"%b%c" % (self.out.since_c(&self.mark), last),
                None if self.carrier is None else self.carrier.link, self.event_at,
            )
        if self.client is not None:            # its own wire has none of these bytes
            self.client.session.bytes_out += <long long> (self.out.size - self.begun + 1)
        Exchange.finish_c(self, last)
        if not self.is_lane and self.carrier is not None:
            self.carrier.link.wrote_c()        # the connection's own link has no bytes to send
        return 0

    cdef FrameWriter notices_c(self):
        cdef EventNoticeWriter notices = self.notices
        if self.response == JSON or (self.carrier is None and self.log is None):
            return None            # of a session: its own stream may reach the client
        if notices is None:
            notices = self.notices = EventNoticeWriter.__new__(EventNoticeWriter)
            notices.exchange = self
        notices.out = self.out
        return notices

    cdef int status_c(self) noexcept:
        """docs/explanation/readings.md says which error has which status."""
        cdef int code = self.code
        if code == 0:
            return 200
        if code == METHOD_NOT_FOUND:
            return 404 if self.modern else 200
        if code == INVALID_PARAMS:
            return 400 if self.modern and self.refused else 200
        if (
            code == PARSE_ERROR or code == INVALID_REQUEST or code == HEADER_MISMATCH
            or code == MISSING_CLIENT_CAPABILITY or code == UNSUPPORTED_PROTOCOL_VERSION
        ):
            return 400
        if code == INSUFFICIENT_SCOPE:
            return 403
        if code == OVERLOADED:
            return 429 if self.limited else 503
        if code == SERVER_LOST:
            return 503 if self.is_down else 200
        return 503 if code == SHUTTING_DOWN or code == STORE_AWAY else 200

    def retry_after(self, seconds):
        """The request is refused because of a limit of its client, which may try again later."""
        self.limited = True
        Exchange.retry_after(self, seconds)

    def unserved(self):
        self.is_down = True

    def challenge(self, str value not None):
        """The field WWW-Authenticate of the response, if that is an error with the status 403."""
        self.challenged = value

    cdef int begin_c(self) except -1:
        if self.code == INSUFFICIENT_SCOPE and self.challenged is not None:
            self.response = JSON
            self.more_fields += b"WWW-Authenticate: %b\r\n" % self.challenged.encode("latin-1")
            self.challenged = None
        if self.code == OVERLOADED:
            Exchange.retry_after(self, RETRY_AFTER)
        elif self.code == STORE_AWAY:
            Exchange.retry_after(self, 1)
        if (
            self.response == EVENTS and self.carrier is not None
            and not self.carrier.output.streaming
        ):
            self.open_events_c()
            self.size_before = self.out.size
        return self.begin_event_c()

    cdef int finish_c(self, char last) except -1:
        if self.opened is not None:
            self.settle_opened_c()
        return self.finish_event_c(last)

    cdef int settle_opened_c(self) except -1:
        """`initialize` is answered: name the session, or end it if there was an error."""
        cdef object session = self.opened
        cdef bytes line = self.line_of_opened_c()
        self.opened = None
        if parse(self.out.since_c(&self.mark) + b"}", max_depth=1024).kind == "error":
            # later: what answers is at work with it
            self.target.loop.call_soon(self.target.sessions.end, session)
            self.more_fields = self.more_fields.replace(line, b"")
            if self.status == 0 and self.carrier is not None:
                self.carrier.output.fields = JSON_FIELDS + self.more_fields
        elif self.target.directory is not None:
            self.target.directory.own.opened()
        return 0

    cdef bytes line_of_opened_c(self):
        """The field that names the session."""
        return b"Mcp-Session-Id: %b\r\n" % self.opened.id.encode()

    cdef int ended_c(self) except -1:
        """All that the body asked for is answered (2025-11-25 basic/transports, "Sending Messages
        to the Server")."""
        cdef Carrier carrier = self.carrier
        if carrier is not None:
            if self.status == 0:
                self.set_head_c(202, b"")
                carrier.output.send_c(b"", True)
            self.done_c()
            if not self.is_lane and carrier.link is not None:
                carrier.link.wrote_c()
        if self.log is not None:
            self.log.route = None
        return self.target.over_c(self)

    def refuse_response(self):
        """Refuse a body that is a response: a lane asks its clients nothing (2026-07-28
        basic/transports/streamable-http, "Sending Messages")."""
        refuse(self, 400, "the body must be a request or a notification")

    def open_events(self):
        """Make the response a stream of events, before the first one."""
        self.open_events_c()

    def leave(self):
        """End the response, and not the stream: the client may come back for the rest."""
        if self.carrier is not None:
            self.out = Outbox()
            self.finish_response_c()
            self.client.on_drained()           # nothing is in the way of what the handlers say

    def move(self, McpExchange other not None):
        """Go on in the response of another exchange, in which a stream is open. The response of
        this one ends, if it goes on still: its client came back twice at once."""
        cdef Carrier carrier = other.carrier
        other.unwatch_c()
        other.carrier = self.carrier
        if other.carrier is not None:
            other.carrier.exchange = other
        self.carrier = carrier
        self.watch_c()
        self.address = carrier.address
        self.out = carrier.output.out
        self.gone = False
        carrier.exchange = self
        other.finish_response_c()

    def request_ids(self):
        """The ids of its requests that are not answered, JSON text."""
        cdef InFlight inflight = self.client.session.inflight
        cdef InFlightSlot *slot
        cdef Span id
        cdef list found = []
        for ref in inflight.routed_c(self):
            slot = inflight.slot_c(ref)
            if slot is not NULL:
                id = inflight_id(slot)
                found.append((<const char *> id.p)[:id.n])
        return found

    def pause(self, retry):
        """Close the connection to the stream; the client comes back for the rest. ``retry``: the
        seconds until then; None for the option of the server. Returns whether the client will come
        back."""
        if (
            self.session is None or self.carrier is None or self.response == JSON
            or not self.session.polls
        ):
            return False
        if not self.carrier.output.streaming:
            self.open_events_c()
        self.session.send_retry(self, retry)
        self.leave()
        return True

    def on_slow(self):
        """Tell the connection that serves the client."""
        if self.client is not None:
            self.client.on_slow()

    cdef int gone_c(self) except -1:
        self.unwatch_c()
        if self.opened is not None and self.status == 0:
            self.target.loop.call_soon(self.target.sessions.end, self.opened)    # nobody knows it
            self.opened = None
        Exchange.gone_c(self)
        # 2026-07-28 basic/transports/streamable-http, "Cancellation"; before, no cancellation
        if self.is_lane:
            if self.client.link is not None:
                self.client.link.close()
        elif self.client is not None:
            self.client.session.drop_bodies_c(self)
            self.client.on_drained()           # nothing is in the way of what the handlers say
        return 0

    cdef int drained_c(self) except -1:
        if self.client is not None:
            self.client.on_drained()
        else:                                  # it waits for the gate, or another host answers it
            Exchange.drained_c(self)
        return 0

    cdef int drain_c(self) except -1:
        if self.is_lane:
            self.client.drain()
        return Exchange.drain_c(self)


def dismiss_all(SessionConnection connection not None, str why not None):
    """End the responses to the requests of a connection that ends, for a reason.

    What has begun is answered with an error of its own: a client that reads 404 sends its request
    again in the next session."""
    cdef list found = [
        (route, (<McpExchange> route).carrier) for route in connection.session.open_routes_c()
        if isinstance(route, McpExchange) and (<McpExchange> route).carrier is not None
    ]
    if not found:
        return
    connection.cut_off_c(why)
    for route, carrier in found:
        if (<McpExchange> route).carrier is None:
            if (<Carrier> carrier).link is not None:
                (<Carrier> carrier).link.wrote_c()
        elif (<McpExchange> route).status:
            (<McpExchange> route).leave()
        elif (<McpExchange> route).is_lane:
            refuse(route, 503, why)
        else:
            refuse(route, 404, SESSION_OVER)


def refuse(Exchange exchange not None, int status, str sentence, fields=()):
    """Respond with a JSON-RPC error without an id ("Sending Messages to the Server")."""
    error = {"code": INVALID_REQUEST, "message": sentence}
    exchange.respond(
        status, encode({"jsonrpc": "2.0", "error": error}),
        [("Content-Type", "application/json"), *fields],
    )


def not_passed(Exchange exchange not None, bytes body not None, why):
    """Refuse a request that another process was to answer. ``why``: A `NotPassed`."""
    if exchange.carrier is None:
        return                                 # the client is gone
    if why is not NotPassed.LOST:
        refuse(exchange, *BUSY)
        return
    message = parse(body)
    if not isinstance(exchange, McpExchange) or message.kind != "request":
        refuse(exchange, 502, CUT_OFF["message"])
        return
    # many a client ends at a 502
    answer = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (message.raw_id, encode(CUT_OFF))
    if (<McpExchange> exchange).response == EVENTS:
        exchange.open_stream()
        exchange.send_event(answer)
        exchange.close_stream()
    else:
        exchange.respond(200, answer, [("Content-Type", "application/json")])


# -- the streams of an endpoint ------------------------------------------------------------------


cdef inline long long output_of(Wire wire) noexcept:
    """The bytes that were sent and that are queued."""
    return wire.bytes_out + <long long> wire.outbox.size


@cython.final
cdef class Streams:
    """The streams of one endpoint. One timer looks at a part of them at a time.

    Attributes:
        store: Keeps their events; or None.
        shared: The same, if hosts share it; or None.
        retry: Seconds after which clients come back; None: when they like.
        quiet: Logs that the store fails, once for many streams.
    """

    def __init__(self, loop, options):
        self.store = options.event_store
        self.shared = self.store if isinstance(self.store, SharedEventStore) else None
        self.retry = options.retry
        self.quiet = RateLimitedLog(logger, lines=1)
        self._loop = loop
        self._tasks = set()
        self._keepalive = 0 if options.sse_keepalive is None else options.sse_keepalive
        self._parts = [{} for _ in range(PARTS)]
        self._ends = {}

    cpdef int opened(self, Exchange exchange) except -1:
        """A stream begins, or goes on at another connection; or a response that can become one."""
        if self._keepalive != 0:
            (<dict> self._parts[hash(exchange) % PARTS])[exchange] = -1
            if self._timer is None:
                self._arm()
        return 0

    cpdef int closed(self, Exchange exchange) except -1:
        """The connection of a stream has ended, or the stream."""
        (<dict> self._parts[hash(exchange) % PARTS]).pop(exchange, None)
        if self._ends:
            timer = self._ends.pop(exchange, None)
            if timer is not None:
                timer.cancel()
        return 0

    def end_at(self, Exchange exchange not None, end):
        """Call a function when the client's credentials end, unless the stream is closed before."""
        if exchange.expires != INFINITY:
            seconds = max(0.001, exchange.expires - time.time())
            self._ends[exchange] = self._loop.call_later(seconds, self._end, exchange, end)

    def _end(self, Exchange exchange not None, end):
        if self._ends.pop(exchange, None) is None:
            return
        if time.time() < exchange.expires:     # timers have another clock
            self.end_at(exchange, end)
        else:
            end()

    cdef int _arm(self) except -1:
        # a comment comes after half of the seconds of silence at the earliest
        self._timer = self._loop.call_later(self._keepalive / (2 * PARTS), self._look)
        return 0

    def _look(self):
        cdef Exchange exchange
        cdef Wire wire
        cdef dict part = self._parts[self._next]
        self._timer = None
        if any(self._parts):
            self._arm()
        self._next = (self._next + 1) % PARTS
        for found, before in list(part.items()):
            exchange = found
            if exchange.carrier is None:
                part.pop(exchange, None)
                continue
            wire = exchange.carrier.wire
            if wire.outbox.size == 0 and output_of(wire) == before:
                if exchange.status == 0:
                    exchange.open_events()
                exchange.send_text(b":\n\n")
            part[exchange] = output_of(wire)

    async def events_of(self, str name not None, n):
        """The events after number ``n`` of a stream that another process has begun; None if some
        are missing. StoreUnavailable: they may be there."""
        try:
            return await value_of(self.store.after(name, n))
        except StoreUnavailable:
            raise
        except Exception as exc:
            self.quiet.log(logging.ERROR, "a stream cannot be resumed: %s", exc)
            return None

    def run(self, work):
        """Run something for a stream, in the task that is returned; `aclose` waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self):
        """Send no more comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for timer in self._ends.values():
            timer.cancel()
        self._ends.clear()

    async def aclose(self):
        """End what is running, and close the store."""
        self.stop()
        try:
            async with asyncio.timeout(LAST_WAIT):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                if self.store is not None:
                    await value_of(self.store.close())
        except TimeoutError:
            logger.warning("the event store did not end within %g s", LAST_WAIT)
            for task in self._tasks:
                task.cancel()
        except Exception:
            logger.exception("the event store failed at its end")
