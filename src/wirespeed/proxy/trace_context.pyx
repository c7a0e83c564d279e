"""The trace context in requests that are passed on: of the proxy's own spans, and of header fields
(W3C Trace Context, sections 3.2 and 3.3)."""

from cpython.bytes cimport PyBytes_FromStringAndSize

from wirespeed._core._simd cimport WS_META, WS_PARAMS
from wirespeed._core.envelope cimport REQUEST, Message, nothing_c, span_of
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.span cimport Span

import re

import msgspec

from wirespeed._core.envelope import parse

cdef enum:
    MAX_DEPTH = 1024
    MAX_STATE = 4096          # bytes of tracestate

# The versions to come may have more behind the flags.
cdef object PARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{1,200})?"
)
cdef object STATE = re.compile(rb"[ -~\t]+")


cdef Message with_fields_c(Message m, HttpHead head):
    cdef Span value
    if not head.find_c(b"traceparent", &value):
        return m
    parent = PyBytes_FromStringAndSize(<const char *> value.p, <Py_ssize_t> value.n)
    lease = m.lease("params._meta")
    try:
        members = {} if lease is None else msgspec.json.decode(lease, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return m
    if "traceparent" in members or PARENT.fullmatch(parent) is None:
        return m
    members.pop("tracestate", None)          # of another trace
    members["traceparent"] = parent.decode("ascii")
    states = [text for name, text in head.fields if name.lower() == "tracestate"]
    state = ",".join(states).encode("latin-1", "replace")
    if len(state) <= MAX_STATE and STATE.fullmatch(state) is not None:
        members["tracestate"] = state.decode("ascii")
    return with_meta_c(m, msgspec.json.encode(members))


cdef Message with_meta_c(Message m, bytes meta):
    cdef Span params = span_of(m, WS_PARAMS)
    cdef Span old = span_of(m, WS_META)
    cdef const char *p = <const char *> m.p
    cdef size_t begin = m.scan.value.off, end = m.scan.value.off + m.scan.value.len
    cdef size_t at
    cdef bytes more = b'"_meta":' + meta
    if old.n:
        at = m.scan.poi[WS_META].off
        text = p[begin:at] + meta + p[at + old.n:end]
    elif params.n:
        at = m.scan.poi[WS_PARAMS].off + 1
        if (<const char *> params.p)[1:params.n - 1].strip(b" \t\r\n"):
            more += b","
        text = p[begin:at] + more + p[at:end]
    elif m.scan.poi[WS_PARAMS].off:      # they are null
        at = m.scan.poi[WS_PARAMS].off
        text = p[begin:at] + b"{" + more + b"}" + p[at + nothing_c(m.p + at, True):end]
    else:
        text = p[begin:end - 1] + b',"params":{' + more + b"}}"
    cdef Message found = parse(text, max_depth=MAX_DEPTH)
    if found.kind_c != REQUEST:
        return m                 # it is too deep for this
    found.ref = m.ref
    return found
