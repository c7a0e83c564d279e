from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.span cimport Span

cdef enum:
    INLINE_ID = 32               # so that a slot is 64 bytes


cdef struct InFlightSlot:
    uint64_t hash
    void *route                  # its ReplyRoute, which `routes` holds; NULL: the wire's stream
    uint32_t id_len              # 0: the slot is free
    uint32_t generation
    uint32_t next_free
    uint32_t n_bytes             # of its message, while it is being worked on; else 0
    uint8_t id[INLINE_ID]        # the id, or where it is when it is longer than this


cdef class InFlight:
    cdef InFlightSlot *slots
    cdef list tokens, routes     # by slot; lists, for the cycle collector. `routes`: at first None
    cdef uint32_t room
    cdef uint32_t used
    cdef uint32_t free_head      # slot + 1; 0: none
    cdef uint64_t *table         # open addressing: low half of the hash, slot + 1; or 0
    cdef uint32_t mask
    cdef readonly uint32_t live
    cdef readonly size_t n_bytes  # of the messages of requests that are being worked on

    cdef uint64_t add_c(self, Span id, size_t n_bytes) except? 0
    cdef int start_c(self, InFlightSlot *slot, size_t n_bytes) noexcept
    cdef int lookup_c(self, Span id, uint64_t h, uint32_t *at) except -1
    cdef uint64_t find_c(self, Span id) except? 0
    cdef InFlightSlot *slot_c(self, uint64_t ref) noexcept
    cdef int remove_c(self, uint64_t ref) except -1
    cdef int remove_slot_c(self, InFlightSlot *slot) except -1
    cdef int set_token_c(self, uint64_t ref, object token) except -1
    cdef object token_c(self, uint64_t ref)
    cdef int set_route_c(self, uint64_t ref, ReplyRoute route) except -1
    cdef list routed_c(self, ReplyRoute route)
    cdef list refs_c(self)
    cdef int rehash_c(self, uint32_t size) except -1


cdef bint says_same_c(Span one, Span other) except -1


cdef inline Span inflight_id(InFlightSlot *slot) noexcept:
    """The id's text, valid while the table is not changed."""
    cdef Span s
    s.n = slot.id_len
    if s.n <= INLINE_ID:
        s.p = slot.id
    else:
        memcpy(&s.p, slot.id, sizeof(s.p))
    return s
