"""One HTTP request at a server and its response, and the targets that answer it. The endpoints of
MCP extend both (`wirespeed.peer.http.exchange`)."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.slab cimport Slab
from wirespeed.transport.link cimport Endpoint

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.transport.headers import Headers

cdef bytes JSON_FIELDS = b"Content-Type: application/json\r\n"
# X-Accel-Buffering: 2026-07-28 basic/transports/streamable-http, "Receiving Messages".
cdef bytes STREAM_FIELDS = (
    b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
)


cdef HttpHead read_raw(bytes raw):
    cdef HttpHead head = HttpHead(max_head=65535, max_target=65535, max_fields=65535)
    head.scan(raw)
    return head


cdef object headers_c(HttpHead head):
    cdef list fields = head.fields
    if head.n_authority:
        fields = [field for field in fields if field[0].lower() != "host"]
        fields.append(("Host", head.authority))
    return Headers(fields)


def headers_of(bytes raw not None):
    """The header fields of a head that was kept."""
    return headers_c(read_raw(raw))


@cython.final
cdef class PassedClient:
    """A client of another process, or one on a stream."""

    def __init__(
        self, str address not None, user, bytes principal, double expires, int worker, bint far,
        bint streams,
    ):
        self.address = address
        self.user = user
        self.principal = principal
        self.expires = expires
        self.worker = worker
        self.far = far
        self.streams = streams


cdef class Carrier(Endpoint):
    """A connection that carries exchanges. Abstract: `HttpConnection` is one."""

    cdef int over_c(self, Exchange exchange) except -1:
        raise NotImplementedError


cdef class Exchange(ReplyRoute):
    """One request of a client, and its response.

    A response is given whole (`respond`), as the JSON-RPC message that answers the body (it is the
    reply route of the body), or as a stream of events.
    """

    cdef int join_c(self, Carrier carrier, HttpTarget target) except -1:
        self.carrier = carrier
        self.target = target
        self.address = carrier.address
        self.out = carrier.output.out
        self.more_fields = b""
        return 0

    # -- the request -----------------------------------------------------------------------------

    cdef HttpHead head_c(self):
        cdef HttpHead head = None
        if self.carrier is not None and self.carrier.framer.head.p is not NULL:
            head = self.carrier.framer.head
        return head

    cdef int keep_head_c(self) except -1:
        cdef HttpHead head = self.head_c()
        if self.raw is None and head is not None:
            self.raw = PyBytes_FromStringAndSize(<const char *> head.p, <Py_ssize_t> head.at)
        return 0

    cdef HttpHead read_head_c(self):
        cdef HttpHead head = self.head_c()
        if head is None:
            if self.raw is None:
                raise RuntimeError("the head of the request was not kept")
            head = read_raw(self.raw)
        return head

    cdef object peer_c(self):
        self.keep_head_c()
        return self

    @property
    def head(self):
        """The head of the request, as it came."""
        self.keep_head_c()
        return self.raw

    @property
    def method(self):
        """The method of the request, as it came."""
        return self.read_head_c().method

    @property
    def path(self):
        """The path of the request's target, not decoded."""
        return self.read_head_c().path

    @property
    def query(self):
        """The part of the target behind the question mark; empty without one."""
        return self.read_head_c().query or ""

    @property
    def headers(self):
        """The header fields of the request."""
        if self.known_headers is None:
            self.known_headers = headers_c(self.read_head_c())
        return self.known_headers

    # -- the response ----------------------------------------------------------------------------

    @property
    def lasts(self):
        """Whether the connection is kept after the response, as far as is known now."""
        return self.carrier is not None and not self.carrier.output.closes

    cdef int set_head_c(self, int status, bytes fields) except -1:
        """Set status and fields of the response."""
        cdef HttpWriter output = self.carrier.output
        if status != 200:
            output.status_c(status)
        output.fields = fields + self.more_fields
        self.status = status
        return 0

    cdef int status_c(self) noexcept:
        return 200

    cdef int begin_c(self) except -1:
        if self.carrier is None:
            return 0
        if not self.carrier.output.streaming:
            self.carrier.output.fields = (
                JSON_FIELDS + self.more_fields if self.more_fields else JSON_FIELDS
            )
        return self.carrier.output.begin_c()

    cdef int finish_c(self, char last) except -1:
        cdef HttpWriter output
        cdef int status
        if self.carrier is None:
            self.out.write_c(&last, 1)
            return self.lost_c()
        output = self.carrier.output
        if not output.streaming:
            status = self.status_c()
            if status != 200:
                output.status_c(status)
            self.status = status
        return output.finish_c(last)

    cdef int open_stream_c(self, bytes fields) except -1:
        cdef HttpWriter output = self.carrier.output
        output.fields = STREAM_FIELDS + fields + self.more_fields
        output.open_stream_c()
        self.status = 200
        return 0

    cdef int done_c(self) except -1:
        """The response is complete: the next request of the connection may be answered."""
        cdef Carrier carrier = self.carrier
        if carrier is None:
            return 0
        carrier.output.close_stream_c()
        self.carrier = None
        return carrier.over_c(self)

    def on_slow(self):
        """The client has read nothing for too long: its connection ends."""

    def retry_after(self, seconds):
        """Add the field Retry-After (RFC 9110 section 10.2.3) to the response, if its head is not
        written yet."""
        if self.status == 0 and b"Retry-After: " not in self.more_fields:
            self.more_fields += b"Retry-After: %d\r\n" % seconds

    cdef int check_open_c(self) except -1:
        if self.status:
            raise RuntimeError("the response has begun already")
        return 0

    def respond(self, int status, body=b"", fields=()):
        """Send the whole response: bytes, and pairs of name and value. Nothing is sent when the
        client is gone. RuntimeError: a response was begun already."""
        cdef HttpWriter output
        self.check_open_c()
        lines = field_lines(fields)
        if self.carrier is None:
            return
        output = self.carrier.output
        self.set_head_c(status, lines)
        try:
            # RFC 9110 section 8.6: no Content-Length where there cannot be a body
            output.send_c(body, status >= 200 and status != 204 and status != 304)
        finally:
            output.reset_c()
        self.finish_response_c()

    def close_after(self):
        """Let the response that follows be the last one of its connection."""
        if self.carrier is not None:
            self.carrier.output.closes = True

    def open_stream(self, fields=()):
        """Send the head of a stream of events, and a comment: some proxies hold the head back until
        the first byte behind it. RuntimeError: a response was begun already."""
        self.check_open_c()
        if self.carrier is not None:
            self.open_stream_c(field_lines(fields))
            self.send_text(b":\n\n")

    def send_event(self, data, *, str event=None, str id=None):
        """Send an event: data of one line."""
        cdef bytes lines = b"", text = bytes(data)
        if self.carrier is None:
            return
        if id is not None:
            lines += b"id: %b\n" % id.encode()
        if event is not None:
            lines += b"event: %b\n" % event.encode()
        self.carrier.output.stream_text_c(b"%bdata: %b\n\n" % (lines, text))
        self.carrier.link.wrote_c()

    def send_text(self, bytes text not None):
        """Send other text of the stream, such as a comment: whole lines, and an empty one."""
        if self.carrier is not None:
            self.carrier.output.stream_text_c(text)
            self.carrier.link.wrote_c()

    def close_stream(self):
        """End the stream, and with it the response."""
        self.finish_response_c()

    cdef int finish_response_c(self) except -1:
        cdef Carrier carrier = self.carrier
        if carrier is not None:
            self.done_c()
            if carrier.link is not None:
                carrier.link.wrote_c()
        return 0

    # -- the client's leaving --------------------------------------------------------------------

    cdef int gone_c(self) except -1:
        on_gone = self.on_gone
        self.on_gone = self.on_drained = self.on_drain = None
        self.gone = True
        self.carrier = None
        self.out = Outbox()            # what is still written is not sent
        if on_gone is not None:
            on_gone()
        return 0

    cdef int lost_c(self) except -1:
        return self.out.truncate_c(self.size_before)

    cdef int drained_c(self) except -1:
        if self.on_drained is not None:
            self.on_drained()
        return 0

    cdef int drain_c(self) except -1:
        if self.on_drain is not None:
            self.on_drain()
        return 0


