from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire


cdef class FrameStream(Wire):
    cdef readonly long long frames_in, frames_out, oversize
    cdef public bint paused            # set by an owner that has no room: reading stops
    cdef bint held                     # there are bytes that `next_c` did not frame

    cdef int next_c(self, Span *frame) except -1
    cdef int send_c(self, object data) except -1


cdef int send_frame_c(Wire wire, object data) except -1
