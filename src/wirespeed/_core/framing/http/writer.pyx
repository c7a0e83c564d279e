"""HTTP/1.1 (RFC 9112): how responses, requests and streams of events are written."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from wirespeed._core.framing.http.rfc9112 cimport IN_TOKEN, IN_VALUE, classes, is_blank
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.outbox cimport locate_c, payload_of
from wirespeed._core.slab cimport Slab

cdef enum:
    # what a head says of the end of its body
    NO_BODY
    SIZED
    CHUNKED
    AT_CLOSE

    MAX_MARKED = 4096     # bytes of a head that is written behind its body
    MAX_LINE = 64         # bytes of a status line
    MAX_OWN = 96          # bytes of Connection and of what says where the body ends
    CHUNK_ROOM = 18       # bytes of the size of a chunk and its line end

cdef dict PHRASES = {
    101: b"Switching Protocols", 200: b"OK", 201: b"Created", 202: b"Accepted",
    204: b"No Content", 304: b"Not Modified", 307: b"Temporary Redirect",
    308: b"Permanent Redirect", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden",
    404: b"Not Found", 405: b"Method Not Allowed", 406: b"Not Acceptable",
    408: b"Request Timeout", 409: b"Conflict", 410: b"Gone", 411: b"Length Required",
    413: b"Content Too Large", 414: b"URI Too Long", 415: b"Unsupported Media Type",
    417: b"Expectation Failed", 421: b"Misdirected Request", 426: b"Upgrade Required",
    429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 501: b"Not Implemented", 502: b"Bad Gateway",
    503: b"Service Unavailable", 504: b"Gateway Timeout", 505: b"HTTP Version Not Supported",
}
cdef dict LINES = {status: b"HTTP/1.1 %d %s\r\n" % (status, PHRASES[status]) for status in PHRASES}


cdef bytes status_line(int status):
    """ValueError for a number that is not a status."""
    cdef bytes line = LINES.get(status)
    if line is None:
        if not 100 <= status <= 599:
            raise ValueError(f"{status} is not a status of HTTP")
        line = b"HTTP/1.1 %d \r\n" % status
    return line


def field_lines(fields, /):
    """The lines of header fields, from pairs of name and value, which are text.

    ValueError for a name that is not a token, and for a value with a control character, white space
    at an end or a character that Latin-1 does not have: nothing can be added to a head by a value.
    """
    cdef bytes name, value
    cdef const uint8_t *p
    cdef Py_ssize_t i, n
    cdef list lines = []
    for one, other in fields:
        name = one.encode("latin-1", "replace")
        try:
            value = other.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(f"the value of the header field {one!r} is not Latin-1") from None
        p = <const uint8_t *> PyBytes_AS_STRING(name)
        n = PyBytes_GET_SIZE(name)
        for i in range(n):
            if not classes[p[i]] & IN_TOKEN:
                n = 0
                break
        if n == 0:
            raise ValueError(f"{one!r} is not the name of a header field")
        p = <const uint8_t *> PyBytes_AS_STRING(value)
        n = PyBytes_GET_SIZE(value)
        for i in range(n):
            if not classes[p[i]] & IN_VALUE or (is_blank(p[i]) and (i == 0 or i == n - 1)):
                raise ValueError(
                    f"the value of the header field {one!r} has a character that it may not have"
                )
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


cdef inline uint8_t *put(uint8_t *to, bytes text) noexcept:
    memcpy(to, PyBytes_AS_STRING(text), <size_t> PyBytes_GET_SIZE(text))
    return to + PyBytes_GET_SIZE(text)


cdef inline uint8_t *put_number(uint8_t *to, size_t n, size_t base) noexcept:
    """The digits of a number, to base 10 or 16."""
    cdef uint8_t digits[24]
    cdef size_t at = 24
    while True:
        at -= 1
        digits[at] = <uint8_t> (b"0123456789abcdef")[n % base]
        n //= base
        if n == 0:
            break
    memcpy(to, &digits[at], 24 - at)
    return to + (24 - at)


@cython.final
@cython.no_gc
cdef class HttpWriter(FrameWriter):
    """Writes the messages of one connection.

    Args:
        line: The usual first line, with its line end: a status line, or a client's request line.
        fields: The usual fields, each line with its end.
    """

    def __cinit__(
        self,
        bytes line not None=b"HTTP/1.1 200 OK\r\n",
        bytes fields not None=b"Content-Type: application/json\r\n",
    ):
        self.usual_line = line
        self.usual_fields = fields
        self.date = b""
        self.reset_c()

    cdef int reset_c(self) except -1:
        self.line = self.usual_line
        self.fields = self.usual_fields
        self.event = b""
        return 0

    cdef int answer_c(self, int minor, bint bodiless, bint last) except -1:
        self.old = minor == 0 or self.apart    # who writes the head writes the chunks
        self.bodiless = bodiless
        self.closes = last
        return 0

    cdef int status_c(self, int status) except -1:
        """Set the status of the next response. ValueError for a number that is not a status."""
        self.line = status_line(status)
        return 0

    # -- heads ---------------------------------------------------------------------------------

    cdef size_t head_size_c(self) noexcept:
        """An upper bound of the bytes of the head."""
        return (
            max(<size_t> PyBytes_GET_SIZE(self.line), <size_t> MAX_LINE)
            + <size_t> PyBytes_GET_SIZE(self.fields) + <size_t> PyBytes_GET_SIZE(self.date)
            + MAX_OWN
        )

    cdef size_t write_head_c(self, uint8_t *to, int ending, size_t n) noexcept:
        """Write the head; returns its length. `n`: the bytes of a body that is SIZED."""
        cdef uint8_t *p
        if self.apart:
            self.told = True
            self.told_line = self.line
            self.told_fields = self.fields
            self.told_length = <Py_ssize_t> n if ending == SIZED else -1
            return 0
        p = put(put(put(to, self.line), self.fields), self.date)
        if self.closes or ending == AT_CLOSE:
            p = put(p, b"Connection: close\r\n")
        elif self.old:
            p = put(p, b"Connection: keep-alive\r\n")
        if ending == SIZED:
            p = put_number(put(p, b"Content-Length: "), n, 10)
            p = put(p, b"\r\n\r\n")
        elif ending == CHUNKED:
            p = put(p, b"Transfer-Encoding: chunked\r\n\r\n")
        else:
            p = put(p, b"\r\n")
        return <size_t> p - <size_t> to

    cdef int check_idle_c(self) except -1:
        if self.streaming:
            raise RuntimeError("a stream is open: its end comes before the next response")
        return 0

    # -- frames --------------------------------------------------------------------------------

    cdef int begin_c(self) except -1:
        cdef size_t room
        if self.streaming:
            if not self.old:
                self.out.mark_c(&self.mark, CHUNK_ROOM)
            self.out.text_c(self.event)
            return self.out.text_c(b"data: ")
        room = self.head_size_c()
        if room > MAX_MARKED:
            raise ValueError(f"a head of more than {<int> MAX_MARKED} bytes")
        return self.out.mark_c(&self.mark, room)

    cdef int finish_c(self, char last) except -1:
        cdef uint8_t head[MAX_MARKED]
        cdef uint8_t *p
        cdef size_t n
        if self.streaming:
            p = self.out.reserve_c(5)
            p[0] = <uint8_t> last
            p[1] = p[2] = p[4] = 0x0A
            p[3] = 0x0D
            self.out.commit_c(3)
            self.event = b""
            if self.old:
                return 0
            n = self.out.marked_size_c(&self.mark)
            self.out.commit_c(2)
            p = put(put_number(head, n, 16), b"\r\n")
            return self.out.head_c(&self.mark, head, <size_t> p - <size_t> head)
        p = self.out.reserve_c(1)
        p[0] = <uint8_t> last
        self.out.commit_c(1)
        n = self.out.marked_size_c(&self.mark)
        if self.head_size_c() > self.mark.room:
            raise ValueError("the fields of a response are set before its body is written")
        n = self.write_head_c(head, SIZED, n)
        if self.bodiless:
            self.out.rewind_c(&self.mark)
            self.out.write_c(head, n)
        else:
            self.out.head_c(&self.mark, head, n)
        return self.reset_c()

    cdef int send_c(self, object body, bint sized) except -1:
        """Send a whole message, or nothing of it. `sized`: its head has a Content-Length; else the
        message has no body (ValueError)."""
        cdef object data = payload_of(body)
        cdef const uint8_t *p = NULL
        cdef size_t n = 0, size_before
        cdef bint done = False
        self.check_idle_c()
        locate_c(data, &p, &n)
        if n and not sized:
            raise ValueError("a response of this status has no body")
        size_before = self.out.size
        self.out.commit_c(
            self.write_head_c(
                self.out.reserve_c(self.head_size_c()), SIZED if sized else NO_BODY, n
            )
        )
        if n and not self.bodiless:
            try:
                self.out.write_object_c(data)
                done = True
            finally:
                if not done:
                    self.out.truncate_c(size_before)
        return self.reset_c()

    cdef int begin_body_c(self, Py_ssize_t n) except -1:
        cdef int ending = NO_BODY if n < 0 else SIZED
        self.check_idle_c()
        self.out.commit_c(
            self.write_head_c(
                self.out.reserve_c(self.head_size_c()), ending, <size_t> max(n, 0)
            )
        )
        return self.reset_c()

    cdef int body_part_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        cdef uint8_t *to
        if self.bodiless or n == 0:
            return 0           # a chunk of no bytes would end a stream
        if not self.streaming or self.old:
            return self.out.refer_c(slab, p, n)
        to = self.out.reserve_c(CHUNK_ROOM)
        self.out.commit_c(<size_t> put(put_number(to, n, 16), b"\r\n") - <size_t> to)
        self.out.refer_c(slab, p, n)
        return self.out.text_c(b"\r\n")

    cdef int send_continue_c(self) except -1:
        """The interim answer to ``Expect: 100-continue`` (RFC 9110 section 15.2.1)."""
        self.check_idle_c()
        return self.out.text_c(b"HTTP/1.1 100 Continue\r\n\r\n")

    # -- streams -------------------------------------------------------------------------------

    cdef int open_stream_c(self) except -1:
        """Send the head of a stream. In HTTP/1.0 it ends with the connection."""
        self.check_idle_c()
        self.closes = self.closes or self.old
        self.out.commit_c(
            self.write_head_c(
                self.out.reserve_c(self.head_size_c()), AT_CLOSE if self.old else CHUNKED, 0
            )
        )
        self.streaming = True
        return self.reset_c()

    cdef int stream_text_c(self, bytes text) except -1:
        """Send other text of a stream, such as a comment: whole lines, and an empty one."""
        cdef uint8_t *p
        cdef uint8_t *end
        cdef size_t n = <size_t> PyBytes_GET_SIZE(text)
        if not self.streaming:
            raise RuntimeError("no stream is open")
        if n == 0:
            return 0           # a chunk of no bytes would end the stream
        p = self.out.reserve_c(CHUNK_ROOM + n + 2)
        if self.old:
            end = put(p, text)
        else:
            end = put(put(put(put_number(p, n, 16), b"\r\n"), text), b"\r\n")
        return self.out.commit_c(<size_t> end - <size_t> p)

    cdef int close_stream_c(self) except -1:
        """End the stream. In HTTP/1.0 the end of the connection does that."""
        if self.streaming:
            self.streaming = False
            if not self.old:
                self.out.text_c(b"0\r\n\r\n")
        return 0
