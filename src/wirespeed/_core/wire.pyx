# cython: nonecheck=True
"""One end of a byte stream: bytes in, bytes out, and when to pause. Links move its bytes.

Subclasses give the bytes a meaning: `wirespeed._core.session.Session` (JSON-RPC messages),
`wirespeed._core.streams.MessageStream` (messages without a state of requests),
`wirespeed._core.streams.FrameStream` (frames without envelopes).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport Framer
from wirespeed._core.outbox cimport Outbox, iovec

cdef enum:
    TAPPED_VECTORS = 64      # no link writes more at once
    HEAP_TYPE = 512          # Py_TPFLAGS_HEAPTYPE: a class made by Python code

# Set by tests and `wirespeed.transport.wire_trace` only; checked once for each read and write of a
# stream.
cdef object tap = None


def set_tap(function):
    """For tests and debugging: call a function with all bytes that pass through the wires of this
    process. None ends it.

    Its arguments are the wire, the event ("made", "carried", "sent" or "received"), and a copy of
    the bytes, which are not framed yet. "carried" says that the messages of a wire are the bodies
    of HTTP messages, which another wire shows.
    """
    global tap
    tap = function


cdef int show_whole_c(Wire wire, const uint8_t *p, size_t n) except -1:
    if tap is not None:
        tap(wire, "received", (<const char *> p)[:n].replace(b"\n", b" ") + b"\n")
    return 0


def show_carried(wire):
    """Tell the tap, if there is one, that the messages of a wire are bodies of HTTP messages."""
    if tap is not None:
        tap(wire, "carried", b"")


cdef class Wire:
    """The framing, the outgoing bytes and the limits of one connection.

    Abstract: only compiled classes, which call `join_c`, can extend it (TypeError for others).
    """

    def __cinit__(self, *args, **kwargs):
        self.abstract_c(Wire)

    cdef int abstract_c(self, type cls) except -1:
        """TypeError when we are of this class, or of one that Python code derived from it."""
        cdef type base = type(self)
        while base.__flags__ & HEAP_TYPE:
            base = base.__base__
        if base is cls:
            raise TypeError(
                f"{cls.__name__} is abstract: use Session, MessageStream or FrameStream"
            )
        return 0

    cdef int join_c(self, object limits, Framer framer) except -1:
        """Join the framing, which writes to our outbox from now on."""
        if framer.writer is None:
            raise TypeError("a framing without a writer")
        if framer.writer.out is not None:
            raise ValueError("this framing is in use already")
        self.limits = limits
        self.output_high = limits.output_high
        self.outbox = Outbox()
        self.framer = framer
        self.writer = framer.writer
        self.writer.out = self.outbox
        if tap is not None:
            tap(self, "made", b"")
        return 0

    # -- bytes in ------------------------------------------------------------------------------

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1:
        return self.framer.get_buffer_c(p, n)

    cdef int commit_c(self, size_t n) except -1:
        if tap is not None:
            show_received_c(self, n)
        self.framer.commit_c(n)
        self.bytes_in += <long long> n
        return 0

    def receive_data(self, data, /):
        """Take in the next bytes of the stream: a contiguous bytes-like object.

        Lines are read in place: the object stays exported until its last message is dropped. Other
        framings copy it. RuntimeError after `receive_eof`, and between `get_buffer` and
        `buffer_updated`.
        """
        if tap is not None:
            tap(self, "received", bytes(data))
        self.bytes_in += self.framer.feed_c(data)

    def get_buffer(self):
        """Return the memory for the next bytes of the stream, a writable memoryview.

        For ``asyncio.BufferedProtocol`` and ``sock_recv_into``; `buffer_updated` ends the loan.
        The memory stays valid as long as the view lives. RuntimeError while bytes given to
        `receive_data` are not framed yet.
        """
        return self.framer.lend_c()

    def buffer_updated(self, Py_ssize_t n, /):
        """n bytes were read into the view that `get_buffer` returned, which must not be used again.

        ValueError when the view was shorter; RuntimeError when no view is lent.
        """
        if tap is not None and self.framer.lent is not None and n >= 0:
            show_received_c(self, <size_t> n)
        self.framer.take_back_c(n)
        self.bytes_in += n

    def reclaim_buffer(self):
        """Nothing was read into what `get_buffer` lent, and nothing is for now: an idle connection
        holds no memory. Another `get_buffer` may follow, but no `buffer_updated`."""
        self.framer.reclaim_c()

    def receive_eof(self):
        """No more bytes will come. An unfinished frame is the last one, where the framing can
        tell."""
        self.framer.eof = True

    @property
    def over(self):
        """Whether both sides have said goodbye (WebSocket): close once `data_to_send` is sent."""
        return self.framer.over

    # -- when to pause -------------------------------------------------------------------------

    cdef bint want_read_c(self) noexcept:
        return self.outbox.size < self.output_high

    @property
    def want_read(self):
        """Whether the transport should read on."""
        return self.want_read_c()

    cdef bint has_room_c(self) noexcept:
        """Whether one more message may be worked on."""
        return self.outbox.size < self.output_high

    cdef bint awaits_c(self) noexcept:
        """Whether an answer of the peer is still awaited, although the peer reads nothing."""
        return False

    cdef bint wants_turn_c(self) noexcept:
        """Whether input that was taken in already is held back, and `next` will show it once there
        is room."""
        return False

    # -- bytes out -----------------------------------------------------------------------------

    def data_to_send(self):
        """The bytes to write, in order, as read-only bytes-like chunks that never change."""
        self.bytes_out += <long long> self.outbox.ready_c()
        chunks = self.outbox.take()
        if tap is not None:
            tap(self, "sent", b"".join(chunks))
        return chunks

    cdef bytes take_line_c(self):
        """Take the first line that waits, without its newline: it is sent in another way."""
        cdef Wire me = self            # what is taken is freed, which may run any code
        cdef bytes line = self.outbox.line_c()
        if tap is not None:
            tap(self, "sent", line + b"\n")
        me.bytes_out += len(line) + 1
        me.outbox.consume_c(<size_t> len(line) + 1)
        return line

    cdef int sent_c(self, size_t n) except -1:
        if tap is not None:
            show_sent_c(self, n)
        self.bytes_out += <long long> n
        return self.outbox.consume_c(n)


cdef int show_received_c(Wire wire, size_t n) except -1:
    """Call the tap: n bytes were read to where `get_buffer_c` points."""
    cdef uint8_t *p = NULL
    cdef size_t room = 0
    wire.framer.get_buffer_c(&p, &room)
    if n <= room:
        tap(wire, "received", PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n))
    return 0


cdef int show_sent_c(Wire wire, size_t n) except -1:
    """Call the tap: the first n bytes of the outbox were sent."""
    cdef iovec vectors[TAPPED_VECTORS]
    cdef int i, n_vectors = wire.outbox.gather_c(vectors, TAPPED_VECTORS)
    cdef size_t part
    cdef list parts = []
    for i in range(n_vectors):
        part = min(n, vectors[i].iov_len)
        parts.append(
            PyBytes_FromStringAndSize(<const char *> vectors[i].iov_base, <Py_ssize_t> part)
        )
        n -= part
    tap(wire, "sent", b"".join(parts))
    return 0
