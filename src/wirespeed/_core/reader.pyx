"""Framing and envelopes alone: a byte stream in, messages out, without a state of requests.

For proxies and SDKs that do their own multiplexing; `wirespeed._core.session` builds on it.
"""

cimport cython
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr

from wirespeed._core._simd cimport WS_OK, kernels, ws_status
from wirespeed._core.envelope cimport (
    BATCH, FAULT_PARSE, FAULT_REQUEST, FAULT_RESPONSE, INVALID, Message,
)
from wirespeed._core.framing.base cimport FRAME_MORE, FRAME_OVERSIZE, Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.slab cimport Slab
from wirespeed._core.span cimport Span

from wirespeed.limits import Limits

cdef object DEFAULTS = Limits()    # they never change


@cython.final
cdef class MessageReader:
    """Reads the messages of a byte stream in place; iterate over it for those that are there now.

    Args:
        limits: `max_message`, `max_depth`, `max_values` and `max_batch` apply.
        batches: Whether an array is a batch, whose elements are messages; else it is invalid.
        framer: How messages lie in the stream; one a line by default.
    """

    def __cinit__(self, *, limits=None, bint batches=False, Framer framer=None):
        limits = DEFAULTS if limits is None else limits
        self.limits = limits
        self.max_depth = limits.max_depth
        self.max_message = limits.max_message
        self.max_values = limits.max_values
        self.framer = LineFramer(limits.max_message) if framer is None else framer
        self.batches = batches

    def receive_data(self, data, /):
        """Take in the next bytes of the stream, a contiguous bytes-like object, read in place."""
        self.framer.feed_c(data)

    def receive_eof(self):
        """No more bytes will come. An unfinished frame is the last one, where that can be told."""
        self.framer.eof = True

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m
        while True:
            if self.elements:
                return self.elements.pop()
            m = self.next_c()
            if m is None:
                raise StopIteration
            if m.kind_c != BATCH:
                return m

    @property
    def payload_bytes_copied(self):
        """Bytes of messages that had to be moved because they did not arrive in one piece."""
        return self.framer.bytes_moved

    cdef Message next_c(self):
        """The next frame as a message; None when there is no whole one.

        Of kind BATCH only when its elements are now in `self.elements`.
        """
        cdef MessageReader me = self   # input memory is freed, which may run any code
        cdef Span frame = Span(NULL, 0)
        cdef int got
        cdef Message m = self.spare
        # two in turn: while an iteration still holds one, the other is free
        self.spare = self.spare_next
        if m is None or Py_REFCNT(m) != 1:
            m = Message.new()
        else:
            m.drop_c()
        self.spare_next = m
        got = self.framer.next_frame_c(&frame)
        if got == FRAME_MORE:
            # our reference to the last message must not pin the input memory
            self.spare = self.spare_next = None
            return None
        if got == FRAME_OVERSIZE:
            self.too_long_c(m, frame)
        elif frame.p[0] == c'[' and self.batches:
            self.read_batch_c(m, self.framer.slab, frame)
        else:
            m.read_c(self.framer.slab, frame.p, frame.n, self.max_depth)
            if m.kind_c == BATCH or <size_t> frame.n > self.max_values:
                self.check_c(m, frame)
        if m.kind_c == INVALID and m.fault_c == FAULT_PARSE and m.slab is not None:
            if me.framer.refuse_c(m.p, m.n):
                m.drop_c()
                return None
        return m

    cdef int read_c(self, Message m, Slab slab, Span text) except -1:
        """Read a text that came whole; of kind BATCH as in `next_c`."""
        if <size_t> text.n > self.max_message:
            return self.too_long_c(m, text)
        if text.n and text.p[0] == c'[' and self.batches:
            return self.read_batch_c(m, slab, text)
        m.read_c(slab, text.p, text.n, self.max_depth)
        return self.check_c(m, text)

    cdef int read_batch_c(self, Message m, Slab slab, Span text) except -1:
        """Read an array. It is invalid where its elements are not in `self.elements`."""
        cdef str excess = None
        # a value takes a byte at least: only a long text is counted
        if <size_t> text.n > self.max_values:
            excess = self.excess_c(text)
        if excess is not None:
            return m.lost_c(text, self.limits.max_id, excess)
        m.hold_c(slab, text.p, text.n)
        m.kind_c = BATCH
        self.elements = split_c(m, self.limits.max_batch, self.max_depth)
        if self.elements is not None:
            self.elements.reverse()
        return 0

    cdef int check_c(self, Message m, Span text) except -1:
        """Make a message invalid for reasons other than its syntax."""
        cdef str excess
        if m.kind_c == BATCH:
            m.invalid_c(FAULT_REQUEST, "batches are not part of this protocol revision")
        if <size_t> text.n > self.max_values and m.kind_c != INVALID:
            excess = self.excess_c(text)
            if excess is not None:
                m.invalid_c(FAULT_REQUEST if m.is_call_c() else FAULT_RESPONSE, excess)
        return 0

    cdef int too_long_c(self, Message m, Span begin) except -1:
        return m.lost_c(
            begin, self.limits.max_id,
            f"longer than the limit of {self.limits.max_message} bytes",
        )

    cdef str excess_c(self, Span frame):
        """The text of the error if a frame has too many values; None if it has not."""
        if values_in(frame.p, frame.n, self.max_values) <= self.max_values:
            return None
        return f"more than the limit of {self.max_values} JSON values"


