"""Frames in a byte stream: the base of all framings.

A framing is a subclass of Framer (input memory: `inlet`) with a FrameWriter (output: `writer`).
`next_frame_c` returns frames as spans of the slab. Only an unfinished frame is ever moved.
"""

cimport cython
from libc.stdint cimport uint8_t

from wirespeed._core.framing.inlet cimport Inlet
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.span cimport Span

cdef size_t MAX_FRAME = 0x80000000    # 2 GiB: offsets into a frame have 32 bits


@cython.no_gc
cdef class Framer(Inlet):
    """Cuts a byte stream into frames of at most `max_frame` bytes. Abstract."""

    cdef int setup_c(self, size_t max_frame, FrameWriter writer) except -1:
        """For the constructors of subclasses. ValueError for a limit that is out of range."""
        if not 1 <= max_frame <= MAX_FRAME:
            raise ValueError("the limit of a frame must be 1 byte to 2 GiB")
        self.max_frame = max_frame
        self.writer = writer
        return 0

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the frame in `self.slab`, FRAME_MORE, or FRAME_OVERSIZE with the first
        bytes of the frame."""
        raise TypeError("a Framer must implement next_frame_c()")

    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1:
        """The frame is not JSON. True: that ends the stream, and the framing has answered it."""
        return False

    cdef bint give_up_c(self, int code, str reason) except -1:
        """Take no more input. True: the framing has told the peer why, and `over` is true. False:
        the framing has no goodbye."""
        return False

    cdef bint goodbye_c(self, int code, str reason) except -1:
        """End the stream. True: the framing's goodbye is queued, and `over` becomes true when the
        peer answers it. False: the framing has no goodbye."""
        return False
