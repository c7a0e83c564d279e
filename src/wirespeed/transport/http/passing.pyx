"""Requests that one process passes on to another, all of them over one connection.

The process of the client asks (`AskingEnd`), the one that has the session answers (`AnsweringEnd`
of `passed`). A frame is a head of nine bytes, which are the length of what follows, the number of
the request and the kind, and what follows. The request is passed on as it came.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from functools import partial

import msgspec

from wirespeed._core.framing.base cimport (
    FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, FrameWriter, Framer,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.framing.http.rfc9112 cimport GET
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire
from wirespeed.transport.http.exchange cimport Carrier, Exchange, PassedClient
from wirespeed.transport.link cimport Endpoint

from wirespeed.transport.options import NotPassed
from wirespeed.transport.taskpool_choice import LAST_WAIT

MAX_REQUESTS = 10_000  # of one connection that are not complete
MAX_UNSENT = 16 * 1024 * 1024  # bytes that wait for the other process; then long ones are refused

cdef enum:
    HEAD = 9
    MAX_FIELDS = 0x100000    # bytes of the fields of a response
    SHORT = 0x10000          # bytes of a body that always finds room
    MISDIRECTED = 421     # RFC 9110 section 15.5.20: a process does not have the session

# header fields that say how a body is sent
cdef frozenset OF_BODIES = frozenset(
    (b"transfer-encoding", b"content-length", b"expect", b"trailer")
)

cdef object encode = msgspec.msgpack.Encoder().encode


@cython.final
@cython.no_gc
cdef class PassingFramer(Framer):
    """The frames of one connection. A part of a body is returned as it arrives.

    Args:
        max_frame: Bytes of all other frames.
    """

    def __cinit__(self, size_t max_frame):
        self.setup_c(max_frame, FrameWriter())

    cdef int count_c(self) except -1:
        return 0                       # clients were counted where they are connected

    cdef int next_frame_c(self, Span *frame) except -1:
        cdef const uint8_t *p
        cdef size_t n, size
        n = min(self.unread, self.end - self.start)
        self.unread -= n
        self.start += n
        n = self.end - self.start
        if self.left == 0:
            if n < HEAD:
                return self.settle_c()
            p = self.slab.base + self.start
            size = number_at(p)
            self.number = number_at(p + 4)
            self.kind = p[8]
            if self.kind == PART:
                self.left = size
                self.start += HEAD
                n -= HEAD
            elif size > self.max_frame:
                self.start += HEAD
                self.unread = size
                return FRAME_OVERSIZE
            elif n - HEAD < size:
                return self.settle_c()
            else:
                frame.p = p + HEAD
                frame.n = size
                self.start += HEAD + size
                return FRAME_READY
        n = min(n, self.left)
        if n == 0:
            return self.settle_c()
        frame.p = self.slab.base + self.start
        frame.n = n
        self.kind = PART               # after a read
        self.start += n
        self.left -= n
        return FRAME_READY

    cdef int widen_c(self, size_t max_frame) except -1:
        return self.setup_c(max_frame, self.writer)

    cdef int settle_c(self) except -1:
        if self.start == self.end and self.slab is not None and self.lent is None:
            self.drop_slab_c()         # an idle connection holds no memory
        return FRAME_MORE


@cython.final
cdef class PassingWire(Wire):
    """The wire of one end.

    Args:
        limits: ``output_high`` and ``output_low`` count.
        max_frame: Bytes of a frame.
        asks: Of the end that asks. It reads always: else both ends could wait for each other.
    """

    def __cinit__(self, limits, size_t max_frame, bint asks):
        self.frames = PassingFramer(max_frame)
        self.asks = asks
        self.join_c(limits, self.frames)

    cdef bint want_read_c(self) noexcept:
        return self.asks or self.outbox.size < self.output_high

    cdef int begin_c(self, uint8_t kind, uint32_t number, size_t n) except -1:
        """Write the head of a frame, of which n bytes follow."""
        cdef uint8_t *p
        if n > 0xFFFFFFFF:
            raise ValueError("a frame has less than 4 GiB")
        p = self.outbox.reserve_c(HEAD)
        put_number(p, <uint32_t> n)
        put_number(p + 4, number)
        p[8] = kind
        return self.outbox.commit_c(HEAD)


cdef class PassingEnd(Endpoint):
    """One end of the connection between two processes. Abstract."""

    cdef int send_c(self, uint8_t kind, uint32_t number, bytes data) except -1:
        self.passing.begin_c(kind, number, <size_t> PyBytes_GET_SIZE(data))
        self.passing.outbox.text_c(data)
        return 0 if self.link is None else self.link.wrote_c()

    cdef int frame_c(self, uint8_t kind, uint32_t number, const uint8_t *p, size_t n) except -1:
        raise TypeError("a PassingEnd must implement frame_c()")

    cdef int oversize_c(self, uint8_t kind, uint32_t number) except -1:
        return self.break_c("sends a frame that is too long")

    cdef int break_c(self, str why) except -1:
        """The other process breaks a rule."""
        self.link.lose(ConnectionAbortedError(f"another process {why}"))
        return 0

    cpdef object on_data(self):
        cdef PassingEnd me = self      # a frame may close the link
        cdef PassingFramer frames = self.passing.frames
        cdef Span frame
        cdef int got
        while me.link is not None:
            got = frames.next_frame_c(&frame)
            if got == FRAME_READY:
                me.frame_c(frames.kind, frames.number, frame.p, frame.n)
            elif got == FRAME_OVERSIZE:
                me.oversize_c(frames.kind, frames.number)
            else:
                break

    cpdef object on_eof(self):
        self.link.close()

    def abort(self):
        """Close now."""
        if self.link is not None:
            self.link.close()


def proof_frame(bytes proof not None, /):
    """The first frame of the end that asks."""
    cdef uint8_t head[HEAD]
    put_number(head, <uint32_t> len(proof))
    put_number(head + 4, 0)
    head[8] = PROOF
    return (<const char *> head)[:HEAD] + proof


# -- the process of the client ---------------------------------------------------------------------


@cython.final
cdef class AskingEnd(PassingEnd):
    """The end that passes requests on. What is passed on before the link is made waits.

    Args:
        limits: Of the connection.
        far: The other process is another host.
        on_closed: Called with this end when the connection is closed, or was given up.
    """

    def __init__(self, limits, *, bint far, on_closed):
        self.wire = self.passing = PassingWire(limits, MAX_FIELDS, True)
        self.open = {}
        self.asking = {}
        self.far = far
        self.on_closed = on_closed

    @property
    def takes(self):
        """Whether further requests may be passed on."""
        return not self.leaving

    def pass_on(self, Exchange exchange not None, int worker, bytes body not None, otherwise):
        """Answer a request of a client with the response of the other process. ``otherwise`` is
        called in place of this, with the reason (`NotPassed`)."""
        cdef PassedRequest request
        cdef Outbox out = self.passing.outbox
        cdef HttpHead parsed = exchange.read_head_c()
        cdef PassedClient passed = exchange.carrier.passed
        cdef bytes said, head = exchange.head
        cdef bint idle = not self.open
        cdef uint8_t *p
        if (
            len(self.open) >= MAX_REQUESTS
            or (out.size >= <size_t> MAX_UNSENT and len(body) > SHORT)
        ):
            otherwise(NotPassed.FULL)
            return
        if parsed.chunked or parsed.expects_continue:      # the body has been read and joined
            head = sized(head, len(body))
        user = exchange.user
        said = encode((
            exchange.address, None if user is None else str(user),
            () if user is None else user.scopes, exchange.principal,
            None if exchange.expires == INFINITY else exchange.expires, worker, self.far,
            passed is not None and passed.streams,
        ))
        request = PassedRequest.__new__(PassedRequest)
        request.end = self
        request.exchange = exchange
        request.otherwise = otherwise
        request.at = self.passing.bytes_out + <long long> out.size
        self.last += 1
        self.leaving = self.leaving or self.last == 0x7FFFFFFF
        request.number = self.last
        self.open[self.last] = request
        exchange.on_gone = request.gone
        exchange.on_drained = request.drained
        exchange.on_drain = request.drain
        self.passing.begin_c(REQUEST, self.last, 4 + len(said) + len(head) + len(body))
        p = out.reserve_c(4)
        put_number(p, <uint32_t> len(said))
        out.commit_c(4)
        out.text_c(said)
        out.write_object_c(head)
        out.write_object_c(body)
        if self.link is not None:
            if idle:
                self.link.wrote_c()
            else:
                self.link.wrote_more_c()       # with those of other clients in this turn
        if exchange.carrier.draining:
            request.drain()

    def ask(self, bytes question not None, future not None):
        """Ask for the state of the other process: the result of the future is a text."""
        self.n_asked += 1
        self.asking[self.n_asked] = future
        future.add_done_callback(partial(self._asked, self.n_asked))
        self.send_c(STATE, self.n_asked, question)

    def _asked(self, number, future):
        self.asking.pop(number, None)

    def close(self):
        """Close, or give up a link that is not made yet: what waits for an answer gets none."""
        if self.link is not None:
            self.link.close()
        else:
            self.on_lost(None)

    cdef int frame_c(self, uint8_t kind, uint32_t number, const uint8_t *p, size_t n) except -1:
        cdef PassedRequest request
        if kind == STATE:
            future = self.asking.get(number)
            if future is not None and not future.done():
                future.set_result(PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n))
            return 0
        if kind == LAST:
            self.leaving = True
            for request in list(self.open.values()):
                if request.number > number:
                    request.give_c(NotPassed.NOT_SENT)
        elif kind < ANSWER or kind > CUT:
            return self.break_c(f"sends a frame of the kind {kind}")
        else:
            request = self.open.get(number)
            if request is None or request.exchange.carrier is None:
                pass                   # the client is gone
            elif kind == ANSWER:
                if request.exchange.status or n < HEAD_OF_ANSWER:
                    return self.break_c("answers a request wrongly")
                request.answer_c(p, n)
            elif kind == PART:
                request.part_c(self.passing.frames.slab, p, n)
            else:
                request.end_c(kind == END)
        if self.leaving and not self.open and self.link is not None:
            self.link.close()
        return 0

    cpdef object on_lost(self, exc):
        cdef PassedRequest request
        cdef list open = list(self.open.values())
        self.leaving = True
        for future in list(self.asking.values()):
            if not future.done():
                future.set_result(None)
        for request in open:
            if request.exchange is not None:
                if request.at >= self.passing.bytes_out:
                    request.give_c(NotPassed.NOT_SENT)
                else:
                    request.end_c(False)
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed(self)


cdef bytes sized(bytes head, size_t n):
    """The head of a request whose body has n bytes."""
    lines = [
        line for line in head.split(b"\r\n")
        if line and line.partition(b":")[0].strip().lower() not in OF_BODIES
    ]
    return b"%b\r\nContent-Length: %d\r\n\r\n" % (b"\r\n".join(lines), n)


@cython.final
cdef class PassedRequest:
    """A request that is passed on: its client gets the response."""

    cdef Exchange leave_c(self):
        """The request is over here."""
        cdef Exchange exchange = self.exchange
        self.exchange = None
        self.end.open.pop(self.number, None)
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None
        if exchange is not None:
            exchange.on_gone = exchange.on_drained = exchange.on_drain = None
        return exchange

    cdef int give_c(self, object outcome) except -1:
        """The other process does not answer."""
        if self.exchange.status:           # it has begun to, against the rules
            return self.end_c(False)
        self.leave_c()
        self.otherwise(outcome)
        return 0

    cdef int answer_c(self, const uint8_t *p, size_t n) except -1:
        cdef Exchange exchange = self.exchange
        cdef Carrier carrier = exchange.carrier
        cdef uint32_t status = number_at(p)
        cdef uint64_t length_bits = <uint64_t> number_at(p + 4) | <uint64_t> number_at(p + 8) << 32
        cdef int64_t length = <int64_t> length_bits
        if status == MISDIRECTED:
            return self.give_c(NotPassed.NOT_HERE)
        exchange.set_head_c(
            <int> status,
            PyBytes_FromStringAndSize(
                <const char *> p + HEAD_OF_ANSWER, <Py_ssize_t> n - HEAD_OF_ANSWER
            ),
        )
        if length < 0 and status != 204 and status != 304:
            self.left = -1
            carrier.output.open_stream_c()
        else:
            self.left = max(0, <Py_ssize_t> length)
            carrier.output.begin_body_c(<Py_ssize_t> length)
            if carrier.output.bodiless:
                self.left = 0
        return carrier.link.wrote_c()

    cdef int part_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        cdef Carrier carrier = self.exchange.carrier
        if self.left >= 0:
            if n > <size_t> self.left:
                return self.end.break_c("answers with more than it says")
            self.left -= <Py_ssize_t> n
        carrier.output.body_part_c(slab, p, n)
        carrier.link.wrote_c()
        if not self.paused and carrier.wire.outbox.size >= carrier.wire.output_high:
            self.paused = True
            self.end.send_c(PAUSE, self.number, b"")
        return 0

    cdef int end_c(self, bint whole) except -1:
        """Nothing more comes; ``whole``: the response is complete."""
        cdef Exchange exchange = self.exchange
        if exchange.status == 0:
            return self.give_c(NotPassed.LOST)
        self.leave_c()
        if self.left < 0 or (whole and self.left == 0):
            return exchange.finish_response_c()    # the client of a stream comes back for the rest
        exchange.carrier.link.close()
        return 0

    def gone(self):
        """The client left."""
        if self.leave_c() is not None:
            self.end.send_c(GONE, self.number, b"")

    def drained(self):
        """The client reads again."""
        if self.paused:
            self.paused = False
            self.end.send_c(RESUME, self.number, b"")

    def drain(self):
        """The server of the client shuts down: a stream that waits for nothing ends, so that its
        client comes back elsewhere. What answers a POST may end it, as where it shuts down, and
        has the grace time for it."""
        cdef Exchange exchange = self.exchange
        if exchange.read_head_c().method_c == GET:
            self.gone()
            if exchange.status:
                exchange.finish_response_c()
            else:
                exchange.respond(503)
        else:
            self.end.send_c(DRAIN, self.number, b"")
            seconds = exchange.target.shutdown_grace + 2 * LAST_WAIT   # that the other one has too
            self.grace_timer = exchange.carrier.link.loop.call_later(seconds, self.cut_off)

    def cut_off(self):
        """The grace time is over."""
        if self.end.link is None:
            self.end.close()               # nothing was sent
        else:
            self.end.send_c(GONE, self.number, b"")
            self.end_c(False)
