"""Header fields of a request: its media types, and the fields that must agree with its body
(2026-07-28 basic/transports/streamable-http, "Server Validation").

What routes by a field must see what the server acts on. So a request whose field is missing, occurs
twice, or has another value than the body is refused with -32020. Values are compared where they
lie. Only values that differ as bytes, and values in Base64, are decoded.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport uint64_t, uint8_t
from libc.string cimport memcpy

import re

import msgspec

from wirespeed._core._simd cimport WS_META_PROTOCOL_VERSION, WS_METHOD, WS_NAME, WS_URI
from wirespeed._core.envelope cimport Message, poi_is, span_of
from wirespeed._core.framing.http.rfc9112 cimport (
    KnownField, MCP_METHOD, MCP_NAME, MCP_PROTOCOL_VERSION, is_word,
)
from wirespeed._core.framing.http.head cimport HttpField, HttpHead
from wirespeed._core.slab cimport Lease
from wirespeed._core.span cimport Span

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes

cdef enum:
    N_WORD = 8

cdef dict NAMES = {
    <int> MCP_PROTOCOL_VERSION: "MCP-Protocol-Version",
    <int> MCP_METHOD: "Mcp-Method",
    <int> MCP_NAME: "Mcp-Name",
}
cdef uint64_t ROUTING = (
    (<uint64_t> 1 << <int> MCP_PROTOCOL_VERSION)
    | (<uint64_t> 1 << <int> MCP_METHOD)
    | (<uint64_t> 1 << <int> MCP_NAME)
)

cdef object decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
cdef object decode_value = msgspec.json.decode
cdef object refused = re.compile(r"q=0(?:\.0{0,3})?\Z").match


def check_headers(HttpHead head not None, Message message not None):
    """See the .pxd file."""
    check_headers_c(head, message)


def check_params(HttpHead head not None, tuple fields not None, Lease arguments):
    """See the .pxd file."""
    check_params_c(head, fields, arguments)


cpdef HttpHead copy_of(HttpHead head):
    cdef HttpHead other = HttpHead(
        max_head=head.max_head, max_target=head.max_target, max_fields=head.max_fields
    )
    other.scan(head.raw)
    return other


# -- routing fields --------------------------------------------------------------------------------

cdef int check_headers_c(HttpHead head, Message m) except -1:
    cdef Span name
    if head.duplicates & ROUTING:
        check_equal_c(head)
    if not is_same(head, MCP_PROTOCOL_VERSION, span_of(m, WS_META_PROTOCOL_VERSION)):
        compare_c(head, MCP_PROTOCOL_VERSION, m.text_c(WS_META_PROTOCOL_VERSION))
    if not is_same(head, MCP_METHOD, span_of(m, WS_METHOD)):
        compare_c(head, MCP_METHOD, m.text_c(WS_METHOD))
    if not poi_is(m, WS_METHOD, b'"tools/call"'):
        return check_other_name_c(head, m)
    name = span_of(m, WS_NAME)
    if not is_same(head, MCP_NAME, name) and name.n and name.p[0] == c'"':
        compare_c(head, MCP_NAME, m.text_c(WS_NAME))
    return 0                               # a request without a name is refused for that


cdef bint call_is_same_c(HttpHead head, Message m) noexcept:
    return (
        head.duplicates & ROUTING == 0
        and poi_is(m, WS_METHOD, b'"tools/call"')
        and is_same(head, MCP_METHOD, span_of(m, WS_METHOD))
        and is_same(head, MCP_NAME, span_of(m, WS_NAME))
        and is_same(head, MCP_PROTOCOL_VERSION, span_of(m, WS_META_PROTOCOL_VERSION))
    )


cdef int check_equal_c(HttpHead head) except -1:
    """A field that occurs more than once has one value, where all are equal."""
    cdef dict known = {}
    for name, value in head.fields:
        key = name.lower()
        if known.setdefault(key, value) != value:
            for field in NAMES.values():
                if field.lower() == key:
                    raise mismatch(f"the {field} header occurs more than once")
    return 0


cdef str joined(str text):
    """The value of a field whose values have no commas, where something before us has joined equal
    ones; else the text as it is."""
    cdef set values
    if "," not in text:
        return text
    values = {one.strip() for one in text.split(",")}
    return values.pop() if len(values) == 1 else text


cdef inline bint is_same(HttpHead head, KnownField known, Span text) noexcept:
    """Whether a JSON string has the bytes of a field, all of them ASCII and none a backslash, and
    not the first one of a marker. It may say no where it could say yes."""
    cdef HttpField *field
    cdef const uint8_t *p
    cdef const uint8_t *q
    cdef size_t i = 0, n
    cdef uint64_t a = 0, b = 0, odd
    if head.first[<int> known] < 0 or text.n < 2 or text.p[0] != c'"' or text.p[1] == c'=':
        return False
    field = &head.fields_c[head.first[<int> known]]
    p, q, n = text.p + 1, head.p + field.value, field.n_value
    if text.n != n + 2:
        return False
    if n < N_WORD:
        memcpy(&a, p, n)
        memcpy(&b, q, n)
    else:                                  # the last word may overlap the one before
        memcpy(&a, p + n - N_WORD, N_WORD)
        memcpy(&b, q + n - N_WORD, N_WORD)
    odd = odd_bytes(a)
    while a == b and i + N_WORD < n:
        memcpy(&a, p + i, N_WORD)
        memcpy(&b, q + i, N_WORD)
        odd |= odd_bytes(a)
        i += N_WORD
    return a == b and odd & <uint64_t> 0x8080808080808080 == 0


@cython.overflowcheck(False)               # borrows on purpose
cdef inline uint64_t odd_bytes(uint64_t word) noexcept nogil:
    """The highest bit of a byte: it is a backslash (or may be), or it is not ASCII."""
    cdef uint64_t slash = word ^ <uint64_t> 0x5C5C5C5C5C5C5C5C
    return (slash - <uint64_t> 0x0101010101010101) & ~slash | word


cdef int check_other_name_c(HttpHead head, Message m) except -1:
    """Mcp-Name of any method but tools/call: the parameter that the method's target is in."""
    from wirespeed.protocol.header_values import NAMED_BY

    cdef object source = NAMED_BY.get(m.method), target
    cdef Lease params
    if source is None:
        return 0
    if source != "taskId":
        target = m.text_c(WS_URI if source == "uri" else WS_NAME)
    elif head.first[<int> MCP_NAME] < 0:
        return 0                           # clients of the extension leave it out (FastMCP 4.1)
    else:
        params = m.params
        try:
            target = None if params is None else decode_value(decode_members(params)[source])
        except (KeyError, msgspec.DecodeError):
            target = None
    # a request without a target is refused for that
    return compare_c(head, MCP_NAME, target) if isinstance(target, str) else 0


