"""Batches (MCP 2025-03-26 only; JSON-RPC 2.0 section 6): an array in, its answers joined out."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from wirespeed._core._simd cimport WS_OK, kernels, ws_status
from wirespeed._core.envelope cimport FAULT_PARSE, FAULT_REQUEST, Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute


@cython.final
cdef class BatchReply(ReplyRoute):
    """Collects the answers to one batch; they leave as one array when the last is there."""

    @staticmethod
    cdef BatchReply new(FrameWriter writer, ReplyRoute parent):
        """The array goes to the parent, or where there is none, to the writer of the wire."""
        cdef BatchReply reply = BatchReply.__new__(BatchReply)
        reply.out = Outbox.__new__(Outbox)
        reply.joined = writer if parent is None else parent
        reply.parent = parent
        reply.holds = True
        reply.n_open = 1           # until all elements were taken
        return reply

    cdef int begin_c(self) except -1:
        return self.out.text_c(b"," if self.out.size else b"[")

    cdef int finish_c(self, char last) except -1:
        return self.out.write_c(&last, 1)

    cdef FrameWriter notices_c(self):
        return None if self.parent is None else self.parent.notices_c()

    cdef int ended_c(self) except -1:
        """Send the array; a batch without answers sends nothing."""
        cdef FrameWriter joined = self.joined
        if self.out.size:
            try:
                joined.open_c()
                joined.out.absorb_c(self.out)
                joined.close_c(c']')
            finally:
                joined.abort_c()
        return 0 if self.parent is None else self.parent.release_c(1)


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
