from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport Framer


cdef class MessageReader:
    cdef readonly object limits
    cdef Framer framer
    cdef public bint batches             # arrays are batches (2025-03-26); else they are invalid
    cdef list elements                   # of the batch being worked through, last first
    cdef Message spare, spare_next       # messages made lately; used again if nobody kept them
    cdef uint32_t max_depth

    cdef Message next_c(self)
