"""The close codes of WebSocket (RFC 6455 section 7.4.1): the events, and the places that decide.

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
framing/websocket_writer, by `write_close_c`.
"""

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
