from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport FrameWriter, Framer
from wirespeed._core.outbox cimport Outbox


# A wire of one's own: a compiled subclass calls `join_c` in its `__cinit__`, and overrides what
# says when to pause. Its fields are read only.
cdef class Wire:
    cdef readonly object limits
    cdef readonly Framer framer          # how frames lie in the stream, both ways
    cdef FrameWriter writer              # of the framer
    cdef readonly Outbox outbox
    cdef size_t output_high
    cdef readonly long long bytes_in, bytes_out

    cdef int abstract_c(self, type cls) except -1
    cdef int join_c(self, object limits, Framer framer) except -1
    # For links: read into `get_buffer_c`, then `commit_c`; write what `Outbox.gather_c` shows, then
    # `sent_c`.
    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1
    cdef int commit_c(self, size_t n) except -1
    cdef int sent_c(self, size_t n) except -1
    # For links whose messages are bodies: the next line to be sent, without its newline.
    cdef bytes take_line_c(self)
    # Override: whether to read; whether one more message may be worked on; whether answers of the
    # peer are awaited; whether input is held back that can be taken once there is room.
    cdef bint want_read_c(self) noexcept
    cdef bint has_room_c(self) noexcept
    cdef bint awaits_c(self) noexcept
    cdef bint wants_turn_c(self) noexcept


# Show the tap, if there is one, a message that came whole beside the stream of a wire.
cdef int show_whole_c(Wire wire, const uint8_t *p, size_t n) except -1
