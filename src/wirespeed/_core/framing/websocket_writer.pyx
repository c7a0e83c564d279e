"""WebSocket (RFC 6455): how messages and control frames are written, in both roles."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from wirespeed._core._simd cimport kernels
from wirespeed._core.framing.rfc6455 cimport (
    BINARY, CLOSE, FIN, MAX_CONTROL, MAX_HEAD, NO_CODE, RSV1, TEXT, write_head,
)
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport locate_c, payload_of

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
