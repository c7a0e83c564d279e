"""Streams without a session: frames (for protocols whose messages are not JSON-RPC, as LiteMCP
and plain bytes), and messages (for bridges that do their own multiplexing)."""

cimport cython
from libc.stdint cimport uint8_t

from wirespeed._core.envelope cimport BATCH, Message
from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.outbox cimport Parts, json_line, locate_c, parts_of
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.slab cimport Lease
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire

from wirespeed.limits import Limits

cdef object DEFAULTS = Limits()    # they never change


@cython.final
cdef class FrameStream(Wire):
    """One connection whose owner reads and writes the frames.

    Iterate over it for the frames that are there now, as leases. None stands for a frame that was
    longer than the framing allows and was dropped.

    Args:
        framer: How frames lie in the stream.
        limits: `output_high` applies, at which reading stops.

    An owner that has no room sets `paused`: reading stops, and the iteration ends.
    """

    def __cinit__(self, Framer framer not None, *, limits=None):
        self.join_c(DEFAULTS if limits is None else limits, framer)

    cdef bint want_read_c(self) noexcept:
        return not self.paused and self.outbox.size < self.output_high

    cdef bint has_room_c(self) noexcept:
        return self.want_read_c()

    cdef bint wants_turn_c(self) noexcept:
        return self.held

    cdef int next_c(self, Span *frame) except -1:
        cdef FrameStream me = self     # input memory is freed, which may run any code
        cdef int got
        if not self.want_read_c():
            self.held = self.framer.buffered_c() != 0
            return FRAME_MORE
        self.held = False
        got = me.framer.next_frame_c(frame)
        if got == FRAME_READY:
            self.frames_in += 1
        elif got == FRAME_OVERSIZE:
            self.oversize += 1
        return got

    def __iter__(self):
        return self

    def __next__(self):
        cdef Span frame
        cdef int got = self.next_c(&frame)
        if got == FRAME_MORE:
            raise StopIteration
        if got == FRAME_OVERSIZE:
            return None
        return Lease.of(self.framer.slab, frame.p, frame.n)

    def send(self, data, /):
        """Send a frame: a bytes-like object, or a tuple or list of parts, that is not empty and
        does not hold the delimiter of the framing. A part of 4 KiB or more may not be copied, and
        must not change until it is sent."""
        self.send_c(parts_of(data))

    cdef int send_c(self, object data) except -1:
        send_frame_c(self, data)
        self.frames_out += 1
        return 0


cdef int send_frame_c(Wire wire, object data) except -1:
    """Write a frame, which `parts_of` returned: all of it or nothing."""
    # all but the last character, which the framing may write together with its delimiter
    cdef const uint8_t *p = NULL
    cdef size_t n = 0
    cdef list parts = (<Parts> data).parts if type(data) is Parts else [data]
    cdef Py_ssize_t i, last = len(parts) - 1
    if last >= 0:
        locate_c(parts[last], &p, &n)
    if n == 0:
        raise ValueError("an empty frame")
    try:
        wire.writer.open_c()
        for i in range(last):
            wire.outbox.write_object_c(parts[i])
        wire.outbox.write_part_c(parts[last], p, n - 1)
        wire.writer.close_c(<char> p[n - 1])
    finally:
        wire.writer.abort_c()      # of a frame that could not be finished
    return 0


@cython.final
cdef class MessageStream(Wire):
    """One connection whose owner matches requests and answers by itself.

    Iterate over it for the messages that are there now. Nothing is answered, counted as in flight
    or refused here: invalid messages are shown like others, and ids are the owner's.

    Args:
        limits: The limits of `MessageReader` apply, and `output_high`, at which reading stops.
        batches: Whether an array is a batch, whose elements are messages; else it is invalid.
        reads_always: Whether reading goes on while output waits. Two peers that both stop reading
            until the other has read wait for ever: the side that bounds its output by other means
            (a proxy towards its server) reads always.
        framer: How messages lie in the stream; one a line by default.

    An owner that has no room sets `paused`: reading stops, and the iteration ends.
    """

    def __cinit__(
        self, *, limits=None, bint batches=False, bint reads_always=False, Framer framer=None
    ):
        limits = DEFAULTS if limits is None else limits
        self.join_c(limits, LineFramer(limits.max_message) if framer is None else framer)
        self.reader = MessageReader(limits=limits, batches=batches, framer=self.framer)
        self.reads_always = reads_always

    cdef bint want_read_c(self) noexcept:
        return not self.paused and (self.reads_always or self.outbox.size < self.output_high)

    cdef bint has_room_c(self) noexcept:
        return self.want_read_c()

    cdef bint wants_turn_c(self) noexcept:
        return self.held

    cdef Message next_c(self):
        cdef MessageStream me = self   # input memory is freed, which may run any code
        cdef Message m
        if not self.want_read_c():
            self.held = self.framer.buffered_c() != 0 or bool(self.reader.elements)
            return None
        self.held = False
        if self.reader.elements:
            m = <Message> self.reader.elements.pop()
        else:
            m = self.reader.next_c()
            if m is not None and m.kind_c == BATCH:
                m = <Message> me.reader.elements.pop()
        if m is not None:
            me.messages_in += 1
        return m

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m = self.next_c()
        if m is None:
            raise StopIteration
        return m

    def send(self, data, /):
        """Send a message: JSON text on one line, as a bytes-like object or a tuple or list of parts
        (ValueError for text that is empty or holds a raw newline). A part of 4 KiB or more may not
        be copied, and must not change until it is sent."""
        self.send_c(json_line(data))

    cdef int send_c(self, object data) except -1:
        send_frame_c(self, data)
        self.messages_out += 1
        return 0
