from wirespeed._core.outbox cimport Mark, Outbox


cdef class FrameWriter:
    cdef Outbox out                 # where frames are written to
    cdef Mark mark                  # where the open frame begins; set by `begin_c`
    cdef bint is_open

    # Write the payload to `out` between `open_c` and `close_c`, and run no other code meanwhile.
    # The payload's last byte is given to `close_c`. When anything fails between, call `abort_c`.
    cdef int open_c(self) except -1
    cdef int close_c(self, char last) except -1
    cdef int abort_c(self) except -1

    # Override: mark the place, with room for a head; write the last byte and what ends a frame.
    cdef int begin_c(self) except -1
    cdef int finish_c(self, char last) except -1
