"""Outstanding requests of ours: an id is a slot and a generation, so that no dict is needed.

``id = generation << 20 | slot``. Ids stay below 2**52, so that every JSON parser reads them
exactly. An id is used again after its slot was used 2**32 times (MCP up to 2025-11-25: a requestor
must not use an id twice in a session).

The caller may choose what stands in the message in its place. Then the number is only our own name
of the request, and no answer to that number is ours.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t

from wirespeed._core._simd cimport WS_ID, WS_ID_INTEGER, WS_ID_STRING, WS_OK, kernels, ws_scan
from wirespeed._core.span cimport Span

cdef enum:
    SLOT_BITS = 20
    SLOT_MASK = 0xFFFFF
    MAX_ALIKE = 64               # bytes of an id whose type may differ

cdef bytes DIGITS_OR_QUOTE = b'"-0123456789'

# In `next_free` of a slot whose id is outstanding.
cdef uint32_t OUTSTANDING = 0xFFFFFFFF


@cython.final
cdef class Pending:
    """The table of outstanding ids, at most `limit` (below 2**20) at once."""

    def __cinit__(self, uint32_t limit=SLOT_MASK):
        if not 1 <= limit <= SLOT_MASK:
            raise ValueError(f"limit must be 1 to {SLOT_MASK}")
        self.limit = limit
        self.used = 1

    def __dealloc__(self):
        PyMem_RawFree(self.slots)
        PyMem_RawFree(self.heap)

    def __len__(self):
        return self.live

    cdef int64_t add_c(self, object token, double deadline) except -1:
        """A new id for this caller. OverflowError at the limit."""
        cdef uint32_t slot, room
        cdef PendingSlot *grown
        cdef int64_t id
        if deadline != deadline:
            raise ValueError("a deadline cannot be NaN")
        if self.live >= self.limit:
            raise OverflowError(f"{self.limit} requests are outstanding already")
        slot = self.free_head
        if slot == 0:
            slot = self.used
            if slot >= self.room:
                room = max(<uint32_t> 64, 2 * self.room)
                grown = <PendingSlot *> PyMem_RawRealloc(self.slots, room * sizeof(PendingSlot))
                if grown is NULL:
                    raise MemoryError("no memory for the table of outstanding requests")
                self.slots = grown
                self.room = room
            self.slots[slot].generation = self.first
            self.slots[slot].next_free = 0
        id = (<int64_t> self.slots[slot].generation << SLOT_BITS) | slot
        while self.chosen is not None and b"%d" % id in self.chosen:
            self.slots[slot].generation += 1
            id = (<int64_t> self.slots[slot].generation << SLOT_BITS) | slot
        if deadline != INFINITY:
            self.push_deadline_c(deadline, id)
        if slot == self.used:
            if self.tokens is None:
                self.tokens = [None]
            self.tokens.append(token)
            self.used += 1
        else:
            self.tokens[slot] = token
            self.free_head = self.slots[slot].next_free
        self.slots[slot].next_free = OUTSTANDING
        self.live += 1
        return id

    cdef bint is_live_c(self, int64_t id) noexcept:
        cdef uint32_t slot = <uint32_t> (id & SLOT_MASK)
        return (
            id > 0
            and 0 < slot < self.used
            and self.slots[slot].next_free == OUTSTANDING
            and <int64_t> self.slots[slot].generation == id >> SLOT_BITS
        )

    cdef object peek_c(self, int64_t id):
        """The token of an outstanding id, or None."""
        if not self.is_live_c(id):
            return None
        return self.tokens[<Py_ssize_t> (id & SLOT_MASK)]

    cdef object take_c(self, int64_t id):
        """Remove an outstanding id. Returns its token, or None."""
        cdef uint32_t slot = <uint32_t> (id & SLOT_MASK)
        cdef object token
        if not self.is_live_c(id):
            return None
        token = self.tokens[<Py_ssize_t> slot]
        self.tokens[<Py_ssize_t> slot] = None
        self.slots[slot].generation += 1
        self.slots[slot].next_free = self.free_head
        self.free_head = slot
        self.live -= 1
        if self.texts is not None and id in self.texts:
            del self.chosen[meaning(self.texts.pop(id))]
        return token

    cdef int choose_c(self, int64_t id, bytes text) except -1:
        cdef bytes message = b'{"id":%b}' % text
        cdef Span span
        cdef ws_scan scan
        span.p = <const uint8_t *> <const char *> text
        span.n = <size_t> len(text)
        if (
            kernels.json(<const uint8_t *> <const char *> message, len(message), 1, &scan) != WS_OK
            or scan.poi[WS_ID].len != span.n
            or scan.id_kind not in (WS_ID_INTEGER, WS_ID_STRING)
        ):
            raise ValueError("an id is the JSON text of a string or an integer")
        if self.find_c(span) not in (0, id):
            raise ValueError(f"a request with the id {text.decode()} is outstanding")
        if self.texts is None:
            self.texts, self.chosen = {}, {}
        self.texts[id] = text
        self.chosen[meaning(text)] = id
        return 0

    cdef bytes text_c(self, int64_t id):
        """The JSON text that stands for an id in messages."""
        if self.texts is not None and id in self.texts:
            return self.texts[id]
        return b"%d" % id

    cdef int64_t find_c(self, Span raw) except -1:
        """The outstanding id that this JSON text is, or 0. Exact: "5", 5.0 and 05 are not 5."""
        return self.find_minted_c(raw) if self.texts is None else self.find_chosen_c(raw)

    cdef int64_t find_chosen_c(self, Span raw) except -1:
        """The same where ids were chosen. A string is found however it is spelled."""
        cdef int64_t id = self.chosen.get(meaning((<const char *> raw.p)[:raw.n]), 0)
        if id == 0:
            id = self.find_minted_c(raw)
            if id in self.texts:
                return 0
        return id

    cdef list alike_c(self, Span raw):
        """The outstanding ids that this JSON text may mean though it is not exactly theirs: a
        number as a string, a string as a number, a fraction of zeros behind either."""
        cdef bytes text = (<const char *> raw.p)[:raw.n] if raw.n <= MAX_ALIKE else b""
        cdef Span digits
        cdef int64_t id
        cdef list found = []
        if text[:1] not in DIGITS_OR_QUOTE:
            return found
        said = meaning(text)
        word = said[1:len(said) - 1] if isinstance(said, str) else said.decode()
        head, _, zeros = word.partition(".")
        if zeros and not zeros.strip("0"):
            word = head
        text = word.encode("utf-8", "surrogatepass")
        digits.p = <const uint8_t *> <const char *> text
        digits.n = <size_t> len(text)
        id = self.find_minted_c(digits)
        if id and (self.texts is None or id not in self.texts):
            found.append(id)
        if self.chosen is not None:
            found += [self.chosen[one] for one in (f'"{word}"', text) if one in self.chosen]
        return found

    cdef int64_t find_minted_c(self, Span raw) noexcept:
        cdef int64_t id = 0
        cdef size_t i
        if not 1 <= raw.n <= 16 or raw.p[0] == c'0':
            return 0
        for i in range(raw.n):
            if not c'0' <= raw.p[i] <= c'9':
                return 0
            id = 10 * id + (raw.p[i] - c'0')
        return id if self.is_live_c(id) else 0

    # -- deadlines -----------------------------------------------------------------------------

    cdef int push_deadline_c(self, double at, int64_t id) except -1:
        cdef size_t room, i, kept
        cdef Deadline *grown
        if self.n_heap > 64 and self.n_heap > 2 * <size_t> self.live:
            # most entries are answered: keep the others
            kept = 0
            for i in range(self.n_heap):
                if self.is_live_c(self.heap[i].id):
                    self.heap[kept] = self.heap[i]
                    kept += 1
            self.n_heap = kept
            for i in range(kept // 2, 0, -1):
                self.sift_c(i - 1)
        if self.n_heap == self.heap_room:
            room = max(<size_t> 64, 2 * self.heap_room)
            grown = <Deadline *> PyMem_RawRealloc(self.heap, room * sizeof(Deadline))
            if grown is NULL:
                raise MemoryError("no memory for deadlines")
            self.heap = grown
            self.heap_room = room
        i = self.n_heap
        self.n_heap += 1
        while i and self.heap[(i - 1) // 2].at > at:
            self.heap[i] = self.heap[(i - 1) // 2]
            i = (i - 1) // 2
        self.heap[i].at = at
        self.heap[i].id = id
        return 0

    cdef int sift_c(self, size_t i) noexcept:
        """Move the entry at i down to its place in the heap."""
        cdef Deadline moved = self.heap[i]
        cdef size_t child = 2 * i + 1
        while child < self.n_heap:
            if child + 1 < self.n_heap and self.heap[child + 1].at < self.heap[child].at:
                child += 1
            if self.heap[child].at >= moved.at:
                break
            self.heap[i] = self.heap[child]
            i = child
            child = 2 * i + 1
        self.heap[i] = moved
        return 0

    cdef int pop_deadline_c(self) noexcept:
        self.n_heap -= 1
        if self.n_heap:
            self.heap[0] = self.heap[self.n_heap]
            self.sift_c(0)
        return 0

    # -- for Python ----------------------------------------------------------------------------

    def add(self, token, /, double deadline=INFINITY):
        """Register an outstanding request; returns its id. OverflowError at the limit."""
        if token is None:
            raise TypeError("None cannot be a token")
        return self.add_c(token, deadline)

    def begin_after(self, uint32_t n_tables, /):
        """Issue ids that differ from those of n earlier tables for the same peer. An id repeats
        after 65,536 uses of a slot in one table, or after 65,536 tables."""
        self.first = (n_tables & 0xFFFF) << 16

    def take(self, int64_t id, /):
        """Remove an outstanding id. Returns its token; None when it was not outstanding."""
        return self.take_c(id)

    def was_issued(self, int64_t id, /):
        """Whether a request had this id that is not outstanding any more."""
        cdef uint32_t slot = <uint32_t> (id & SLOT_MASK)
        return (
            id > 0 and 0 < slot < self.used
            and id >> SLOT_BITS < <int64_t> self.slots[slot].generation
        )

    def text(self, int64_t id, /):
        """The JSON text that stands for an outstanding id in messages; None when it is not
        outstanding."""
        return self.text_c(id) if self.is_live_c(id) else None

    def find(self, raw, /):
        """The token of the outstanding id with this exact JSON text, or None."""
        cdef bytes text = bytes(raw)
        cdef Span span
        span.p = <const uint8_t *> <const char *> text
        span.n = len(text)
        return self.peek_c(self.find_c(span))

    def next_deadline(self):
        """The earliest deadline of an outstanding request, or None."""
        while self.n_heap and not self.is_live_c(self.heap[0].id):
            self.pop_deadline_c()
        return self.heap[0].at if self.n_heap else None

    def expire(self, double now):
        """Remove the requests whose deadline has passed. Returns a list of (id, token)."""
        cdef list expired = []
        cdef int64_t id
        while self.n_heap and self.heap[0].at <= now:
            id = self.heap[0].id
            self.pop_deadline_c()
            if self.is_live_c(id):
                expired.append((id, self.take_c(id)))
        return expired

    def suspend(self):
        """Let no outstanding request expire. Returns their deadlines for `resume`."""
        cdef size_t i
        cdef list held = []
        for i in range(self.n_heap):
            if self.is_live_c(self.heap[i].id):
                held.append((self.heap[i].id, self.heap[i].at))
        self.n_heap = 0
        return held

    def resume(self, held, double seconds):
        """Set deadlines that `suspend` returned, later by so many seconds."""
        for id, at in held:
            if self.is_live_c(id):
                self.push_deadline_c(<double> at + seconds, id)

    def take_all(self):
        """Remove all outstanding requests. Returns a list of (id, token)."""
        cdef list all_of_them = []
        cdef uint32_t slot
        cdef int64_t id
        for slot in range(1, self.used):
            if self.slots[slot].next_free == OUTSTANDING:
                id = (<int64_t> self.slots[slot].generation << SLOT_BITS) | slot
                all_of_them.append((id, self.take_c(id)))
        self.n_heap = 0
        return all_of_them


cdef object meaning(bytes text):
    """The meaning of an id's JSON text, str of a string and bytes of an integer: two spellings of a
    string are one id, 5 and "5" are two."""
    if not text.startswith(b'"'):
        return text
    if b"\\" not in text:
        return text.decode()
    import json

    return f'"{json.loads(text)}"'
