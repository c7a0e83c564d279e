from libc.stdint cimport uint8_t

from wirespeed._core.slab cimport Slab


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len


cdef class Block:
    cdef uint8_t *base
    cdef size_t capacity
    cdef size_t used             # bytes written

    @staticmethod
    cdef Block allocate(size_t capacity)


cdef struct Segment:
    const uint8_t *p
    size_t n
    void *owner                  # strong reference: a Block, or the owner of a payload


cdef struct Mark:                # a place in an outbox: where a frame begins
    size_t segments              # closed before it, the sent ones not counted
    size_t open_at               # of the block then in use
    size_t used
    size_t size                  # bytes queued before it
    size_t room                  # bytes kept for the head


cdef class Payload:
    cdef Py_buffer view          # the caller's bytes, exported until they are sent


cdef class Parts:
    cdef list parts              # of bytes, Payloads and Leases, none of them empty


# bytes, a Lease, or a Payload of any other bytes-like object
cdef object payload_of(object data)
# where its bytes lie, while it lives
cdef int locate_c(object data, const uint8_t **p, size_t *n) except -1
# a payload, or Parts of a tuple or list of bytes-like objects
cdef object parts_of(object data)
# the same; ValueError for text that is empty or holds a raw newline
cdef object json_line(object data)


cdef enum:
    ALL = -1


# Outgoing bytes. Frames are written between `open_c` and `close_c` of the FrameWriter, and nothing
# is sent meanwhile.
cdef class Outbox:
    cdef Segment *segments
    cdef size_t first            # oldest segment not sent
    cdef size_t count            # segments from 0, the sent ones included
    cdef size_t room             # segments allocated
    cdef Block block             # where small writes go; its open end belongs to no segment yet
    cdef size_t open_at          # first byte of `block` that is in no segment
    cdef readonly size_t size    # bytes queued
    cdef readonly long long bytes_copied  # payload bytes that were copied in
    # May be written: payloads shorter than this are copied, others are referenced.
    cdef size_t copy_below
    # May be written: the number of bytes that may be sent; <size_t> ALL does not limit it.
    cdef size_t may_leave

    # Bytes that may be sent.
    cdef inline size_t ready_c(self) noexcept:
        return self.size if self.size <= self.may_leave else self.may_leave

    # Room for n bytes in one piece, valid until the next call; `commit_c` says how many were
    # written.
    cdef uint8_t *reserve_c(self, size_t n) except NULL
    cdef int commit_c(self, size_t n) noexcept
    # Copy n bytes; copy a short text; copy or reference what `payload_of` or `parts_of` returned.
    cdef int write_c(self, const void *p, size_t n) except -1
    cdef int text_c(self, bytes text) except -1
    cdef int write_object_c(self, object data) except -1
    # Copy or reference n bytes at p. They stay valid and do not change while `data` lives, which
    # can be any object: it is held until they are sent.
    cdef int write_part_c(self, object data, const uint8_t *p, size_t n) except -1
    # The same for bytes that lie in a slab, which is held.
    cdef int refer_c(self, Slab slab, const uint8_t *p, size_t n) except -1
    # For framings and links. What may not be sent yet is not gathered, taken or absorbed.
    cdef int ensure_segments_c(self, size_t wanted) except -1
    cdef int push_c(self, const uint8_t *p, size_t n, object owner) except -1
    cdef int close_segment_c(self) except -1
    cdef int gather_c(self, iovec *vectors, int room) except -1
    cdef int consume_c(self, size_t n) except -1
    # A copy of the first line, without its newline; the outbox holds whole lines.
    cdef bytes line_c(self)
    cdef int absorb_c(self, Outbox other) except -1
    cdef int clear_c(self) noexcept

    # Remove all but the first `size` bytes.
    cdef int truncate_c(self, size_t size) except -1

    # A frame whose head is known only when its end is. `mark_c(&mark, room)` keeps `room` bytes
    # for the head; these count in `size` at once, so the payload has `marked_size_c(&mark)` bytes.
    # Write the payload, then call `head_c` with a head of at most `room` bytes, or `rewind_c`.
    cdef int mark_c(self, Mark *mark, size_t room) except -1
    cdef size_t marked_size_c(self, const Mark *mark) noexcept
    cdef int rewind_c(self, const Mark *mark) except -1
    cdef bint piece_c(self, const Mark *mark, size_t i, uint8_t **p, size_t *n) noexcept
    cdef bytes since_c(self, const Mark *mark)
    cdef int mask_c(self, const Mark *mark, const uint8_t *key) except -1
    cdef int own_c(self, size_t index, Block block) except -1
    cdef int head_c(self, const Mark *mark, const uint8_t *head, size_t n_head) except -1
