from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.reply_route cimport ReplyRoute


cdef class NoticeWriter(FrameWriter):
    cdef object on_notice


cdef class MemoryReply(ReplyRoute):
    cdef readonly bytes data     # the answer, or None
    cdef readonly bint done      # nothing more will come
    cdef object on_done
    cdef NoticeWriter notices
