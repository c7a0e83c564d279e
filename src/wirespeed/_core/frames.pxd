from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire


cdef class FrameStream(Wire):
    cdef readonly long long frames_in, frames_out, oversize
    cdef public bint paused            # the owner takes no more for now: reading stops
    cdef bint held                     # bytes were taken in that `next_c` did not look at

    cdef int next_c(self, Span *frame) except -1
    cdef int send_c(self, object data) except -1
