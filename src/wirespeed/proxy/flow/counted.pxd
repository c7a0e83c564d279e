from libc.stdint cimport uint64_t

from wirespeed._core.inflight cimport InFlight


# The calls of one side that quotas count, until a server has them.
cdef class CountedCalls:
    cdef dict calls              # what counts each, by the `ref` of the call
    cdef set passed_on           # those that a part of the proxy has
    cdef size_t most             # those that are over are dropped at this number

    cdef int add_c(self, uint64_t ref, object spending, InFlight inflight) except -1
    cdef int sent_c(self, uint64_t ref, bint to_part) except -1
    cdef int refused_c(self, uint64_t ref) except -1
    cdef int answered_c(self, uint64_t ref, int code) except -1
    cdef int close_c(self) except -1
