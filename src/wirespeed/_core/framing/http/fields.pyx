"""The methods and header fields that the protocol needs. The `.pxd` file says what there is."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.framing.http.rfc9112 cimport (
    BAD_CODING,
    BAD_LENGTH,
    IN_HOST,
    IN_LITERAL,
    IN_TOKEN,
    NO_FAULT,
    OTHER_CODING,
    Fault,
    classes,
    is_blank,
    same_name,
)
from wirespeed._core.span cimport Span, span_equals

cdef enum:
    MAX_LENGTH = 19       # digits of a Content-Length: these fit into 64 bits

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
