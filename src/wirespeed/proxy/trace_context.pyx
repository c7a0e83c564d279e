"""The trace context in requests that are passed on, where the proxy makes spans of its own."""

from wirespeed._core._simd cimport WS_META, WS_PARAMS
from wirespeed._core.envelope cimport REQUEST, Message, nothing_c, span_of
from wirespeed._core.span cimport Span

from wirespeed._core.envelope import parse

cdef enum:
    MAX_DEPTH = 1024


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
