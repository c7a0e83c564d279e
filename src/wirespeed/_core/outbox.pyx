"""The outgoing gather list.

Small pieces are packed into blocks; a payload of some size is referenced where it lies and leaves
by a gathering write. A block that was handed out is never written again, so nothing moves under a
transport that still holds a view.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memmove

from wirespeed._core._simd cimport kernels
from wirespeed._core.slab cimport Lease, Slab
from wirespeed._core.spares cimport Spares, keep_spare, take_spare

cdef enum:
    BLOCK_SIZE = 65536
    COPY_BELOW = 4096     # under this a copy costs less than one more entry of the gather list
    MOVE_BELOW = 2048     # the same for bytes that are in the cache
    MAX_IDLE_ROOM = 64    # entries of a gather list that is kept while nothing is queued

cdef Spares spares            # of BLOCK_SIZE


@cython.final
@cython.no_gc
cdef class Block:
    """A block of outgoing memory. Only its outbox writes to it."""

    def __init__(self):
        raise TypeError("blocks are made by the outbox")

    @staticmethod
    cdef Block allocate(size_t capacity):
        cdef Block block = Block.__new__(Block)
        if capacity == BLOCK_SIZE:
            block.base = take_spare(&spares)
        if block.base is NULL:
            block.base = <uint8_t *> PyMem_RawMalloc(capacity)
        if block.base is NULL:
            raise MemoryError(f"no memory for an output block of {capacity} bytes")
        block.capacity = capacity
        return block

    def __dealloc__(self):
        if self.capacity != BLOCK_SIZE or not keep_spare(&spares, self.base):
            PyMem_RawFree(self.base)


@cython.final
cdef class Payload:
    """The buffer of a caller's object, exported until it is sent."""

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.final
cdef class Parts:
    """Payloads that are sent one behind the other."""


cdef object payload_of(object data):
    """A payload that `write_object_c` cannot refuse, so that nothing is half written."""
    if type(data) is bytes or type(data) is Payload or type(data) is Lease:
        return data
    return Payload(data)


cdef object parts_of(object data):
    """The same, or `Parts` of a tuple or list."""
    cdef Parts parts
    cdef const uint8_t *p = NULL
    cdef size_t n = 0
    if type(data) is Parts:
        return data
    if type(data) is not tuple and type(data) is not list:
        return payload_of(data)
    parts = Parts.__new__(Parts)
    parts.parts = []
    for part in data:
        part = payload_of(part)
        locate_c(part, &p, &n)
        if n:
            parts.parts.append(part)
    return parts


cdef int locate_c(object data, const uint8_t **p, size_t *n) except -1:
    if type(data) is bytes:
        p[0] = <const uint8_t *> PyBytes_AS_STRING(data)
        n[0] = <size_t> PyBytes_GET_SIZE(data)
    elif type(data) is Lease:
        p[0] = (<Lease> data).p
        n[0] = <size_t> (<Lease> data).n
    else:
        p[0] = <const uint8_t *> (<Payload?> data).view.buf
        n[0] = <size_t> (<Payload> data).view.len
    return 0


cdef object json_line(object data):
    """As `parts_of`, for a caller's JSON text: ValueError for text that would break a line."""
    data = parts_of(data)
    if type(data) is not Parts:
        check_line_c(data)
    elif not (<Parts> data).parts:
        raise ValueError("the JSON text is empty")
    else:
        for part in (<Parts> data).parts:
            check_line_c(part)
    return data


cdef int check_line_c(object data) except -1:
    cdef const uint8_t *p = NULL
    cdef size_t n = 0
    locate_c(data, &p, &n)
    if n == 0:
        raise ValueError("the JSON text is empty")
    if kernels.find_newline(p, n) != n:
        raise ValueError("JSON text with a raw newline cannot be sent in a line")
    return 0


