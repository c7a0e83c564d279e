"""Frames that end with three newlines in a row (LiteMCP 1.0.0 over stdio and byte streams).

Source: LiteMCP, transmission/standard-io: three consecutive newline characters end a message. The
text between is free: JSON may be spread over lines, and two newlines are part of it. Where the page
says nothing: a carriage return and a newline count as one newline; a line of blanks is content;
further newlines belong to the next frame; frames of white space alone, and one byte order mark at
the start, are skipped.
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from wirespeed._core._simd cimport kernels
from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, FRAME_READY, Framer
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.span cimport Span

cdef enum:
    TERMINATOR = 3        # newlines in a row
    MARK = 3              # bytes of a byte order mark


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
