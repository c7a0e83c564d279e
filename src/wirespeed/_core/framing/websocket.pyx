"""WebSocket (RFC 6455): messages in frames, in both roles, without the opening handshake.

A message that arrives in one frame stays where it was read, and is unmasked there. Further
fragments are moved down behind the first. Pings and close frames are answered here. A text message
that a session reads as JSON is not checked for UTF-8 twice: see `check_utf8`.

permessage-deflate (RFC 7692): `deflate` is an object with two methods, which both take `bytes`.
``encode(data)`` returns a message compressed. ``decode(data, max_size)`` returns it decompressed,
or None when that is longer than max_size bytes; ValueError when it is not deflated data.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memmove

from wirespeed._core._simd cimport kernels
from wirespeed._core.framing.base cimport (
    FRAME_MORE, FRAME_READY, FrameWriter, Framer, Inlet, MIN_READ,
)
from wirespeed._core.framing.rfc6455 cimport (
    BAD_TEXT, BINARY, CLOSE, CONTINUATION, FIN, MAX_CONTROL, MAX_HEAD, NORMAL, NO_CODE, PING,
    POLICY, PONG, PROTOCOL_ERROR, RESERVED, RSV1, TEXT, TOO_BIG, UNSUPPORTED, VANISHED,
    is_close_code, write_head,
)
from wirespeed._core.outbox cimport Payload, locate_c, payload_of
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span

cdef enum:
    KEYS = 4096               # bytes of masking keys made at a time


@cython.final
@cython.no_gc
cdef class WebSocketWriter(FrameWriter):
    """Writes the frames of one connection: each message is one frame."""

    def __cinit__(self, bint masks=False, bint raw=False, deflate=None, random=None):
        self.takes_newlines = True
        self.masks = masks
        self.raw = raw
        self.deflate = deflate
        self.random = random
        self.keys = b""

    cdef const uint8_t *next_key_c(self, uint8_t *key) except? NULL:
        """A fresh masking key, written to `key`; NULL where we do not mask."""
        if not self.masks:
            return NULL
        if self.keys_at + 4 > PyBytes_GET_SIZE(self.keys):
            self.keys = self.random(KEYS)
            self.keys_at = 0
            if self.keys is None or PyBytes_GET_SIZE(self.keys) < 4:
                self.keys = b""
                raise ValueError("random() returned no bytes")
        memcpy(key, PyBytes_AS_STRING(self.keys) + self.keys_at, 4)
        self.keys_at += 4
        return key

    # -- messages ------------------------------------------------------------------------------

    cdef int begin_c(self) except -1:
        self.masking = self.next_key_c(self.key)      # may fail, so it comes first
        return self.out.mark_c(&self.mark, MAX_HEAD)

    cdef int finish_c(self, char last) except -1:
        cdef uint8_t head[MAX_HEAD]
        cdef int first = FIN | (BINARY if self.raw else TEXT)
        cdef size_t n
        cdef uint8_t *p
        cdef object data
        if self.said_goodbye:
            return self.out.rewind_c(&self.mark)      # nothing may follow our close frame
        p = self.out.reserve_c(1)
        p[0] = <uint8_t> last
        self.out.commit_c(1)
        if self.deflate is not None:
            data = self.out.since_c(&self.mark)
            self.out.rewind_c(&self.mark)
            return self.send_c(first & 15, data)
        n = self.out.marked_size_c(&self.mark)
        if self.masking is not NULL:
            self.out.mask_c(&self.mark, self.masking)
        n = write_head(head, first, n, self.masking)
        return self.out.head_c(&self.mark, head, n)

    cdef uint8_t *whole_c(self, size_t n) except? NULL:
        cdef uint8_t *p
        cdef size_t size
        if self.masks or self.said_goodbye or self.deflate is not None:
            return NULL
        self.abort_c()
        p = self.out.reserve_c(MAX_HEAD + n)
        size = write_head(p, FIN | (BINARY if self.raw else TEXT), n, NULL)
        self.out.commit_c(size + n)
        return p + size

    cdef int send_c(self, int opcode, object data) except -1:
        """Send a message, a bytes-like object, as a frame of its own."""
        cdef const uint8_t *p = NULL
        cdef size_t n = 0
        cdef int first = FIN | opcode
        if self.deflate is not None:
            data = self.deflate.encode(data if type(data) is bytes else bytes(data))
            first |= RSV1
        data = payload_of(data)
        locate_c(data, &p, &n)
        return self.write_frame_c(first, data, p, n)

    cdef int write_frame_c(self, int first, object owner, const uint8_t *p, size_t n) except -1:
        """Write a whole frame, or nothing. Its payload belongs to `owner`: bytes or a Payload."""
        cdef uint8_t key[4]
        cdef const uint8_t *masking = self.next_key_c(key)
        cdef uint8_t *to = self.out.reserve_c(MAX_HEAD + (n if self.masks else 0))
        cdef size_t size = write_head(to, first, n, masking)
        cdef size_t before = self.out.size
        cdef bint done = False
        if masking is not NULL:
            kernels.mask(to + size, p, n, key, 0)
            self.out.bytes_copied += <long long> n
            return self.out.commit_c(size + n)
        self.out.commit_c(size)
        try:
            self.out.write_part_c(owner, p, n)
            done = True
        finally:
            if not done:
                self.out.truncate_c(before)
        return 0

    # -- control frames ------------------------------------------------------------------------

    cdef int write_control_c(self, int opcode, const uint8_t *p, size_t n) except -1:
        """Write a control frame of at most 125 bytes, unless our close frame is queued."""
        cdef uint8_t key[4]
        cdef const uint8_t *masking
        cdef uint8_t *to
        cdef size_t size
        if self.out is None or self.said_goodbye:
            return 0
        masking = self.next_key_c(key)
        to = self.out.reserve_c(MAX_HEAD + n)
        size = write_head(to, FIN | opcode, n, masking)
        if masking is NULL:
            memcpy(to + size, p, n)
        else:
            kernels.mask(to + size, p, n, key, 0)
        return self.out.commit_c(size + n)

    cdef int write_close_c(self, int code, bytes reason) except -1:
        """Write our close frame, the first time; a reason that is too long is cut."""
        cdef bytes payload = b""
        if code != NO_CODE:
            payload = code.to_bytes(2, "big") + reason[:MAX_CONTROL - 2]
        self.write_control_c(
            CLOSE, <const uint8_t *> PyBytes_AS_STRING(payload),
            <size_t> PyBytes_GET_SIZE(payload),
        )
        self.said_goodbye = True
        return 0


cdef enum:
    GROWTH = 16               # memory for an announced frame: this many times its arrived bytes
    FRONT = 64                # bytes in front of a message that are not worth a move
    MIN_FRAGMENT = 64         # bytes: larger fragments are not limited in number
    PONG_HIGH = 1048576       # with more bytes unsent, only the latest ping is answered (5.5.3)

cdef const uint8_t *NOTHING = b""      # the text of an empty message


@cython.final
@cython.no_gc
cdef class WebSocketFramer(Framer):
    """The frames of one WebSocket connection, after its opening handshake.

    A peer that breaks the protocol gets a close frame with the reason, and `over` becomes true. The
    codes and their events: `rfc6455.pxd`.

    Args:
        role: "server" or "client". A client masks its frames.
        max_message: Bytes of a message, decompressed; a longer one ends the connection (1009).
        max_fragments: Frames of a message that may be smaller than 64 bytes on average; more end
            the connection (1008). Larger fragments are limited by `max_message` alone.
        max_control: Control frames that may come before the next whole message or the next
            `allow_control`; more end the connection (1008).
        binary: Whether messages are opaque, binary ones included. Else they are JSON texts: a
            binary message ends the connection (1003), white space around the text is left out,
            and `FrameStream.send` sends text.
        check_utf8: Whether text messages are checked to be UTF-8 here (1007). The default is
            `binary`: a session checks UTF-8 in the same pass as JSON.
        deflate: permessage-deflate as negotiated; see the module.
        random: Returns n unpredictable bytes (a client's masking keys, section 10.3).
    """

    def __cinit__(
        self,
        str role not None,
        *,
        size_t max_message,
        size_t max_fragments=1024,
        size_t max_control=1000,
        bint binary=False,
        check_utf8=None,
        deflate=None,
        random=os.urandom,
    ):
        if role not in ("server", "client"):
            raise ValueError('role must be "server" or "client"')
        if max_message < 1 or max_fragments < 1 or max_control < 1:
            raise ValueError("limits must be at least 1")
        self.server = role == "server"
        self.output = WebSocketWriter(not self.server, binary, deflate, random)
        self.setup_c(max_message, self.output)
        self.raw = binary
        self.checks_utf8 = binary if check_utf8 is None else check_utf8
        self.max_fragments = max_fragments
        self.max_control = max_control
        self.deflate = deflate
        self.peer_reason = ""
        self.needs_goodbye = True     # section 7.1.5: an end without a close frame is 1006

    # -- bytes in ------------------------------------------------------------------------------

    cdef int drop_inflated_c(self) except -1:
        """The last message was taken: bytes are read to the input slab again."""
        if self.input_slab is not None:
            self.slab = self.input_slab
            self.input_slab = None
        return 0

    cdef int shifted_c(self, size_t by) noexcept:
        self.at = self.at - by if self.at > by else 0
        self.message_end = self.message_end - by if self.message_end > by else 0
        return 0

    cdef int ensure_room_c(self, size_t wanted) except -1:
        cdef size_t pending = self.end - self.start
        cdef size_t free
        if pending:
            free = self.slab.capacity - self.end
            if self.left > free and free < 2 * pending:
                # the whole rest of the frame, but not merely because the peer announced it
                wanted = max(wanted, min(self.left, GROWTH * pending))
            if (
                free < wanted and 0 < self.start <= FRONT
                and self.slab.n_leases == 0 and not self.slab.foreign
            ):
                # as the base does for a message at the start of the slab
                return self.slab.grow_c(self.end + max(wanted, pending))
        return Inlet.ensure_room_c(self, wanted)

    cdef int get_buffer_c(self, uint8_t **p, size_t *n) except -1:
        self.drop_inflated_c()
        if self.slab is None or self.left == 0 or self.slab.capacity - self.end < self.left:
            self.ensure_room_c(MIN_READ)
        p[0] = self.slab.base + self.end
        n[0] = self.slab.capacity - self.end
        return 0

    cdef int forget_c(self) except -1:
        self.drop_inflated_c()
        return Inlet.forget_c(self)

    cdef int commit_c(self, size_t n) except -1:
        self.drop_inflated_c()
        return Inlet.commit_c(self, n)

    cdef Py_ssize_t feed_c(self, object data) except -1:
        self.drop_inflated_c()
        if self.over:
            self.check_feed_c()
            return memoryview(data).nbytes       # the stream is over: ignored
        return Inlet.feed_c(self, data)

    # -- messages out of them ------------------------------------------------------------------

    cdef int next_frame_c(self, Span *frame) except -1:
        """FRAME_READY with the next message, or FRAME_MORE."""
        self.drop_inflated_c()
        if self.held_pong is not None:
            self.allow_pong_c()
        while not self.over:
            if self.in_frame:
                if not self.take_payload_c():
                    break
                if self.fin and self.message_c(frame):
                    return FRAME_READY
            elif not self.take_header_c():
                break
        self.settle_c()
        return FRAME_MORE

    cdef int settle_c(self) except -1:
        """All input was framed: keep as little of it as possible."""
        if self.over:
            self.start = self.at = self.message_end = self.end
        if self.lent is not None or self.slab is None:
            return 0
        if self.opcode and self.message_end < self.at:
            # close the gap between the fragments; a header or control frame may have begun
            memmove(
                self.slab.base + self.message_end, self.slab.base + self.at, self.end - self.at
            )
            self.bytes_moved += <long long> (self.end - self.at)
            self.end -= self.at - self.message_end
            self.at = self.message_end
        if self.start == self.end:
            # nothing pending: an idle connection holds no memory
            return self.drop_slab_c()
        return 0

    cdef int take_payload_c(self) except -1:
        """Unmask the input that belongs to the data frame, behind the message so far. 1: the frame
        is whole."""
        cdef size_t n = min(self.left, self.end - self.at)
        cdef uint8_t *to
        cdef const uint8_t *p
        if n:
            to = self.slab.base + self.message_end
            p = self.slab.base + self.at
            if self.server:
                kernels.mask(to, p, n, self.key, self.rotation)
                self.rotation = (self.rotation + n) & 3
            elif to != p:
                memmove(to, p, n)
            if to != p:
                self.bytes_moved += <long long> n
            self.at += n
            self.message_end += n
            self.left -= n
        if self.left:
            return 0
        self.in_frame = False
        return 1

    cdef int take_header_c(self) except -1:
        """Take the header of the next frame, and all of a control frame. 0: it is not whole."""
        cdef size_t n = self.end - self.at
        cdef size_t size, length, i
        cdef int first, opcode
        cdef const uint8_t *p
        if n < 2:
            return 0
        p = self.slab.base + self.at
        first = p[0]
        opcode = first & 15
        length = p[1] & 127
        # whatever the first two bytes can tell is checked at once
        if (p[1] >= 128) != self.server:
            return self.fail_c(
                PROTOCOL_ERROR, "a frame without mask" if self.server else "a masked frame"
            )
        if first & RESERVED and not (
            first & RESERVED == RSV1 and self.deflate is not None
            and (opcode == TEXT or opcode == BINARY)
        ):
            return self.fail_c(PROTOCOL_ERROR, "a reserved bit is set")
        if opcode >= CLOSE:
            if opcode > PONG:
                return self.fail_c(PROTOCOL_ERROR, f"reserved opcode {opcode}")
            if not first & FIN:
                return self.fail_c(PROTOCOL_ERROR, "a control frame in fragments")
            if length > MAX_CONTROL:
                return self.fail_c(PROTOCOL_ERROR, "a control frame of more than 125 bytes")
        elif opcode > BINARY:
            return self.fail_c(PROTOCOL_ERROR, f"reserved opcode {opcode}")
        elif opcode == CONTINUATION and not self.opcode:
            return self.fail_c(PROTOCOL_ERROR, "a continuation of nothing")
        elif opcode != CONTINUATION and self.opcode:
            return self.fail_c(PROTOCOL_ERROR, "a new message inside a fragmented one")
        elif opcode == BINARY and not self.raw:
            return self.fail_c(UNSUPPORTED, "only text messages are taken")

        size = 2 + (2 if length == 126 else 8 if length == 127 else 0)
        if n < size + (4 if self.server else 0):
            return 0
        if length == 126:
            length = <size_t> p[2] << 8 | p[3]
            if length < 126:
                return self.fail_c(PROTOCOL_ERROR, "a length that is not the shortest form")
        elif length == 127:
            if p[2] & 128:
                return self.fail_c(PROTOCOL_ERROR, "a length with its highest bit set")
            length = 0
            for i in range(2, 10):
                length = length << 8 | p[i]
            if length < 65536:
                return self.fail_c(PROTOCOL_ERROR, "a length that is not the shortest form")
        if self.server:
            size += 4
        if opcode >= CLOSE:
            if n < size + length:
                return 0
            self.at += size
            return self.control_c(opcode, length)
        self.begin_frame_c(first, length, p + size - 4)
        if self.over:
            return 0
        self.at += size
        if not self.n_fragments:
            self.start = self.message_end = self.at
        self.n_fragments += 1
        return 1

    cdef int begin_frame_c(self, int first, size_t length, const uint8_t *key) except -1:
        """A data frame of `length` bytes begins."""
        cdef size_t before = self.message_end - self.start if self.opcode else 0
        if length > self.max_frame - before:
            return self.fail_c(TOO_BIG, f"a message of more than {self.max_frame} bytes")
        if self.opcode and self.n_fragments >= self.max_fragments + before // MIN_FRAGMENT:
            return self.fail_c(
                POLICY,
                f"more than {self.max_fragments} fragments of less than {MIN_FRAGMENT} bytes",
            )
        if not self.opcode:
            self.opcode = first & 15
            self.compressed = first & RSV1 != 0
            self.n_fragments = 0
        self.fin = first & FIN != 0
        self.in_frame = True
        self.left = length
        if self.server:
            memcpy(self.key, key, 4)
            self.rotation = 0
        return 0

    cdef int message_c(self, Span *frame) except -1:
        """The message is whole. 1: `frame` is to be returned."""
        cdef const uint8_t *p = self.slab.base + self.start
        cdef size_t n = self.message_end - self.start
        cdef object data
        self.is_binary = self.opcode == BINARY
        self.opcode = 0
        self.start = self.at
        self.n_control = 0
        if self.compressed:
            # even if it is dropped afterwards: later messages build on its window
            try:
                data = self.deflate.decode(
                    PyBytes_FromStringAndSize(<const char *> p, <Py_ssize_t> n), self.max_frame
                )
            except ValueError:
                self.fail_c(PROTOCOL_ERROR, "not deflated data")
                return 0
            if data is None:
                self.fail_c(TOO_BIG, f"a message of more than {self.max_frame} bytes")
                return 0
            self.input_slab = self.slab
            self.slab = Slab.borrow(data)
            p = self.slab.base
            n = self.slab.capacity
        if not self.is_binary and self.checks_utf8 and not kernels.utf8_valid(p, n):
            self.drop_inflated_c()
            self.fail_c(BAD_TEXT, "not UTF-8")
            return 0
        if self.output.said_goodbye:
            # no answer to it could be sent
            self.drop_inflated_c()
            return 0
        if not self.raw:
            while n and (p[n - 1] == 0x20 or 0x09 <= p[n - 1] <= 0x0A or p[n - 1] == 0x0D):
                n -= 1
            if n >= 3 and p[0] == 0xEF and memcmp(p, b"\xef\xbb\xbf", 3) == 0:
                p += 3                           # a byte order mark
                n -= 3
            while n and (p[0] == 0x20 or 0x09 <= p[0] <= 0x0A or p[0] == 0x0D):
                p += 1
                n -= 1
        frame.p = p if n else NOTHING
        frame.n = n
        return 1

    cdef bint refuse_c(self, const uint8_t *p, size_t n) except -1:
        if self.checks_utf8 or kernels.utf8_valid(p, n):
            return False
        self.fail_c(BAD_TEXT, "not UTF-8")
        return True

    # -- control frames ------------------------------------------------------------------------

    cdef int control_c(self, int opcode, size_t n) except -1:
        """Handle a control frame, whose payload begins at `at`. 1: go on."""
        cdef uint8_t payload[MAX_CONTROL]
        if self.server:
            kernels.mask(payload, self.slab.base + self.at, n, self.slab.base + self.at - 4, 0)
        else:
            memcpy(payload, self.slab.base + self.at, n)
        self.at += n
        if not self.opcode:
            self.start = self.at
        if opcode == CLOSE:
            return self.close_frame_c(payload, n)
        if self.n_control == self.max_control:
            return self.fail_c(POLICY, "too many control frames")
        self.n_control += 1
        if opcode == PONG:
            self.n_pongs_in += 1
            return 1
        self.n_pings_in += 1
        if self.output.out is not None and self.output.out.size >= PONG_HIGH:
            self.held_pong = PyBytes_FromStringAndSize(<const char *> payload, <Py_ssize_t> n)
        else:
            self.output.write_control_c(PONG, payload, n)
        return 1

    cdef int allow_pong_c(self) except -1:
        cdef bytes payload = self.held_pong
        if self.output.out.size < PONG_HIGH:
            self.held_pong = None
            self.output.write_control_c(
                PONG, <const uint8_t *> PyBytes_AS_STRING(payload),
                <size_t> PyBytes_GET_SIZE(payload),
            )
        return 0

    cdef int close_frame_c(self, const uint8_t *p, size_t n) except -1:
        """The peer's close frame (section 5.5.1)."""
        cdef int code = NO_CODE
        if n == 1:
            return self.fail_c(PROTOCOL_ERROR, "a close frame of one byte")
        if n:
            code = <int> p[0] << 8 | p[1]
            if not is_close_code(code):
                return self.fail_c(PROTOCOL_ERROR, f"close code {code}")
            if not kernels.utf8_valid(p + 2, n - 2):
                return self.fail_c(BAD_TEXT, "a reason that is not UTF-8")
            self.peer_reason = PyUnicode_DecodeUTF8(
                <const char *> p + 2, <Py_ssize_t> n - 2, NULL
            )
        self.peer_code = code
        self.output.write_close_c(code, b"")
        return self.finish_c()

    cdef int fail_c(self, int code, str reason) except -1:
        """End the connection because of a fault of the peer (section 7.1.7). Returns 0."""
        if self.failure is None:
            self.failure = (code, reason)
        self.output.write_close_c(code, reason.encode())
        return self.finish_c()

    cdef int finish_c(self) except -1:
        """Read no more. Returns 0."""
        self.over = True
        self.in_frame = False
        self.left = 0
        self.opcode = 0
        self.held_pong = None
        return 0

    # -- goodbye -------------------------------------------------------------------------------

    cdef bint give_up_c(self, int code, str reason) except -1:
        self.fail_c(code, reason)
        self.settle_c()
        return True

    cdef bint goodbye_c(self, int code, str reason) except -1:
        cdef bytes text
        if not self.output.said_goodbye:
            text = reason.encode("utf-8", "replace")
            if len(text) > MAX_CONTROL - 2:
                text = text[:MAX_CONTROL - 2].decode("utf-8", "ignore").encode()
            self.output.write_close_c(code, text)
        return True

    # -- for Python ----------------------------------------------------------------------------

    cdef int check_joined_c(self) except -1:
        if self.output.out is None:
            raise RuntimeError("this framer is not joined to a connection yet")
        return 0

    def send_text(self, data, /):
        """Send a text message: a str, or bytes-like UTF-8 (else ValueError); it may be empty.

        A server sends long messages without a copy: they must not change until they are sent.
        Nothing is sent after `goodbye`.
        """
        cdef Payload payload
        self.check_joined_c()
        if isinstance(data, str):
            data = data.encode()
        else:
            payload = Payload(data)
            if not kernels.utf8_valid(<const uint8_t *> payload.view.buf, payload.view.len):
                raise ValueError("a text message that is not UTF-8")
        if not self.output.said_goodbye:
            self.output.send_c(TEXT, data)

    def send_binary(self, data, /):
        """Send a binary message: a bytes-like object, which may be empty. See `send_text`."""
        self.check_joined_c()
        if not self.output.said_goodbye:
            self.output.send_c(BINARY, data)

    def ping(self, payload=b"", /):
        """Send a ping with up to 125 bytes of payload (ValueError for more). The peer answers with
        a pong, which `n_pongs_in` counts."""
        cdef bytes data = bytes(payload)
        self.check_joined_c()
        if len(data) > MAX_CONTROL:
            raise ValueError("a ping carries at most 125 bytes")
        self.output.write_control_c(
            PING, <const uint8_t *> PyBytes_AS_STRING(data), <size_t> PyBytes_GET_SIZE(data)
        )

    def goodbye(self, int code=<int> NORMAL, str reason="", /):
        """Send a close frame, once. Nothing can be sent after it, and messages that still arrive
        are dropped. `over` becomes true when the peer has answered.

        A reason of more than 123 bytes is cut. ValueError for a code that may not be sent
        (section 7.4).
        """
        self.check_joined_c()
        if not is_close_code(code):
            raise ValueError(f"{code} is not a close code that can be sent")
        self.goodbye_c(code, reason)

    def allow_control(self):
        """Reset the count that `max_control` limits: call it at intervals."""
        self.n_control = 0

    @property
    def close_code(self):
        """The peer's close code: 1005 for none, 1006 when the stream ended without a close frame;
        None while it is open."""
        if self.peer_code:
            return self.peer_code
        return <int> VANISHED if self.eof else None

    @property
    def close_reason(self):
        """The reason beside the peer's close code, or an empty string."""
        return self.peer_reason
