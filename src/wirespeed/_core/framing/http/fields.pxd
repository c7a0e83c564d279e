"""The methods and header fields that the protocol needs, and the values that say how a message
ends.

Sources: RFC 9110, RFC 9112; MCP, basic/transports (Streamable HTTP); LiteMCP, transmission/http.
"""

from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.framing.http.rfc9112 cimport Fault, same_name

cdef enum:
    MIN_NAME = 4              # bytes of the shortest known name
    MAX_NAME = 30             # and of the longest

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