@cython.final
@cython.no_gc
cdef class Chunk:
    """A run of bytes to be sent, exported read-only, which keeps its memory alive."""

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
        self.may_leave = <size_t> ALL

    def __dealloc__(self):
        self.clear_c()
        PyMem_RawFree(self.segments)

    def __len__(self):
        return self.size

    @property
    def ready(self):
        """The number of bytes that may be sent."""
        return self.ready_c()

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
        cdef const uint8_t *p = NULL
        cdef size_t n = 0
        if type(data) is bytes:
            return self.write_part_c(
                data, <const uint8_t *> PyBytes_AS_STRING(data), <size_t> PyBytes_GET_SIZE(data)
            )
        if type(data) is Parts:
            for part in (<Parts> data).parts:
                self.write_object_c(part)
            return 0
        locate_c(data, &p, &n)
        return self.write_part_c(data, p, n)

    cdef int write_part_c(self, object data, const uint8_t *p, size_t n) except -1:
        """n bytes at p, which belong to `data`."""
        if n < self.copy_below:
            self.bytes_copied += <long long> n
            return self.write_c(p, n)
        self.close_segment_c()
        self.push_c(p, n, data)
        self.size += n
        return 0

    cdef int refer_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        """n bytes at p, which lie in the slab: a lease holds it, where they are not copied."""
        if n < self.copy_below:
            self.bytes_copied += <long long> n
            return self.write_c(p, n)
        return self.write_part_c(Lease.of(slab, p, n), p, n)

    cdef int ensure_segments_c(self, size_t wanted) except -1:
        """Room for `wanted` further segments."""
        cdef size_t room
        cdef Segment *grown
        if self.first and self.room - self.count < wanted:
            # forget the sent ones
            self.count -= self.first
            for room in range(self.count):
                self.segments[room] = self.segments[room + self.first]
            self.first = 0
        if self.room - self.count < wanted:
            room = max(<size_t> 2, 2 * self.room, self.count + wanted)
            grown = <Segment *> PyMem_RawRealloc(self.segments, room * sizeof(Segment))
            if grown is NULL:
                raise MemoryError("no memory for the outgoing gather list")
            self.segments = grown
            self.room = room
        return 0

    cdef int push_c(self, const uint8_t *p, size_t n, object owner) except -1:
        if self.count == self.room:
            self.ensure_segments_c(1)
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
        """Move the bytes of another outbox that may be sent to the end; nothing is copied."""
        cdef size_t i, n, taken = other.ready_c(), left = taken
        cdef Segment *s
        self.close_segment_c()
        other.close_segment_c()
        self.ensure_segments_c(other.count - other.first)      # from here on nothing can fail
        for i in range(other.first, other.count):
            if left == 0:
                break
            s = &other.segments[i]
            n = min(s.n, left)
            self.push_c(s.p, n, <object> s.owner)
            left -= n
        self.size += taken
        self.bytes_copied += other.bytes_copied
        other.bytes_copied = 0
        return other.consume_c(taken)

    # -- sending -------------------------------------------------------------------------------

    cdef int gather_c(self, iovec *vectors, int room) except -1:
        """Fill in up to `room` vectors of what is to be sent next. Returns how many."""
        cdef int n = 0
        cdef size_t i, left
        self.close_segment_c()
        i = self.first         # only now: what was sent may have been forgotten
        while n < room and i < self.count:
            vectors[n].iov_base = <void *> self.segments[i].p
            vectors[n].iov_len = self.segments[i].n
            n += 1
            i += 1
        if self.may_leave < self.size:
            left = self.may_leave
            for i in range(<size_t> n):
                if left == 0:
                    return <int> i
                vectors[i].iov_len = min(vectors[i].iov_len, left)
                left -= vectors[i].iov_len
        return n

    cdef int consume_c(self, size_t n) except -1:
        """The first n bytes were sent."""
        cdef Outbox me = self          # owners are freed, which may run any code
        cdef Segment *s
        cdef void *owner
        if n > self.size:
            raise ValueError("more bytes consumed than were queued")
        if self.may_leave != <size_t> ALL:
            self.may_leave -= min(n, self.may_leave)
        if n == self.size:
            return me.clear_c()        # an idle connection holds no memory
        self.close_segment_c()
        self.size -= n
        while n and self.first < self.count:
            s = &self.segments[self.first]
            if n < s.n:
                s.p += n
                s.n -= n
                break
            n -= s.n
            owner = s.owner
            self.first += 1
            Py_DECREF(<object> owner)      # may run any code, so `s` is not used after it
        return 0

    cdef bytes line_c(self):
        """A copy of the first line that is queued, without its newline."""
        cdef bytes line
        cdef char *q
        cdef size_t i, last, at = 0, n = 0
        self.close_segment_c()
        last = self.first
        while last < self.count:
            at = kernels.find_newline(self.segments[last].p, self.segments[last].n)
            n += at
            if at < self.segments[last].n:
                break
            last += 1
        if last == self.count:
            raise ValueError("no whole line is queued")
        line = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> n)
        q = PyBytes_AS_STRING(line)
        for i in range(self.first, last):
            memcpy(q, self.segments[i].p, self.segments[i].n)
            q += self.segments[i].n
        memcpy(q, self.segments[last].p, at)
        return line

    def take(self):
        """Everything that may be sent, as read-only bytes-like chunks in order, which is removed.

        The chunks own their memory: it does not change, however long a transport keeps them.
        """
        cdef list chunks = []
        cdef Chunk chunk
        cdef Segment *s
        cdef size_t i, n = self.ready_c(), left = n
        self.close_segment_c()
        for i in range(self.first, self.count):
            if left == 0:
                break
            s = &self.segments[i]
            chunk = Chunk.__new__(Chunk)
            chunk.owner = <object> s.owner
            chunk.p = s.p
            chunk.n = min(s.n, left)
            left -= chunk.n
            chunks.append(chunk)
        self.consume_c(n)
        return chunks

    cdef int clear_c(self) noexcept:
        cdef Segment *segments = self.segments
        cdef size_t i, first = self.first, count = self.count, room = self.room
        # The list is taken out before its owners are dropped: their destructors may run any code.
        self.segments = NULL
        self.first = self.count = self.room = 0
        self.size = 0
        self.block = None
        self.open_at = 0
        for i in range(first, count):
            Py_DECREF(<object> segments[i].owner)
        if self.segments is NULL and room <= MAX_IDLE_ROOM:
            self.segments = segments
            self.room = room
        else:
            PyMem_RawFree(segments)
        return 0

    cdef int truncate_c(self, size_t size) except -1:
        """Remove all but the first `size` bytes, the ones written last."""
        cdef Outbox me = self          # owners are freed, which may run any code
        cdef size_t excess
        cdef void *owner
        me.close_segment_c()
        while self.size > size:
            excess = self.size - size
            if self.segments[self.count - 1].n > excess:
                self.segments[self.count - 1].n -= excess
                self.size = size
                break
            self.count -= 1
            self.size -= self.segments[self.count].n
            owner = self.segments[self.count].owner
            Py_DECREF(<object> owner)
        return 0

    # -- a frame whose head is known only when its end is --------------------------------------

    cdef int mark_c(self, Mark *mark, size_t room) except -1:
        """Keep `room` bytes for the head of a frame, whose content is undefined, and remember the
        place. Nothing may be sent until `head_c` or `rewind_c`."""
        self.reserve_c(room)
        mark.segments = self.count - self.first
        mark.open_at = self.open_at
        mark.used = self.block.used
        mark.size = self.size
        mark.room = room
        return self.commit_c(room)

    cdef size_t marked_size_c(self, const Mark *mark) noexcept:
        """Bytes written since the mark, without the room for the head."""
        return self.size - mark.size - mark.room

    cdef int rewind_c(self, const Mark *mark) except -1:
        """Remove the mark and all that was written since."""
        cdef Outbox me = self          # owners are freed, which may run any code
        cdef size_t kept = self.first + mark.segments
        cdef void *owner
        if self.count > kept:
            # the first segment since is what was written to the block that the mark is in
            me.block = <Block> self.segments[kept].owner
        self.block.used = mark.used
        self.open_at = mark.open_at
        self.size = mark.size
        while self.count > kept:
            self.count -= 1
            owner = self.segments[self.count].owner
            Py_DECREF(<object> owner)
        return 0

    cdef bint piece_c(self, const Mark *mark, size_t i, uint8_t **p, size_t *n) noexcept:
        """The i-th run of bytes written since the mark, without the room for the head."""
        cdef size_t index = self.first + mark.segments + i
        cdef size_t skipped
        if index < self.count:
            p[0] = <uint8_t *> self.segments[index].p
            n[0] = self.segments[index].n
        elif index == self.count:
            p[0] = self.block.base + self.open_at
            n[0] = self.block.used - self.open_at
        else:
            return False
        if i == 0:
            skipped = mark.used - mark.open_at + mark.room
            p[0] += skipped
            n[0] -= skipped
        return True

    cdef bytes since_c(self, const Mark *mark):
        """A copy of what was written since the mark."""
        cdef uint8_t *p = NULL
        cdef size_t n = 0, done = 0, i = 0
        cdef bytes joined
        joined = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> self.marked_size_c(mark))
        while self.piece_c(mark, i, &p, &n):
            memcpy(PyBytes_AS_STRING(joined) + done, p, n)
            done += n
            i += 1
        return joined

    cdef int mask_c(self, const Mark *mark, const uint8_t *key) except -1:
        """Mask the bytes written since the mark (RFC 6455, section 5.3). Payloads of others are
        copied first."""
        cdef uint8_t *p = NULL
        cdef size_t n = 0, done = 0, i = 0, index
        cdef Block block
        while self.piece_c(mark, i, &p, &n):
            index = self.first + mark.segments + i
            if index < self.count and type(<object> self.segments[index].owner) is not Block:
                block = Block.allocate(n)
                kernels.mask(block.base, p, n, key, done)
                self.own_c(index, block)
            else:
                kernels.mask(p, p, n, key, done)
            done += n
            i += 1
        return 0

    cdef int own_c(self, size_t index, Block block) except -1:
        """The bytes of a segment lie in this block now."""
        cdef Segment *s = &self.segments[index]
        cdef object gone = <object> s.owner
        Py_INCREF(block)
        s.owner = <void *> block
        s.p = block.base
        self.bytes_copied += <long long> s.n
        Py_DECREF(gone)
        return 0

    cdef int head_c(self, const Mark *mark, const uint8_t *head, size_t n_head) except -1:
        """Write the head into the room kept for it; the rest of the room is not sent."""
        cdef size_t gap = mark.room - n_head
        cdef size_t index = self.first + mark.segments
        cdef size_t before = mark.used - mark.open_at     # bytes in one run with it
        cdef uint8_t *p = NULL
        cdef size_t n = 0
        self.piece_c(mark, 0, &p, &n)
        if before == 0 or (index == self.count and n >= MOVE_BELOW):
            # the gap lies between two segments
            memcpy(p - n_head, head, n_head)
            if index < self.count:
                self.segments[index].p += gap
                self.segments[index].n -= gap
            else:
                if before:
                    self.push_c(self.block.base + mark.open_at, before, self.block)
                self.open_at = mark.used + gap
        else:
            p -= mark.room
            memcpy(p, head, n_head)
            if gap:
                memmove(p + n_head, p + mark.room, n)
            if index < self.count:
                self.segments[index].n -= gap
            else:
                self.block.used -= gap
        self.size -= gap
        return 0
