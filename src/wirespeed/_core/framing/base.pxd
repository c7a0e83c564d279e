from libc.stdint cimport uint8_t

from wirespeed._core.outbox cimport Outbox
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


cdef enum FrameResult:
    FRAME_MORE = 0        # no whole frame: more input needed
    FRAME_READY = 1
    FRAME_OVERSIZE = 2    # a frame passed the limit; said once, its bytes are dropped


cdef class Framer:
    cdef Slab slab                  # where bytes are read to and frames point into; None when idle
    cdef size_t start               # first byte that is still needed
    cdef size_t end                 # first free byte
    cdef readonly size_t max_frame  # bytes of a frame, its delimiter or header not counted
    cdef public bint eof            # no more bytes will come
    cdef readonly bint needs_goodbye  # the end of the stream alone is no end, but a loss
    cdef readonly bint over         # both sides have said goodbye: close once all is sent
    cdef object lent                # memoryview that a transport reads into; None when none is
    cdef readonly long long bytes_moved  # bytes of unfinished frames that had to be moved
    cdef Outbox out                 # where frames are written to

    # bytes in
    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1
    cdef int commit_c(self, size_t n) except -1
    cdef object lend_c(self)
    cdef int take_back_c(self, Py_ssize_t n) except -1
    cdef int end_loan_c(self) except -1
    cdef Py_ssize_t feed_c(self, object data) except -1
    cdef int check_feed_c(self) except -1
    cdef int ensure_room_c(self, size_t wanted) except -1
    cdef int shifted_c(self, size_t by) noexcept
    cdef int drop_slab_c(self) except -1
    cdef size_t buffered_c(self) noexcept

    # frames out of them
    cdef int next_frame_c(self, Span *frame) except -1
    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1

    # frames written
    cdef int open_c(self) except -1
    cdef int close_c(self, char last) except -1
    cdef bint goodbye_c(self, int code, str reason) except -1
