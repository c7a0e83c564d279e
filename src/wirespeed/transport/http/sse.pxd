from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport Lease, Slab


# A stream of events as it arrives. `feed_c` takes in bytes, which stay where they are and are
# pinned until `next_c`, which is called next, has returned 0.
cdef class EventReader:
    cdef readonly size_t max_event     # bytes of the data of an event
    cdef readonly str failure          # why nothing else is read, or None
    # the last event, until the next call of `next_c`
    cdef str event, id                 # `id` is None where the event has none
    cdef object data, retry            # a Lease or bytes; an int or None

    cdef Lease input                   # pins the bytes that were taken in
    cdef size_t at, end                # bytes of `input` that were not looked at
    cdef size_t newline                # of the next LF, or `end`
    cdef bint skips_newline            # the last byte was a CR
    cdef bint begun                    # the first line was looked at
    # What is needed of earlier inputs: the data of the unfinished event, if that lies there, and
    # from `line` on the unfinished line.
    cdef Slab held
    cdef size_t n_held, line
    # the unfinished event
    cdef size_t n_data                 # bytes of its data
    cdef int n_lines                   # of data: 0, 1, or 2 for more
    cdef const uint8_t *first          # its first line of data, where the input has it
    cdef size_t first_held             # where `held` has it
    cdef bytearray lines               # its lines of data, where these are several
    cdef bint has_fields               # an id or a time
    cdef str next_event, next_id
    cdef object next_retry

    cdef int feed_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    # 1: the next event is there. 0: more input is needed, or `failure` is set.
    cdef int next_c(self) except -1

    cdef size_t line_end_c(self) noexcept
    cdef int hold_c(self, const uint8_t *p, size_t n) except -1
    cdef int keep_c(self) except -1
    cdef int line_c(self, const uint8_t *p, size_t n, bint is_held) except -1
    cdef int data_c(self, const uint8_t *p, size_t n, bint is_held) except -1
    cdef object first_c(self)
    cdef int end_c(self) except -1
    cdef int fail_c(self, str what, size_t limit) except -1
