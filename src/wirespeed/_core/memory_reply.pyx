"""A reply route that keeps the answer in memory, for Python code."""

cimport cython

from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.reply_route cimport ReplyRoute


@cython.final
cdef class NoticeWriter(FrameWriter):
    """Gives each message to a function."""

    cdef int finish_c(self, char last) except -1:
        self.out.write_c(&last, 1)
        text = b"".join(self.out.take())
        self.is_open = False           # the function may send another message
        self.on_notice(text)
        return 0


@cython.final
cdef class MemoryReply(ReplyRoute):
    """Keeps the answer to one body (see `Session.receive_message`)::

        reply = MemoryReply()
        session.receive_message(body, reply)
        ...                              # take the events, answer the requests
        if reply.done:
            response = reply.data

    Args:
        on_notice: Called with the JSON text of each notification and request about a request of the
            body (``about=``) when it is sent. Without it they go to the session's own stream.
        on_done: Called once with this object when nothing more will come. What either function
            raises is raised by the method of the session that called it.

    Attributes:
        data: The JSON text of the answer, a message or an array of messages; None until it is
            there, and for a body that needs no answer.
        done: Whether the body was read to its end and all its requests are answered or dropped.
    """

    def __cinit__(self, *, on_notice=None, on_done=None):
        self.out = Outbox()
        self.on_done = on_done
        if on_notice is not None:
            self.notices = NoticeWriter()
            self.notices.out = Outbox()
            self.notices.on_notice = on_notice

    cdef FrameWriter notices_c(self):
        return self.notices

    cdef int finish_c(self, char last) except -1:
        self.out.write_c(&last, 1)
        self.data = b"".join(self.out.take())
        return 0

    cdef int ended_c(self) except -1:
        on_done = self.on_done
        self.on_done = None            # it may refer to us
        self.done = True
        if on_done is not None:
            on_done(self)
        return 0
