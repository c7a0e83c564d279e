"""Newline-delimited framing: one message a line (MCP over stdio and over byte streams).

Source: basic/transports/stdio of every revision. Only the byte 0x0A ends a message; a carriage
return before it, blank lines and one leading byte order mark are tolerated.

Bytes come in by either door: a transport reads straight into ``get_buffer_c`` and tells how much by
``commit_c``, or a chunk that already lies in memory is given to ``feed_c`` and framed where it
lies. Frames stay in the slab; only an unfinished one is ever moved, and the search for its newline
goes on where it stopped.
"""

cimport cython
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memmove

from wirespeed._core._simd cimport kernels
from wirespeed._core.slab cimport ReadBuffer, Slab, give_slab, take_slab
from wirespeed._core.span cimport Span

cdef enum:
    MIN_READ = 32768          # room a read should find
    READ_SIZE = 131072


@cython.final
@cython.no_gc
cdef class LineFramer:
    """Cuts a byte stream into lines of at most `max_frame` bytes."""

    def __cinit__(self, size_t max_frame):
        self.max_frame = max_frame
        self.at_start = True
        self.chunks = []

    @property
    def buffered(self):
        """Bytes taken in and not framed yet."""
        cdef size_t n = self.end - self.start
        for chunk in self.chunks[self.n_taken:]:
            n += (<Slab> chunk).capacity
        return n - self.chunk_at

    cdef int drop_slab_c(self) except -1:
        if self.slab is not None:
            give_slab(self.slab)
            self.slab = None
        self.start = self.scanned = self.end = 0
        return 0

    cdef int ensure_room_c(self, size_t wanted) except -1:
        """At least `wanted` free bytes behind `end`, moving an unfinished frame if it must be."""
        cdef size_t pending = self.end - self.start
        cdef size_t capacity
        cdef Slab bigger
        if self.slab is None:
            self.slab = take_slab(max(wanted, <size_t> READ_SIZE))
            return 0
        if self.slab.n_leases == 0 and not self.slab.foreign:
            if pending == 0:
                self.start = self.scanned = self.end = 0
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
                give_slab(self.slab)
                self.slab = bigger
        else:
            if not self.slab.foreign and self.slab.capacity - self.end >= wanted:
                return 0
            capacity = max(2 * pending, pending + wanted)
            bigger = take_slab(max(capacity, <size_t> READ_SIZE))
            memcpy(bigger.base, self.slab.base + self.start, pending)
            self.bytes_moved += <long long> pending
            self.slab = bigger
        self.scanned -= self.start
        self.start = 0
        self.end = pending
        return 0

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1:
        """Where to read to next. Everything framed so far must have been taken."""
        if self.chunks:
            raise RuntimeError("get_buffer() before the chunks fed were taken")
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

    cdef Py_ssize_t feed_c(self, object data) except -1:
        """Take in a chunk; returns its length in bytes."""
        cdef Slab chunk
        if self.lent is not None:
            raise RuntimeError("receive_data() between get_buffer() and buffer_updated()")
        if self.eof:
            raise RuntimeError("receive_data() after receive_eof()")
        chunk = Slab.borrow(data)
        if chunk.capacity:
            self.chunks.append(chunk)
        return <Py_ssize_t> chunk.capacity

    cdef int take_chunk_c(self) except -1:
        """Look at the next chunk fed. 1: there was one.

        A frame that began earlier is completed in our own memory; the rest of the chunk is framed
        where it lies.
        """
        cdef Slab chunk
        cdef size_t n, pending = self.end - self.start
        if not self.chunks:
            return 0
        chunk = <Slab> self.chunks[self.n_taken]
        if pending == 0:
            self.drop_slab_c()
            self.slab = chunk
            self.start = self.scanned = self.chunk_at
            self.end = chunk.capacity
        else:
            n = chunk.capacity - self.chunk_at
            n = min(n, kernels.find_newline(chunk.base + self.chunk_at, n) + 1)
            self.ensure_room_c(n)
            memcpy(self.slab.base + self.end, chunk.base + self.chunk_at, n)
            self.bytes_moved += <long long> n
            self.end += n
            self.chunk_at += n
            if self.chunk_at < chunk.capacity:
                return 1
        self.chunk_at = 0
        self.chunks[self.n_taken] = None
        self.n_taken += 1
        # popping them one by one would be quadratic
        if 2 * self.n_taken >= len(self.chunks):
            del self.chunks[:self.n_taken]
            self.n_taken = 0
        return 1

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the frame in `self.slab`, FRAME_MORE, or FRAME_OVERSIZE."""
        cdef const uint8_t *p
        cdef size_t n, at
        cdef bint last                # no byte will ever follow those in the slab
        while True:
            if self.scanned == self.end:
                if not self.chunks:
                    if self.start == self.end and self.end and self.lent is None:
                        # nothing pending: an idle connection holds no memory
                        self.drop_slab_c()
                    if self.eof and self.start < self.end:
                        at = self.end
                    else:
                        return FRAME_MORE
                else:
                    self.take_chunk_c()
                    continue
            else:
                p = self.slab.base + self.scanned
                n = self.end - self.scanned
                at = self.scanned + kernels.find_newline(p, n)
            if self.discarding:
                if at == self.end:
                    self.start = self.scanned = self.end
                    continue
                self.discarding = False
                self.start = self.scanned = at + 1
                continue
            n = at - self.start
            last = self.eof and not self.chunks
            if n > self.max_frame:
                # a line within the limit may still carry one '\r' more
                if n > self.max_frame + 1 or self.slab.base[at - 1] != 0x0D:
                    if at < self.end:
                        self.start = self.scanned = at + 1
                    else:
                        self.start = self.scanned = self.end
                        self.discarding = not last
                    self.at_start = False
                    return FRAME_OVERSIZE
            if at == self.end and not last:
                self.scanned = self.end
                continue
            p = self.slab.base + self.start
            self.start = self.scanned = at + 1 if at < self.end else self.end
            if self.at_start:
                self.at_start = False
                if n >= 3 and memcmp(p, b"\xef\xbb\xbf", 3) == 0:
                    p += 3
                    n -= 3
            while n and (p[n - 1] == 0x0D or p[n - 1] == 0x20 or p[n - 1] == 0x09):
                n -= 1
            while n and (p[0] == 0x20 or p[0] == 0x09 or p[0] == 0x0D):
                p += 1
                n -= 1
            if n == 0:
                continue
            frame.p = p
            frame.n = n
            return FRAME_READY
