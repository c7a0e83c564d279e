"""The JSON check of LiteMCP: every message is one JSON object. Over streams it is an envelope, with
an integer id (LiteMCP, data-structure, IOBasic).

A request with a repeated id is ignored. LiteMCP names neither a scope nor a limit of that rule.
Here it holds for the last ids of one connection, so that memory is bounded.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from wirespeed._core._simd cimport (
    WS_DEPTH, WS_ID, WS_ID_ABSENT, WS_ID_INTEGER, WS_OK, WS_ROOT_OBJECT, WS_UTF8, kernels, ws_scan,
    ws_status,
)
from wirespeed._core.outbox cimport locate_c, payload_of
from wirespeed._core.slab cimport Lease
from wirespeed._core.streams cimport FrameStream


class BadMessage(ValueError):
    """Bytes are not a message. The text is the reason."""


cdef str fault_of(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *scan):
    """Why bytes are not one JSON object; None: they are."""
    cdef ws_status status
    if n == 0:
        return "an empty message"
    status = kernels.json(p, n, max_depth, scan)
    if status == WS_DEPTH:
        return f"nested deeper than {max_depth} levels"
    if status == WS_UTF8:
        return f"not UTF-8 (byte {scan.error_at})"
    if status != WS_OK:
        return f"not one JSON value (byte {scan.error_at})"
    return None if scan.root == WS_ROOT_OBJECT else "not a JSON object"


def check_json(data not None, uint32_t max_depth, /):
    """Check the body of an HTTP message: one JSON value (RFC 8259) in UTF-8, an object, at most
    `max_depth` levels deep. BadMessage: a check failed."""
    cdef const uint8_t *p = NULL
    cdef size_t n = 0
    cdef ws_scan scan
    cdef str fault
    data = payload_of(data)
    locate_c(data, &p, &n)
    fault = fault_of(p, n, max_depth, &scan)
    if fault is not None:
        raise BadMessage(fault)


def id_of(FrameStream stream not None, Lease frame not None, uint32_t max_depth, /):
    """Return the JSON text of the id of the message in a frame.

    One pass checks the whole frame. It must be one JSON value (RFC 8259) in UTF-8: an object, at
    most `max_depth` levels deep, with one ``id``, an integer of any length. BadMessage: a check
    failed. A frame that is not JSON is reported to the framer, because a WebSocket connection
    closes after text that is not UTF-8.
    """
    cdef ws_scan scan
    cdef size_t n = <size_t> frame.n
    cdef str fault = fault_of(frame.p, n, max_depth, &scan)
    if fault is not None:
        if n:
            stream.framer.refuse_c(frame.p, n)
        raise BadMessage(fault)
    if scan.id_kind != WS_ID_INTEGER:
        if scan.id_kind == WS_ID_ABSENT:
            raise BadMessage("without an id")
        raise BadMessage("its id is not an integer")
    if scan.duplicates & (1 << WS_ID):
        raise BadMessage("it has two ids")
    return (<const char *> frame.p + scan.poi[WS_ID].off)[:scan.poi[WS_ID].len]


cdef enum:
    FIRST_ROOM = 16
    LIMIT = 1048576
    MAX_LIMIT = 67108864
    EXACT_DIGITS = 18     # always fits into 64 bits


@cython.final
@cython.no_gc
cdef class SeenIds:
    """The last `limit` ids (a power of two). Each id takes 16 bytes, allocated on demand.

    Integers of up to 18 digits are compared exactly, longer integers by a 64-bit hash with a
    secret seed.
    """

    def __cinit__(self, Py_ssize_t limit=LIMIT):
        if limit < FIRST_ROOM or limit > MAX_LIMIT or limit & (limit - 1):
            raise ValueError(f"limit must be a power of two from 16 to 2**26, not {limit}")
        self.limit = limit
        self.salt = <uint64_t> int.from_bytes(os.urandom(8), "little")

    def __dealloc__(self):
        PyMem_RawFree(self.ring)
        PyMem_RawFree(self.table)

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """The memory of the ids in bytes."""
        return <Py_ssize_t> self.room * <Py_ssize_t> (sizeof(int64_t) + 2 * sizeof(uint32_t))

    def add(self, bytes raw_id not None, /):
        """Remember an id, the text of a JSON integer. Returns False if the id is known."""
        cdef const char *p = PyBytes_AS_STRING(raw_id)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(raw_id)
        cdef Py_ssize_t i = 0
        cdef bint negative = n > 0 and p[0] == c'-'
        cdef int64_t key = 0
        if n - negative > EXACT_DIGITS:
            return self.add_c(<int64_t> <Py_ssize_t> hash(raw_id))
        for i in range(negative, n):
            if p[i] < c'0' or p[i] > c'9':
                raise ValueError("an id is the text of a JSON integer")
            key = 10 * key + (p[i] - c'0')
        return self.add_c(-key if negative else key)

    @cython.overflowcheck(False)
    cdef uint32_t home_c(self, int64_t key) noexcept:
        """Return a key's place in the table. The salt keeps peers from choosing keys that
        collide."""
        cdef uint64_t x = <uint64_t> key ^ self.salt
        x = (x ^ (x >> 33)) * <uint64_t> 0xff51afd7ed558ccd
        x = (x ^ (x >> 33) ^ self.salt) * <uint64_t> 0xc4ceb9fe1a85ec53
        return <uint32_t> ((x ^ (x >> 33)) & (2 * self.room - 1))

    cdef uint32_t find_c(self, int64_t key) noexcept:
        """Return the key's entry in the table, or the free entry for the key."""
        cdef uint32_t at = self.home_c(key)
        while self.table[at] and self.ring[self.table[at] - 1] != key:
            at = (at + 1) & (2 * self.room - 1)
        return at

    cdef int grow_c(self) except -1:
        cdef uint32_t room = 2 * self.room if self.room else FIRST_ROOM
        cdef uint32_t i
        cdef int64_t *ring = <int64_t *> PyMem_RawRealloc(self.ring, room * sizeof(int64_t))
        cdef uint32_t *table
        if ring is NULL:
            raise MemoryError("no memory to remember ids")
        self.ring = ring
        table = <uint32_t *> PyMem_RawMalloc(2 * room * sizeof(uint32_t))
        if table is NULL:
            raise MemoryError("no memory to remember ids")
        memset(table, 0, 2 * room * sizeof(uint32_t))
        PyMem_RawFree(self.table)
        self.table = table
        self.room = room
        for i in range(self.count):
            self.table[self.find_c(self.ring[i])] = i + 1
        return 0

    @cython.overflowcheck(False)
    cdef int forget_c(self, int64_t key) noexcept:
        """Remove a key from the table, and move displaced keys into the gap."""
        cdef uint32_t mask = 2 * self.room - 1
        cdef uint32_t gap = self.find_c(key)
        cdef uint32_t at = gap
        cdef uint32_t home
        while True:
            at = (at + 1) & mask
            if self.table[at] == 0:
                break
            home = self.home_c(self.ring[self.table[at] - 1])
            # a key may move to the gap if its search passes the gap
            if ((at - home) & mask) >= ((at - gap) & mask):
                self.table[gap] = self.table[at]
                gap = at
        self.table[gap] = 0
        return 0

    cdef bint add_c(self, int64_t key) except -1:
        cdef uint32_t place
        if self.count and self.table[self.find_c(key)]:
            return False
        if self.count < <uint32_t> self.limit:
            if self.count == self.room:
                self.grow_c()
            place = self.count
            self.count += 1
        else:
            place = self.oldest
            self.forget_c(self.ring[place])
            self.oldest = (place + 1) & (self.room - 1)
        self.ring[place] = key
        self.table[self.find_c(key)] = place + 1
        return True
