from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport Framer
from wirespeed._core.span cimport Span


cdef class MessageReader:
    cdef readonly object limits
    cdef Framer framer
    cdef public bint batches             # arrays are batches (2025-03-26); else they are invalid
    cdef list elements                   # of the batch that is being read, last first
    cdef Message spare, spare_next       # recent messages, used again when no reference is left
    cdef uint32_t max_depth
    cdef size_t max_values

    # The next frame as a message, or None until more bytes arrive. Of kind BATCH only when
    # `elements` has its messages, the last first: take them before the next call.
    cdef Message next_c(self)
    cdef str excess_c(self, Span frame)
