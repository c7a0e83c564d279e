"""The envelope of a message: its kind, and where its members are.

One validating pass (the `json` kernel) finds the members that routing needs; nothing is decoded.
Sources: JSON-RPC 2.0 sections 4-6, MCP basic (messages), and for the answers to malformed input,
the table in docs/architecture.md.
"""

cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memset

from wirespeed._core._simd import POINTS

from wirespeed._core._simd cimport (
    WS_DEPTH, WS_EMPTY, WS_ERROR, WS_ARGUMENTS, WS_ID, WS_ID_ABSENT, WS_ID_INTEGER, WS_ID_INVALID,
    WS_ID_STRING, WS_JSONRPC, WS_METHOD, WS_OK, WS_PARAMS, WS_RESULT, WS_ROOT_ARRAY, WS_ROOT_OBJECT,
    WS_SYNTAX, WS_UTF8, kernels, ws_scan, ws_span, ws_status,
)
from wirespeed._core.json_text cimport unquoted
from wirespeed._core.slab cimport Lease, Slab
from wirespeed._core.span cimport Span

cdef long long n_shown = 0        # of all messages of the process


cdef long long values_shown() noexcept:
    return n_shown


# Parsers disagree about an envelope that has one of these members twice.
cdef enum:
    ENVELOPE_BITS = 0x3F       # the first six POINTS

cdef str NO_USABLE_ID = "a result without a usable id"

cdef dict point_index = {name: i for i, name in enumerate(POINTS)}
cdef tuple KIND_NAMES = (
    "", "request", "notification", "result", "error", "batch", "invalid",
)
cdef tuple FAULT_NAMES = (
    None, "parse", "request", "response", "notification",
)


