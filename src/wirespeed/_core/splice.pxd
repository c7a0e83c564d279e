from libc.stdint cimport int64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.span cimport Span

cdef enum:
    DIGITS = 24                  # characters of any id that `Pending` hands out
    MAX_MORE = 6                 # edits of a message besides those of its ids and tokens

cdef struct Edit:
    size_t at                    # offset in the text of a message
    size_t n                     # bytes that are left out
    Span text                    # what stands there instead

# The replacement of a point of interest (WS_…), which the message has.
cdef Edit edit_of(Message m, int which, Span text) noexcept
# Add an edit to n others in the order of their offsets. Returns how many there are.
cdef int insert_c(Edit *edits, int n, Edit edit) noexcept
# The digits of an id, in the DIGITS characters of `room`.
cdef Span digits_of(int64_t id, char *room) noexcept
# Send the text of a message with these edits, in the order of their offsets: all or nothing.
cdef int splice_c(FrameWriter writer, Message m, Edit *edits, int n_edits) except -1
