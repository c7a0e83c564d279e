"""Messages that are sent on as they came, but for a few values: ids and tokens.

Nothing is decoded. A short text is copied once, into the outbox. Of a long one the pieces of 4 KiB
and more stay where they were read, and the outbox refers to them.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcpy

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox
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


cdef Span digits_of(int64_t id, char *room) noexcept:
    cdef size_t at = <size_t> DIGITS
    while True:
        at -= 1
        room[at] = c'0' + <char> (id % 10)
        id //= 10
        if id == 0:
            break
    return Span(<const uint8_t *> room + at, <size_t> DIGITS - at)


cdef int splice_c(FrameWriter writer, Message m, Edit *edits, int n_edits) except -1:
    cdef const uint8_t *p = m.p
    cdef size_t at = m.scan.value.off
    cdef size_t last = at + m.scan.value.len - 1     # the closing brace
    cdef size_t n = last - at
    cdef Slab slab = m.slab
    cdef int i
    if memchr(p + at, c'\n', n) is not NULL or memchr(p + at, c'\r', n) is not NULL:
        # between two tokens: a string cannot hold them. Both end a line somewhere.
        slab = Slab.borrow((<const char *> p)[:last].translate(ONE_LINE))
        p = slab.base
    for i in range(n_edits):
        n = n - edits[i].n + edits[i].text.n
    try:
        writer.open_c()
        if n < SHORT:
            write_short_c(writer.out, p, at, last, n, edits, n_edits)
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


cdef int write_short_c(
    Outbox out, const uint8_t *p, size_t at, size_t last, size_t n, Edit *edits, int n_edits
) except -1:
    """The same as one piece of n bytes."""
    cdef uint8_t *q = out.reserve_c(n)
    cdef size_t before
    cdef int i
    for i in range(n_edits):
        before = edits[i].at - at
        memcpy(q, p + at, before)
        memcpy(q + before, edits[i].text.p, edits[i].text.n)
        q += before + edits[i].text.n
        at = edits[i].at + edits[i].n
    memcpy(q, p + at, last - at)
    out.commit_c(n)
    return 0