@cython.final
@cython.freelist(64)           # a connection keeps none while nothing arrives
cdef class Message:
    """One JSON-RPC message, read in place.

    It pins the input memory it lies in, as do the leases taken from it.
    """

    def __init__(self):
        raise TypeError("messages are made by the session, or by wirespeed.core.parse")

    @staticmethod
    cdef Message new():
        return Message.__new__(Message)

    def __dealloc__(self):
        self.drop_c()

    cdef int drop_c(self) noexcept:
        if self.slab is not None:
            self.slab.n_leases -= 1
            self.slab = None
        self.ref = 0
        if self.token is not None:
            self.token = None
        if self.reason is not None:
            self.reason = None
        return 0

    cdef int invalid_c(self, Fault fault, str reason) except -1:
        self.kind_c = INVALID
        self.fault_c = fault
        self.reason = reason
        return 0

    cdef int lost_c(self, Span begin, uint32_t max_id, str reason) except -1:
        """Become an invalid message whose text is not kept, except for its id where that stands in
        the first bytes, before any array or object."""
        cdef ws_span id
        cdef uint8_t id_kind
        cdef bint is_call
        cdef int verdict
        self.drop_c()
        self.n = 0
        # at a depth of 1 the scan ends at the first value that is an array or object
        verdict = kernels.json(begin.p, begin.n, 1, &self.scan)
        if verdict != WS_DEPTH and verdict != WS_OK:    # a whole object: blanks made it too long
            memset(&self.scan, 0, sizeof(ws_scan))
            return self.invalid_c(FAULT_REQUEST, reason)
        self.refuse_c(WS_DEPTH, 1, 0)
        self.reason = reason
        id = self.scan.poi[WS_ID]
        id_kind = self.scan.id_kind
        is_call = self.is_call_c()
        memset(&self.scan, 0, sizeof(ws_scan))
        self.scan.poi[WS_PARAMS].off = is_call
        if 0 < id.len <= max_id:
            # a copy, so that the rest of a long message is not pinned
            self.slab = Slab.borrow((<const char *> begin.p)[id.off:id.off + id.len])
            self.slab.n_leases += 1
            self.p = self.slab.base
            self.scan.poi[WS_ID].len = id.len
            self.scan.id_kind = id_kind
        return 0

    cdef int hold_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        """Pin the text [p, p+n) of the slab, without reading it."""
        self.drop_c()
        self.slab = slab
        slab.n_leases += 1
        self.p = p
        self.n = n
        self.ref = 0
        self.token = None
        memset(&self.scan, 0, sizeof(ws_scan))
        return 0

    cdef int read_c(self, Slab slab, const uint8_t *p, size_t n, uint32_t max_depth) except -1:
        """Read the text [p, p+n) of the slab as one message."""
        cdef ws_status status
        if self.slab is not None:
            self.drop_c()
        self.slab = slab
        slab.n_leases += 1
        self.p = p
        self.n = n
        status = kernels.json(p, n, max_depth, &self.scan)
        if status == WS_OK:
            return self.classify_c()
        return self.refuse_c(status, max_depth, self.scan.error_at)

    cdef int read_element_c(self, Message batch, size_t at, uint32_t max_depth) except -1:
        """Read the value that starts at `at` in a batch as one message. 1: it is JSON of `n` bytes.
        0: it is not JSON, and the batch is invalid."""
        cdef ws_status status
        self.drop_c()
        self.slab = batch.slab
        self.slab.n_leases += 1
        self.p = batch.p + at
        # the array around it is a level too
        if max_depth > 1:
            status = kernels.json_prefix(self.p, batch.n - at, max_depth - 1, &self.scan)
        elif at < batch.n and (self.p[0] == b'[' or self.p[0] == b'{'):
            status = WS_DEPTH
            self.scan.error_at = 0
        else:
            status = kernels.json_prefix(self.p, batch.n - at, 1, &self.scan)
        if status != WS_OK:
            batch.refuse_c(
                WS_SYNTAX if status == WS_EMPTY else status, max_depth, at + self.scan.error_at
            )
            return 0
        self.n = self.scan.end
        self.classify_c()
        if self.kind_c == BATCH:
            self.invalid_c(FAULT_REQUEST, "a batch inside a batch")
        return 1

    cdef int refuse_c(self, ws_status status, uint32_t max_depth, size_t at) except -1:
        """The text is not JSON, or too deep; then `scan` holds what came before."""
        cdef Fault fault = FAULT_REQUEST
        if status == WS_DEPTH:
            if self.scan.root != WS_ROOT_OBJECT or self.scan.duplicates & ENVELOPE_BITS:
                memset(&self.scan, 0, sizeof(ws_scan))
            elif not self.is_call_c() and (
                self.scan.poi[WS_RESULT].off or self.scan.poi[WS_ERROR].off
            ):
                fault = FAULT_RESPONSE
            return self.invalid_c(fault, f"nested deeper than {max_depth} levels")
        memset(&self.scan, 0, sizeof(ws_scan))
        self.scan.error_at = <uint32_t> at
        if status == WS_UTF8:
            return self.invalid_c(FAULT_PARSE, f"not UTF-8 at byte {at}")
        if status == WS_EMPTY:
            return self.invalid_c(FAULT_PARSE, "an empty message")
        return self.invalid_c(FAULT_PARSE, f"not JSON at byte {at}")

    cdef bint is_call_c(self) noexcept:
        """Whether a message, perhaps not read to its end, is a request or a notification."""
        return self.scan.poi[WS_METHOD].len != 0 or self.scan.poi[WS_PARAMS].off != 0

    cdef int classify_c(self) except -1:
        cdef bint has_method = self.scan.poi[WS_METHOD].len != 0
        cdef bint has_result = self.scan.poi[WS_RESULT].len != 0
        cdef bint has_error = self.scan.poi[WS_ERROR].len != 0
        cdef uint8_t id_kind = self.scan.id_kind
        cdef bint good_id = id_kind == WS_ID_INTEGER or id_kind == WS_ID_STRING
        cdef Span s
        self.fault_c = FAULT_NONE
        if self.scan.root != WS_ROOT_OBJECT:
            if self.scan.root == WS_ROOT_ARRAY:
                self.kind_c = BATCH
                return 0
            return self.invalid_c(FAULT_REQUEST, "not a JSON object")
        if self.scan.duplicates & ENVELOPE_BITS:
            return self.classify_duplicates_c()
        if has_method + has_result + has_error > 1:
            # serializers that write every member of their class: a null says nothing here
            if has_error and self.is_nothing_c(WS_ERROR):
                has_error = False
            if has_result and (has_method or has_error) and self.is_nothing_c(WS_RESULT):
                has_result = False
            if has_method and (has_result or has_error) and self.is_nothing_c(WS_METHOD):
                has_method = False
        if has_method and not has_result and not has_error:
            s = span_of(self, WS_METHOD)
            if not good_id and id_kind != WS_ID_ABSENT:
                return self.invalid_c(FAULT_REQUEST, "id must be a string or an integer")
            if not plain_version(self) and not self.version_c():
                return self.invalid_c(
                    FAULT_REQUEST if good_id else FAULT_NOTIFICATION, 'jsonrpc must be "2.0"'
                )
            if s.p[0] != b'"':
                return self.invalid_c(FAULT_REQUEST, "method must be a string")
            if self.scan.poi[WS_PARAMS].len and self.p[self.scan.poi[WS_PARAMS].off] != b'{':
                if not self.is_nothing_c(WS_PARAMS):
                    return self.invalid_c(
                        FAULT_REQUEST if good_id else FAULT_NOTIFICATION, "params must be an object"
                    )
            elif (
                self.scan.poi[WS_ARGUMENTS].len
                and self.p[self.scan.poi[WS_ARGUMENTS].off] != b'{'
            ):
                self.is_nothing_c(WS_ARGUMENTS)     # else whoever reads arguments refuses them
            if self.scan.duplicates:
                return self.invalid_c(
                    FAULT_REQUEST if good_id else FAULT_NOTIFICATION,
                    "a member of params stands there twice",
                )
            self.kind_c = REQUEST if good_id else NOTIFICATION
            return 0
        if has_method:
            return self.invalid_c(FAULT_REQUEST, "both a request and a response")
        if not has_result and not has_error:
            return self.invalid_c(
                FAULT_REQUEST, "neither method, result nor error: not a message"
            )
        if not plain_version(self) and not self.version_c():
            return self.invalid_c(FAULT_RESPONSE, 'jsonrpc must be "2.0"')
        if has_result and has_error:
            return self.invalid_c(FAULT_RESPONSE, "both result and error")
        if has_error:
            if self.p[self.scan.poi[WS_ERROR].off] != b'{':
                return self.invalid_c(FAULT_RESPONSE, "error must be an object")
            self.kind_c = ERROR
            return 0
        if not good_id:
            return self.invalid_c(FAULT_RESPONSE, NO_USABLE_ID)
        self.kind_c = RESULT
        return 0

    cdef bint lacks_only_id_c(self) noexcept:
        """Whether this would be a response with a result if its id were a string or an integer."""
        return self.reason is NO_USABLE_ID

    cdef bint is_nothing_c(self, int which) noexcept:
        """Whether a value can mean only that there is none: null or, for params and arguments, an
        array without elements. Then its length becomes 0, as if it were absent; its `off` stays."""
        cdef Span s = span_of(self, which)
        if s.n == 0 or nothing_c(s.p, which == WS_PARAMS or which == WS_ARGUMENTS) != s.n:
            return False
        self.scan.poi[which].len = 0
        return True

    cdef int classify_duplicates_c(self) except -1:
        """A member of the message occurs twice: what the message says is ambiguous, but not whether
        it needs an answer."""
        cdef Fault fault = FAULT_REQUEST
        if self.scan.duplicates >> WS_ID & 1:
            self.scan.id_kind = WS_ID_INVALID       # ambiguous: neither is echoed
        if self.scan.poi[WS_METHOD].len:
            if self.scan.id_kind == WS_ID_ABSENT:
                fault = FAULT_NOTIFICATION
        elif self.scan.poi[WS_RESULT].len or self.scan.poi[WS_ERROR].len:
            fault = FAULT_RESPONSE
        return self.invalid_c(fault, "a member of the message stands there twice")

    cdef bint version_c(self) except -1:
        return plain_version(self) or self.text_c(WS_JSONRPC) == "2.0"

    cdef Lease lease_c(self, int which):
        global n_shown
        cdef Span s = span_of(self, which)
        if s.n == 0:
            return None
        n_shown += 1
        return Lease.of(self.slab, s.p, s.n)

    cdef str text_c(self, int which):
        """The string at a point of interest, decoded; None when it is absent or not a string."""
        global n_shown
        cdef Span s = span_of(self, which)
        if s.n < 2 or s.p[0] != b'"':
            return None
        n_shown += 1
        if memchr(s.p, b'\\', s.n) is NULL:
            return PyUnicode_DecodeUTF8(<const char *> s.p + 1, <Py_ssize_t> s.n - 2, NULL)
        return unquoted((<const char *> s.p)[:s.n])

    # -- for Python ----------------------------------------------------------------------------

    @property
    def kind(self):
        """"request", "notification", "result", "error", "batch" or "invalid"."""
        return KIND_NAMES[self.kind_c]

    @property
    def fault(self):
        """Of an invalid message: "parse" (-32700), "request" (-32600), "response" or
        "notification" (both never answered); None otherwise."""
        return FAULT_NAMES[self.fault_c]

    @property
    def id(self):
        """The id as int or str; None when it is absent or must not be echoed.

        ValueError for an integer of more digits than int() accepts; use `raw_id`.
        """
        if self.scan.id_kind == WS_ID_INTEGER:
            return int(self.raw_id)
        if self.scan.id_kind == WS_ID_STRING:
            return unquoted(self.raw_id)
        return None

    @property
    def raw_id(self):
        """The exact JSON text of the id; None when it is absent or must not be echoed."""
        global n_shown
        cdef Span s = span_of(self, WS_ID)
        if not valid_id(self):
            return None
        n_shown += 1
        return (<const char *> s.p)[:s.n]

    @property
    def method(self):
        """The name of the method; None for a response."""
        return self.text_c(WS_METHOD)

    @property
    def params(self):
        """A lease of the params, or None."""
        return self.lease_c(WS_PARAMS)

    @property
    def result(self):
        """A lease of the result, or None."""
        return self.lease_c(WS_RESULT)

    @property
    def error(self):
        """A lease of the error object, or None."""
        return self.lease_c(WS_ERROR)

    @property
    def raw(self):
        """A lease of the whole message; None for a message that was too long to be kept."""
        global n_shown
        if self.slab is None or (self.n == 0 and self.scan.poi[WS_ID].len):
            return None
        n_shown += 1
        return Lease.of(self.slab, self.p, self.n)

    def lease(self, point, /):
        """A lease of one point of interest (see ``wirespeed.core.POINTS``), or None.

        KeyError for an unknown name.
        """
        return self.lease_c(point_index[point])

    def text(self, point, /):
        """The string at one point of interest, decoded; None when absent or not a string."""
        return self.text_c(point_index[point])

    def __repr__(self):
        if self.kind_c == INVALID:
            return f"<Message invalid: {self.reason}>"
        parts = ["<Message", self.kind]
        if valid_id(self):
            parts.append(f"id={self.raw_id[:40].decode('utf-8', 'replace')}")
        if self.kind_c in (REQUEST, NOTIFICATION):
            parts.append(self.method[:80])
        return f"{' '.join(parts)}, {self.n} bytes>"


cdef size_t nothing_c(const uint8_t *p, bint may_be_array) noexcept:
    cdef size_t n = 1
    if p[0] == c'n':
        return 4
    if may_be_array and p[0] == c'[':
        while p[n] == c' ' or p[n] == c'\t' or p[n] == c'\n' or p[n] == c'\r':
            n += 1
        if p[n] == c']':
            return n + 1
    return 0


cdef inline bint plain_version(Message m) noexcept:
    """Whether the version is the right one, spelled without escapes."""
    cdef Span s = span_of(m, WS_JSONRPC)
    return s.n == 5 and memcmp(s.p, b'"2.0"', 5) == 0


def parse(data, /, *, uint32_t max_depth=128):
    """Read one message from a contiguous bytes-like object, without copying it.

    Bad input does not raise: the message is "invalid" and has a reason.
    """
    cdef Slab slab = Slab.borrow(data)
    cdef Message message = Message.new()
    if not 1 <= max_depth <= 1024:
        raise ValueError("max_depth must be 1 to 1024")
    if slab.capacity > 0xFFFFFFFF:
        raise ValueError("a message of 4 GiB or more")
    message.read_c(slab, slab.base, slab.capacity, max_depth)
    return message
