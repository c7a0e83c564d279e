from libc.stdint cimport uint8_t

from wirespeed._core.outbox cimport Outbox


cdef class FrameWriter:
    cdef Outbox out                 # where frames are written to
    cdef bint takes_newlines        # in a payload: they do not end the frame
    cdef bint is_open               # a frame is being written
    cdef size_t size_before         # of `out`

    # Write the payload to `out` between `open_c` and `close_c`, and run no other code meanwhile.
    # The payload's last byte is given to `close_c`. When anything fails between, call `abort_c`.
    cdef int open_c(self) except -1
    cdef int close_c(self, char last) except -1
    cdef int abort_c(self) except -1

    # A frame whose payload has n bytes, in one piece: where they are to be written, at once. NULL:
    # the framing needs to see them first, so write it between `open_c` and `close_c`.
    cdef uint8_t *whole_c(self, size_t n) except? NULL

    # Override: begin a frame, with room for a head if it has one (`Outbox.mark_c`); write the last
    # byte and the end of a frame.
    cdef int begin_c(self) except -1
    cdef int finish_c(self, char last) except -1
