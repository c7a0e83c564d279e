"""One connection of an HTTP client: a request, its response, and the next request.

`HttpPool` makes the connections, and chooses one for each request. What the pool hears of a
connection are the methods `released_c`, `_lost`, `_broken`, `_ended` and `_redirected`.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from wirespeed._core.framing.base cimport FRAME_MORE
from wirespeed._core.framing.http.rfc9112 cimport (
    CONTENT_ENCODING, CONTENT_TYPE, LOCATION, is_blank, method_of, same_name,
)
from wirespeed._core.framing.http.framer cimport BODY, HEAD_ALONE, PIECE, HttpFramer, Part
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.transport.fd cimport FdLink
from wirespeed.transport.http.sse cimport EventReader
from wirespeed.transport.link cimport Endpoint

from wirespeed.errors import TransportError
from wirespeed.transport.headers import Headers

cdef extern from "<sys/socket.h>" nogil:
    int MSG_PEEK
    int MSG_DONTWAIT
    ssize_t c_recv "recv"(int fd, void *p, size_t n, int flags)


@cython.final
cdef class ClientWire(Wire):
    """The bytes of one connection. Responses are read while the request is still being sent."""

    def __cinit__(self, HttpFramer framer not None, *, limits):
        self.http = framer
        self.join_c(limits, framer)

    cdef bint want_read_c(self) noexcept:
        return not self.paused

    cdef bint has_room_c(self) noexcept:
        return not self.paused

    cdef bint awaits_c(self) noexcept:
        return self.awaits

    cdef bint wants_turn_c(self) noexcept:
        return self.held


class ResponseHeaders(Headers):
    """The header fields of a response. They are made when one of them is first looked at."""

    __slots__ = ("_max_head", "_raw")

    def __init__(self, bytes raw, max_head):
        self._raw = raw
        self._max_head = max_head

    def __getattr__(self, name):
        cdef HttpHead head
        if name != "_fields":
            raise AttributeError(name)
        head = HttpHead(True, max_head=self._max_head)
        head.scan(self._raw)
        Headers.__init__(self, head.fields)
        return self._fields


cdef class ResponseReceiver:
    """The base of compiled receivers. Its methods do nothing."""

    cdef int response_c(self, HttpHead head, bint streaming) except -1:
        return 0

    cdef int body_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        return 0

    cdef int event_c(self, str event, object data, str id, object retry) except -1:
        return 0

    cdef int end_c(self, object exc, bint sent) except -1:
        return 0


@cython.final
cdef class RequestLine:
    """The first line of requests with one method and one target."""


cdef class CallOwner:
    """The base of `HttpPool`: the owner of connections and of the calls on them."""

    cdef RequestLine line_c(self, str method, str target):
        """The first line of a request, which mostly is that of the last one. ValueError: the target
        could end it."""
        cdef RequestLine line = self.line
        cdef bytes name, text
        cdef uint8_t c
        cdef int n_spaces = 0
        if line is not None and line.method_name is method and line.target is target:
            return line
        text = f"{method} {self.prefix}{target}".encode()
        for c in text:
            n_spaces += c == c' '
            if not c' ' <= c < 0x7F:
                n_spaces = 2
        if n_spaces != 1:
            raise ValueError("the target of a request has a character that a URI does not have")
        name = method.encode()
        line = RequestLine.__new__(RequestLine)
        line.method_name, line.target = method, target
        line.method = <Method> method_of(name, len(name))
        line.text = text + b" HTTP/1.1\r\n"
        self.line = line
        return line

    cdef int released_c(self, HttpClientConnection connection) except -1:
        raise NotImplementedError


@cython.final
@cython.freelist(64)
cdef class HttpCall:
    """A request and its response; see `HttpPool.request`."""

    def __init__(self):
        raise TypeError("calls are made by the pool")

    @property
    def method_name(self):
        """The method of the request."""
        return self.line.method_name

    @property
    def target(self):
        """Path and query that are requested."""
        return self.line.target

    def abort(self):
        """Give the request up: its connection is closed, and the receiver is not called again."""
        cdef HttpClientConnection connection = self.connection
        self.receiver = None
        if connection is not None:
            connection.drop_call_c()
            if connection.link is not None:
                connection.link.close()
        else:
            self.pool._gave_up(self)

    @property
    def paused(self):
        """Whether the receiver has no room: nothing else of the response is read meanwhile."""
        return self.connection is not None and self.connection.stream.paused

    @paused.setter
    def paused(self, bint value):
        cdef HttpClientConnection connection = self.connection
        if connection is None or connection.link is None or connection.stream.paused == value:
            return
        connection.stream.paused = value
        if value:
            connection.stream.held = True
        connection.link.update_reading()
        if not value:
            connection.link.wrote()    # what is held is delivered in the next turn

    @property
    def idempotent(self):
        """Whether the request may be sent again (RFC 9110 section 9.2.2)."""
        return self.line.method_name in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")

    cdef int end_c(self, exc) except -1:
        """Call the receiver for the last time. `exc` is None after a whole response."""
        cdef ResponseReceiver receiver = self.receiver
        self.receiver = None
        if receiver is not None:
            try:
                receiver.end_c(exc, self.sent)
            except Exception as failure:
                report_c(self.pool.loop, failure)
        return 0

    def redirected(self, str target):
        """The request is sent again, to another target."""
        self.line = self.pool.line_c(self.line.method_name, target)
        self.n_redirects += 1

    def try_again(self):
        """The request is sent again, because a kept connection failed it."""
        self.retried = True
        self.sent = False


@cython.final
cdef class HttpClientConnection(Endpoint):
    """A connection to the origin of a pool, or to its proxy.

    Args:
        pool: The owner.
        connected: What closes the socket.
        limits: The output limits of `Limits` apply.
        max_body: Bytes of a body that is not a stream, and of the data of an event.
        max_head: Bytes of a head.
    """

    def __init__(self, pool, connected, *, limits, size_t max_body, size_t max_head):
        self.pool = pool
        self.connected = connected
        self.http = HttpFramer(
            "client", max_body=max_body, max_head=max_head, heads=True, line=b"", fields=b""
        )
        self.wire = self.stream = ClientWire(self.http, limits=limits)
        self.max_event = max_body

    # -- requests ------------------------------------------------------------------------------

    cdef bint begin_c(self, HttpCall call) except -1:
        """Send a request. False: the connection has ended, and nothing was sent."""
        cdef HttpWriter output = self.http.output
        cdef object body = call.body
        if self.link is None or not self.is_open_c():
            return False
        self.call = call
        call.connection = self
        self.http.asked = call.line.method
        output.line = call.line.text
        output.fields = call.fields
        self.sent_before = self.stream.bytes_out
        self.received_before = self.stream.bytes_in
        self.stream.awaits = True
        self.beginning = True
        try:
            output.send_c(b"" if body is None else body, body is not None)
            # nothing is added to it: it leaves now, or when the events of this link end
            if not self.link.corked:
                self.link.flush_for_c()
        except BaseException:
            self.drop_call_c()
            if self.link is not None:
                self.link.close()
            raise
        finally:
            self.beginning = False
        return True

    cdef bint is_open_c(self) except -1:
        """Whether the server has neither closed the connection nor sent something unasked, as far
        as this side can tell."""
        cdef uint8_t byte = 0
        cdef ssize_t n
        if not isinstance(self.link, FdLink):
            return True                # its transport has told us
        n = c_recv((<FdLink> self.link).read_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
        return n < 0 and (errno == EAGAIN or errno == EINTR)

    # -- responses -----------------------------------------------------------------------------

    cpdef object on_data(self):
        cdef HttpClientConnection me = self      # a receiver may drop it
        cdef HttpFramer framer = self.http
        cdef HttpCall call
        cdef ResponseReceiver receiver           # the call drops it when it is aborted
        cdef Span frame = Span(NULL, 0)
        cdef Part part
        while self.link is not None:
            call = self.call
            if call is None:
                if framer.buffered_c() or framer.eof:
                    self.link.close()            # nothing was asked
                return
            if self.stream.paused:
                self.stream.held = True
                return
            self.stream.held = False
            if framer.next_frame_c(&frame) == FRAME_MORE:
                if framer.failure is not None:
                    me.fail_c(TransportError(
                        f"the response of {self.pool.address} is malformed: {framer.failure[1]}"
                    ))
                return
            part = framer.part_c
            try:
                if part == HEAD_ALONE:
                    me.head_c(call)
                elif part == PIECE:
                    self.events.feed_c(framer.slab, frame.p, frame.n)
                    me.events_c(call)
                else:
                    if part == BODY and self.location is None:
                        if frame.n >= 3 and memcmp(frame.p, b"\xef\xbb\xbf", 3) == 0:
                            frame.p, frame.n = frame.p + 3, frame.n - 3    # a byte order mark
                        receiver = call.receiver
                        receiver.body_c(framer.slab, frame.p, frame.n)
                    if self.call is call:
                        me.complete_c(call)
            except Exception as exc:
                report_c(self.pool.loop, exc)
                if self.call is call:
                    me.fail_c(exc)

    cdef int head_c(self, HttpCall call) except -1:
        cdef HttpHead head = self.http.head
        cdef ResponseReceiver receiver = call.receiver
        cdef Span value = Span(NULL, 0)
        cdef bint streaming
        call.sent = True
        if head.status == 101:
            return self.fail_c(TransportError(
                f"{self.pool.address} changes the protocol, which was not asked for"
            ))
        if head.value_c(CONTENT_ENCODING, &value) and not is_word(value, b"identity"):
            return self.fail_c(TransportError(
                f"the response of {self.pool.address} has a content coding, which was not asked for"
            ))
        if 300 <= head.status < 400 and head.value_c(LOCATION, &value):
            self.location = value.p[:value.n].decode("latin-1")
            return 0
        streaming = (
            200 <= head.status < 300 and head.value_c(CONTENT_TYPE, &value)
            and is_word(value, b"text/event-stream")
        )
        if streaming:
            self.events = EventReader(max_event=self.max_event)
            self.http.in_pieces = True
        return receiver.response_c(head, streaming)

    cdef int events_c(self, HttpCall call) except -1:
        cdef EventReader events = self.events
        cdef ResponseReceiver receiver = call.receiver
        # a receiver that pauses still gets the events of the bytes that were read
        while events.next_c():
            receiver.event_c(events.event, events.data, events.id, events.retry)
            if self.call is not call:
                return 0
        if events.failure is not None:
            self.fail_c(TransportError(
                f"the stream of {self.pool.address} is malformed: {events.failure}"
            ))
        return 0

    cdef int complete_c(self, HttpCall call) except -1:
        """The response is whole: the connection is free, or ends."""
        cdef str location = self.location
        cdef int status = self.http.head.status
        self.drop_call_c()
        self.location = None
        self.kept = True
        if (
            self.http.ended or self.http.eof or self.http.buffered_c()
            or self.stream.outbox.size or self.link is None
        ):
            if self.link is not None:
                self.link.close()
        else:
            self.pool.released_c(self)
        if location is None:
            call.end_c(None)
        else:
            self.pool._redirected(call, status, location)
        return 0

    # -- ends ----------------------------------------------------------------------------------

    def release(self):
        """Close the socket. The loop is closed, and calls nobody."""
        self.connected.close()

    cdef HttpCall drop_call_c(self):
        """The call leaves this connection."""
        cdef HttpCall call = self.call
        if call is not None:
            self.call = None
            call.connection = None
            call.sent = call.sent or self.stream.bytes_out > self.sent_before
        self.events = None
        self.stream.awaits = self.stream.paused = self.stream.held = False
        return call

    cdef int fail_c(self, object exc) except -1:
        """The response is of no use, nor is the connection."""
        cdef HttpClientConnection me = self
        cdef HttpCall call = self.drop_call_c()
        if self.link is not None:
            self.link.close()
        me.pool._ended(call, exc)
        return 0

    cpdef object on_eof(self):
        if self.link is not None:
            self.link.lose(ConnectionResetError("the server closed the connection"))

    cpdef object on_lost(self, exc):
        cdef bint answered
        cdef HttpCall call = self.drop_call_c()
        self.connected.close()
        self.pool._lost(self)
        if call is None:
            return
        answered = self.stream.bytes_in > self.received_before
        if self.beginning:
            self.pool.loop.call_soon(self.pool._broken, call, exc, self.kept, answered)
        else:
            self.pool._broken(call, exc, self.kept, answered)


cdef int report_c(loop, exc) except -1:
    loop.call_exception_handler(
        {"message": "the receiver of an HTTP response failed", "exception": exc}
    )
    return 0


cdef bint is_word(Span value, bytes word) noexcept:
    """Whether a value is this word in lower case, whatever its parameters."""
    cdef size_t n = <size_t> len(word)
    if value.n < n or not same_name(value.p, <const uint8_t *> <const char *> word, n):
        return False
    return value.n == n or value.p[n] == c';' or is_blank(value.p[n])
