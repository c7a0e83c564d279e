"""Owned input memory, and the views that pin it.

A Slab is a block that a transport reads into. Messages stay where they were read. A Lease pins a
part of one: a slab with leases is neither moved nor reused.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from wirespeed._core.spares cimport Spares, keep_spare, take_spare

cdef extern from "bigmem.h" nogil:
    size_t WS_BIG_FROM
    size_t ws_big_size(size_t n)
    void *ws_big_alloc(size_t n)
    void *ws_big_grow(void *p, size_t old, size_t n)
    void ws_big_free(void *p, size_t n)
    size_t ws_kept()
    void ws_give_back()


cdef Spares spares                # of SLAB_SIZE
cdef Py_ssize_t n_live = 0


@cython.final
@cython.no_gc
cdef class InputBudget:
    """The bytes that several connections may keep together: of frames that are not complete, and of
    long ones that wait. A connection that is alone may always keep one frame.

    Args:
        max_bytes: The limit.

    Attributes:
        used: Bytes that they keep now.
        n_exceeded: How many times a connection was refused more.
    """

    def __init__(self, size_t max_bytes):
        self.max_bytes = max_bytes


@cython.final
@cython.no_gc
cdef class Slab:
    """A block of input memory. Only framers make them."""

    def __cinit__(self):
        self.base = NULL

    def __dealloc__(self):
        global n_live
        if self.budget is not None:
            self.budget.used -= self.counted
        if self.foreign:
            PyBuffer_Release(&self.source)
        elif self.capacity == SLAB_SIZE and keep_spare(&spares, self.base):
            pass
        elif self.base is not NULL:
            if self.big:
                ws_big_free(self.base, self.capacity)
            else:
                PyMem_RawFree(self.base)
            n_live -= 1

    @staticmethod
    cdef Slab allocate(size_t capacity):
        global n_live
        cdef Slab slab = Slab.__new__(Slab)
        if capacity == SLAB_SIZE:
            slab.base = take_spare(&spares)
            if slab.base is not NULL:
                slab.capacity = capacity
                return slab
        if capacity >= WS_BIG_FROM:
            slab.big = True
            capacity = ws_big_size(capacity)
            slab.base = <uint8_t *> ws_big_alloc(capacity)
        else:
            slab.base = <uint8_t *> PyMem_RawMalloc(capacity)
        if slab.base is NULL:
            raise MemoryError(f"no memory for an input slab of {capacity} bytes")
        n_live += 1
        slab.capacity = capacity
        return slab

    @staticmethod
    cdef Slab borrow(object data):
        """A read-only slab over a contiguous bytes-like object, which stays exported."""
        cdef Slab slab = Slab.__new__(Slab)
        PyObject_GetBuffer(data, &slab.source, PyBUF_SIMPLE)
        slab.foreign = True
        slab.base = <uint8_t *> slab.source.buf
        slab.capacity = <size_t> slab.source.len
        return slab

    cdef int grow_c(self, size_t capacity) except -1:
        """Make room; the bytes may move, so no lease may be out."""
        cdef uint8_t *grown
        cdef bint big = capacity >= WS_BIG_FROM
        assert self.n_leases == 0 and not self.foreign
        if big:
            capacity = ws_big_size(capacity)
        if self.big:
            grown = <uint8_t *> ws_big_grow(self.base, self.capacity, capacity)
        elif big:
            grown = <uint8_t *> ws_big_alloc(capacity)
            if grown is not NULL:
                memcpy(grown, self.base, self.capacity)
                PyMem_RawFree(self.base)
        else:
            grown = <uint8_t *> PyMem_RawRealloc(self.base, capacity)
        if grown is NULL:
            raise MemoryError(f"no memory for an input slab of {capacity} bytes")
        self.big = big
        self.base = grown
        self.capacity = capacity
        return 0

    cdef int count_c(self, InputBudget budget, size_t n) except -1:
        cdef size_t others = budget.used - self.counted
        if n > self.counted and others and n + others > budget.max_bytes:
            budget.n_exceeded += 1
            raise MemoryError(
                f"unfinished messages of all connections have {others} bytes, of "
                f"{budget.max_bytes} that are allowed"
            )
        self.budget = budget
        self.counted = n
        budget.used = others + n
        return 0


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Lease:
    """A read-only view of a part of a message, still where it was read.

    Supports the buffer protocol: ``msgspec.json.decode(lease)``, ``bytes(lease)``,
    ``orjson.loads(memoryview(lease))``. It pins the block of input memory that it points into, up
    to several MiB, as long as it or any view of it lives (a ``msgspec.Raw`` decoded from it is
    one): keep a :meth:`copy` instead of a lease.
    """

    def __init__(self):
        raise TypeError("leases are made by the session")

    @staticmethod
    cdef Lease of(Slab slab, const uint8_t *p, size_t n):
        cdef Lease lease = Lease.__new__(Lease)
        lease.slab = slab
        lease.p = p
        lease.n = <Py_ssize_t> n
        slab.n_leases += 1
        return lease

    def __dealloc__(self):
        if self.slab is not None:
            self.slab.n_leases -= 1

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a lease is read-only")
        PyBuffer_FillInfo(view, self, <void *> self.p, self.n, 1, flags)

    def __len__(self):
        return self.n

    def __bytes__(self):
        return self.copy()

    def __repr__(self):
        return f"<Lease of {self.n} bytes>"

    def __eq__(self, other):
        if isinstance(other, Lease):
            return self.copy() == (<Lease> other).copy()
        if isinstance(other, (bytes, bytearray, memoryview)):
            return self.copy() == other
        return NotImplemented

    __hash__ = None

    def copy(self):
        """A copy of the bytes, which does not pin the input memory."""
        return PyBytes_FromStringAndSize(<const char *> self.p, self.n)


@cython.final
@cython.no_gc
cdef class ReadBuffer:
    """Input memory lent to a transport to read into; it stays valid as long as a view is alive."""

    def __init__(self):
        raise TypeError("read buffers are made by the session")

    @staticmethod
    cdef ReadBuffer of(Slab slab, uint8_t *p, size_t n):
        cdef ReadBuffer buffer = ReadBuffer.__new__(ReadBuffer)
        buffer.slab = slab
        buffer.p = p
        buffer.n = <Py_ssize_t> n
        slab.n_leases += 1
        return buffer

    def __dealloc__(self):
        if self.slab is not None:
            self.slab.n_leases -= 1

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.p, self.n, 0, flags)

    def __len__(self):
        return self.n


cdef Slab take_slab(size_t capacity):
    """A slab of at least `capacity` bytes, of the common size where that is enough."""
    return Slab.allocate(max(capacity, <size_t> SLAB_SIZE))


def give_back(size_t least):
    """Give the memory that the allocator keeps, and nobody uses, back to the system, if that is at
    least so many bytes. Returns how many they were. It takes about 10 ms for 100 MiB."""
    cdef size_t kept
    with nogil:
        kept = ws_kept()
        if kept >= least:
            ws_give_back()
    return kept


cpdef Py_ssize_t slabs_live() noexcept:
    """Blocks of input memory allocated in this process, spare ones included."""
    return n_live
