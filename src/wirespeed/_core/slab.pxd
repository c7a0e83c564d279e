from libc.stdint cimport uint8_t


cdef enum:
    SLAB_SIZE = 262144            # the common size; memory of it is used again


# How much several connections may keep of frames that are not complete, and of long ones that wait.
cdef class InputBudget:
    cdef readonly size_t max_bytes
    cdef readonly size_t used
    cdef readonly long long n_exceeded     # times that a connection was refused more


# A block of input memory. All fields are read only for others; who keeps a pointer into a slab
# counts itself in `n_leases`, or has a Lease, which does that.
cdef class Slab:
    cdef uint8_t *base            # first byte; NULL once released
    cdef size_t capacity          # bytes at base
    cdef Py_ssize_t n_leases      # leases that pin this slab
    cdef bint big                 # pages of its own (bigmem.h)
    cdef bint foreign             # base belongs to `source`, not to us: read-only, fixed
    cdef Py_buffer source
    cdef InputBudget budget       # that `counted` bytes are counted in, or None
    cdef size_t counted

    @staticmethod
    cdef Slab allocate(size_t capacity)

    @staticmethod
    cdef Slab borrow(object data)
    cdef int grow_c(self, size_t capacity) except -1
    # n bytes of an unfinished frame lie here, which are counted as long as the slab lives.
    # MemoryError: the others have used up the budget.
    cdef int count_c(self, InputBudget budget, size_t n) except -1


# A part of a slab, which stays where it is while the lease, or any view of it, lives. Its fields
# are read only.
#  * `msgspec.json.decode(lease, type=T)` reads it in place. A `msgspec.Raw` in T keeps the lease,
#    and so the slab, alive; `msgspec.Raw.copy()` does not.
#  * `orjson.loads` takes bytes, bytearray, memoryview and str only: give it `memoryview(lease)`.
#  * A slab has 256 KiB or more: to keep a few bytes for long, `copy()` them.
cdef class Lease:
    cdef Slab slab                # pinned owner
    cdef const uint8_t *p
    cdef Py_ssize_t n

    # A lease of the n bytes at p, which lie in the slab.
    @staticmethod
    cdef Lease of(Slab slab, const uint8_t *p, size_t n)


cdef class ReadBuffer:
    cdef Slab slab                # pinned owner
    cdef uint8_t *p
    cdef Py_ssize_t n

    @staticmethod
    cdef ReadBuffer of(Slab slab, uint8_t *p, size_t n)


cdef Slab take_slab(size_t capacity)
cpdef Py_ssize_t slabs_live() noexcept
