from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class SeenIds:
    cdef readonly Py_ssize_t limit     # the most ids that are remembered
    cdef int64_t *ring                 # keys, oldest first until `limit` is reached
    cdef uint32_t *table               # hash table, open addressing: 1 + place in the ring; 0: free
    cdef uint32_t room                 # places in the ring; the table has twice as many
    cdef uint32_t count
    cdef uint32_t oldest               # place of the key that is forgotten next
    cdef uint64_t salt

    cdef uint32_t home_c(self, int64_t key) noexcept
    cdef uint32_t find_c(self, int64_t key) noexcept
    cdef int grow_c(self) except -1
    cdef int forget_c(self, int64_t key) noexcept
    cdef bint add_c(self, int64_t key) except -1
