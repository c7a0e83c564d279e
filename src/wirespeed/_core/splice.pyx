"""Messages that are sent on as they came, but for a few values: ids and tokens.

Nothing is decoded. A short text is copied once, into the outbox. Of a long one the pieces of 4 KiB
and more stay where they were read, and the outbox refers to them.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span

cdef enum:
    SHORT = 4096                 # bytes; as of `Outbox.copy_below`

cdef bytes ONE_LINE = bytes.maketrans(b"\n\r", b"  ")


cdef Edit edit_of(Message m, int which, Span text) noexcept:
    cdef Edit edit
    edit.at = m.scan.poi[which].off
    edit.n = m.scan.poi[which].len
    edit.text = text
    return edit


cdef int insert_c(Edit *edits, int n, Edit edit) noexcept:
    cdef int i = n
    while i and edits[i - 1].at > edit.at:
        edits[i] = edits[i - 1]
        i -= 1
    edits[i] = edit
    return n + 1


@cython.cdivision(True)
cdef Span digits_of(int64_t id, char *room) noexcept:
    cdef size_t at = <size_t> DIGITS
    cdef uint64_t rest = <uint64_t> id
    while rest >= 10:
        at -= 1
        room[at] = c'0' + <char> (rest % 10)
        rest //= 10
    at -= 1
    room[at] = c'0' + <char> rest
    return Span(<const uint8_t *> room + at, <size_t> DIGITS - at)


cdef int splice_c(FrameWriter writer, Message m, Edit *edits, int n_edits) except -1:
    cdef const uint8_t *p = m.p
    cdef size_t at = m.scan.value.off
    cdef size_t last = at + m.scan.value.len - 1     # the closing brace
    cdef size_t n = last - at
    cdef Slab slab = m.slab
    cdef uint8_t *q = NULL
    cdef int i
    if not writer.takes_newlines and (
        memchr(p + at, c'\n', n) is not NULL or memchr(p + at, c'\r', n) is not NULL
    ):
        # between two tokens: a string cannot hold them. Both end a line somewhere.
        slab = Slab.borrow((<const char *> p)[:last].translate(ONE_LINE))
        p = slab.base
    for i in range(n_edits):
        n = n - edits[i].n + edits[i].text.n
    if n < SHORT:
        writer.out.bytes_copied += <long long> n
        q = writer.whole_c(n + 1)
        if q is not NULL:
            q[n] = c'}'
            return copy_c(q, p, at, last, edits, n_edits)
    try:
        writer.open_c()
        if n < SHORT:
            copy_c(writer.out.reserve_c(n), p, at, last, edits, n_edits)
            writer.out.commit_c(n)
        else:
            for i in range(n_edits):
                writer.out.refer_c(slab, p + at, edits[i].at - at)
                writer.out.write_c(edits[i].text.p, edits[i].text.n)
                at = edits[i].at + edits[i].n
            writer.out.refer_c(slab, p + at, last - at)
        writer.close_c(c'}')
    finally:
        writer.abort_c()           # of a frame that could not be finished
    return 0


cdef int copy_c(
    uint8_t *q, const uint8_t *p, size_t at, size_t last, Edit *edits, int n_edits
) noexcept:
    """Write the text with its edits, but for the last byte, to `q`."""
    cdef size_t before
    cdef int i
    for i in range(n_edits):
        before = edits[i].at - at
        memcpy(q, p + at, before)
        memcpy(q + before, edits[i].text.p, edits[i].text.n)
        q += before + edits[i].text.n
        at = edits[i].at + edits[i].n
    memcpy(q, p + at, last - at)
    return 0
