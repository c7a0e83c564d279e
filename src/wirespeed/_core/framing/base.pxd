from libc.stdint cimport uint8_t

from wirespeed._core.outbox cimport Outbox
from wirespeed._core.slab cimport InputBudget, Slab
from wirespeed._core.span cimport Span


cdef class FrameWriter:
    cdef Outbox out                 # where frames are written to
    cdef bint takes_newlines        # in a payload: they do not end the frame
    cdef bint is_open               # a frame is being written
    cdef size_t size_before         # of `out`

    # Write the payload to `out` between `open_c` and `close_c`, and run no other code meanwhile.
    # The payload's last byte is given to `close_c`. When anything fails between, call `abort_c`.
    cdef int open_c(self) except -1
    cdef int close_c(self, char last) except -1
    cdef int abort_c(self) except -1

    # A frame whose payload has n bytes, in one piece: where they are to be written, at once. NULL:
    # the framing needs to see them first, so write it between `open_c` and `close_c`.
    cdef uint8_t *whole_c(self, size_t n) except? NULL

    # Override: begin a frame, with room for a head if it has one (`Outbox.mark_c`); write the last
    # byte and the end of a frame.
    cdef int begin_c(self) except -1
    cdef int finish_c(self, char last) except -1


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


cdef enum FrameResult:
    FRAME_MORE = 0        # no whole frame: more input needed
    FRAME_READY = 1
    # A frame exceeds the limit: the span has its first `max_frame` bytes. Reported once; the rest
    # of the frame is skipped.
    FRAME_OVERSIZE = 2


cdef class Framer(Inlet):
    cdef readonly size_t max_frame  # bytes of a frame, its delimiter or header not counted
    cdef readonly bint needs_goodbye  # the end of the stream without a goodbye is a loss
    cdef readonly bint over         # both sides have said goodbye: close once all is sent
    cdef FrameWriter writer         # set by `setup_c`; may be used without the framer

    cdef int setup_c(self, size_t max_frame, FrameWriter writer) except -1

    # Override. `next_frame_c` moves `start` behind the frame that it returns. A frame stays valid
    # until the next call of any method.
    cdef int next_frame_c(self, Span *frame) except -1
    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1
    cdef bint give_up_c(self, int code, str reason) except -1
    cdef bint goodbye_c(self, int code, str reason) except -1
