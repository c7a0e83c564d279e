from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox


cdef class Wire:
    cdef readonly object limits
    cdef readonly Framer framer          # how frames lie in the stream, both ways
    cdef FrameWriter writer              # of the framer
    cdef readonly Outbox outbox
    cdef size_t output_high
    cdef readonly long long bytes_in, bytes_out

    cdef int abstract_c(self, type cls) except -1
    cdef int join_c(self, object limits, Framer framer) except -1
    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1
    cdef int commit_c(self, size_t n) except -1
    cdef int sent_c(self, size_t n) except -1
    cdef bint want_read_c(self) noexcept
    cdef bint has_room_c(self) noexcept
    cdef bint awaits_c(self) noexcept
    cdef bint wants_turn_c(self) noexcept
