"""The head of an HTTP/1.x message (RFC 9110, RFC 9112): read once, strictly, and where it lies.

The scanner takes the bytes as they come and keeps its place, so that each byte is looked at once.
What it finds are spans. It is stricter than the RFCs demand where other readers of the same bytes
may see another message: lines end with a carriage return and a newline, a field that says how long
the body is occurs once, and no value is repaired.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport int16_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memset

from wirespeed._core.framing.http.rfc9112 cimport (
    BAD_HOST, BAD_NAME, BAD_REQUEST_LINE, BAD_STATUS_LINE, BAD_TARGET, BAD_TARGET_FORM, BAD_VALUE,
    BARE_CR, BARE_LF, CONNECT, CONNECTION, CONNECT_METHOD, CONTENT_LENGTH, CR, EXPECT, FOLDED_LINE,
    Fault, HOST, IN_TARGET, IN_TOKEN, IN_VALUE, KnownField, LENGTH_AND_CODING, LF, LONG_HEAD,
    LONG_METHOD, LONG_TARGET, MANY_FIELDS, Method, NOT_HTTP, NO_FAULT, NO_HOST, OLD_CODING, OPTIONS,
    OTHER_EXPECTATION, OTHER_METHOD, OTHER_VERSION, SAYS_CLOSE, SAYS_KEEP_ALIVE, SAYS_UPGRADE,
    SPACE, SPACE_BEFORE_COLON, TRANSFER_ENCODING, TWO_CODINGS, TWO_HOSTS, TWO_LENGTHS, check_coding,
    classes, connection_members, failure_of, is_blank, is_host, is_word, known_field, method_of,
    read_length, same_name, skip_name, skip_value,
)
from wirespeed._core.span cimport Span

cdef enum:
    # where in a head `at` is
    OPENING
    IN_METHOD
    IN_THE_TARGET
    IN_VERSION            # of a request line
    IN_STATUS_LINE
    LINE_LF               # behind the carriage return of the first line
    FIELD
    FIELD_NAME
    BEFORE_VALUE
    FIELD_VALUE
    FIELD_LF
    END_LF                # behind the carriage return of the empty line that ends the head

    MAX_METHOD = 32       # bytes
    MAX_HEAD = 65535      # offsets of names have 16 bits
    N_VERSION = 8         # bytes of "HTTP/1.1"
    FIELDS = 16           # that there is room for at first


@cython.final
@cython.no_gc
cdef class HttpHead:
    """Scans heads, one after another.

    Args:
        response: Whether they are of responses; else of requests.
        max_head: Bytes of a head, up to and including its empty line; at most 65,535.
        max_target: Bytes of the target of a request.
        max_fields: Header fields.
    """

    def __cinit__(
        self,
        bint response=False,
        *,
        size_t max_head=16384,
        size_t max_target=8192,
        size_t max_fields=100,
    ):
        if not 1 <= max_head <= MAX_HEAD:
            raise ValueError("the limit of a head must be 1 to 65,535 bytes")
        if max_target < 1 or max_fields < 1:
            raise ValueError("limits must be at least 1")
        self.response = response
        self.max_head = max_head
        self.max_target = max_target
        self.max_fields = max_fields
        self.begin_c()

    def __dealloc__(self):
        PyMem_RawFree(self.fields_c)

    cdef int begin_c(self) noexcept:
        """Forget the last head."""
        self.p = NULL
        self.source = None
        self.at = self.mark = 0
        self.state = OPENING
        self.fault = NO_FAULT
        self.method_c = OTHER_METHOD
        self.method_at = self.n_method = self.target_at = self.n_target = 0
        self.authority_at = self.n_authority = self.path_at = self.query_at = 0
        self.status = self.minor = 0
        self.n_fields = 0
        memset(self.first, 0xFF, sizeof(self.first))
        self.duplicates = 0
        self.chunked = self.has_length = False
        self.length = 0
        self.keeps_alive = self.upgrades = self.expects_continue = False
        self.says_close = self.says_keep_alive = False
        return 0

    # -- scanning ------------------------------------------------------------------------------

    cdef int scan_c(self, const uint8_t *p, size_t n) except -1:
        cdef size_t stop = min(n, self.max_head)
        cdef int got
        self.p = p
        if self.fault != NO_FAULT:
            return HEAD_BAD
        got = self.scan_lines_c(p, stop)
        if got == HEAD_MORE and stop == self.max_head and self.fault == NO_FAULT:
            self.fault = LONG_HEAD
        return HEAD_BAD if self.fault != NO_FAULT else got

    cdef int scan_lines_c(self, const uint8_t *p, size_t n) except -1:
        """As `scan_c`; HEAD_MORE stands for a fault, too."""
        cdef const uint8_t *kinds = classes
        cdef size_t i = self.at
        cdef size_t mark = self.mark
        cdef size_t stop
        cdef int state = self.state
        cdef HttpField *field = &self.fields_c[self.n_fields]
        cdef Fault fault = NO_FAULT
        while i < n:
            if state == FIELD:
                if p[i] == CR:
                    state = END_LF
                    i += 1
                    continue
                if is_blank(p[i]) or p[i] == LF:
                    fault = BARE_LF if p[i] == LF else FOLDED_LINE
                    break
                if self.n_fields == self.room:
                    if self.room == self.max_fields:
                        fault = MANY_FIELDS
                        break
                    self.grow_c()
                field = &self.fields_c[self.n_fields]
                mark = i
                state = FIELD_NAME
            if state == FIELD_NAME:
                i = skip_name(p, i, n)
                if i == n:
                    break
                if p[i] != c':' or i == mark:
                    fault = BAD_NAME
                    if i > mark and is_blank(p[i]):
                        fault = SPACE_BEFORE_COLON
                    break
                field.name = <uint32_t> mark
                field.n_name = <uint16_t> (i - mark)
                i += 1
                state = BEFORE_VALUE
            if state == BEFORE_VALUE:
                while i < n and is_blank(p[i]):
                    i += 1
                if i == n:
                    break
                mark = i
                state = FIELD_VALUE
            if state == FIELD_VALUE:
                i = skip_value(p, i, n)
                if i == n:
                    break
                if p[i] != CR:
                    fault = BARE_LF if p[i] == LF else BAD_VALUE
                    break
                stop = i
                while stop > mark and is_blank(p[stop - 1]):
                    stop -= 1
                field.value = <uint32_t> mark
                field.n_value = <uint32_t> (stop - mark)
                i += 1
                state = FIELD_LF
                if i == n:
                    break
            if state == FIELD_LF or state == LINE_LF:
                if p[i] != LF:
                    fault = BARE_CR
                    break
                if state == FIELD_LF:
                    fault = self.field_c(field)
                    if fault != NO_FAULT:
                        break
                i += 1
                state = FIELD
            elif state == END_LF:
                if p[i] != LF:
                    fault = BARE_CR
                    break
                self.at = i + 1
                fault = self.end_c()
                if fault == NO_FAULT:
                    return HEAD_READY
                break
            elif state == IN_METHOD:
                stop = min(n, mark + MAX_METHOD + 1)
                while i < stop and kinds[p[i]] & IN_TOKEN:
                    i += 1
                if i - mark > MAX_METHOD:
                    fault = LONG_METHOD
                    break
                if i == n:
                    break
                if p[i] != SPACE:
                    fault = BARE_LF if p[i] == LF else BAD_REQUEST_LINE
                    break
                self.method_at = mark
                self.n_method = i - mark
                i += 1
                mark = i
                state = IN_THE_TARGET
            elif state == IN_THE_TARGET:
                stop = min(n, mark + self.max_target + 1)
                while i < stop:
                    if not kinds[p[i]] & IN_TARGET:
                        if p[i] != c'?':
                            break
                        if not self.query_at:
                            self.query_at = i
                    i += 1
                if i - mark > self.max_target:
                    fault = LONG_TARGET
                    break
                if i == n:
                    break
                if p[i] != SPACE or i == mark:
                    fault = BAD_TARGET
                    if p[i] == LF:
                        fault = BARE_LF
                    elif p[i] == SPACE or p[i] == CR:
                        fault = BAD_REQUEST_LINE
                    break
                self.target_at = mark
                self.n_target = i - mark
                i += 1
                mark = i
                state = IN_VERSION
            elif state == IN_VERSION:
                stop = min(n, mark + N_VERSION + 1)
                while i < stop and kinds[p[i]] & IN_VALUE:
                    i += 1
                if i < stop or i - mark > N_VERSION:
                    fault = BARE_LF
                    if i == stop or p[i] != LF:
                        fault = self.request_line_c(mark, i - mark)
                    if fault != NO_FAULT:
                        break
                    i += 1
                    state = LINE_LF
            elif state == IN_STATUS_LINE:
                i = skip_value(p, i, n)
                if i == n:
                    break
                fault = BARE_LF if p[i] == LF else self.status_line_c(mark, i - mark)
                if fault != NO_FAULT:
                    break
                i += 1
                state = LINE_LF
            elif kinds[p[i]] & IN_TOKEN:      # OPENING
                state = IN_STATUS_LINE if self.response else IN_METHOD
            else:
                fault = BARE_LF if p[i] == LF else NOT_HTTP
                break
        self.at = i
        self.mark = mark
        self.state = state
        self.fault = fault
        return HEAD_MORE

    cdef int grow_c(self) except -1:
        """Room for further fields."""
        cdef size_t room = min(max(2 * self.room, <size_t> FIELDS), self.max_fields)
        cdef HttpField *grown = <HttpField *> PyMem_RawRealloc(
            self.fields_c, room * sizeof(HttpField)
        )
        if grown is NULL:
            raise MemoryError("no memory for the header fields")
        self.fields_c = grown
        self.room = room
        return 0

    # -- the first line ------------------------------------------------------------------------

    cdef Fault request_line_c(self, size_t version, size_t n) noexcept:
        """Judge the version, n bytes, and the form of the target."""
        cdef const uint8_t *p = self.p + version
        if n != N_VERSION or p[N_VERSION] != CR or memcmp(p, b"HTTP/", 5) != 0:
            return BAD_REQUEST_LINE
        if not (c'0' <= p[5] <= c'9' and p[6] == c'.' and c'0' <= p[7] <= c'9'):
            return BAD_REQUEST_LINE
        if p[5] != c'1' or p[7] > c'1':
            return OTHER_VERSION
        self.minor = p[7] - c'0'
        self.method_c = <Method> method_of(self.p + self.method_at, self.n_method)
        if self.method_c == CONNECT:
            return CONNECT_METHOD
        return self.target_form_c()

    cdef Fault target_form_c(self) noexcept:
        """Section 3.2: a path, a URL, or the asterisk."""
        cdef const uint8_t *p = self.p + self.target_at
        cdef size_t n = self.n_target
        cdef size_t i, start
        self.path_at = self.target_at
        if p[0] == c'/':
            return NO_FAULT
        if n == 1 and p[0] == c'*':
            return NO_FAULT if self.method_c == OPTIONS else BAD_TARGET_FORM
        if n > 7 and same_name(p, b"http", 4):
            i = 5 if p[4] | 0x20 == c's' else 4
        elif n > 5 and p[0] | 0x20 == c'w' and p[1] | 0x20 == c's':
            i = 3 if p[2] | 0x20 == c's' else 2
        else:
            return BAD_TARGET_FORM
        if i + 3 >= n or p[i] != c':' or p[i + 1] != c'/' or p[i + 2] != c'/':
            return BAD_TARGET_FORM
        i += 3
        start = i
        while i < n and p[i] != c'/' and p[i] != c'?':
            i += 1
        if i == start or p[start] == c':' or not is_host(p + start, i - start):
            return BAD_TARGET_FORM
        self.authority_at = self.target_at + start
        self.n_authority = i - start
        self.path_at = self.target_at + i
        return NO_FAULT

    cdef Fault status_line_c(self, size_t at, size_t n) noexcept:
        """Section 4, of n bytes; the space before an empty reason may be missing."""
        cdef const uint8_t *p = self.p + at
        cdef int i, digit
        if p[n] != CR or n < 12 or memcmp(p, b"HTTP/1.", 7) != 0 or not c'0' <= p[7] <= c'1':
            return BAD_STATUS_LINE
        if p[8] != SPACE or (n > 12 and p[12] != SPACE):
            return BAD_STATUS_LINE
        for i in range(9, 12):
            digit = <int> p[i] - c'0'
            if not 0 <= digit <= 9:
                return BAD_STATUS_LINE
            self.status = 10 * self.status + digit
        if self.status < 100:
            return BAD_STATUS_LINE
        self.minor = p[7] - c'0'
        return NO_FAULT

    # -- the fields ----------------------------------------------------------------------------

    cdef Fault field_c(self, HttpField *field) noexcept:
        """A field is whole: resolve its name, and judge what says where the message ends."""
        cdef int known = known_field(self.p + field.name, field.n_name)
        cdef const uint8_t *p = self.p + field.value
        cdef size_t n = field.n_value
        cdef int members
        cdef Fault fault
        field.known = <int16_t> known
        self.n_fields += 1
        if known < 0:
            return NO_FAULT
        if self.first[known] < 0:
            self.first[known] = <int16_t> (self.n_fields - 1)
        else:
            self.duplicates |= <uint64_t> 1 << known
            if known == CONTENT_LENGTH:
                return TWO_LENGTHS
            if known == TRANSFER_ENCODING:
                return TWO_CODINGS
            if known == HOST and not self.response:
                return TWO_HOSTS
        if known == CONNECTION:
            members = connection_members(p, n)
            self.says_close = self.says_close or members & SAYS_CLOSE
            self.says_keep_alive = self.says_keep_alive or members & SAYS_KEEP_ALIVE
            self.upgrades = self.upgrades or (members & SAYS_UPGRADE and self.minor == 1)
        elif known == CONTENT_LENGTH:
            fault = read_length(p, n, &self.length)
            if fault != NO_FAULT:
                return fault
            self.has_length = True
            return LENGTH_AND_CODING if self.chunked else NO_FAULT
        elif known == TRANSFER_ENCODING:
            fault = check_coding(p, n) if self.minor else OLD_CODING
            if fault != NO_FAULT:
                return fault
            self.chunked = True
            return LENGTH_AND_CODING if self.has_length else NO_FAULT
        elif self.response:
            pass
        elif known == HOST:
            return NO_FAULT if is_host(p, n) else BAD_HOST
        elif known == EXPECT and self.minor:      # HTTP/1.0 has none (RFC 9110 section 10.1.1)
            if n != 12 or not same_name(p, b"100-continue", 12):
                return OTHER_EXPECTATION
            self.expects_continue = True
        return NO_FAULT

    cdef Fault end_c(self) noexcept:
        """The head is whole."""
        self.keeps_alive = not self.says_close and (self.minor == 1 or self.says_keep_alive)
        if self.minor and not self.response and self.first[<int> HOST] < 0:
            return NO_HOST
        return NO_FAULT

    # -- what was found ------------------------------------------------------------------------

    cdef bint value_c(self, KnownField known, Span *value) noexcept:
        cdef int16_t i = self.first[<int> known]
        if i < 0:
            return False
        value.p = self.p + self.fields_c[i].value
        value.n = self.fields_c[i].n_value
        return True

    cdef bint find_c(self, bytes name, Span *value) noexcept:
        cdef const uint8_t *word = <const uint8_t *> PyBytes_AS_STRING(name)
        cdef size_t i, n = <size_t> PyBytes_GET_SIZE(name)
        cdef HttpField *field
        for i in range(self.n_fields):
            field = &self.fields_c[i]
            if field.n_name == n and is_word(self.p + field.name, word, n):
                value.p = self.p + field.value
                value.n = field.n_value
                return True
        return False

    cdef bint twice_c(self, KnownField known) noexcept:
        """Whether the field occurs twice or more often."""
        return self.duplicates >> <int> known & 1

    cdef Span authority_c(self) noexcept:
        cdef Span found = Span(self.p, 0)
        if self.n_authority:
            found.p = self.p + self.authority_at
            found.n = self.n_authority
        else:
            self.value_c(HOST, &found)
        return found

    cdef Span path_c(self) noexcept:
        cdef Span found
        cdef size_t end = self.query_at if self.query_at else self.target_at + self.n_target
        found.p = self.p + self.path_at
        found.n = end - self.path_at
        if found.n == 0 and self.n_target:
            found.p = b"/"
            found.n = 1
        return found

    cdef Span query_c(self) noexcept:
        cdef Span found = Span(NULL, 0)
        if self.query_at:
            found.p = self.p + self.query_at + 1
            found.n = self.target_at + self.n_target - self.query_at - 1
        return found

    # -- for Python ----------------------------------------------------------------------------

    @property
    def failure(self):
        """The status and the sentence of the fault of this head, or None."""
        return None if self.fault == NO_FAULT else failure_of(
            self.fault, self.limit_c(), self.response
        )

    cdef size_t limit_c(self) noexcept:
        """The limit that the fault is about."""
        if self.fault == LONG_METHOD:
            return MAX_METHOD
        if self.fault == LONG_TARGET:
            return self.max_target
        return self.max_fields if self.fault == MANY_FIELDS else self.max_head

    def scan(self, bytes data not None, /):
        """Scan a head without a framer: `data` is all of it that has come, from its first byte on.

        Returns the bytes of the head once it is whole; 0 before, and when it has a fault. The next
        head needs another object.
        """
        self.source = data
        if self.scan_c(
            <const uint8_t *> PyBytes_AS_STRING(data), <size_t> PyBytes_GET_SIZE(data)
        ) == HEAD_READY:
            return self.at
        return 0

    cdef int check_c(self) except -1:
        if self.p is NULL:
            raise RuntimeError("a head is read before the next call of its connection")
        return 0

    cdef str text_c(self, size_t at, size_t n):
        self.check_c()
        return text_of(Span(self.p + at, n))

    @property
    def raw(self):
        """All bytes of the head that have been looked at, as they came."""
        self.check_c()
        return PyBytes_FromStringAndSize(<const char *> self.p, <Py_ssize_t> self.at)

    @property
    def method(self):
        """The method of a request."""
        return self.text_c(self.method_at, self.n_method)

    @property
    def authority(self):
        """The host and port that a request is for: of its target, where that is a URL, or of its
        Host field; empty where there is neither."""
        self.check_c()
        return text_of(self.authority_c())

    @property
    def path(self):
        """The path of a request's target, not decoded, or "*"."""
        self.check_c()
        return text_of(self.path_c())

    @property
    def query(self):
        """The part of a request's target behind the question mark, or None."""
        self.check_c()
        return text_of(self.query_c())

    @property
    def fields(self):
        """The names and values of the fields, in order. A byte is a character of Latin-1."""
        cdef size_t i
        cdef HttpField *field
        cdef list found = []
        self.check_c()
        for i in range(self.n_fields):
            field = &self.fields_c[i]
            found.append((
                self.text_c(field.name, field.n_name),
                self.text_c(field.value, field.n_value),
            ))
        return found


cdef str text_of(Span span):
    """The text of a span, a byte a character of Latin-1; None for one that is absent."""
    if span.p is NULL:
        return None
    return PyUnicode_DecodeLatin1(<const char *> span.p, <Py_ssize_t> span.n, NULL)
