"""HTTP/1.1 as data: classes of bytes, the faults of a message, the methods and header fields that
the protocol needs, and the values that say how a message ends.

Sources: RFC 9110, RFC 9112; MCP, basic/transports (Streamable HTTP); LiteMCP, transmission/http.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy


cdef enum:
    # What a byte may be a part of: bits of `classes`.
    IN_TOKEN = 1          # RFC 9110 section 5.6.2
    IN_VALUE = 2          # of a field (section 5.5): no control character but the tab
    IN_TARGET = 4         # a URI's characters but "?" and "#", and \ ^ ` { | }, which browsers send
    IN_HOST = 8           # of a registered name or an IPv4 address (RFC 3986 section 3.2.2)
    IN_LITERAL = 16       # of an address in brackets
    IN_QUOTES = 32        # of a quoted string, but for the backslash (RFC 9110 section 5.6.4)

    MIN_NAME = 4          # bytes of the shortest known name of a field
    MAX_NAME = 30         # and of the longest

    SPACE = 0x20
    TAB = 0x09
    CR = 0x0D
    LF = 0x0A

# The sentences are in the .pyx file, in this order.
cdef enum Fault:
    NO_FAULT
    # the first line
    NOT_HTTP
    BAD_REQUEST_LINE
    LONG_METHOD
    LONG_TARGET
    BAD_TARGET
    BAD_TARGET_FORM
    CONNECT_METHOD
    OTHER_VERSION
    BAD_STATUS_LINE
    # lines
    BARE_LF
    BARE_CR
    FOLDED_LINE
    BAD_NAME
    SPACE_BEFORE_COLON
    BAD_VALUE
    LONG_HEAD
    MANY_FIELDS
    # fields
    NO_HOST
    TWO_HOSTS
    BAD_HOST
    TWO_LENGTHS
    BAD_LENGTH
    TWO_CODINGS
    BAD_CODING
    OTHER_CODING
    OLD_CODING
    LENGTH_AND_CODING
    OTHER_EXPECTATION
    # bodies
    LONG_BODY
    BAD_CHUNK_SIZE
    BAD_CHUNK_EXTENSION
    BAD_CHUNK_END
    LONG_CHUNK_LINES
    CUT_SHORT
    N_FAULTS


cdef const uint8_t *classes

cdef tuple failure_of(Fault fault, size_t limit, bint response)


cdef inline bint is_blank(uint8_t c) noexcept nogil:
    """Optional white space (RFC 9110 section 5.6.3)."""
    return c <= SPACE and (c == SPACE or c == TAB)


cdef inline bint same_name(const uint8_t *p, const uint8_t *name, size_t n) noexcept nogil:
    """Whether a name or a value is a word of letters, digits and hyphens in lower case; both have n
    bytes, at least 4. Only capital letters and control characters, which stand neither in names nor
    in values, become others of these by the bit 0x20."""
    cdef uint64_t a = 0, b = 0
    cdef uint32_t c = 0, d = 0
    cdef size_t i = 0
    if n < 8:
        memcpy(&c, p, 4)
        memcpy(&d, name, 4)
        if c | <uint32_t> 0x20202020 != d:
            return False
        memcpy(&c, p + n - 4, 4)
        memcpy(&d, name + n - 4, 4)
        return c | <uint32_t> 0x20202020 == d
    memcpy(&a, p + n - 8, 8)
    memcpy(&b, name + n - 8, 8)
    if a | <uint64_t> 0x2020202020202020 != b:
        return False
    while i + 8 < n:
        memcpy(&a, p + i, 8)
        memcpy(&b, name + i, 8)
        if a | <uint64_t> 0x2020202020202020 != b:
            return False
        i += 8
    return True


# Words of eight bytes: the highest bit of each byte tells something of it.
cdef enum:
    N_WORD = 8

cdef extern from * nogil:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define ws_first_marked(marks) ((size_t) (__builtin_ctzll(marks) >> 3))
    #else
    #define ws_first_marked(marks) ((size_t) 0) /* the bytes are looked at one by one */
    #endif
    """
    # The number of the first byte that is marked; there is one. A place before it is right, too.
    size_t ws_first_marked(uint64_t marks)