cdef inline size_t skip_blank(const uint8_t *p, size_t i, size_t n) noexcept:
    while i < n and (p[i] == 0x20 or p[i] == 0x0A or p[i] == 0x0D or p[i] == 0x09):
        i += 1
    return i


cdef list split_c(Message batch, Py_ssize_t max_length, uint32_t max_depth):
    """The elements of the array that the text of `batch` is, as messages that lie where it lies.

    Each byte is looked at once: the elements are validated one by one, and the array around them
    here. Only a text of more than max_length elements is validated again, as a whole, because the
    rest of it may not be JSON. Returns None, and makes `batch` invalid, when the text is not JSON,
    too deep, empty or of more than max_length elements.
    """
    cdef list elements = []
    cdef Message element
    cdef const uint8_t *p = batch.p
    cdef size_t i = 1
    cdef size_t n = batch.n
    cdef ws_status status
    i = skip_blank(p, i, n)
    if i < n and p[i] == c']':
        i += 1
    else:
        while True:
            if len(elements) == max_length:
                status = kernels.json(p, n, max_depth, &batch.scan)
                if status == WS_OK:
                    batch.invalid_c(FAULT_REQUEST, f"a batch of more than {max_length} messages")
                else:
                    batch.refuse_c(status, max_depth, batch.scan.error_at)
                return None
            element = Message.new()
            if not element.read_element_c(batch, i, max_depth):
                return None
            i += element.n
            elements.append(element)
            i = skip_blank(p, i, n)
            if i < n and p[i] == c',':
                i = skip_blank(p, i + 1, n)
                continue
            break
        if i >= n or p[i] != c']':
            batch.invalid_c(FAULT_PARSE, f"not JSON at byte {i}")
            return None
        i += 1
    i = skip_blank(p, i, n)
    if i < n:
        batch.invalid_c(FAULT_PARSE, f"not JSON at byte {i}")
    elif not elements:
        batch.invalid_c(FAULT_REQUEST, "an empty batch")
    else:
        return elements
    return None


cdef size_t values_in(const uint8_t *p, size_t n, size_t most) noexcept nogil:
    """An upper bound of the values in a JSON text: its commas and opening brackets outside strings,
    and one. The count stops above `most`. Text that is not JSON gives any number."""
    cdef const uint8_t *end = p + n
    cdef const uint8_t *quote
    cdef const uint8_t *back
    cdef size_t found = 1
    while p < end and found <= most:
        if p[0] == c'"':
            while True:
                p += 1
                quote = <const uint8_t *> memchr(p, c'"', <size_t> end - <size_t> p)
                if quote == NULL:
                    return found
                # a quote behind an odd number of backslashes is a part of the string
                back = quote
                while back > p and (back - 1)[0] == c'\\':
                    back -= 1
                p = quote
                if (<size_t> quote - <size_t> back) % 2 == 0:
                    break
        else:
            found += p[0] == c',' or p[0] == c'[' or p[0] == c'{'
        p += 1
    return found
