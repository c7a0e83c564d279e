"""Requests of the peer that are not answered yet, by the decoded values of their ids.

``1`` and ``"1"`` are two ids, ``"x"`` and ``"\\u0078"`` are one. Each is echoed as it was spelled.
The table owns a copy of the id's text, so that an unanswered request pins no input memory.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from wirespeed._core.pending cimport meaning
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.span cimport Span

import os


cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")


@cython.overflowcheck(False)      # wraps on purpose
cdef inline uint64_t hash_text(Span id) noexcept:
    """Seeded, so that a peer cannot choose ids that collide."""
    cdef uint64_t h = seed ^ (id.n * <uint64_t> 0x9E3779B97F4A7C15ULL)
    cdef uint64_t word = 0
    cdef size_t i = 0
    while i + 8 <= id.n:
        memcpy(&word, id.p + i, 8)
        h = (h ^ word) * <uint64_t> 0xD6E8FEB86659FD93ULL
        h ^= h >> 32
        i += 8
    if i < id.n:
        word = 0
        memcpy(&word, id.p + i, id.n - i)
        h = (h ^ word) * <uint64_t> 0xD6E8FEB86659FD93ULL
        h ^= h >> 32
    h *= <uint64_t> 0xD6E8FEB86659FD93ULL
    return h ^ (h >> 32)


cdef inline bint is_escaped(Span id) noexcept:
    return id.p[0] == c'"' and memchr(id.p, b'\\', id.n) is not NULL


cdef inline uint64_t hash_id(Span id) except? 0:
    return hash_meaning(id) if is_escaped(id) else hash_text(id)


cdef uint64_t hash_meaning(Span id) except? 0:
    """The hash of the same string without escapes."""
    cdef str said = meaning((<const char *> id.p)[:id.n])
    cdef bytes text = said.encode("utf-8", "surrogatepass")
    return hash_text(text_span(text))


cdef bint says_same_c(Span one, Span other) except -1:
    """Whether two ids say the same."""
    if one.n == other.n and memcmp(one.p, other.p, one.n) == 0:
        return True
    return (is_escaped(one) or is_escaped(other)) and (
        meaning((<const char *> one.p)[:one.n]) == meaning((<const char *> other.p)[:other.n])
    )


cdef inline uint64_t table_entry(uint64_t h, uint32_t i) noexcept:
    return (<uint64_t> <uint32_t> h << 32) | (i + 1)


cdef inline void free_id(InFlightSlot *slot) noexcept:
    if slot.id_len > INLINE_ID:
        PyMem_RawFree(<void *> inflight_id(slot).p)


@cython.final
cdef class InFlight:
    """The table of unanswered inbound requests. A `ref` is a slot and its generation, never 0."""

    def __cinit__(self):
        self.tokens = []
        self.rehash_c(8)           # small: most connections have few requests at a time

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.used):
            if self.slots[i].id_len:
                free_id(&self.slots[i])
        PyMem_RawFree(self.slots)
        PyMem_RawFree(self.table)

    def __len__(self):
        return self.live

    cdef int rehash_c(self, uint32_t size) except -1:
        cdef uint64_t *table = <uint64_t *> PyMem_RawCalloc(size, sizeof(uint64_t))
        cdef uint32_t i, at
        if table is NULL:
            raise MemoryError("no memory for the table of requests in flight")
        for i in range(self.used):
            if self.slots[i].id_len:
                at = <uint32_t> self.slots[i].hash & (size - 1)
                while table[at]:
                    at = (at + 1) & (size - 1)
                table[at] = table_entry(self.slots[i].hash, i)
        PyMem_RawFree(self.table)
        self.table = table
        self.mask = size - 1
        return 0

    cdef InFlightSlot *slot_c(self, uint64_t ref) noexcept:
        """The slot of a ref; NULL when that request is no longer in flight."""
        cdef uint32_t i = <uint32_t> ref - 1
        if ref == 0 or i >= self.used or self.slots[i].id_len == 0:
            return NULL
        if self.slots[i].generation != <uint32_t> (ref >> 32):
            return NULL
        return &self.slots[i]

    cdef int lookup_c(self, Span id, uint64_t h, uint32_t *at) except -1:
        """Whether there is a request with this id and hash. `at`: its place in the table."""
        cdef uint64_t entry
        cdef InFlightSlot *slot
        at[0] = <uint32_t> h & self.mask
        while True:
            entry = self.table[at[0]]
            if entry == 0:
                return 0
            if <uint32_t> (entry >> 32) == <uint32_t> h:
                slot = &self.slots[<uint32_t> entry - 1]
                if slot.hash == h and says_same_c(inflight_id(slot), id):
                    return 1
            at[0] = (at[0] + 1) & self.mask

    cdef uint64_t find_c(self, Span id) except? 0:
        """The ref of the request with this id, or 0."""
        cdef uint32_t at = 0
        cdef uint32_t i
        if not self.lookup_c(id, hash_id(id), &at):
            return 0
        i = <uint32_t> self.table[at]
        return (<uint64_t> self.slots[i - 1].generation << 32) | i

    cdef uint64_t add_c(self, Span id, size_t n_bytes) except? 0:
        """A ref for a new request; 0 when its id is already in flight.

        `n_bytes`: the size of its message, or 0 for a request that waits (see `start_c`).
        """
        cdef uint64_t h = hash_id(id)
        cdef uint32_t at = 0
        cdef uint32_t i, room
        cdef InFlightSlot *slot
        cdef InFlightSlot *grown
        cdef uint8_t *copy
        if self.lookup_c(id, h, &at):
            return 0
        if 2 * self.live > self.mask:
            self.rehash_c(4 * (self.mask + 1))
            self.lookup_c(id, h, &at)
        i = self.free_head - 1 if self.free_head else self.used
        if i == self.room:
            room = max(<uint32_t> 2, 2 * self.room)
            grown = <InFlightSlot *> PyMem_RawRealloc(self.slots, room * sizeof(InFlightSlot))
            if grown is NULL:
                raise MemoryError("no memory for the table of requests in flight")
            self.slots = grown
            self.room = room
        slot = &self.slots[i]
        if i == self.used:
            slot.generation = 0
            slot.id_len = 0
        if id.n > INLINE_ID:
            copy = <uint8_t *> PyMem_RawMalloc(id.n)
            if copy is NULL:
                raise MemoryError("no memory for the id of a request")
            memcpy(copy, id.p, id.n)
            memcpy(slot.id, &copy, sizeof(copy))
        else:
            memcpy(slot.id, id.p, id.n)
        if i == self.used:
            self.used += 1
        else:
            self.free_head = slot.next_free
        slot.id_len = <uint32_t> id.n
        slot.hash = h
        slot.route = NULL
        slot.n_bytes = <uint32_t> n_bytes
        self.table[at] = table_entry(h, i)
        self.live += 1
        self.n_bytes += n_bytes
        return (<uint64_t> slot.generation << 32) | (i + 1)

    cdef int start_c(self, InFlightSlot *slot, size_t n_bytes) noexcept:
        """A request that waited is being worked on from now on."""
        slot.n_bytes = <uint32_t> n_bytes
        self.n_bytes += n_bytes
        return 0

    cdef int remove_c(self, uint64_t ref) except -1:
        """Forget a request. 1 when it was in flight."""
        cdef InFlightSlot *slot = self.slot_c(ref)
        return 0 if slot is NULL else self.remove_slot_c(slot)

    @cython.overflowcheck(False)      # distances in the table, and generations, wrap
    cdef int remove_slot_c(self, InFlightSlot *slot) except -1:
        """Forget the request of a slot that is in use. Returns 1."""
        cdef uint32_t i = <uint32_t> ((<size_t> slot - <size_t> self.slots) // sizeof(InFlightSlot))
        cdef uint32_t at, hole, ideal
        cdef bint routed = slot.route is not NULL
        at = <uint32_t> slot.hash & self.mask
        while <uint32_t> self.table[at] != i + 1:
            at = (at + 1) & self.mask
        # close the gap: move up the entries that probed past it
        hole = at
        while True:
            at = (at + 1) & self.mask
            if self.table[at] == 0:
                break
            ideal = <uint32_t> (self.table[at] >> 32) & self.mask
            if ((at - ideal) & self.mask) >= ((at - hole) & self.mask):
                self.table[hole] = self.table[at]
                hole = at
        self.table[hole] = 0
        free_id(slot)
        slot.id_len = 0
        slot.generation += 1
        slot.next_free = self.free_head
        self.free_head = i + 1
        self.live -= 1
        self.n_bytes -= slot.n_bytes
        slot.n_bytes = 0
        slot.route = NULL
        # Last, because a destructor may run any code, which may add a request in this slot.
        # (The caller holds the route.)
        if routed:
            self.routes[<Py_ssize_t> i] = None
        if i < len(self.tokens):
            self.tokens[<Py_ssize_t> i] = None
        return 1

    cdef int set_token_c(self, uint64_t ref, object token) except -1:
        """Set the token of a request. 1 when it is in flight."""
        cdef Py_ssize_t i = <Py_ssize_t> <uint32_t> ref - 1
        if self.slot_c(ref) is NULL:
            return 0
        while len(self.tokens) <= i:
            self.tokens.append(None)
        self.tokens[i] = token
        return 1

    cdef object token_c(self, uint64_t ref):
        """The token of a request; None when it has none."""
        cdef Py_ssize_t i = <Py_ssize_t> <uint32_t> ref - 1
        if self.slot_c(ref) is NULL or i >= len(self.tokens):
            return None
        return self.tokens[i]

    cdef int set_route_c(self, uint64_t ref, ReplyRoute route) except -1:
        """Set the reply route of a request that is in flight and has none."""
        cdef Py_ssize_t i = <Py_ssize_t> <uint32_t> ref - 1
        if self.routes is None:
            self.routes = []
        while len(self.routes) <= i:
            self.routes.append(None)
        self.routes[i] = route
        self.slot_c(ref).route = <void *> route
        return 0

    cdef list routed_c(self, ReplyRoute route):
        """The refs of the requests with this reply route, or one that is a part of it."""
        cdef uint32_t i
        cdef list refs = []
        cdef ReplyRoute found
        for i in range(self.used):
            if self.slots[i].id_len and self.slots[i].route is not NULL:
                found = <ReplyRoute> self.slots[i].route
                if found is route or found.parent is route:
                    refs.append((<uint64_t> self.slots[i].generation << 32) | (i + 1))
        return refs

    cdef list refs_c(self):
        """The refs of all requests."""
        cdef uint32_t i
        cdef list refs = []
        for i in range(self.used):
            if self.slots[i].id_len:
                refs.append((<uint64_t> self.slots[i].generation << 32) | (i + 1))
        return refs

    # -- for Python ----------------------------------------------------------------------------

    def add(self, raw_id, /):
        """Register the request with this id (its JSON text); a ref, or 0 for a duplicate."""
        cdef bytes text = bytes(raw_id)
        return self.add_c(text_span(text), 0)

    def find(self, raw_id, /):
        """The ref of the request with this id, or 0."""
        cdef bytes text = bytes(raw_id)
        return self.find_c(text_span(text))

    def remove(self, uint64_t ref, /):
        """Forget a request; whether it was in flight."""
        return self.remove_c(ref) == 1


cdef Span text_span(bytes text):
    """The span of a text that the caller holds."""
    cdef Span s
    if not text:
        raise ValueError("an id has at least one byte")
    s.p = <const uint8_t *> <const char *> text
    s.n = len(text)
    return s
