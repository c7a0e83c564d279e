from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport Framer
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef class MessageReader:
    cdef readonly object limits
    cdef Framer framer
    cdef public bint batches             # arrays are batches (2025-03-26); else they are invalid
    cdef list elements                   # of the batch that is being read, last first
    cdef Message spare, spare_next       # recent messages, used again when no reference is left
    cdef uint32_t max_depth
    cdef size_t max_message, max_values

    # The next frame as a message, or None until more bytes arrive. Of kind BATCH only when
    # `elements` has its messages, the last first: take them before the next call.
    cdef Message next_c(self)
    # The same for a text of the slab that came whole, and is no frame of the stream.
    cdef int read_c(self, Message m, Slab slab, Span text) except -1
    cdef int read_batch_c(self, Message m, Slab slab, Span text) except -1
    cdef int check_c(self, Message m, Span text) except -1
    cdef int too_long_c(self, Message m, Span begin) except -1
    cdef str excess_c(self, Span frame)
