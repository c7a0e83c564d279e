"""Newline-delimited framing: one message a line (MCP over stdio and over byte streams).

Source: basic/transports/stdio of every revision. Only the byte 0x0A ends a message; a carriage
return before it, blank lines, and one byte order mark before the first message are tolerated.

A chunk that is fed is framed in place. The search for the newline of an unfinished line continues
where it stopped.
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

from wirespeed._core._simd cimport kernels
from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, Framer, Inlet
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span


@cython.final
@cython.no_gc
cdef class LineWriter(FrameWriter):
    """Writes one frame a line. The payload must not hold a raw newline."""

    cdef int finish_c(self, char last) except -1:
        cdef uint8_t *p = self.out.reserve_c(2)
        p[0] = <uint8_t> last
        p[1] = 0x0A
        self.out.commit_c(2)
        return 0

    cdef uint8_t *whole_c(self, size_t n) except? NULL:
        cdef uint8_t *p
        self.abort_c()
        p = self.out.reserve_c(n + 1)
        p[n] = 0x0A
        self.out.commit_c(n + 1)
        return p


@cython.final
@cython.no_gc
cdef class LineFramer(Framer):
    """Cuts a byte stream into lines of at most `max_frame` bytes."""

    def __cinit__(self, size_t max_frame):
        self.setup_c(max_frame, LineWriter())
        self.at_start = True
        self.chunks = []

    cdef size_t buffered_c(self) noexcept:
        cdef size_t n = self.end - self.start - self.chunk_at
        for chunk in self.chunks[self.n_taken:]:
            n += (<Slab> chunk).capacity
        return n

    cdef int shifted_c(self, size_t by) noexcept:
        self.scanned = self.scanned - by if self.scanned > by else 0
        return 0

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1:
        if self.chunks:
            raise RuntimeError("get_buffer() before the chunks fed were taken")
        return Inlet.get_buffer_c(self, p, n)

    cdef Py_ssize_t feed_c(self, object data) except -1:
        """Take in a chunk, which is framed in place; returns its length in bytes."""
        cdef Slab chunk
        self.check_feed_c()
        chunk = Slab.borrow(data)
        if chunk.capacity:
            self.chunks.append(chunk)
        return <Py_ssize_t> chunk.capacity

    cdef int take_chunk_c(self) except -1:
        """Begin with the next chunk that was fed. 1: there is one.

        An unfinished frame is completed in our own memory; the rest of the chunk is framed in
        place.
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
        cdef bint last                # no bytes will follow those in the slab
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
            last = at == self.end and self.eof and not self.chunks
            if n > self.max_frame:
                # a line within the limit may end in a '\r', which does not count
                if n > self.max_frame + 1 or self.slab.base[at - 1] != 0x0D:
                    frame.p = self.slab.base + self.start
                    frame.n = self.max_frame
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
            while n and (p[n - 1] == 0x0D or p[n - 1] == 0x20 or p[n - 1] == 0x09):
                n -= 1
            while n and (p[0] == 0x20 or p[0] == 0x09 or p[0] == 0x0D):
                p += 1
                n -= 1
            if self.at_start and n:
                # a program may write it behind the lines of the one that started it
                if n >= 3 and memcmp(p, b"\xef\xbb\xbf", 3) == 0:
                    self.at_start = False
                    p += 3
                    n -= 3
                    while n and (p[0] == 0x20 or p[0] == 0x09 or p[0] == 0x0D):
                        p += 1
                        n -= 1
                elif p[0] == c'{' or p[0] == c'[':
                    self.at_start = False
            if n == 0:
                continue
            frame.p = p
            frame.n = n
            return FRAME_READY