cdef class HttpTarget:
    """Answers the requests at one path.

    Attributes of a target in Python: `auth_headers`, the fields that may bring a bearer token, and
    `refusal_status` for a missing or wrong one; `methods`, which OPTIONS names; `authority`, which
    decides in place of the gate's own tokens; `for_pages`, whether every web page may read it;
    `shutdown_grace`, the seconds that a request which is passed on has when a server shuts down.
    """

    auth_headers = ("authorization",)
    refusal_status = 401
    methods = ("POST", "GET", "DELETE")
    shutdown_grace = 0.0

    def admit(self, gate, request):
        """Return the `Admission` of a client, or an awaitable of it. Refused: the client may not
        come in."""
        return gate.check(request, self.auth_headers, self.refusal_status, self.authority)

    def share(self, int worker, int n):
        """The target has the same path in n processes at one port; this is the one with that
        number."""

    async def prepare(self):
        """Wait for what has to be there before the first request."""

    def leave(self):
        """The server will shut down soon. It still answers every request."""

    def drain(self):
        """The server shuts down: end what no request waits for."""

    async def drained(self):
        """After `drain`: wait for the requests of sessions."""

    def close(self):
        """End everything now."""

    async def aclose(self):
        """After `close`: wait for what has to end in order."""

    cdef Exchange exchange_c(self):
        return Exchange.__new__(Exchange)

    cdef int over_c(self, Exchange exchange) except -1:
        return 0

    cdef int take_c(self, Exchange exchange, Slab slab, const uint8_t *p, size_t n) except -1:
        self.take(exchange, PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n))
        return 0

    def take(self, exchange, body):
        """Answer a request, now or later. The head of a request that is answered after an await is
        kept by `Exchange.headers`."""
        raise NotImplementedError
