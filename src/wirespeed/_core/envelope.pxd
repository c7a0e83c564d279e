from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from wirespeed._core._simd cimport (
    WS_META_CLIENT_CAPABILITIES, WS_META_CLIENT_INFO, WS_META_PROTOCOL_VERSION, WS_METHOD, ws_scan,
    ws_status,
)
from wirespeed._core.slab cimport Lease, Slab
from wirespeed._core.span cimport Span


cdef enum Kind:
    REQUEST = 1
    NOTIFICATION = 2
    RESULT = 3            # a response with a result
    ERROR = 4             # a response with an error
    BATCH = 5             # an array
    INVALID = 6           # not a message; `fault` says whether the sender gets an answer


cdef enum Fault:
    FAULT_NONE = 0
    FAULT_PARSE = 1           # not JSON, or not UTF-8: -32700
    FAULT_REQUEST = 2         # JSON, but not a message: -32600
    FAULT_RESPONSE = 3        # a broken response: fails the matching request, is never answered
    FAULT_NOTIFICATION = 4    # a broken notification: never answered


# One message, read in place. All fields are read only. A message that `MessageReader.next_c` or
# `Session.next_c` returned is used again once no other reference is left: hold it (a local
# variable), not only its spans.
cdef class Message:
    cdef Slab slab                # pinned while the message is alive
    cdef const uint8_t *p         # first byte of the text
    cdef size_t n
    cdef ws_scan scan             # where its members are: see `span_of`
    cdef Kind kind_c
    cdef Fault fault_c
    cdef readonly str reason      # of a fault, for people
    cdef readonly uint64_t ref    # of an inbound request: its place in the in-flight table
    cdef readonly object token    # of a response: its caller's token; see Session

    # An empty message for `read_c`, which reads the text [p, p+n) of a slab and pins it. It may be
    # read into again. `drop_c` ends the pin.
    @staticmethod
    cdef Message new()
    cdef int lost_c(self, Span begin, uint32_t max_id, str reason) except -1
    cdef bint is_call_c(self) noexcept
    cdef int hold_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    cdef int read_c(self, Slab slab, const uint8_t *p, size_t n, uint32_t max_depth) except -1
    cdef int refuse_c(self, ws_status status, uint32_t max_depth, size_t at) except -1
    cdef bint version_c(self) except -1
    cdef int read_element_c(self, Message batch, size_t at, uint32_t max_depth) except -1
    cdef int classify_duplicates_c(self) except -1
    cdef int invalid_c(self, Fault fault, str reason) except -1
    cdef int classify_c(self) except -1
    cdef bint lacks_only_id_c(self) noexcept
    cdef bint is_nothing_c(self, int which) noexcept
    cdef int drop_c(self) noexcept
    # The raw JSON text of a point of interest (WS_…), or None; its string, decoded, or None.
    cdef Lease lease_c(self, int which)
    cdef str text_c(self, int which)


# The length of a JSON value that can mean only that there is none: null and, where that may be, an
# array without elements; else 0.
cdef size_t nothing_c(const uint8_t *p, bint may_be_array) noexcept


# How many values of messages became leases, texts or strings, in this process: nothing else of a
# message can be decoded.
cdef long long values_shown() noexcept


cdef inline Span span_of(Message m, int which) noexcept:
    """The raw JSON text of a point of interest; n == 0 when it is absent."""
    cdef Span s
    s.p = m.p + m.scan.poi[which].off
    s.n = m.scan.poi[which].len
    return s


cdef inline bint poi_is(Message m, int which, bytes text) noexcept:
    """Whether a point of interest is exactly this JSON text (a string with its quotes)."""
    cdef Span s = span_of(m, which)
    return s.n == <size_t> PyBytes_GET_SIZE(text) and memcmp(
        s.p, PyBytes_AS_STRING(text), s.n
    ) == 0


cdef inline bint method_is(Message m, bytes text, str name) except -1:
    """Whether the method is `name`; `text` is its JSON text. The message may spell it with escapes:
    some encoders write "tools\\/call"."""
    cdef Span s
    if poi_is(m, WS_METHOD, text):
        return True
    s = span_of(m, WS_METHOD)
    return memchr(s.p, c'\\', s.n) is not NULL and m.text_c(WS_METHOD) == name


cdef inline bint is_modern(Message m) noexcept:
    """Whether a request carries a member of the modern envelope."""
    return (
        m.scan.poi[WS_META_PROTOCOL_VERSION].len != 0
        or m.scan.poi[WS_META_CLIENT_CAPABILITIES].len != 0
        or m.scan.poi[WS_META_CLIENT_INFO].len != 0
    )


cdef inline bint valid_id(Message m) noexcept:
    """Whether the id is one that may be echoed: a string or an integer."""
    return m.scan.id_kind == 1 or m.scan.id_kind == 2
