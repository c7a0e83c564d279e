"""Server-sent events as a client reads them (HTML, section 9.2), from bytes cut anywhere.

The data of an event is a lease of the bytes where they were read, if they came in one piece. Events
without data are events here where they have an id or a time: MCP primes a stream by one. What is
unfinished when the stream ends is dropped.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp, memcpy

from wirespeed._core._simd cimport kernels
from wirespeed._core.slab cimport Lease, Slab, take_slab

cdef enum:
    MAX_WORD = 4096       # bytes of the id of an event, and of its name
    MAX_FIELD = 8         # bytes of a line besides its data: "data: "
    MAX_DIGITS = 9        # of a time in milliseconds, which is 11 days at most


@cython.final
@cython.no_gc
cdef class EventReader:
    """Reads the events of one stream.

    Args:
        max_event: Bytes of the data of an event. A line is limited alike.
    """

    def __cinit__(self, *, size_t max_event):
        self.max_event = max_event

    # -- bytes in ------------------------------------------------------------------------------

    cdef int feed_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        self.input = Lease.of(slab, p, n)
        self.at = self.newline = 0
        self.end = n
        if n:
            self.newline = kernels.find_newline(p, n)
        return 0

    def feed(self, data, /):
        """Take in bytes, and return the events that end in them: name, data, id, and milliseconds
        before the next attempt to connect."""
        cdef Slab slab = Slab.borrow(data)
        cdef list found = []
        self.feed_c(slab, slab.base, slab.capacity)
        while self.next_c():
            found.append((self.event, self.data, self.id, self.retry))
        return found

    # -- events out ----------------------------------------------------------------------------

    cdef int next_c(self) except -1:
        cdef const uint8_t *p
        cdef size_t stop, n
        self.data = None
        while self.input is not None and self.failure is None:
            p = self.input.p
            if self.skips_newline and self.at < self.end:
                self.skips_newline = False
                if p[self.at] == c'\n':
                    self.at += 1
            stop = self.line_end_c()
            n = stop - self.at
            if n + (self.n_held - self.line) > self.max_event + MAX_FIELD:
                return self.fail_c("a line of the stream has", self.max_event + MAX_FIELD)
            if stop == self.end:
                self.keep_c()
                if n:
                    self.hold_c(p + self.at, n)
                self.input = None
                return 0
            if self.n_held > self.line:
                if n:
                    self.hold_c(p + self.at, n)
                self.at = stop + 1
                self.skips_newline = p[stop] == c'\r'
                self.line_c(self.held.base + self.line, self.n_held - self.line, True)
            else:
                p += self.at
                self.at = stop + 1
                self.skips_newline = self.input.p[stop] == c'\r'
                if n:
                    self.line_c(p, n, False)
                elif self.n_lines or self.has_fields:
                    self.begun = True
                    return self.end_c()
                else:
                    self.begun = True
                    self.next_event = None    # without data it is not an event
        self.input = None
        return 0

    cdef size_t line_end_c(self) noexcept:
        """The end of the line that begins at `at`: of a CR or a LF, or `end`."""
        cdef const uint8_t *p = self.input.p
        cdef const uint8_t *found
        if self.newline < self.at:
            self.newline = self.at
            if self.at < self.end:
                self.newline += kernels.find_newline(p + self.at, self.end - self.at)
        if self.newline == self.at:
            return self.at
        found = <const uint8_t *> memchr(p + self.at, c'\r', self.newline - self.at)
        return self.newline if found == NULL else <size_t> found - <size_t> p

    cdef int hold_c(self, const uint8_t *p, size_t n) except -1:
        """Copy a part of a line."""
        if self.held is None:
            self.held = take_slab(n)
        elif self.held.capacity - self.n_held < n:
            self.held.grow_c(max(2 * self.held.capacity, self.n_held + n))
        memcpy(self.held.base + self.n_held, p, n)
        self.n_held += n
        return 0

    cdef int keep_c(self) except -1:
        """The input ends: copy what is needed of it but the unfinished line."""
        if self.first != NULL:
            self.hold_c(self.first, self.n_data)
            self.first = NULL
            self.first_held = 0
            self.line = self.n_held
        elif self.n_held == 0:
            self.held = None
        return 0

    cdef int line_c(self, const uint8_t *p, size_t n, bint is_held) except -1:
        """A line that is not empty."""
        cdef const uint8_t *colon
        cdef const uint8_t *value
        cdef size_t n_name, n_value, i
        if not self.begun:
            self.begun = True
            if n >= 3 and memcmp(p, b"\xef\xbb\xbf", 3) == 0:
                p += 3
                n -= 3
        colon = <const uint8_t *> memchr(p, c':', n)
        n_name = n if colon == NULL else <size_t> colon - <size_t> p
        value = p + n_name
        if colon != NULL:
            value += 1
            if <size_t> value - <size_t> p < n and value[0] == c' ':
                value += 1
        n_value = n - (<size_t> value - <size_t> p)
        if n_name == 4 and memcmp(p, b"data", 4) == 0:
            return self.data_c(value, n_value, is_held)
        if n_name == 5 and memcmp(p, b"event", 5) == 0:
            if n_value > MAX_WORD:
                return self.fail_c("the name of an event has", MAX_WORD)
            self.next_event = None
            if n_value:
                self.next_event = text_c(value, n_value)
        elif n_name == 2 and memcmp(p, b"id", 2) == 0:
            if n_value > MAX_WORD:
                return self.fail_c("the id of an event has", MAX_WORD)
            if memchr(value, 0, n_value) == NULL:
                self.next_id = text_c(value, n_value)
                self.has_fields = True
        elif n_name == 5 and memcmp(p, b"retry", 5) == 0:
            for i in range(n_value):
                if not c'0' <= value[i] <= c'9':
                    break
            else:
                if n_value:
                    self.next_retry = retry_c(value, n_value)
                    self.has_fields = True
        self.n_held = self.line        # nothing of the line is needed
        return 0

    cdef int data_c(self, const uint8_t *p, size_t n, bint is_held) except -1:
        cdef size_t n_all = n if self.n_lines == 0 else self.n_data + 1 + n
        if n_all > self.max_event:
            return self.fail_c("an event has", self.max_event)
        if self.n_lines == 0:
            self.n_lines = 1
            self.first = NULL
            if is_held:
                self.first_held = <size_t> p - <size_t> self.held.base
                self.line = self.n_held
            else:
                self.first = p
        else:
            if self.n_lines == 1:
                self.n_lines = 2
                self.lines = bytearray(self.first_c())
                self.first = NULL
            self.lines += b"\n"
            self.lines += PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n)
            self.line = self.n_held = 0
        self.n_data = n_all
        return 0

    cdef object first_c(self):
        """The one line of data."""
        if self.n_data == 0:
            return b""                 # it lies nowhere: `held` may be None
        if self.first != NULL:
            return Lease.of(self.input.slab, self.first, self.n_data)
        return Lease.of(self.held, self.held.base + self.first_held, self.n_data)

    cdef int end_c(self) except -1:
        """An empty line: the event has ended."""
        self.event = "message" if self.next_event is None else self.next_event
        self.id = self.next_id
        self.retry = self.next_retry
        if self.n_lines == 0:
            self.data = b""
        elif self.n_lines == 1:
            self.data = self.first_c()
        else:
            self.data = bytes(self.lines)
        self.lines = None
        self.next_event = self.next_id = self.next_retry = None
        self.has_fields = False
        self.n_lines = 0
        self.n_data = 0
        self.first = NULL
        if self.n_held:
            self.held = None           # the lease pins it
            self.n_held = self.line = 0
        return 1

    cdef int fail_c(self, str what, size_t limit) except -1:
        """The stream is of no use from here on. Returns 0."""
        self.failure = f"{what} more than {limit} bytes"
        self.input = self.held = None
        self.lines = None
        self.first = NULL
        self.n_held = self.line = 0
        return 0


cdef str text_c(const uint8_t *p, size_t n):
    return PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, "replace")


cdef object retry_c(const uint8_t *p, size_t n):
    """The number of n digits, or the highest one that is taken."""
    while n > 1 and p[0] == c'0':
        p += 1
        n -= 1
    if n > MAX_DIGITS:
        return 10 ** MAX_DIGITS - 1
    return int(p[:n])
