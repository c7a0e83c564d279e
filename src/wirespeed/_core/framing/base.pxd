from libc.stdint cimport uint8_t

from wirespeed._core.framing.inlet cimport Inlet
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.span cimport Span


cdef enum FrameResult:
    FRAME_MORE = 0        # no whole frame: more input needed
    FRAME_READY = 1
    # A frame exceeds the limit: the span has its first `max_frame` bytes. Reported once; the rest
    # of the frame is skipped.
    FRAME_OVERSIZE = 2


cdef class Framer(Inlet):
    cdef readonly size_t max_frame  # bytes of a frame, its delimiter or header not counted
    cdef readonly bint needs_goodbye  # the end of the stream without a goodbye is a loss
    cdef readonly bint over         # both sides have said goodbye: close once all is sent
    cdef FrameWriter writer         # set by `setup_c`; may be used without the framer

    cdef int setup_c(self, size_t max_frame, FrameWriter writer) except -1

    # Override. `next_frame_c` moves `start` behind the frame that it returns. A frame stays valid
    # until the next call of any method.
    cdef int next_frame_c(self, Span *frame) except -1
    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1
    cdef bint give_up_c(self, int code, str reason) except -1
    cdef bint goodbye_c(self, int code, str reason) except -1
