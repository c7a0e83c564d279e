"""Where the answers to the messages of one body go: the body of an HTTP response, say.

A request that came without a route is answered on the stream of its session's wire. A body with a
route is open until it is read to its end and all its requests are answered or dropped: `n_open`.
"""

from wirespeed._core.framing.writer cimport FrameWriter


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
