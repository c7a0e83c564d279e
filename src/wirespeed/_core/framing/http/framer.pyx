"""HTTP/1.1 (RFC 9112): the messages of a connection, each as a frame, in both roles.

A frame is the body of a message, in one piece, and may be empty; the head lies before it in the
same memory. A body in chunks is moved together where it is. A client may take a body in pieces as
they arrive (a stream of events). A message that breaks a rule ends the connection: `failure` says
what is to be answered.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_READY, Framer, Inlet
from wirespeed._core.framing.http.chunks cimport CHUNKS_BAD, CHUNKS_DONE, begin_chunks, take_chunks
from wirespeed._core.framing.http.rfc9112 cimport (
    CONNECT, CR, CUT_SHORT, Fault, HEAD, LF, LONG_BODY, Method, NO_FAULT, OTHER_METHOD, failure_of,
    method_of,
)
from wirespeed._core.framing.http.head cimport HEAD_BAD, HEAD_READY, HttpHead
from wirespeed._core.framing.http.writer cimport HttpWriter
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span

from wirespeed._core.framing.http.writer import field_lines

cdef enum:
    IN_HEAD
    IN_SIZED              # a body with Content-Length
    IN_CHUNKS
    UNTIL_END             # of the connection: a response without a length
    TAKEN                 # the frame was returned

cdef enum:
    SWITCHING = 101       # the one interim status behind which no HTTP follows

cdef tuple PARTS = ("body", "head", "piece", "end")


@cython.final
@cython.no_gc
cdef class HttpFramer(Framer):
    """The messages of one connection.

    Args:
        role: "server" or "client": which side we are. A server takes in requests.
        max_body: Bytes of a body, its chunks moved together.
        max_head: Bytes of a head; the same number limits the chunk extensions and trailers of a
            body together.
        max_target: Bytes of the target of a request.
        max_fields: Header fields of a head.
        heads: Whether each head is a frame of its own, which is empty, before its body.
        line: The usual first line that we write; see `HttpWriter`.
        fields: The usual fields that we write.
    """

    def __cinit__(
        self,
        str role not None="server",
        *,
        size_t max_body,
        size_t max_head=16384,
        size_t max_target=8192,
        size_t max_fields=100,
        bint heads=False,
        bytes line not None=b"HTTP/1.1 200 OK\r\n",
        bytes fields not None=b"Content-Type: application/json\r\n",
    ):
        if role not in ("server", "client"):
            raise ValueError('role must be "server" or "client"')
        self.output = HttpWriter(line, fields)
        self.setup_c(max_body, self.output)
        self.head = HttpHead(
            role == "client", max_head=max_head, max_target=max_target, max_fields=max_fields
        )
        self.may_skip = role == "server"
        self.heads = heads
        self.chunks.max_body = max_body
        self.chunks.max_lines = max_head

    def __dealloc__(self):
        if self.head is not None:
            self.head.p = NULL    # it may outlive our memory

    # -- bytes in ------------------------------------------------------------------------------

    cdef int ensure_room_c(self, size_t wanted) except -1:
        self.head.p = NULL        # bytes may move
        return Inlet.ensure_room_c(self, wanted)

    cdef int drop_slab_c(self) except -1:
        self.head.p = NULL
        return Inlet.drop_slab_c(self)

    cdef int lie_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        self.drop_slab_c()
        self.slab = slab
        self.start = <size_t> p - <size_t> slab.base
        self.end = self.start + n
        return 0

    # -- messages out of them ------------------------------------------------------------------

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the next body, or what `part_c` says; or FRAME_MORE."""
        cdef size_t size, n
        cdef int got
        cdef uint8_t *p
        if self.phase == TAKEN:
            self.head.begin_c()
            self.may_skip = not self.head.response
            self.phase = IN_HEAD
        if self.ended:
            return self.settle_c()
        if self.in_pieces:
            return self.next_piece_c(frame)
        if self.slab is None:
            return self.settle_c()
        if self.phase == IN_HEAD:
            if not self.take_head_c():
                return self.settle_c()
            if self.heads:
                frame.p = self.slab.base + self.start + self.body
                frame.n = 0
                self.part_c = HEAD_ALONE
                return FRAME_READY
        self.part_c = BODY
        p = self.slab.base + self.start
        n = <size_t> self.head.length
        size = self.body + n
        if self.phase == IN_SIZED:
            if self.head.length > <uint64_t> self.max_frame:
                self.fail_c(LONG_BODY, self.max_frame)
            if self.ended or self.end - self.start < size:
                return self.settle_c()
        elif self.phase == IN_CHUNKS:
            self.chunks.moved = 0
            got = take_chunks(&self.chunks, p, self.end - self.start)
            self.bytes_moved += <long long> self.chunks.moved
            if got == CHUNKS_BAD:
                self.chunk_fault_c()
            if got != CHUNKS_DONE:
                return self.settle_c()
            self.body = self.chunks.body
            n = self.chunks.n_body
            size = self.chunks.at
        else:
            n = self.end - self.start - self.body
            size = self.body + n
            if n > self.max_frame:
                self.fail_c(LONG_BODY, self.max_frame)
            if not self.eof or self.ended:
                return self.settle_c()
        self.head.p = p
        frame.p = p + self.body
        frame.n = n
        self.start += size
        self.phase = TAKEN
        self.ended = not self.head.keeps_alive
        return FRAME_READY

    cdef int next_piece_c(self, Span *frame) except -1:
        """FRAME_READY with what has arrived of a body, or with its end; or FRAME_MORE."""
        cdef size_t n
        cdef bint done
        if self.body:                  # 0 once the head is dropped
            self.start += self.body
            self.body = 0
            self.head.p = NULL
            self.left = self.head.length
            begin_chunks(&self.chunks, 0)
            self.chunks.in_pieces = True
        n = self.end - self.start
        if self.phase == IN_CHUNKS:
            done = False
            if n:
                done = take_chunks(&self.chunks, self.slab.base + self.start, n) == CHUNKS_DONE
            if self.chunks.fault != NO_FAULT:
                self.chunk_fault_c()
                return self.settle_c()
            n = self.chunks.n_body
            if n:
                frame.p = self.slab.base + self.start + self.chunks.body
            self.start += self.chunks.at
            self.chunks.body = self.chunks.n_body = self.chunks.at = 0
        else:
            done = self.eof if self.phase == UNTIL_END else self.left == 0
            if self.phase == IN_SIZED:
                n = <size_t> min(<uint64_t> n, self.left)
                self.left -= n
            if n:
                frame.p = self.slab.base + self.start
                self.start += n
        frame.n = n
        if n:
            self.part_c = PIECE
            return FRAME_READY
        if not done:
            return self.settle_c()
        if self.slab is None:
            Inlet.ensure_room_c(self, 1)    # a frame lies in memory, also an empty one
        frame.p = self.slab.base + self.start
        self.part_c = END
        self.in_pieces = False
        self.phase = TAKEN
        self.ended = not self.head.keeps_alive
        return FRAME_READY

    cdef int take_head_c(self) except -1:
        """Take the next head. 1: it is whole, and its body is possible."""
        cdef HttpHead head = self.head
        cdef int got
        if self.may_skip and self.start < self.end and self.slab.base[self.start] == CR:
            # RFC 9112 section 2.2: one empty line before a request is skipped
            if self.start + 1 == self.end:
                return 0
            if self.slab.base[self.start + 1] == LF:
                self.start += 2
                self.may_skip = False
        if self.start == self.end:
            return 0
        self.may_skip = False
        while True:
            got = head.scan_c(self.slab.base + self.start, self.end - self.start)
            if got != HEAD_READY:
                if got == HEAD_BAD:
                    self.fail_c(head.fault, head.limit_c())
                return 0
            if not head.response or head.status >= 200 or head.status == SWITCHING:
                break
            self.start += head.at      # an interim response (RFC 9110 section 15.2)
            head.begin_c()
            if self.start == self.end:
                return 0
        self.body = head.at
        self.continued = False
        if head.response and (
            head.status < 200 or head.status == 204 or head.status == 304
            or self.asked == HEAD or (self.asked == CONNECT and head.status < 300)
        ):
            head.length = 0
            self.phase = IN_SIZED
        elif head.chunked:
            begin_chunks(&self.chunks, head.at)
            self.phase = IN_CHUNKS
        elif head.response and not head.has_length:
            head.keeps_alive = False
            self.phase = UNTIL_END
        else:
            self.phase = IN_SIZED
            if head.length > <uint64_t> self.max_frame and not self.heads:
                self.fail_c(LONG_BODY, self.max_frame)
                return 0
        self.asked = OTHER_METHOD
        return 1

    cdef int chunk_fault_c(self) except -1:
        return self.fail_c(
            self.chunks.fault,
            self.max_frame if self.chunks.fault == LONG_BODY else self.chunks.max_lines,
        )

    cdef int fail_c(self, Fault fault, size_t limit) except -1:
        """End the connection because of a fault of the peer."""
        self.failure = failure_of(fault, limit, self.head.response)
        self.ended = True
        self.keeps_head = self.shows_failed and self.phase != IN_HEAD
        return 0

    cdef int settle_c(self) except -1:
        """All input was looked at: keep as little of it as possible. Returns FRAME_MORE."""
        if self.eof and not self.ended and (self.start < self.end or self.in_pieces):
            self.fail_c(CUT_SHORT, 0)
        if self.slab is None:
            return FRAME_MORE
        if self.ended:
            if self.keeps_head:
                self.end = self.start + self.body
            else:
                self.start = self.end
        if self.lent is None:
            if self.start == self.end:
                self.drop_slab_c()     # an idle connection holds no memory
                return FRAME_MORE
            if self.phase == IN_CHUNKS and not self.in_pieces:
                # nothing behind the body so far is needed
                self.chunks.at = self.chunks.body + self.chunks.n_body
                self.end = self.start + self.chunks.at
        if not self.in_pieces:
            self.head.p = self.slab.base + self.start
        return FRAME_MORE

    cdef size_t buffered_c(self) noexcept:
        return 0 if self.keeps_head else self.end - self.start

    cdef bint has_head_c(self) noexcept:
        return (
            self.phase != IN_HEAD and self.phase != TAKEN and not self.ended
            and not self.in_pieces
        )

    cdef HttpHead known_head_c(self):
        if self.phase == TAKEN:
            return None if self.head.p is NULL else self.head
        if self.phase == IN_HEAD or self.in_pieces or self.start == self.end:
            return None
        self.head.p = self.slab.base + self.start
        return self.head

    cdef bint awaits_continue_c(self) noexcept:
        return (
            self.has_head_c() and self.head.expects_continue and not self.continued
            and self.end - self.start == self.head.at
        )

    cdef int stop_c(self) except -1:
        self.ended = True
        self.keeps_head = False
        return 0

    cdef int finish_c(self) except -1:
        self.ended = self.over = True
        return 0

    cdef bytes take_rest_c(self):
        cdef bytes rest = b""
        if self.slab is not None:
            rest = PyBytes_FromStringAndSize(
                <const char *> self.slab.base + self.start,
                <Py_ssize_t> self.end - <Py_ssize_t> self.start,
            )
        self.ended = True
        self.settle_c()
        return rest

    # -- for Python ----------------------------------------------------------------------------

    @property
    def part(self):
        """The kind of the last frame: "body", the whole one; with `heads` also "head"; of a body in
        pieces "piece", and "end" behind the last one. "head" and "end" are empty."""
        return PARTS[<int> self.part_c]

    def take_pieces(self):
        """After a frame that is a "head": take the body in pieces, as it arrives. `max_body` does
        not apply. RuntimeError: the last frame is not a head."""
        if self.part_c != HEAD_ALONE or self.ended or self.in_pieces:
            raise RuntimeError("only a body whose head was the last frame is taken in pieces")
        self.in_pieces = True

    def expect(self, str method not None):
        """Of a client: the next response answers a request of this method. HEAD and CONNECT have
        responses without a body (RFC 9112 section 6.3)."""
        cdef bytes name = method.encode()
        self.asked = <Method> method_of(name, len(name))

    @property
    def has_head(self):
        """Whether the head of a message has arrived, which `head` shows, and its body has not."""
        return self.has_head_c()

    @property
    def awaits_continue(self):
        """Whether the client sends a body only when it is told to (RFC 9110 section 10.1.1): by
        `send_continue`, or by a refusal."""
        return self.awaits_continue_c()

    def stop(self):
        """Take no further message: what arrives is dropped."""
        self.stop_c()

    def finish(self):
        """Close the connection once all is sent."""
        self.finish_c()

    def take_rest(self):
        """Return the bytes behind the last message and stop: they belong to another protocol."""
        return self.take_rest_c()

    cdef int check_joined_c(self) except -1:
        if self.output.out is None:
            raise RuntimeError("this framer is not joined to a connection yet")
        return 0

    def answer(self, *, bint last=False):
        """Begin the answer to the request that was returned last: HEAD gets no body, and the
        connection ends where the client wants that, or because this answer is the `last` one.
        RuntimeError: the head is gone."""
        self.head.check_c()
        self.output.answer_c(
            self.head.minor, self.head.method_c == HEAD, last or self.ended
        )

    def respond(self, int status, body=b"", *, fields=None):
        """Send a response. ``fields`` are pairs of name and value, by default the usual ones where
        there is a body; Content-Length and Connection are written here."""
        cdef HttpWriter output = self.output
        cdef bytes lines = field_lines(fields or ())
        self.check_joined_c()
        output.status_c(status)
        if fields is not None or not len(body):
            output.fields = lines
        try:
            # RFC 9110 section 8.6: no Content-Length where there cannot be a body
            output.send_c(body, status >= 200 and status != 204 and status != 304)
        finally:
            output.reset_c()

    def send_continue(self):
        """Tell the client to send the body."""
        self.check_joined_c()
        self.continued = True
        self.output.send_continue_c()

    def open_stream(self, *, fields):
        """Send the head of a stream of events: each frame that follows is the data of one."""
        cdef bytes lines = field_lines(fields)
        self.check_joined_c()
        self.output.check_idle_c()
        self.output.fields = lines
        self.output.open_stream_c()

    def stream_text(self, bytes text not None, /):
        """Send text of a stream that is not a message: whole lines, and an empty one."""
        self.check_joined_c()
        self.output.stream_text_c(text)

    def next_event(self, bytes lines not None, /):
        """Set the lines of the next event before its data, such as ``b"id: 7\\n"``."""
        self.output.event = lines

    def close_stream(self):
        """End the stream."""
        self.check_joined_c()
        self.output.close_stream_c()
