from wirespeed._core.envelope cimport Message
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire


cdef class FrameStream(Wire):
    cdef readonly long long frames_in, frames_out, oversize
    cdef public bint paused            # set by an owner that has no room: reading stops
    cdef bint held                     # there are bytes that `next_c` did not frame

    cdef int next_c(self, Span *frame) except -1
    cdef int send_c(self, object data) except -1


cdef int send_frame_c(Wire wire, object data) except -1


cdef class MessageStream(Wire):
    cdef MessageReader reader
    cdef readonly long long messages_in, messages_out
    cdef public bint paused            # set by an owner that has no room: reading stops
    cdef readonly bint reads_always    # reading goes on while output waits
    cdef bint held                     # there are bytes that `next_c` did not read

    # The next message, or None until more bytes arrive; send JSON text, bytes or a Payload.
    cdef Message next_c(self)
    cdef int send_c(self, object data) except -1
