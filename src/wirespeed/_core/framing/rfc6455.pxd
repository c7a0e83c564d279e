"""The numbers of RFC 6455 but for the close codes (`close_codes`), and the header of a frame."""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef enum:
    # opcodes (section 5.2)
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    # bits of the first byte
    FIN = 128
    RSV1 = 64
    RESERVED = 112
    MAX_CONTROL = 125         # bytes of a control frame's payload
    MAX_HEAD = 14


cdef inline size_t write_head(uint8_t *p, int first, size_t n, const uint8_t *key) noexcept nogil:
    """The header of a frame of n bytes; returns its own length, at most MAX_HEAD. `key`: NULL where
    the payload is not masked."""
    cdef uint8_t mask = 0 if key is NULL else 128
    cdef size_t size = 2
    cdef int i
    p[0] = <uint8_t> first
    if n <= 125:
        p[1] = <uint8_t> n | mask
    elif n <= 65535:
        p[1] = 126 | mask
        p[2] = <uint8_t> (n >> 8)
        p[3] = <uint8_t> (n & 255)
        size = 4
    else:
        p[1] = 127 | mask
        for i in range(8):
            p[2 + i] = <uint8_t> ((n >> (56 - 8 * i)) & 255)
        size = 10
    if key is not NULL:
        memcpy(p + size, key, 4)
        size += 4
    return size
