"""What every framing shares: the memory that bytes are read into, and how frames are written.

A framing is a subclass. Bytes come in by either door: a transport reads straight into
``get_buffer_c`` and tells how much by ``commit_c``, or a chunk that already lies in memory is given
to ``feed_c``. ``next_frame_c`` gives frames as spans of the slab; only an unfinished one is ever
moved. A frame is written between ``open_c`` and ``close_c``.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memmove

from wirespeed._core.slab cimport ReadBuffer, Slab, take_slab
from wirespeed._core.span cimport Span

cdef enum:
    MIN_READ = 32768          # room a read should find


@cython.no_gc
cdef class Framer:
    """Cuts a byte stream into frames of at most `max_frame` bytes. Abstract."""

    def __cinit__(self, max_frame=None, *args, **kwargs):
        if isinstance(max_frame, int):      # else the subclass says it
            self.max_frame = max_frame

    @property
    def buffered(self):
        """Bytes taken in and not framed yet."""
        return self.buffered_c()

    cdef size_t buffered_c(self) noexcept:
        return self.end - self.start

    # -- bytes in ------------------------------------------------------------------------------

    cdef int drop_slab_c(self) except -1:
        self.slab = None
        self.shifted_c(self.start)
        self.start = self.end = 0
        return 0

    cdef int shifted_c(self, size_t by) noexcept:
        """Everything from `start` on moves down by so many bytes: offsets into the slab follow."""
        return 0

    cdef int ensure_room_c(self, size_t wanted) except -1:
        """At least `wanted` free bytes behind `end`, moving what is still needed if it must be."""
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
        """Where to read to next. Everything framed so far must have been taken."""
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
        """`get_buffer_c` for Python: a memoryview whose memory outlives any use of it."""
        cdef uint8_t *p = NULL
        cdef size_t n = 0
        self.end_loan_c()
        self.get_buffer_c(&p, &n)
        self.lent = PyMemoryView_FromObject(ReadBuffer.of(self.slab, p, n))
        return self.lent

    cdef int take_back_c(self, Py_ssize_t n) except -1:
        """`commit_c` for Python: n bytes were read into what was lent, which is lent no more."""
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
                pass        # still exported: its memory stays pinned until that ends
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

    # -- frames out of them --------------------------------------------------------------------

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the frame in `self.slab`, FRAME_MORE, or FRAME_OVERSIZE."""
        raise TypeError("a framing must say how it finds frames")

    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1:
        """The frame is not JSON. True: that ends the stream, and is answered here."""
        return False

    # -- frames written ------------------------------------------------------------------------

    cdef int open_c(self) except -1:
        """A frame begins: what is written to `out` until `close_c` is its payload."""
        return 0

    cdef int close_c(self, char last) except -1:
        """The frame ends with this character."""
        raise TypeError("a framing must say how frames end")

    cdef bint goodbye_c(self, int code, str reason) except -1:
        """We end the stream. True: the framing has words for it, which are queued now, and the
        peer will answer them: `over` becomes true then. False: just close."""
        return False
