from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_METHOD, WS_PARAMS
from wirespeed._core.envelope cimport Message, poi_is, span_of
from wirespeed._core.span cimport Span, span_holds


cdef inline bint names_task_c(Message m) noexcept:
    """Whether the params of a call may have a member `task`. The arguments are not searched: the
    cost does not grow with them."""
    cdef Span found = span_of(m, WS_PARAMS)
    cdef size_t end = m.scan.poi[WS_PARAMS].off + found.n
    if m.scan.poi[WS_ARGUMENTS].len:
        found.n = m.scan.poi[WS_ARGUMENTS].off - m.scan.poi[WS_PARAMS].off
        if span_holds(found, b'"task"', 6):
            return True
        found = span_of(m, WS_ARGUMENTS)
        found.p += found.n
        found.n = end - m.scan.poi[WS_ARGUMENTS].off - found.n
    return span_holds(found, b'"task"', 6)


cdef inline bint names_tasks_c(Message m) noexcept:
    """Whether a request of 2026-07-28 may name tasks: by its method, which may have escapes."""
    cdef Span method = span_of(m, WS_METHOD)
    if poi_is(m, WS_METHOD, b'"tools/call"'):
        return False
    return (
        (method.n > 6 and memcmp(method.p, b'"tasks/', 7) == 0)
        or poi_is(m, WS_METHOD, b'"subscriptions/listen"')
        or memchr(method.p, c'\\', method.n) is not NULL
    )


cdef inline bint may_be_given(Span text) noexcept:
    """Whether a JSON text may have a member that a server gives and a client brings back (the names
    are in `wirespeed.proxy.tags`): the end of its name is there. Nothing is decoded."""
    cdef const uint8_t *p = text.p
    cdef const uint8_t *end = text.p + text.n
    cdef const uint8_t *quote
    while p < end:
        quote = <const uint8_t *> memchr(p, c'"', <size_t> end - <size_t> p)
        if quote is NULL:
            return False
        if <size_t> quote - <size_t> text.p > 5 and (
            memcmp(quote - 5, "ursor", 5) == 0
            or memcmp(quote - 5, "askId", 5) == 0
            or memcmp(quote - 5, "State", 5) == 0
        ):
            return True
        p = quote + 1
    return False
