"""The numbers of RFC 6455, and the header of a frame."""

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
    # close codes (section 7.4.1)
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    NO_CODE = 1005
    VANISHED = 1006
    BAD_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009

    MAX_CONTROL = 125         # bytes of a control frame's payload
    MAX_HEAD = 14


cdef inline bint is_close_code(int code) noexcept nogil:
    """Whether the code may stand in a close frame (section 7.4 and its registry)."""
    return 3000 <= code <= 4999 or (1000 <= code <= 1014 and not 1004 <= code <= 1006)


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
