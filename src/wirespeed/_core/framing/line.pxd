from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.writer cimport FrameWriter


cdef class LineWriter(FrameWriter):
    pass


cdef class LineFramer(Framer):
    cdef size_t scanned             # no newline in [start, scanned)
    cdef bint discarding            # inside an oversize frame
    cdef bint at_start              # nothing was framed yet: a byte order mark may stand here
    cdef list chunks                # chunks given whole and not looked at yet, oldest first
    cdef Py_ssize_t n_taken         # chunks at the head of the list that were looked at already
    cdef size_t chunk_at            # bytes of the oldest chunk left that were taken already

    cdef int take_chunk_c(self) except -1
