"""{pointer, length} with checked inline readers; valid only while its owner is pinned.

A span into a frame is valid until the next call of any method of the framer or of what reads from
it. To keep the bytes longer, make a Lease of them, or hold the Message.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

cdef extern from "<string.h>" nogil:
    void *memmem(const void *haystack, size_t n, const void *needle, size_t n_needle)


cdef struct Span:
    const uint8_t *p
    size_t n


cdef inline bint span_equals(Span s, const char *text, size_t n) noexcept nogil:
    return s.n == n and memcmp(s.p, text, n) == 0


cdef inline bint span_holds(Span s, const char *text, size_t n) noexcept nogil:
    return memmem(s.p, s.n, text, n) is not NULL


cdef inline int span_byte(Span s, size_t i) noexcept nogil:
    """The byte at i, or -1 behind the end."""
    return s.p[i] if i < s.n else -1
