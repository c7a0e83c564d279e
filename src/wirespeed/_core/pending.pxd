from libc.stdint cimport int64_t, uint8_t, uint32_t

from wirespeed._core.span cimport Span


cdef struct PendingSlot:
    uint32_t generation          # how often the slot was used before
    uint32_t next_free           # OUTSTANDING while the slot is in use


cdef struct Deadline:
    double at
    int64_t id


cdef object meaning(bytes text)


cdef class Pending:
    cdef PendingSlot *slots      # slot 0 is never used: ids start at 1
    cdef list tokens             # by slot; a list, for the cycle collector; at first None
    cdef uint32_t room
    cdef uint32_t used           # slots ever used, slot 0 included
    cdef uint32_t free_head      # 0: none
    cdef uint32_t first          # the generation at the first use of a slot
    cdef readonly uint32_t live
    cdef readonly uint32_t limit
    cdef Deadline *heap          # by deadline; answered ids stay until they are first
    cdef size_t n_heap
    cdef size_t heap_room
    cdef dict texts              # id -> its chosen JSON text; None until one was chosen
    cdef dict chosen             # what such a text says (str, or bytes of an integer) -> id

    cdef int64_t add_c(self, object token, double deadline) except -1
    cdef object take_c(self, int64_t id)
    cdef object peek_c(self, int64_t id)
    # Send this id, the JSON text of a string or an integer, in place of the number. ValueError.
    cdef int choose_c(self, int64_t id, bytes text) except -1
    cdef bytes text_c(self, int64_t id)
    cdef int64_t find_c(self, Span raw) except -1
    cdef int64_t find_chosen_c(self, Span raw) except -1
    cdef int64_t find_minted_c(self, Span raw) noexcept
    cdef list alike_c(self, Span raw)
    cdef int push_deadline_c(self, double at, int64_t id) except -1
    cdef int sift_c(self, size_t i) noexcept
    cdef int pop_deadline_c(self) noexcept
    cdef bint is_live_c(self, int64_t id) noexcept
