from libc.stdint cimport uint8_t

from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.outbox cimport Mark
from wirespeed._core.slab cimport Slab


# A frame is a response (of a client: a request) whose body is written between `open_c` and
# `close_c`, or while a stream is open an event whose data is. All but the last two fields may be
# written.
cdef class HttpWriter(FrameWriter):
    # The first line of the next message, up to `close_c`, and its fields but those that are written
    # here, up to `open_c`: whole lines, which `field_lines` makes. What the constructor was given
    # comes back after each message, but not after `abort_c`.
    cdef bytes line
    cdef bytes fields
    # The lines of the next event before its data, such as its id; empty after each event.
    cdef bytes event
    # The Date field with its line end, or empty: the core knows no clock. Stays.
    cdef bytes date
    # How the request is answered: see `answer_c`.
    cdef bint closes                 # the connection ends with this message: Connection says so
    cdef bint old                    # HTTP/1.0: no chunks, and Connection says what stays open
    cdef bint bodiless               # HEAD: the body is counted and not sent
    cdef readonly bint streaming     # the head of a stream was sent, and not its end
    # Heads are told instead of sent, to a carrier that has heads of its own: while `told` is true
    # these are the lines of the head that was written last, and the bytes of its body, or -1.
    cdef bint apart, told
    cdef bytes told_line, told_fields
    cdef Py_ssize_t told_length
    cdef Mark mark                   # where the open message begins
    cdef bytes usual_line, usual_fields

    # What is said of the connection, in answer to a request of this version: `last` when no other
    # request is taken.
    cdef int answer_c(self, int minor, bint bodiless, bint last) except -1
    cdef int status_c(self, int status) except -1
    # A whole message; b"" for none. Its body is copied or referenced as `Outbox.write_object_c`
    # does. A status that has no body has no Content-Length, either.
    cdef int send_c(self, object body, bint sized) except -1
    cdef int send_continue_c(self) except -1
    # A stream of events: its head, events, other text of it (comments), its end.
    cdef int open_stream_c(self) except -1
    cdef int stream_text_c(self, bytes text) except -1
    cdef int close_stream_c(self) except -1
    # A message whose body comes in parts, as others have framed it: its head, with the bytes of the
    # body (-1: there is none), and the parts, which lie in the slab. After `open_stream_c` they are
    # parts of the stream.
    cdef int begin_body_c(self, Py_ssize_t n) except -1
    cdef int body_part_c(self, Slab slab, const uint8_t *p, size_t n) except -1

    cdef int reset_c(self) except -1
    cdef size_t head_size_c(self) noexcept
    cdef size_t write_head_c(self, uint8_t *to, int ending, size_t n) noexcept
    cdef int check_idle_c(self) except -1
