from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef enum FrameResult:
    FRAME_MORE = 0        # no whole frame: more input needed
    FRAME_READY = 1
    FRAME_OVERSIZE = 2    # a frame passed the limit; said once, its bytes are dropped


cdef class LineFramer:
    cdef Slab slab                  # where bytes are read to and frames point into; None when idle
    cdef size_t start               # first byte of the frame being collected
    cdef size_t scanned             # no newline in [start, scanned)
    cdef size_t end                 # first free byte
    cdef readonly size_t max_frame  # bytes of a frame, its newline not counted
    cdef bint discarding            # inside an oversize frame
    cdef bint at_start              # nothing was framed yet: a byte order mark may stand here
    cdef readonly bint eof
    cdef list chunks                # chunks given whole and not looked at yet, oldest first
    cdef Py_ssize_t n_taken         # chunks at the head of the list that were looked at already
    cdef size_t chunk_at            # bytes of the oldest chunk left that were taken already
    cdef object lent                # memoryview that a transport reads into; None when none is
    cdef readonly long long bytes_moved  # bytes of unfinished frames that had to be moved

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1
    cdef int commit_c(self, size_t n) except -1
    cdef object lend_c(self)
    cdef int take_back_c(self, Py_ssize_t n) except -1
    cdef int end_loan_c(self) except -1
    cdef Py_ssize_t feed_c(self, object data) except -1
    cdef int next_frame_c(self, Span *frame) except -1
    cdef int ensure_room_c(self, size_t wanted) except -1
    cdef int take_chunk_c(self) except -1
    cdef int drop_slab_c(self) except -1