cdef int compare_c(HttpHead head, KnownField field, str body) except -1:
    """Compare what a field and the body say. ``body`` is None if it says nothing."""
    cdef Span value = Span(NULL, 0)
    cdef str name = NAMES[<int> field], text
    if not head.value_c(field, &value):
        raise mismatch(f"the {name} header is missing")
    text = text_of(value)
    if field == MCP_NAME:
        text = decoded(name, text)
    else:
        text = joined(text)
    if text != body or (field != MCP_NAME and not text.isascii()):
        raise unlike(name, text, body)
    return 0


# -- arguments that are mirrored -------------------------------------------------------------------

cdef int check_params_c(HttpHead head, tuple fields, Lease arguments) except -1:
    from wirespeed.protocol.header_values import MAX_INTEGER, same_value, value_at

    cdef Span span = Span(NULL, 0)
    cdef dict members = {}
    cdef int times
    cdef str name, text
    if arguments is not None:
        try:
            members = decode_members(arguments)
        except msgspec.DecodeError as exc:
            raise mismatch(f"the arguments cannot be compared with it: {exc}") from None
    for field in fields:
        name = field.name
        try:
            value = members.get(field.path[0])
            value = None if value is None else value_at(decode_value(value), field.path[1:])
        except msgspec.DecodeError as exc:
            raise mismatch(f"the argument of {name} cannot be compared with it: {exc}") from None
        times = find_c(head, name.lower().encode(), &span)
        if times > 1:
            raise mismatch(f"the {name} header occurs more than once")
        if times == 1:
            text = decoded(name, text_of(span))
            if not same_value(value, text):
                raise unlike(name, text, value)
        elif isinstance(value, (int, float)) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise mismatch(f"no {name} header has room for the value {shortened(repr(value))}")
        elif isinstance(value, (str, int)) or (isinstance(value, float) and value.is_integer()):
            raise mismatch(f"the {name} header is missing")
        # else it is absent, null, or of a type that the tool does not take
    return 0


cdef int find_c(HttpHead head, bytes name, Span *value) noexcept:
    """Count the fields of a name, and find the value of the last one. The name is in lower case."""
    cdef const uint8_t *word = <const uint8_t *> PyBytes_AS_STRING(name)
    cdef size_t i, n = <size_t> PyBytes_GET_SIZE(name)
    cdef HttpField *field
    cdef int times = 0
    for i in range(head.n_fields):
        field = &head.fields_c[i]
        if field.n_name == n and is_word(head.p + field.name, word, n):
            value.p = head.p + field.value
            value.n = field.n_value
            times += 1
    return times


# -- errors ----------------------------------------------------------------------------------------

cdef str text_of(Span value):
    """A byte is a character of Latin-1."""
    return PyUnicode_DecodeLatin1(<const char *> value.p, <Py_ssize_t> value.n, NULL)


cdef str decoded(str name, str text):
    from wirespeed.protocol.header_values import decode

    try:
        return decode(text)
    except ValueError as exc:
        raise mismatch(f"{name} header value {shortened(text)!a}: {exc}") from None


cdef object unlike(str name, str text, object body):
    if body is None:
        return mismatch(f"{name} header value {shortened(text)!a} has no value in the body")
    body = shortened(body) if isinstance(body, str) else body
    return mismatch(
        f"{name} header value {shortened(text)!a} does not match body value "
        f"{shortened(ascii(body))}"
    )


cdef object mismatch(str what):
    return ProtocolError(codes.HEADER_MISMATCH, f"Header mismatch: {what}")


# -- media types (RFC 9110 sections 8.3.1 and 12.5.1) ---------------------------------------------


def is_json(str content_type not None):
    """Whether a Content-Type is JSON."""
    return content_type.partition(";")[0].strip(" \t").lower() == "application/json"


def accepts(str accept not None):
    """Whether an Accept allows JSON, and whether it allows a stream of events."""
    json = events = False
    for item in accept.lower().split(","):
        kind, *parameters = [part.strip(" \t") for part in item.split(";")]
        if any([refused(parameter) for parameter in parameters]):
            continue
        json = json or kind in ("*/*", "application/*", "application/json")
        events = events or kind in ("*/*", "text/*", "text/event-stream")
    return json, events
