from wirespeed._core.framing.base cimport FrameWriter


# A route of one's own: a compiled subclass sets `out` (an Outbox, its own or another wire's) in its
# `__cinit__`, and overrides what follows. `begin_c` and `finish_c` of `FrameWriter` write what
# stands around each message; they must not use the session.
cdef class ReplyRoute(FrameWriter):
    # Requests that are not answered or dropped, and bodies that are not read to their end.
    cdef readonly Py_ssize_t n_open
    # A part of another route (a batch in a body): that one; else None. Set by `__cinit__` only.
    cdef readonly ReplyRoute parent
    # Answers stay until all are there (a batch): their bytes count against `max_in_flight_bytes`.
    # Set by `__cinit__` only.
    cdef readonly bint holds
    # The fields of the HTTP request that brought the body (`HttpHead`), for those who serve it: set
    # by who gives the body to the session, until the fields are gone; else None.
    cdef object http_head
    cdef size_t n_counted        # bytes of `out` that the session counts; of a route that holds
    cdef int code                # of the error that is the answer, set before `finish_c`; else 0
    # The request was refused before the session's owner knew by which revision to serve it. Set
    # before `finish_c`, by the owner.
    cdef bint refused

    # One message was written whole, or removed: for the session.
    cdef int release_c(self, Py_ssize_t n) except -1

    # Override: what the transport knows of the client; None: what it knows of the connection.
    cdef object peer_c(self)
    # Override: where to write a notification or a request about a request of this route, before
    # its answer. Asked for each message; nothing need follow. None: the stream of the wire.
    cdef FrameWriter notices_c(self)
    # Override: nothing is open any more. Called once for each body; may run any code.
    cdef int ended_c(self) except -1


cdef class BatchReply(ReplyRoute):
    cdef FrameWriter joined      # where the array goes; `out` has it without the closing bracket

    @staticmethod
    cdef BatchReply new(FrameWriter writer, ReplyRoute parent)


cdef class CallbackWriter(FrameWriter):
    cdef object on_notice


cdef class MemoryReply(ReplyRoute):
    cdef readonly bytes data     # the answer, or None
    cdef readonly bint done      # nothing more will come
    cdef object on_done
    cdef CallbackWriter notices