@cython.overflowcheck(False)           # borrows on purpose
cdef inline size_t skip_value(const uint8_t *p, size_t i, size_t n) noexcept nogil:
    """The first place from i on whose byte does not belong to the value of a field, or n."""
    cdef uint64_t word = 0, low, marks
    while i + N_WORD <= n:
        memcpy(&word, p + i, N_WORD)
        low = word & <uint64_t> 0x7F7F7F7F7F7F7F7F
        # below 0x20, or 0x7F
        marks = (
            ~(low + <uint64_t> 0x6060606060606060) | (low + <uint64_t> 0x0101010101010101)
        ) & ~word & <uint64_t> 0x8080808080808080
        if marks:
            i += ws_first_marked(marks)
            break
        i += N_WORD
    while i < n and classes[p[i]] & IN_VALUE:
        i += 1
    return i


@cython.overflowcheck(False)           # carries on purpose
cdef inline size_t skip_name(const uint8_t *p, size_t i, size_t n) noexcept nogil:
    """The first place from i on whose byte does not belong to a token, or n."""
    cdef uint64_t word = 0, low, folded, marks
    while i + N_WORD <= n:
        memcpy(&word, p + i, N_WORD)
        low = word & <uint64_t> 0x7F7F7F7F7F7F7F7F
        folded = low | <uint64_t> 0x2020202020202020
        # neither a letter nor a hyphen
        marks = (
            ~(folded + <uint64_t> 0x1F1F1F1F1F1F1F1F) | (folded + <uint64_t> 0x0505050505050505)
        ) & ((low ^ <uint64_t> 0x2D2D2D2D2D2D2D2D) + <uint64_t> 0x7F7F7F7F7F7F7F7F)
        marks = (marks | word) & <uint64_t> 0x8080808080808080
        if marks:
            i += ws_first_marked(marks)
            break
        i += N_WORD
    while i < n and classes[p[i]] & IN_TOKEN:
        i += 1
    return i


cdef inline bint is_word(const uint8_t *p, const uint8_t *word, size_t n) noexcept nogil:
    """Whether n bytes are a word in lower case, which may hold digits and any character of tokens;
    case does not matter."""
    cdef size_t i
    cdef uint8_t c
    for i in range(n):
        c = p[i]
        if c'A' <= c <= c'Z':
            c |= 0x20
        if c != word[i]:
            return False
    return True


cdef enum Method:
    OTHER_METHOD
    POST
    GET
    DELETE
    HEAD
    OPTIONS
    PUT
    PATCH
    CONNECT
    N_METHODS

# In the order of their names in the .pyx file.
cdef enum KnownField:
    UNKNOWN_FIELD = -1
    HOST
    DATE
    ACCEPT
    EXPECT
    ORIGIN
    UPGRADE
    MCP_NAME
    LOCATION
    FORWARDED
    CONNECTION
    MCP_METHOD
    RETRY_AFTER
    CONTENT_TYPE
    AUTHORIZATION
    LAST_EVENT_ID
    CONTENT_LENGTH
    MCP_SESSION_ID
    AUTHENTICATION
    X_FORWARDED_FOR
    CONTENT_ENCODING
    WWW_AUTHENTICATE
    X_FORWARDED_HOST
    TRANSFER_ENCODING
    X_FORWARDED_PROTO
    MCP_PROTOCOL_VERSION
    ACCESS_CONTROL_REQUEST_METHOD
    ACCESS_CONTROL_REQUEST_HEADERS
    N_KNOWN

# Members of Connection (RFC 9110 section 7.6.1): bits.
cdef enum:
    SAYS_CLOSE = 1
    SAYS_KEEP_ALIVE = 2
    SAYS_UPGRADE = 4

cdef struct KnownNames:
    const uint8_t *text[N_KNOWN]
    int first[MAX_NAME + 1]   # the first known name of a length, or -1
    int next[N_KNOWN]         # the next one of the same length, or -1


cdef const KnownNames *known_names

cdef int method_of(const uint8_t *p, size_t n) noexcept
cdef Fault read_length(const uint8_t *p, size_t n, uint64_t *length) noexcept
cdef Fault check_coding(const uint8_t *p, size_t n) noexcept
cdef int connection_members(const uint8_t *p, size_t n) noexcept
cdef bint is_host(const uint8_t *p, size_t n) noexcept


cdef inline int known_field(const uint8_t *p, size_t n) noexcept:
    """The KnownField with a name of n bytes at p, or UNKNOWN_FIELD."""
    cdef int known
    if not MIN_NAME <= n <= MAX_NAME:
        return UNKNOWN_FIELD
    known = known_names.first[n]
    while known >= 0 and not same_name(p, known_names.text[known], n):
        known = known_names.next[known]
    return known
