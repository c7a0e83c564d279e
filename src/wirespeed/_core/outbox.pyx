"""The outgoing gather list.

Small pieces are packed into blocks; a payload of some size is referenced where it lies and leaves
by a gathering write. A block that was handed out is never written again, so nothing moves under a
transport that still holds a view.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from wirespeed._core._simd cimport kernels

cdef enum:
    BLOCK_SIZE = 65536
    COPY_BELOW = 4096     # under this a copy costs less than one more entry of the gather list


@cython.final
@cython.no_gc
cdef class Block:
    """A piece of outgoing memory, read-only for everyone but its outbox."""

    def __init__(self):
        raise TypeError("blocks are made by the outbox")

    @staticmethod
    cdef Block allocate(size_t capacity):
        cdef Block block = Block.__new__(Block)
        block.base = <uint8_t *> PyMem_RawMalloc(capacity)
        if block.base is NULL:
            raise MemoryError(f"no memory for an output block of {capacity} bytes")
        block.capacity = capacity
        return block

    def __dealloc__(self):
        PyMem_RawFree(self.base)


@cython.final
cdef class Payload:
    """Somebody's bytes, exported until they are sent."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef object payload_of(object data):
    """A payload that `write_object_c` cannot refuse any more, so that nothing is half written."""
    return data if type(data) is bytes or type(data) is Payload else Payload(data)


cdef object json_line(object data):
    """As `payload_of`, for JSON text from outside: what would break the framing is refused."""
    cdef const uint8_t *p
    cdef size_t n
    if type(data) is bytes:
        p = <const uint8_t *> PyBytes_AS_STRING(data)
        n = <size_t> PyBytes_GET_SIZE(data)
    else:
        data = Payload(data)
        p = <const uint8_t *> (<Payload> data).view.buf
        n = <size_t> (<Payload> data).view.len
    if n == 0:
        raise ValueError("no JSON text")
    if kernels.find_newline(p, n) != n:
        raise ValueError("JSON text with a raw newline cannot be sent in a line")
    return data


@cython.final
@cython.no_gc
cdef class Chunk:
    """A run of bytes to be sent, exported read-only. It keeps its memory alive."""

    cdef object owner
    cdef const uint8_t *p
    cdef size_t n

    def __init__(self):
        raise TypeError("chunks are made by the outbox")

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("outgoing bytes are read-only")
        PyBuffer_FillInfo(view, self, <void *> self.p, <Py_ssize_t> self.n, 1, flags)

    def __len__(self):
        return self.n

    def __bytes__(self):
        return (<const char *> self.p)[:self.n]


