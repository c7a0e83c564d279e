from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.writer cimport FrameWriter


cdef class LineWriter(FrameWriter):
    pass


cdef class LineFramer(Framer):
    cdef size_t scanned             # no newline in [start, scanned)
    cdef bint discarding            # inside an oversize frame
    cdef bint at_start              # no message was framed yet: a byte order mark may follow
    cdef list chunks                # chunks that were fed and are not framed, oldest first
    cdef Py_ssize_t n_taken         # chunks at the head of the list that are framed
    cdef size_t chunk_at            # bytes of the oldest chunk left that are framed

    cdef int take_chunk_c(self) except -1
