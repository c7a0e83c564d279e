from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from wirespeed._core.span cimport Span


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
