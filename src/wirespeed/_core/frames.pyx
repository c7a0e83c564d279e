"""Frames without envelopes: for protocols whose messages are not JSON-RPC (LiteMCP), and echoes."""

cimport cython
from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, Framer
from wirespeed._core.outbox cimport Parts, locate_c, parts_of
from wirespeed._core.slab cimport Lease
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire

from wirespeed.limits import Limits


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
        self.join_c(Limits() if limits is None else limits, framer)

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
