"""WebSocket as data (RFC 6455): the header of a frame, and the close codes (section 7.4.1).

The events that lead to a close code, and the places that decide:

    NORMAL           our client closes the connection      client/connection/network_channels
    GOING_AWAY       our server shuts down                 transport/link, `Link.end`
    PROTOCOL_ERROR   a frame violates RFC 6455             framing/websocket
    UNSUPPORTED      a binary message where JSON is due    framing/websocket
    BAD_TEXT         a text that is not UTF-8              framing/websocket
    POLICY           many fragments or control frames      framing/websocket
                     a peer leaves the outbox unread       transport/net/keepalive
                     a client's access token has expired   transport/net/listener
    TRY_AGAIN        there is no memory for the rest of a message, or all connections together have
                     `max_input_bytes` of unfinished ones  transport/link
    TOO_BIG          a message above `max_message`         framing/websocket
    NO_CODE          never sent: the peer's close frame has no code
    VANISHED         never sent: the stream ended without a close frame, or no ping was answered

A close frame of the peer is answered with the code of that frame. All close frames are written in
framing/websocket, by `write_close_c`.
"""

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


cpdef enum CloseCode:
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    NO_CODE = 1005
    VANISHED = 1006
    BAD_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009
    TRY_AGAIN = 1013


cdef inline bint is_close_code(int code) noexcept nogil:
    """Whether the code may stand in a close frame (section 7.4 and its registry)."""
    return 3000 <= code <= 4999 or (1000 <= code <= 1014 and not 1004 <= code <= 1006)
