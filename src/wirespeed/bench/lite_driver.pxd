from libc.stdint cimport int64_t

from wirespeed.bench.driver cimport BenchCall, Driver
from wirespeed.bench.recorder cimport Outcome


cdef class LiteDriver(Driver):
    cdef object requests               # the connection
    cdef set answered_ids
    cdef set answered_before           # the same, of earlier ones
    cdef int64_t sent                  # bytes
    cdef int64_t received

    cdef Outcome judge_c(self, BenchCall call, object data) except *
