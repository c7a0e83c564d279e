from libc.stdint cimport uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.reply_route cimport ReplyRoute


cdef class BatchReply(ReplyRoute):
    cdef FrameWriter joined      # where the array goes; `out` has it without the closing bracket

    @staticmethod
    cdef BatchReply new(FrameWriter writer, ReplyRoute parent)


cdef list split_c(Message batch, Py_ssize_t max_length, uint32_t max_depth)
