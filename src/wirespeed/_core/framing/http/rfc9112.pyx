"""HTTP/1.1 as data. The `.pxd` file says what there is."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.span cimport Span, span_equals

cdef enum:
    MAX_LENGTH = 19       # digits of a Content-Length: these fit into 64 bits

cdef uint8_t table[256]
classes = table

cdef bytes ALNUM = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef int mark_class(bytes members, int bit) except -1:
    cdef uint8_t c
    for c in members:
        table[c] = <uint8_t> (table[c] | bit)
    return 0


mark_class(ALNUM + b"!#$%&'*+-.^_`|~", IN_TOKEN)
mark_class(b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)), IN_VALUE)
mark_class(ALNUM + b"-._~:/[]@!$&'()*+,;=%\\^`{|}", IN_TARGET)
mark_class(ALNUM + b"-._~!$&'()*+,;=%", IN_HOST)
mark_class(ALNUM + b"-._~!$&'()*+,;=:", IN_LITERAL)
mark_class(
    b"\t !" + bytes(range(0x23, 0x5C)) + bytes(range(0x5D, 0x7F)) + bytes(range(0x80, 0x100)),
    IN_QUOTES,
)

# Status and sentence of each Fault; "{}" stands for the limit.
cdef tuple FAULTS = (
    (500, "there is no fault"),
    (400, "this is not an HTTP request"),
    (400, "the first line is not a method, a target and a version with one space between them"),
    (501, "the method has more than {} characters"),
    (414, "the target has more than {} bytes"),
    (400, "the target has a character that a URI does not have"),
    (400, "the target is neither a path nor an http URL"),
    (501, "CONNECT is a method of proxies"),
    (505, "the HTTP version is neither 1.0 nor 1.1"),
    (502, "the first line is not an HTTP version, a status of three digits and a reason"),
    (400, "a line ends with a newline without a carriage return"),
    (400, "a carriage return is not followed by a newline"),
    (400, "a header line begins with white space"),
    (400, "the name of a header field is not a token"),
    (400, "white space stands between the name of a header field and its colon"),
    (400, "the value of a header field has a control character"),
    (431, "the head has more than {} bytes"),
    (431, "the head has more than {} header fields"),
    (400, "the Host field is missing"),
    (400, "the Host field occurs twice"),
    (400, "the Host field is not a host with an optional port"),
    (400, "the Content-Length field occurs twice"),
    (400, "the Content-Length field is not one decimal number of at most 19 digits"),
    (400, "the Transfer-Encoding field occurs twice"),
    (400, "the Transfer-Encoding field does not end with chunked"),
    (501, "the only supported transfer coding is chunked"),
    (400, "HTTP/1.0 has no Transfer-Encoding field"),
    (400, "the fields Content-Length and Transfer-Encoding occur together"),
    (417, "the only supported expectation is 100-continue"),
    (413, "the body has more than {} bytes"),
    (400, "the size of a chunk is not a hexadecimal number of at most 16 digits"),
    (400, "the extension of a chunk is malformed"),
    (400, "a chunk is not followed by the end of a line"),
    (431, "the chunk extensions and trailers of a body have more than {} bytes"),
    (400, "the stream ended inside a message"),
)
assert len(FAULTS) == <int> N_FAULTS


cdef tuple failure_of(Fault fault, size_t limit, bint response):
    """The status of a fault and its sentence. The status of a response's fault is 502."""
    status, sentence = FAULTS[<int> fault]
    return (502 if response else status), sentence.format(limit)


# In the order of Method, from POST on.
cdef tuple METHODS = (b"POST", b"GET", b"DELETE", b"HEAD", b"OPTIONS", b"PUT", b"PATCH", b"CONNECT")
assert len(METHODS) + 1 == <int> N_METHODS

