"""Batches (MCP 2025-03-26 only; JSON-RPC 2.0 section 6): an array in, its answers joined out."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from wirespeed._core._simd cimport WS_OK, kernels, ws_status
from wirespeed._core.envelope cimport FAULT_PARSE, FAULT_REQUEST, Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox


@cython.final
@cython.no_gc
cdef class BatchReply:
    """Collects the answers to one batch; they leave as one array when the last is there."""

    @staticmethod
    cdef BatchReply new():
        cdef BatchReply reply = BatchReply.__new__(BatchReply)
        reply.out = Outbox.__new__(Outbox)
        return reply

    cdef int begin_answer_c(self) except -1:
        self.size_before = self.out.size
        self.n_answers += 1
        return self.out.text_c(b"[" if self.n_answers == 1 else b",")

    cdef int answer_c(self, bytes text) except -1:
        """Add a whole answer."""
        cdef bint done = False
        try:
            self.begin_answer_c()
            self.out.text_c(text)
            done = True
        finally:
            if not done:
                self.abort_answer_c()
        return 0

    cdef int abort_answer_c(self) except -1:
        """Remove the answer that was begun last."""
        self.n_answers -= 1
        return self.out.truncate_c(self.size_before)

    cdef int finish_c(self, FrameWriter writer) except -1:
        """Send the array, once nothing is open; a batch without answers sends nothing."""
        if self.n_open == 0 and self.n_answers:
            try:
                writer.open_c()
                writer.out.absorb_c(self.out)
                self.n_answers = 0
                writer.close_c(c']')
            finally:
                writer.abort_c()
            return 1
        return 0


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
