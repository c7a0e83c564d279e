"""The bases of all framings: Framer holds the input memory and finds the frames in it, FrameWriter
writes frames.

A framing is a subclass of Framer with a FrameWriter (output: `writer`). `next_frame_c` returns
frames as spans of the slab. Bytes come in by one of two doors. A transport reads straight into
`get_buffer_c` and reports the number of bytes by `commit_c`; or a chunk that lies in memory already
is given to `feed_c`. Bytes move only when an unfinished frame needs more room than there is behind
it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memmove

from wirespeed._core.slab cimport ReadBuffer, Slab, take_slab
from wirespeed._core.span cimport Span


@cython.no_gc
cdef class FrameWriter:
    """Writes frames to an outbox, each between `open_c` and `close_c`. Abstract."""

    @cython.final
    cdef int open_c(self) except -1:
        """Begin a frame: all that is written to `out` until `close_c` is its payload."""
        self.abort_c()             # a frame that failed, and was not aborted by who wrote it
        self.size_before = self.out.size
        self.begin_c()
        self.is_open = True
        return 0

    @cython.final
    cdef int close_c(self, char last) except -1:
        """End the frame with this byte."""
        self.finish_c(last)
        self.is_open = False
        return 0

    @cython.final
    cdef int abort_c(self) except -1:
        """Remove the open frame, if there is one."""
        if self.is_open:
            self.is_open = False
            self.out.truncate_c(self.size_before)
        return 0

    cdef uint8_t *whole_c(self, size_t n) except? NULL:
        return NULL

    cdef int begin_c(self) except -1:
        return 0

    cdef int finish_c(self, char last) except -1:
        raise TypeError("a FrameWriter must implement finish_c()")


@cython.no_gc
cdef class Inlet:
    """The bytes of one stream that were read and are still needed."""

    @property
    def buffered(self):
        """Bytes that were taken in and are still needed."""
        return self.buffered_c()

    cdef size_t buffered_c(self) noexcept:
        return self.end - self.start

    cdef int count_c(self) except -1:
        cdef Slab slab = self.slab
        cdef size_t n = self.end - self.start
        if self.budget is None or slab is None or slab.foreign:
            return 0
        if n > max(slab.counted, <size_t> UNCOUNTED) or (n < slab.counted and slab.n_leases == 0):
            slab.count_c(self.budget, n)
        return 0

    cdef int forget_c(self) except -1:
        if self.slab is not None and self.lent is None:
            self.start = self.end
            self.drop_slab_c()
        return 0

    cdef int drop_slab_c(self) except -1:
        self.slab = None
        self.shifted_c(self.start)
        self.start = self.end = 0
        return 0

    cdef int shifted_c(self, size_t by) noexcept:
        """All bytes from `start` on moved down by `by` bytes: offsets into the slab follow."""
        return 0

    cdef int ensure_room_c(self, size_t wanted) except -1:
        """Make at least `wanted` bytes free behind `end`; bytes in [start, end) may move."""
        cdef size_t pending = self.end - self.start
        cdef size_t capacity
        cdef Slab bigger
        if self.slab is None:
            self.slab = take_slab(wanted)
            return 0
        if self.slab.n_leases == 0 and not self.slab.foreign:
            if pending == 0:
                self.shifted_c(self.start)
                self.start = self.end = 0
            if self.slab.capacity - self.end >= wanted:
                return 0
            if self.start and self.slab.capacity - pending >= wanted:
                memmove(self.slab.base, self.slab.base + self.start, pending)
                self.bytes_moved += <long long> pending
            elif self.start == 0:
                # realloc: large blocks are remapped, not copied
                self.slab.grow_c(max(2 * self.slab.capacity, pending + wanted))
                return 0
            else:
                bigger = take_slab(max(2 * pending, pending + wanted))
                memcpy(bigger.base, self.slab.base + self.start, pending)
                self.bytes_moved += <long long> pending
                self.slab = bigger
        else:
            if not self.slab.foreign and self.slab.capacity - self.end >= wanted:
                return 0
            capacity = max(2 * pending, pending + wanted)
            bigger = take_slab(capacity)
            memcpy(bigger.base, self.slab.base + self.start, pending)
            self.bytes_moved += <long long> pending
            self.slab = bigger
        self.shifted_c(self.start)
        self.start = 0
        self.end = pending
        return 0

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1:
        """Return the memory for the next bytes. Frames that were taken before are invalid now."""
        self.ensure_room_c(MIN_READ)
        p[0] = self.slab.base + self.end
        n[0] = self.slab.capacity - self.end
        return 0

    cdef int commit_c(self, size_t n) except -1:
        if self.slab is None or n > self.slab.capacity - self.end:
            raise ValueError("more bytes committed than the buffer had room for")
        self.end += n
        return 0

    cdef object lend_c(self):
        """`get_buffer_c` for Python: a memoryview that keeps its memory alive."""
        cdef uint8_t *p = NULL
        cdef size_t n = 0
        self.end_loan_c()
        self.get_buffer_c(&p, &n)
        self.lent = PyMemoryView_FromObject(ReadBuffer.of(self.slab, p, n))
        return self.lent

    cdef int take_back_c(self, Py_ssize_t n) except -1:
        """`commit_c` for Python: n bytes were read into the lent buffer, which ends the loan."""
        if self.lent is None:
            raise RuntimeError("buffer_updated() without get_buffer()")
        if n < 0:
            raise ValueError("a negative number of bytes")
        self.commit_c(<size_t> n)
        return self.end_loan_c()

    cdef int end_loan_c(self) except -1:
        cdef object lent = self.lent
        self.lent = None
        if lent is not None:
            try:
                lent.release()
            except BufferError:
                pass        # still exported: the memory stays pinned until the export ends
        return 0

    cdef int reclaim_c(self) except -1:
        """Nothing was read into the lent buffer, and nothing is for now: an idle connection holds
        no memory."""
        if self.lent is not None:
            self.end_loan_c()
            if self.start == self.end:
                self.drop_slab_c()
        return 0

    cdef int check_feed_c(self) except -1:
        if self.lent is not None:
            raise RuntimeError("receive_data() between get_buffer() and buffer_updated()")
        if self.eof:
            raise RuntimeError("receive_data() after receive_eof()")
        return 0

    cdef Py_ssize_t feed_c(self, object data) except -1:
        """Take in a chunk, which is copied; returns its length in bytes."""
        cdef Py_buffer view
        cdef Py_ssize_t n
        self.check_feed_c()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            n = view.len
            if n:
                self.ensure_room_c(<size_t> n)
                memcpy(self.slab.base + self.end, view.buf, <size_t> n)
                self.bytes_moved += n
                self.end += <size_t> n
        finally:
            PyBuffer_Release(&view)
        return n


cdef size_t MAX_FRAME = 0x80000000    # 2 GiB: offsets into a frame have 32 bits


@cython.no_gc
cdef class Framer(Inlet):
    """Cuts a byte stream into frames of at most `max_frame` bytes. Abstract."""

    cdef int setup_c(self, size_t max_frame, FrameWriter writer) except -1:
        """For the constructors of subclasses. ValueError for a limit that is out of range."""
        if not 1 <= max_frame <= MAX_FRAME:
            raise ValueError("the limit of a frame must be 1 byte to 2 GiB")
        self.max_frame = max_frame
        self.writer = writer
        return 0

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the frame in `self.slab`, FRAME_MORE, or FRAME_OVERSIZE with the first
        bytes of the frame."""
        raise TypeError("a Framer must implement next_frame_c()")

    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1:
        """The frame is not JSON. True: that ends the stream, and the framing has answered it."""
        return False

    cdef bint give_up_c(self, int code, str reason) except -1:
        """Take no more input. True: the framing has told the peer why, and `over` is true. False:
        the framing has no goodbye."""
        return False

    cdef bint goodbye_c(self, int code, str reason) except -1:
        """End the stream. True: the framing's goodbye is queued, and `over` becomes true when the
        peer answers it. False: the framing has no goodbye."""
        return False
