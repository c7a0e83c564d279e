from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox


cdef class BatchReply:
    cdef Outbox out              # what was answered so far, without the closing bracket
    cdef Py_ssize_t n_open       # requests of the batch that are not answered yet
    cdef Py_ssize_t n_answers
    cdef size_t size_before      # of `out`, before the latest answer
    cdef size_t n_counted        # bytes of `out` that the session's `n_batch_bytes` includes

    @staticmethod
    cdef BatchReply new()
    cdef int begin_answer_c(self) except -1
    cdef int answer_c(self, bytes text) except -1
    cdef int abort_answer_c(self) except -1
    cdef int finish_c(self, FrameWriter writer) except -1


cdef list split_c(Message batch, Py_ssize_t max_length, uint32_t max_depth)
