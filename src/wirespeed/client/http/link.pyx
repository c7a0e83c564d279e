"""The link of a client to a server of HTTP: each message is the body of a POST.

2026-07-28 basic/transports/streamable-http; basic/transports of the older revisions. A modern
request is cancelled by closing its response. Legacy servers have sessions, a stream of their own
messages (GET), and responses that can be resumed after their stream broke.
"""

cimport cython
from libc.stdint cimport uint8_t

import contextlib
import logging
from collections import deque

import msgspec

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_META_PROTOCOL_VERSION, WS_NAME
from wirespeed._core.envelope cimport REQUEST, Message
from wirespeed._core.session cimport WrittenCall
from wirespeed._core.slab cimport Slab
from wirespeed._core.wire cimport show_whole_c
from wirespeed.client.http.exchanges cimport (
    ClientExchange, EndWaiter, EventStream, ExchangeLink, OldStream, Post,
)
from wirespeed.transport.http.client_connection cimport HttpCall
from wirespeed.transport.http.pool cimport HttpPool

from wirespeed._core.envelope import parse
from wirespeed._core.wire import show_carried
from wirespeed.client.http.answers import (
    BUSY,
    NO_VERDICT,
    NOT_STREAMABLE,
    TRY_LATER,
    UNAUTHORIZED,
    SessionGone,
    reason_of,
    retry_after,
    same_origin,
    status_error,
)
from wirespeed.client.http.headers import MirroredArguments, field_value, name_value
from wirespeed.errors import (
    ConnectionLost,
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.header_values import NAMED_BY
from wirespeed.protocol.messages import ErrorObject
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.client")

# Notifications and responses whose POSTs may be under way at once. Further ones wait in the outbox.
MAX_NOTES = 1000
# How often a message may be put off by 429 or 503, and the seconds of all delays.
MAX_TRIES = 3
MAX_DELAY = 30.0
ANSWER = "a response"
# What the server waits for, and takes twice without harm: it is sent again when it is lost.
REPEATED = (ANSWER, "notifications/cancelled")
# Head fields of calls that are kept, by the name of the tool.
MAX_NAMES = 4096

cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode


@cython.final
cdef class HttpLink(ExchangeLink):
    """The messages of one connection, over HTTP.

    Attributes:
        connection: The client's end.
        pool: The connections to the server.
        failure: Why the link ended; None while it has not, or when the client closed it.
        lost: Whether the link has ended.
        mirrored: The arguments of listed tools that are header fields.
        old: Whether the server speaks HTTP+SSE.
        reads_for: The request whose response has brought the message that is delivered; or None.
        unsent: The text of the request that fails just now, if nothing of it was sent; else None.
        auth: The token of the requests; None where the target has no ``auth``.
    """

    def __init__(self, connection, target, make_pool):
        super().__init__(connection.loop, connection)
        show_carried(self.wire)
        self.messages = self.wire
        self.messages.calls = deque()
        self.at_once = True
        self.connection = connection
        self.pool = make_pool(target.max_connections)
        self.make_pool = make_pool
        self.target = target
        self.place = target.address.target
        self.requests = {}
        self.notes = set()
        self.streams = set()
        self.mirrored = MirroredArguments()
        self.tools = self.mirrored.fields
        self.paused = []
        self.unread = []
        self.max_depth = connection.session.limits.max_depth
        self.quiet = RateLimitedLog(logger)
        headers = target.request_headers()
        own = "".join([f"{name}: {headers[name]}\r\n" for name in headers])
        self.own = self.pool.fields + own.encode("ascii")
        self.base = (
            self.own
            + b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        )
        self.heads = {}
        self.calls = {}
        if target.auth is not None:
            from wirespeed.client.http.authorization import AuthorizedExchanges

            address = target.address
            session = target.auth.session(target.url, ssl=target.ssl)
            origin = f"{address.scheme}://{address.authority}"
            self.auth = AuthorizedExchanges(self, origin, session)

    # -- a link ----------------------------------------------------------------------------------

    def start(self):
        """Nothing is read before the first message."""

    cpdef object update_reading(self):
        """Read the events of servers on that sent more requests than the session takes."""
        if self.paused and self.wire.want_read:
            paused, self.paused = self.paused, []
            for call in paused:
                call.paused = False
        if self.unread and not self.has_unread_c() and not self.lost:
            unread, self.unread = self.unread, []
            for post, exc in unread:
                self.settle_c(post, exc, True)
            self.end_if_gone_c()

    cpdef object flush(self):
        """Send the queued messages."""
        cdef HttpLink me = self            # what is sent may close the link
        if self.lost:
            return
        while (
            me.wire.outbox.size and not me.lost and me.gate is None and len(me.notes) < MAX_NOTES
        ):
            me.send_c(me.wire.take_line_c())
        me.check_drained_c()

    def close(self):
        """End all requests. Notifications that are under way are not stopped."""
        self.over_c(None)

    def lose(self, exc):
        """End because of an error."""
        if self.failure is None and isinstance(exc, TransportError):
            self.failure = exc
        self.over_c(exc)

    cdef int over_c(self, exc) except -1:
        cdef Post note
        if self.lost:
            return 0
        self.lost = True
        ended = [*self.requests.values(), *self.streams]
        for note in list(self.notes):
            if exc is not None or note.timer is not None:  # it would be sent again later
                self.notes.discard(note)
                ended.append(note)
        self.requests.clear()
        self.streams.clear()
        self.unread.clear()
        for exchange in ended:
            exchange.abort()
        if self.auth is not None:
            self.auth.close()
        self.detach()
        self.connection.on_lost(exc)

    async def finish(self):
        """Wait for the notifications that are under way, and end the session."""
        if self.notes and self.notes_over is None:
            self.notes_over = self.loop.create_future()
            await self.notes_over
        if self.session is not None and self.failure is None:
            ended = self.loop.create_future()
            fields = self.session_fields_c(self.own)
            if self.auth is not None:
                more = await self.auth.fields_now("DELETE", self.place)
                if more is None:
                    return
                fields += more
            self.pool.request_c("DELETE", self.place, fields, None, EndWaiter(ended))
            await ended

    async def release(self):
        """Close all connections."""
        for note in self.notes:
            note.abort()
        self.notes.clear()
        await self.pool.close()
        if self.side is not None:
            await self.side.close()
        if self.auth is not None:
            await self.auth.session.close()

    def abandon(self):
        """Close all sockets of a loop that is closed."""
        self.pool.release()
        if self.side is not None:
            self.side.release()

    # -- messages out ----------------------------------------------------------------------------

    cdef int send_c(self, bytes line) except -1:
        cdef WrittenCall call = self.call_c()
        cdef bytes head = None if call is None else self.call_head_c(call)
        cdef Message message
        cdef str method
        cdef Post post
        if head is not None:
            id = call.id
            post = Post.of(self, line, head, "tools/call", id)
            self.requests[id] = post
            post.send()
            return 0
        message = parse(line, max_depth=self.max_depth)
        method = message.method
        if method is None:
            self.note_c(line, self.head_c("", message, None), ANSWER)
        elif message.kind_c == REQUEST:
            if method == "initialize":
                self.begin_c()
            id = int(message.raw_id or b"0")
            post = Post.of(self, line, self.head_c(method, message, call), method, id)
            self.requests[id] = post
            post.send()
        elif method != "notifications/cancelled" or not self.cancel_c(message):
            note = self.note_c(line, self.head_c(method, message, None), method)
            if method == "notifications/initialized":
                self.gate = note

    cdef WrittenCall call_c(self):
        """The note of the line that was taken last; None: it is not a call, or was not noted."""
        cdef WrittenCall call
        cdef object calls = self.messages.calls
        while calls:
            call = calls[0]
            if call.end > self.messages.bytes_out:
                return None
            calls.popleft()
            if call.end == self.messages.bytes_out:
                return call
        return None

    cdef Post note_c(self, bytes line, bytes fields, str what):
        cdef Post note = Post.of(self, line, fields, what, None)
        self.notes.add(note)
        note.send()
        return note

    cdef int begin_c(self) except -1:
        """A legacy handshake begins: no earlier request is awaited."""
        self.session = None
        for post in self.requests.values():
            post.abort()
        self.requests.clear()

    cdef bint cancel_c(self, Message message) except -1:
        """The caller of a request gave up. Returns whether the server need not be told: closing the
        response of a modern request cancels it."""
        cdef Post post
        raw = message.lease("params.requestId")
        post = self.requests.pop(int(bytes(raw)), None) if raw is not None else None
        if post is None:
            return self.modern_c()
        unsent = post.call is None and not post.status
        self.drop_stream_c(post)
        post.abort()
        return unsent or self.modern_c()

    cdef bint modern_c(self) except -1:
        revision = self.connection.revision
        return revision is not None and revision.modern

    cdef HttpCall post_c(self, Post post):
        cdef HttpPool pool = self.pool if post.id is not None else self.notes_pool_c()
        cdef bytes fields = post.fields
        if self.auth is not None:
            more = self.auth.fields("POST", self.place, post)
            if more is None:
                return None
            fields += more
        return pool.request_c("POST", self.place, fields, post.text, post)

    cdef HttpPool notes_pool_c(self):
        """The connections for notifications and responses. Calls may wait for them, so they do not
        wait for a connection while calls have all of them."""
        busy = len(self.requests) + len(self.streams)
        if busy < self.target.max_connections:
            return self.pool
        if self.side is None:
            self.side = self.make_pool(1)
        return self.side

    def moved(self, str place):
        """The server redirected a message to another path, where the next ones go at once."""
        self.place = place

    def get(self, ClientExchange stream not None):
        """Request a stream of events. None: the request waits for a token, and is then sent."""
        self.streams.add(stream)
        fields = self.session_fields_c(self.own) + b"Accept: text/event-stream\r\n"
        if stream.last_id is not None:
            fields += b"Last-Event-ID: %b\r\n" % stream.last_id.encode()
        place = self.target.address.target
        if self.auth is not None:
            more = self.auth.fields("GET", place, stream)
            if more is None:
                return None
            fields += more
        return self.pool.request_c("GET", place, fields, None, stream)

    # -- header fields ---------------------------------------------------------------------------

    cdef bytes call_head_c(self, WrittenCall call):
        """The header fields of a call; None: they are to be made from its text."""
        cdef tuple known
        revision = self.connection.revision
        if revision is None:
            return None
        if not revision.modern:
            return self.session_fields_c(self.base)
        known = self.calls.get(call.key)
        if known is None or known[0] in self.tools:
            return None
        return known[1]

    cdef bytes head_c(self, str method, Message message, WrittenCall call):
        cdef object revision = self.connection.revision
        cdef bytes head
        cdef str version, name
        if revision is None or method == "initialize":
            return self.base
        if not revision.modern:
            return self.session_fields_c(self.base)
        # a client of a proxy may have named another one
        version = message.text_c(WS_META_PROTOCOL_VERSION) or revision.version
        if method == "tools/call":
            name = message.text_c(WS_NAME) or ""
        else:
            name = name_value(method, message)
        key = (version, method, name)
        head = self.heads.get(key)
        if head is None:
            text = f"MCP-Protocol-Version: {field_value(version)}\r\n"
            if method:
                text += f"Mcp-Method: {field_value(method)}\r\n"
            if method in NAMED_BY:
                text += f"Mcp-Name: {field_value(name)}\r\n"
            head = self.base + text.encode("ascii")
            if len(self.heads) < MAX_NAMES:
                self.heads[key] = head
        if method == "tools/call":
            if call is not None and len(self.calls) < MAX_NAMES:
                self.calls[call.key] = name, head
            head += self.mirrored.lines(name, message.lease_c(WS_ARGUMENTS))
        return head

    cdef bytes session_fields_c(self, bytes fields):
        """Header fields with those of a legacy session."""
        revision = self.connection.revision
        if revision is not None and not self.old:
            fields += f"MCP-Protocol-Version: {revision.version}\r\n".encode("ascii")
        if self.session is not None:
            fields += f"Mcp-Session-Id: {self.session}\r\n".encode("ascii")
        return fields

    def session_opened(self, int status, headers):
        """The server answered ``initialize``."""
        if status != 200 or self.old:
            return
        session = headers.get("mcp-session-id")
        if session is None:
            return
        if session and all(["!" <= c <= "~" for c in session]):
            self.session = session
        else:
            self.quiet.log(
                logging.WARNING,
                "%s: its session id is not visible ASCII, and is not used",
                self.target.where,
            )

    # -- messages in -----------------------------------------------------------------------------

    cdef int receive_c(
        self, Slab slab, const uint8_t *p, size_t n, HttpCall call, object request
    ) except -1:
        if self.lost:
            return 0
        show_whole_c(self.wire, p, n)
        self.messages.receive_message_c(slab, p, n, None)
        if self.messages.n_waiting == 0 and self.messages.n_whole == 1:
            self.reads_for = request       # else others are read first
        try:
            self.deliver_c()
        finally:
            self.reads_for = None
        if call is not None and not self.wire.want_read and not self.lost:
            call.paused = True
            self.paused.append(call)
        return 0

    # -- the end of a POST -----------------------------------------------------------------------

    cdef int posted_c(self, Post post, object exc, bint sent) except -1:
        if exc is None and post.status != 200 and (self.demands_c(post) or self.again_c(post)):
            return 0
        self.settle_c(post, exc, sent)
        return self.end_if_gone_c()

    cdef bint waits_c(self, Post post) except -1:
        """Whether a message is a request whose response has not arrived."""
        return post.id is not None and self.messages.pending.is_live_c(post.id)

    cdef int end_if_gone_c(self) except -1:
        if self.gone is not None and not self.requests:
            self.lose(ConnectionLost(self.gone))

    cdef int settle_c(self, Post post, exc, bint sent) except -1:
        """Find out what has become of a message."""
        if post.id is None:
            self.noted_c(post, exc)
        elif not self.waits_c(post):
            self.requests.pop(post.id, None)
        elif isinstance(exc, WirespeedError) and not sent:
            self.unsent = post.text
            try:
                self.fail_c(post, exc)
            finally:
                self.unsent = None
        elif post.status == 200 or (post.status == 202 and self.old):
            self.unanswered_c(post, exc)
        elif exc is not None:
            self.fail_c(post, self.broken_c(post, exc))
        else:
            self.refused_c(post)

    cdef bint demands_c(self, ClientExchange exchange) except -1:
        """Whether the server demanded a token, which is being got."""
        return self.auth is not None and not self.lost and self.auth.refused(exchange)

    cdef bint again_c(self, Post post) except -1:
        """Send a message again later, that the server put off."""
        status = post.status
        if status not in TRY_LATER or post.tries >= MAX_TRIES or not self.connection.resends:
            return False
        seconds = retry_after(post.headers)
        if seconds is None or post.waited + seconds > MAX_DELAY:
            return False
        self.quiet.log(
            logging.INFO,
            "%s answered %s with %d; it is sent again in %.3g s",
            self.target.where,
            post.what,
            status,
            seconds,
        )
        post.put_off(seconds)
        return True

    cdef bint has_unread_c(self) except -1:
        """Whether messages that have arrived were not looked at yet: one may be an answer."""
        cdef size_t i
        for i in range(self.messages.n_whole):
            if self.messages.whole_c(i).kind_c == 0:
                return True
        return bool(self.messages.reader.elements)

    cdef int unanswered_c(self, Post post, exc) except -1:
        """A POST was taken, and its response has not arrived."""
        if self.old:
            return 0  # it arrives on the stream
        if self.has_unread_c():
            self.unread.append((post, exc))
            return 0
        if post.last_id is not None and not self.modern_c():
            stream = EventStream(self, post)
            self.streams.add(stream)
            stream.reopen()
        elif exc is not None or post.headers.get("content-type", "").startswith("text/event-"):
            self.fail_c(post, self.broken_c(post, exc))
        else:
            kind = post.headers.get("content-type") or "no content type"
            text = f"the answer to {post.what} is not a JSON-RPC response ({kind:.100})"
            self.fail_c(post, InvalidResponse(text))

    cdef int refused_c(self, Post post) except -1:
        """A request was answered with a status other than 200."""
        cdef Slab slab
        assert post.id is not None
        message = parse(post.body, max_depth=self.max_depth)
        if message.kind == "result" and message.raw_id == b"%d" % post.id:
            slab = Slab.borrow(post.body)
            self.receive_c(slab, slab.base, slab.capacity, None, None)
            self.requests.pop(post.id, None)
            return 0
        own = message.kind == "error" and message.raw_id == b"%d" % post.id
        if not own and self.session_is_gone_c(post.status, message, post):
            return 0
        refusal = self.refusal_c(post, message, own)
        if (
            post.what == "initialize"
            and post.status in NOT_STREAMABLE
            and self.target.sse
            and not self.old
            and getattr(refusal, "code", None) not in codes.MODERN_ERRORS
        ):
            OldStream(self, post, refusal).send()
        else:
            self.fail_c(post, refusal)

    cdef object refusal_c(self, Post post, Message message, bint own):
        """The error of a request that was answered with a status. Some servers leave the id of the
        request out of their JSON-RPC errors. ``own``: the error has it."""
        error = message.error if message.kind == "error" else None
        said = None
        if error is not None:
            with contextlib.suppress(msgspec.DecodeError):
                said = decode_error(error)
        if said is None:
            return self.status_error(post, body=post.body)
        if post.status in UNAUTHORIZED or (post.status in NO_VERDICT and not own):
            return self.status_error(post, said=said.message)
        return RemoteError(said.code, said.message, said.data)

    def status_error(
        self, ClientExchange exchange not None, str what="", *, bytes body=b"", str said="",
        str note="",
    ):
        """The error of an exchange that was answered with a status."""
        secrets = self.target.secrets()
        if self.auth is not None:
            secrets += self.auth.session.secrets()
        return status_error(
            self.target.where,
            what or exchange.what,
            exchange.status,
            exchange.headers,
            body,
            secrets=secrets,
            said=said,
            note=note,
        )

    cdef bint session_is_gone_c(self, int status, Message message=None, Post post=None) except -1:
        """End the link if a status says that the session has ended (basic/transports, "Session
        Management"). Some servers answer 400 for an unknown session. ``post``: The request that
        was refused; without one, the requests that are under way are waited for."""
        if self.session is None or self.lost:
            return False
        if status != 404:
            error = None if status != 400 or message is None else message.error
            if error is None or b"session" not in bytes(error).lower():
                return False
        text = (
            f"{self.target.where}: the server ended the session "
            f"({status} {reason_of(status)}): what it held is lost"
        )
        if post is not None:
            self.fail_c(post, SessionGone(text))
        elif self.requests:  # a server that drains answers what it has
            self.gone = text
            return True
        self.lose(ConnectionLost(text))
        return True

    cdef int noted_c(self, Post note, exc) except -1:
        """The POST of a notification or a response is over."""
        if (
            note.what in REPEATED
            and not self.lost
            and (exc is not None or note.status in BUSY)
            and note.repeat()
        ):
            return 0
        self.notes.discard(note)
        if self.notes_over is not None and not self.notes and not self.notes_over.done():
            self.notes_over.set_result(None)
        if self.lost:
            return 0
        if exc is not None or not 200 <= note.status < 300:
            if exc is None and self.session_is_gone_c(
                note.status, parse(note.body, max_depth=self.max_depth)
            ):
                if note.what == ANSWER and not self.lost:  # who asked cannot answer either
                    self.lose(ConnectionLost(self.gone))
                return 0
            why = exc or f"{note.status} {reason_of(note.status)}"
            self.quiet.log(
                logging.WARNING, "%s did not take %s: %s", self.target.where, note.what, why
            )
        if note is self.gate:
            self.gate = None
            if not self.old:
                EventStream(self).send()
        self.flush_now()

    cdef object broken_c(self, Post post, exc):
        """The error of a request whose answer did not arrive."""
        why = "the answer ended without it" if exc is None else f"{exc}"
        error = ConnectionLost(f"{self.target.where}: {post.what} got no response: {why}")
        error.__cause__ = exc
        return error

    cdef int fail_c(self, Post post, exc) except -1:
        assert post.id is not None
        self.requests.pop(post.id, None)
        self.connection.fail_request(post.id, exc)

    # -- streams ---------------------------------------------------------------------------------

    def resumed(self, EventStream stream not None):
        """The response arrived on a stream that went on."""
        assert stream.post is not None and stream.post.id is not None
        self.requests.pop(stream.post.id, None)
        self.streams.discard(stream)
        stream.abort()

    cdef int drop_stream_c(self, Post post) except -1:
        for stream in [s for s in self.streams if getattr(s, "post", None) is post]:
            self.streams.discard(stream)
            stream.abort()

    def stream_ended(self, EventStream stream not None, exc):
        """A stream of events ended, or was refused."""
        if exc is None and self.demands_c(stream):
            return
        post = stream.post
        if self.session_is_gone_c(stream.status):
            self.streams.discard(stream)
            if post is not None and not self.lost:  # its answer will not come
                self.fail_c(post, self.broken_c(post, exc))
                self.end_if_gone_c()
            return
        if post is not None and not post.waits:
            self.resumed(stream)
        elif stream.streaming or not stream.status or stream.status in BUSY:
            if stream.fail() and post is not None:
                self.streams.discard(stream)
                self.fail_c(post, self.broken_c(post, exc))
            else:
                stream.reopen()
        else:
            self.streams.discard(stream)
            if post is not None:
                note = "; the broken response cannot be resumed"
                refusal = self.status_error(stream, post.what, note=note)
                refusal.__cause__ = self.broken_c(post, exc)
                self.fail_c(post, refusal)
            elif exc is not None:
                self.quiet.log(logging.WARNING, "%s sends no events: %s", self.target.where, exc)

    # -- HTTP+SSE of 2024-11-05 ------------------------------------------------------------------

    def endpoint_named(self, OldStream stream not None, str reference):
        """The server said where messages go: begin again there."""
        if self.old:
            return
        place = same_origin(self.target.address, reference)
        if place is None:
            self.streams.discard(stream)
            stream.abort()
            text = f"{self.target.where}: the event endpoint names another origin, or no URL"
            self.fail_c(stream.post, TransportError(text))
            return
        self.old = True
        self.place = place
        stream.post.send()

    def old_ended(self, OldStream stream not None, exc):
        """The stream of HTTP+SSE ended, and the session with it; or there is no such stream."""
        if exc is None and self.demands_c(stream):
            return
        post = stream.post
        self.streams.discard(stream)
        if self.old:
            why = f": {exc}" if exc is not None else ""
            self.lose(ConnectionLost(f"{self.target.where}: the stream of events ended{why}"))
            return
        refusal = stream.refusal
        if isinstance(refusal, HttpStatusError) and stream.status not in (0, 200, post.status):
            note = f", and GET with {stream.status} {reason_of(stream.status)}".rstrip()
            note += "; correct the URL"
            if "websocket" in stream.headers.get("upgrade", "").lower():
                scheme = "wss" if self.target.address.secure else "ws"
                note = f"; the server speaks WebSocket there: use {scheme}://"
            refusal = self.status_error(post, body=post.body, note=note)
        self.fail_c(post, refusal)
