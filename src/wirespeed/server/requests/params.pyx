"""The params of a request: its era, its target, and what else it brings."""

import msgspec

from wirespeed._core._simd cimport (
    WS_ARGUMENTS, WS_ID, WS_META, WS_META_CLIENT_CAPABILITIES, WS_META_CLIENT_INFO,
    WS_META_LOG_LEVEL, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_NAME, WS_PARAMS, WS_URI,
)
from wirespeed._core.envelope cimport Message, nothing_c, poi_is, span_of
from wirespeed._core.span cimport Span

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.messages import RoundInput, TaskInput
from wirespeed.protocol.revisions import (
    LOG_LEVELS, META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION, MODERN_VERSIONS,
)

cdef enum:
    MAX_TEXT = 1024            # characters that `described` keeps of one text

# The bytes of a member besides its value: its name, two quotes, a colon and a comma.
cdef size_t VERSION_MEMBER = len(META_PROTOCOL_VERSION) + 4
cdef size_t CAPABILITIES_MEMBER = len(META_CLIENT_CAPABILITIES) + 4
cdef size_t INFO_MEMBER = len(META_CLIENT_INFO) + 4

cdef str TOOLS_CALL = "tools/call"
cdef str LATEST = max(MODERN_VERSIONS)
cdef bytes LATEST_JSON = msgspec.json.encode(LATEST)
cdef object decode_rounds = msgspec.json.Decoder(RoundInput).decode
cdef object decode_task = msgspec.json.Decoder(TaskInput).decode


def check_envelope(Message m not None):
    """See the .pxd file."""
    check_envelope_c(m)


cdef int check_envelope_c(Message m) except -1:
    cdef Span s
    if (
        not poi_is(m, WS_META_PROTOCOL_VERSION, LATEST_JSON)
        and m.text_c(WS_META_PROTOCOL_VERSION) is None
    ):
        raise ProtocolError(
            codes.INVALID_PARAMS,
            "params._meta must have io.modelcontextprotocol/protocolVersion, a string",
        )
    s = span_of(m, WS_META_CLIENT_CAPABILITIES)
    if s.n == 0 or (s.p[0] != c'{' and (s.p[0] != c'[' or nothing_c(s.p, True) != s.n)):
        raise ProtocolError(
            codes.INVALID_PARAMS,
            "params._meta must have io.modelcontextprotocol/clientCapabilities, an object",
        )
    s = span_of(m, WS_META_CLIENT_INFO)
    if s.n and s.p[0] != c'{' and nothing_c(s.p, False) != s.n:
        raise ProtocolError(
            codes.INVALID_PARAMS, "io.modelcontextprotocol/clientInfo must be an object"
        )
    s = span_of(m, WS_META_LOG_LEVEL)
    if s.n and m.text_c(WS_META_LOG_LEVEL) not in LOG_LEVELS and nothing_c(s.p, False) != s.n:
        raise ProtocolError(
            codes.INVALID_PARAMS,
            f"io.modelcontextprotocol/logLevel must be one of {', '.join(LOG_LEVELS)}",
        )
    return 0


cdef inline size_t member_c(Message m, int which, size_t around) noexcept:
    """The length of a member in compact JSON; 0 where it is absent."""
    cdef size_t n = span_of(m, which).n
    return n + around if n else 0


cdef bint has_other_params_c(Message m) noexcept:
    """Whether tools/call may have params besides name, arguments and _meta: True if white space
    makes that unclear."""
    cdef size_t known = (
        2 + member_c(m, WS_NAME, 8) + member_c(m, WS_ARGUMENTS, 13) + member_c(m, WS_META, 9)
    )
    return span_of(m, WS_PARAMS).n >= known + 9     # at least ',"task":{}'


cdef str name_of(Message m):
    """The target of a request. The method decides where it is: a request may have other members."""
    return m.text_c(WS_URI if m.method.startswith("resources/") else WS_NAME)


cdef str cut_c(str text):
    return text if text is None or len(text) <= MAX_TEXT else text[:MAX_TEXT]


def described(Message m not None, negotiated):
    """Describe a request for logs and traces: (method, target, version, JSON text of the id). Texts
    are cut; a long id is left out. ``negotiated`` is the connection's revision, or None."""
    cdef bint is_tool = poi_is(m, WS_METHOD, b'"tools/call"')
    cdef str version = None
    if poi_is(m, WS_META_PROTOCOL_VERSION, LATEST_JSON):
        version = LATEST
    elif span_of(m, WS_META_PROTOCOL_VERSION).n:
        version = cut_c(m.text_c(WS_META_PROTOCOL_VERSION))
    elif negotiated is not None:
        version = negotiated.version
    return (
        TOOLS_CALL if is_tool else cut_c(m.method),
        cut_c(m.text_c(WS_NAME) if is_tool else name_of(m)),
        version,
        m.raw_id if span_of(m, WS_ID).n <= MAX_TEXT else b'""',
    )


def input_of(Message message not None, revision not None):
    """Return what a request brought of earlier rounds, or its wish for a task, if the revision has
    these; None if it brought neither. ProtocolError -32602."""
    cdef object params = message.params
    if message.method in revision.input_methods:
        decode = decode_rounds
    elif "tasks" in revision.capabilities and message.method == "tools/call":
        decode = decode_task
    else:
        return None
    try:
        found = decode(params.copy()).known()
    except msgspec.DecodeError as exc:
        text = str(exc).replace("`$", "`params").replace("$.", "params.")
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {text}") from None
    return found if found.given else None
