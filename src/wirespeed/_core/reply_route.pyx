"""Reply routes: where the answers to the messages of one body go, such as that of an HTTP request.

A request that came without a route is answered on the stream of its session's wire. A body with a
route is open until it is read to its end and all its requests are answered or dropped: `n_open`.
"""

cimport cython

from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.outbox cimport Outbox


cdef class ReplyRoute(FrameWriter):
    """Gets the answers to the messages of one body. Abstract: `MemoryReply` is one for Python."""

    cdef int release_c(self, Py_ssize_t n) except -1:
        """n requests or bodies are done."""
        self.n_open -= n
        if self.n_open == 0:
            return self.ended_c()
        return 0

    cdef object peer_c(self):
        return None

    def retry_after(self, seconds):
        """Take note of when a request that gets an error may be sent again."""

    def unserved(self):
        """Take note that a request gets an error because nothing is there that could serve it."""

    cdef FrameWriter notices_c(self):
        return None

    cdef int ended_c(self) except -1:
        return 0


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


@cython.final
cdef class CallbackWriter(FrameWriter):
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
            self.notices = CallbackWriter()
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
