from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport InputBudget, Slab


cdef enum:
    MIN_READ = 32768                # free bytes that a read should find
    UNCOUNTED = 16384               # bytes of an unfinished frame that each connection may have


cdef class Inlet:
    # Bytes in [start, end) of `slab` were taken in and are still needed. A framing moves `start`
    # forward over what it has framed and never writes `end`; both may become smaller whenever
    # memory is made free, which `shifted_c` tells.
    cdef Slab slab                  # where bytes are read to and frames point into; None when idle
    cdef size_t start               # first byte that is still needed
    cdef size_t end                 # first free byte
    cdef public bint eof            # no more bytes will come
    cdef public InputBudget budget  # of several connections; None: of no others
    cdef object lent                # memoryview that a transport reads into; None when none is
    cdef readonly long long bytes_moved  # bytes of unfinished frames that had to be moved

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1
    cdef int commit_c(self, size_t n) except -1
    cdef object lend_c(self)
    cdef int take_back_c(self, Py_ssize_t n) except -1
    cdef int end_loan_c(self) except -1
    cdef int reclaim_c(self) except -1
    cdef Py_ssize_t feed_c(self, object data) except -1
    cdef int check_feed_c(self) except -1
    # At least `wanted` free bytes behind `end`; bytes in [start, end) may move.
    cdef int ensure_room_c(self, size_t wanted) except -1
    # Override: every offset into the slab that the subclass keeps becomes smaller by `by`.
    cdef int shifted_c(self, size_t by) noexcept
    cdef int drop_slab_c(self) except -1
    # The stream is closed: free the memory of what was not framed.
    cdef int forget_c(self) except -1
    cdef size_t buffered_c(self) noexcept
    # All frames were taken: count what is left of them. MemoryError: others have used up the
    # budget.
    cdef int count_c(self) except -1