# In the order of KnownField.
cdef tuple NAMES = (
    b"host", b"date", b"accept", b"expect", b"origin", b"upgrade", b"mcp-name", b"location",
    b"forwarded", b"connection", b"mcp-method", b"retry-after", b"content-type", b"authorization",
    b"last-event-id", b"content-length", b"mcp-session-id", b"authentication",
    b"x-forwarded-for", b"content-encoding", b"www-authenticate", b"x-forwarded-host",
    b"transfer-encoding", b"x-forwarded-proto", b"mcp-protocol-version",
    b"access-control-request-method", b"access-control-request-headers",
)
assert len(NAMES) == <int> N_KNOWN

cdef Span methods[N_METHODS]
cdef KnownNames names
known_names = &names


cdef int list_names() except -1:
    cdef int i
    cdef Py_ssize_t n
    for i in range(1, <int> N_METHODS):
        methods[i].p = <const uint8_t *> PyBytes_AS_STRING(METHODS[i - 1])
        methods[i].n = <size_t> PyBytes_GET_SIZE(METHODS[i - 1])
    for i in range(<int> MAX_NAME + 1):
        names.first[i] = -1
    for i in reversed(range(N_KNOWN)):
        n = PyBytes_GET_SIZE(NAMES[i])
        names.text[i] = <const uint8_t *> PyBytes_AS_STRING(NAMES[i])
        names.next[i] = names.first[n]
        names.first[n] = i
    return 0


list_names()


cdef int method_of(const uint8_t *p, size_t n) noexcept:
    """The Method with a name of n bytes at p."""
    cdef int i
    for i in range(1, <int> N_METHODS):
        if span_equals(methods[i], <const char *> p, n):
            return i
    return OTHER_METHOD


cdef Fault read_length(const uint8_t *p, size_t n, uint64_t *length) noexcept:
    """Content-Length (RFC 9110 section 8.6): digits alone."""
    cdef size_t i
    cdef uint64_t found = 0
    if not 1 <= n <= MAX_LENGTH:
        return BAD_LENGTH
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return BAD_LENGTH
        found = 10 * found + (p[i] - c'0')
    length[0] = found
    return NO_FAULT


cdef Fault check_coding(const uint8_t *p, size_t n) noexcept:
    """Transfer-Encoding (RFC 9112 section 6.1): chunked alone. Codings before it are not supported,
    and without it the body has no end."""
    if n < 7 or not same_name(p + n - 7, b"chunked", 7):
        return BAD_CODING
    if n == 7:
        return NO_FAULT
    n -= 7
    while n and is_blank(p[n - 1]):
        n -= 1
    if n < 2 or p[n - 1] != c',' or not classes[p[0]] & IN_TOKEN:
        return BAD_CODING
    return OTHER_CODING


cdef int connection_members(const uint8_t *p, size_t n) noexcept:
    """The members of a Connection field that matter here (RFC 9110 section 7.6.1)."""
    cdef int found = 0
    cdef size_t i = 0, start, end
    while i < n:
        while i < n and (p[i] == c',' or is_blank(p[i])):
            i += 1
        start = i
        while i < n and p[i] != c',':
            i += 1
        end = i
        while end > start and is_blank(p[end - 1]):
            end -= 1
        if end - start == 5 and same_name(p + start, b"close", 5):
            found |= SAYS_CLOSE
        elif end - start == 10 and same_name(p + start, b"keep-alive", 10):
            found |= SAYS_KEEP_ALIVE
        elif end - start == 7 and same_name(p + start, b"upgrade", 7):
            found |= SAYS_UPGRADE
    return found


cdef bint is_host(const uint8_t *p, size_t n) noexcept:
    """uri-host [ ":" port ] (RFC 9110 section 7.2); it may be empty."""
    cdef const uint8_t *kinds = classes
    cdef size_t i = 0
    if n and p[0] == c'[':
        i = 1
        while i < n and kinds[p[i]] & IN_LITERAL:
            i += 1
        if i < 3 or i == n or p[i] != c']':
            return False
        i += 1
    else:
        while i < n and kinds[p[i]] & IN_HOST:
            i += 1
    if i < n and p[i] == c':':
        i += 1
        while i < n and c'0' <= p[i] <= c'9':
            i += 1
    return i == n