@cython.final
cdef class Outbox:
    """Bytes that wait to be sent, oldest first."""

    def __cinit__(self):
        self.copy_below = COPY_BELOW

    def __dealloc__(self):
        self.clear_c()
        PyMem_RawFree(self.segments)

    def __len__(self):
        return self.size

    # -- writing -------------------------------------------------------------------------------

    cdef uint8_t *reserve_c(self, size_t n) except NULL:
        """Room for n bytes in one piece; `commit_c` tells how many were used."""
        cdef Block block = self.block
        if block is None or block.capacity - block.used < n:
            self.close_segment_c()
            self.block = Block.allocate(max(n, <size_t> BLOCK_SIZE))
            self.open_at = 0
            block = self.block
        return block.base + block.used

    cdef int commit_c(self, size_t n) noexcept:
        self.block.used += n
        self.size += n
        return 0

    cdef int write_c(self, const void *p, size_t n) except -1:
        """Copy n bytes in."""
        memcpy(self.reserve_c(n), p, n)
        self.commit_c(n)
        return 0

    cdef int text_c(self, bytes text) except -1:
        """Copy a short text of our own in."""
        return self.write_c(PyBytes_AS_STRING(text), <size_t> PyBytes_GET_SIZE(text))

    cdef int write_object_c(self, object data) except -1:
        """A payload: short ones are copied, others referenced until they are sent."""
        cdef Payload payload
        cdef size_t n
        if type(data) is bytes:
            n = <size_t> PyBytes_GET_SIZE(data)
            if n < self.copy_below:
                self.bytes_copied += <long long> n
                return self.write_c(PyBytes_AS_STRING(data), n)
            self.close_segment_c()
            self.push_c(<const uint8_t *> PyBytes_AS_STRING(data), n, data)
            self.size += n
            return 0
        payload = <Payload> data if type(data) is Payload else Payload(data)
        n = <size_t> payload.view.len
        if n < self.copy_below:
            self.bytes_copied += <long long> n
            return self.write_c(payload.view.buf, n)
        self.close_segment_c()
        self.push_c(<const uint8_t *> payload.view.buf, n, payload)
        self.size += n
        return 0

    cdef int push_c(self, const uint8_t *p, size_t n, object owner) except -1:
        cdef size_t room
        cdef Segment *grown
        if self.count == self.room:
            if self.first:
                # forget the sent ones
                self.count -= self.first
                for room in range(self.count):
                    self.segments[room] = self.segments[room + self.first]
                self.first = 0
        if self.count == self.room:
            room = max(<size_t> 16, 2 * self.room)
            grown = <Segment *> PyMem_RawRealloc(self.segments, room * sizeof(Segment))
            if grown is NULL:
                raise MemoryError("no memory for the outgoing gather list")
            self.segments = grown
            self.room = room
        self.segments[self.count].p = p
        self.segments[self.count].n = n
        self.segments[self.count].owner = <void *> owner
        Py_INCREF(owner)
        self.count += 1
        return 0

    cdef int close_segment_c(self) except -1:
        """Make what was written to the block so far a segment of its own."""
        cdef Block block = self.block
        if block is not None and block.used > self.open_at:
            self.push_c(block.base + self.open_at, block.used - self.open_at, block)
            self.open_at = block.used
        return 0

    cdef int absorb_c(self, Outbox other) except -1:
        """Append everything of another outbox, which is empty afterwards; nothing is copied."""
        cdef size_t i
        cdef Segment *s
        self.close_segment_c()
        other.close_segment_c()
        for i in range(other.first, other.count):
            s = &other.segments[i]
            self.push_c(s.p, s.n, <object> s.owner)
        self.size += other.size
        self.bytes_copied += other.bytes_copied
        other.bytes_copied = 0
        other.clear_c()
        return 0

    # -- sending -------------------------------------------------------------------------------

    cdef int gather_c(self, iovec *vectors, int room) except -1:
        """Fill in up to `room` vectors of what is to be sent next. Returns how many."""
        cdef int n = 0
        cdef size_t i
        self.close_segment_c()
        i = self.first         # only now: what was sent may have been forgotten
        while n < room and i < self.count:
            vectors[n].iov_base = <void *> self.segments[i].p
            vectors[n].iov_len = self.segments[i].n
            n += 1
            i += 1
        return n

    cdef int consume_c(self, size_t n) except -1:
        """The first n bytes were sent."""
        cdef Segment *s
        if n > self.size:
            raise ValueError("more bytes consumed than were queued")
        self.close_segment_c()
        self.size -= n
        while n:
            s = &self.segments[self.first]
            if n < s.n:
                s.p += n
                s.n -= n
                break
            n -= s.n
            self.first += 1
            Py_DECREF(<object> s.owner)
        if self.first == self.count:
            self.first = self.count = 0
            if self.block is not None and self.block.used == self.open_at:
                # all of it was sent: write it anew, unless it was handed out
                self.block.used = self.open_at = 0
        return 0

    def take(self):
        """Everything queued, as read-only bytes-like chunks in order; the outbox is empty after.

        The chunks own their memory: it does not change, however long a transport keeps them.
        """
        cdef list chunks = []
        cdef Chunk chunk
        cdef Segment *s
        cdef size_t i
        self.close_segment_c()
        for i in range(self.first, self.count):
            s = &self.segments[i]
            chunk = Chunk.__new__(Chunk)
            chunk.owner = <object> s.owner
            chunk.p = s.p
            chunk.n = s.n
            chunks.append(chunk)
        self.clear_c()
        return chunks

    cdef int clear_c(self) noexcept:
        cdef size_t i
        for i in range(self.first, self.count):
            Py_DECREF(<object> self.segments[i].owner)
        self.first = self.count = 0
        self.size = 0
        self.block = None
        self.open_at = 0
        return 0
