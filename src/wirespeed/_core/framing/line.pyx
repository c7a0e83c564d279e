"""Framings by newlines: one message a line (MCP over stdio and over byte streams), and frames that
end with three newlines in a row (LiteMCP 1.0.0 over the same).

Lines. Source: basic/transports/stdio of every revision. Only the byte 0x0A ends a message; a
carriage return before it, blank lines, and one byte order mark before the first message are
tolerated.

A chunk that is fed is framed in place. The search for the newline of an unfinished line continues
where it stopped.

Blank lines. Source: LiteMCP, transmission/standard-io: three consecutive newline characters end a
message. The text between is free: JSON may be spread over lines, and two newlines are part of it.
Where the page says nothing: a carriage return and a newline count as one newline; a line of blanks
is content; further newlines belong to the next frame; frames of white space alone, and one byte
order mark at the start, are skipped.
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy

from wirespeed._core._simd cimport kernels
from wirespeed._core.framing.base cimport (
    FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, FrameWriter, Framer, Inlet,
)
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span

cdef enum:
    TERMINATOR = 3        # newlines in a row
    MARK = 3              # bytes of a byte order mark


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


cdef inline bint is_blank(uint8_t c) noexcept:
    return c == 0x20 or c == 0x09 or c == 0x0A or c == 0x0D


@cython.final
@cython.no_gc
cdef class BlankLineWriter(FrameWriter):
    """Writes frames that three newlines end. The payload must not hold three in a row."""

    cdef int finish_c(self, char last) except -1:
        cdef uint8_t *p = self.out.reserve_c(1 + TERMINATOR)
        p[0] = <uint8_t> last
        p[1] = p[2] = p[3] = 0x0A
        self.out.commit_c(1 + TERMINATOR)
        return 0


@cython.final
@cython.no_gc
cdef class BlankLineFramer(Framer):
    """Cuts a byte stream at every three consecutive newlines.

    Args:
        max_frame: Bytes of a frame, from its first character to its terminator. A longer frame is
            reported once and dropped up to its terminator.
        lenient: One newline ends a frame, too, behind a whole JSON object or array and behind a
            line that begins with neither: for servers that do not write the terminator, or that
            write other text than messages.
    """

    def __cinit__(self, size_t max_frame, *, bint lenient=False):
        self.setup_c(max_frame, BlankLineWriter())
        self.at_start = True
        self.lenient = lenient

    cdef int shifted_c(self, size_t by) noexcept:
        self.scanned = self.scanned - by if self.scanned > by else 0
        self.run_at = self.run_at - by if self.run_at > by else 0
        return 0

    cdef int begin_c(self) noexcept:
        """Reset the state of the search for a new frame."""
        self.run = 0
        self.depth = 0
        self.in_string = self.escaped = False
        return 0

    cdef bint skip_blanks_c(self) except -1:
        """Move `start` to the first character of a frame. False: it has not arrived."""
        cdef const uint8_t *base
        cdef size_t left
        if self.start == self.end:
            return False
        base = self.slab.base
        if self.at_start:
            left = min(self.end - self.start, <size_t> MARK)
            if memcmp(base + self.start, b"\xef\xbb\xbf", left) == 0:
                if left == MARK:
                    self.start += MARK
                elif not self.eof:
                    return False
            self.at_start = False
        while self.start < self.end and is_blank(base[self.start]):
            self.start += 1
        self.scanned = self.start
        return self.start < self.end

    cdef bint find_end_c(self) noexcept:
        """Search for the end of the frame, from `scanned`. True: it ends at `run_at`."""
        cdef const uint8_t *base = self.slab.base
        cdef size_t at
        cdef uint8_t c
        while self.scanned < self.end:
            if self.run == 0:
                at = self.scanned + kernels.find_newline(
                    base + self.scanned, self.end - self.scanned
                )
                if at == self.end:
                    self.scanned = at
                    break
                self.run_at = at - 1 if at > self.start and base[at - 1] == 0x0D else at
                self.run = 1
                self.scanned = at + 1
                continue
            c = base[self.scanned]
            at = self.scanned
            if c == 0x0D:
                at += 1
                if at == self.end:
                    break              # a newline may follow
                c = base[at]
            if c == 0x0A:
                self.run += 1
                self.scanned = at + 1
                if self.run == TERMINATOR:
                    return True
            else:
                self.run = 0
        return False

    cdef bint find_end_lenient_c(self) noexcept:
        """As `find_end_c`, and a newline outside of an open object or array ends a frame, too."""
        cdef const uint8_t *base = self.slab.base
        cdef size_t i = self.scanned
        cdef uint8_t c
        while i < self.end:
            c = base[i]
            if c == 0x0A:
                if self.run == 0:
                    self.run_at = i - 1 if i > self.start and base[i - 1] == 0x0D else i
                self.run += 1
                i += 1
                if self.run == TERMINATOR or self.depth == 0:
                    self.scanned = i
                    return True
                continue
            if c == 0x0D and self.run:
                if i + 1 == self.end:
                    break              # a newline may follow
                if base[i + 1] == 0x0A:
                    i += 1
                    continue
            self.run = 0
            if self.depth == 0:
                # only the first character can open one; the rest of its line belongs to it
                if (c == c'{' or c == c'[') and i == self.start and not self.discarding:
                    self.depth = 1
            elif self.in_string:
                if self.escaped:
                    self.escaped = False
                elif c == c'\\':
                    self.escaped = True
                elif c == c'"':
                    self.in_string = False
            elif c == c'"':
                self.in_string = True
            elif c == c'{' or c == c'[':
                self.depth += 1
            elif c == c'}' or c == c']':
                self.depth -= 1
            i += 1
        self.scanned = i
        return False

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the frame in `self.slab`, FRAME_MORE, or FRAME_OVERSIZE."""
        cdef const uint8_t *p
        cdef size_t n, stop
        cdef bint whole
        if self.slab is None:
            return FRAME_MORE
        while True:
            if not self.in_frame:
                if not self.skip_blanks_c():
                    if self.start == self.end and self.end and self.lent is None:
                        # nothing pending: an idle connection holds no memory
                        self.drop_slab_c()
                    return FRAME_MORE
                self.in_frame = True
                self.begin_c()
            if self.lenient:
                whole = self.find_end_lenient_c()
            else:
                whole = self.find_end_c()
            if self.discarding:
                self.start = self.scanned
                if not whole:
                    if self.eof:
                        self.start = self.scanned = self.end
                    if self.start == self.end and self.end and self.lent is None:
                        self.drop_slab_c()
                    return FRAME_MORE
                self.in_frame = self.discarding = False
                continue
            # newlines that may begin the terminator do not count yet
            stop = self.run_at if self.run else self.scanned
            if not whole and not self.run and stop > self.start:
                if self.slab.base[stop - 1] == 0x0D:
                    stop -= 1
            n = stop - self.start
            if n > self.max_frame:
                frame.p = self.slab.base + self.start
                frame.n = self.max_frame
                self.start = self.scanned
                self.in_frame = self.discarding = not whole
                return FRAME_OVERSIZE
            if not whole:
                if not self.eof:
                    return FRAME_MORE
                self.scanned = self.end
            p = self.slab.base + self.start
            self.start = self.scanned
            self.in_frame = False
            # the first character is not a blank, so that this ends
            while is_blank(p[n - 1]):
                n -= 1
            frame.p = p
            frame.n = n
            return FRAME_READY
