from libc.stdint cimport int64_t, uint32_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session
from wirespeed.peer.connection cimport AskingConnection


cdef class ClientConnection(AskingConnection)


# A request that waits for its answer: the token of its id. `Waiter` resolves a future; one of your
# own overrides the four events, each of which is the last but `notified_c`.
cdef class Awaited:
    cdef readonly int64_t id
    cdef readonly bint cancellable     # `initialize` is not
    cdef readonly double deadline      # of the loop's clock; infinity for none

    # A result, an error, or a response that is not valid.
    cdef int answered_c(self, ClientConnection connection, Message m) except -1
    # A notification of the server that belongs to the request.
    cdef int notified_c(self, ClientConnection connection, Message m) except -1
    cdef int expired_c(self, ClientConnection connection) except -1
    # No answer will come. Whether the request still waited.
    cdef bint failed_c(self, object exc) except -1


cdef class Waiter(Awaited):
    cdef readonly object future
    cdef object decode                 # bytes-like -> result; runs while the message is pinned
    cdef readonly object on_progress   # called with what a progress notification says, or None
    cdef readonly str method
    cdef readonly double limit         # seconds
    cdef readonly bint other_id        # the id of the answer only means the request's: "4" for 4
    cdef readonly str tool             # of tools/call
    cdef readonly bytes arguments      # of a tool, as they were sent, where they may be sent again

    cdef str what_c(self)
    cdef int result_c(self, Message m) except -1
    cdef int error_c(self, ClientConnection connection, Message m) except -1
    cdef int progress_c(self, ClientConnection connection, Message m) except -1


cdef class ClientConnection(AskingConnection):
    cdef readonly Session session
    cdef public object revision        # settled by the handshake; None before
    cdef uint32_t max_depth
    cdef bytes version                 # JSON text of the revision's; empty before the handshake
    cdef bytes meta                    # members of every modern request's `_meta`; empty in legacy
    cdef bytes tasks_meta              # the same of requests that declare the tasks extension
    cdef dict names                    # JSON text of tool names
    cdef object timer                  # of the earliest deadline
    cdef double timer_at
    cdef public int64_t probing        # the id of server/discover, the first request; 0: none
    cdef object quiet                  # logs what the server can cause as often as it likes
    cdef str skipped                   # why a message that answers no request was skipped last
    cdef double skipped_at
    cdef bint reported                 # requests that nobody answers were logged
    cdef public object watch           # sees every notification, or None
    cdef object on_stray               # gets each response that answers no request; or None
    cdef readonly bint resends         # what HTTP servers put off is sent again
    cdef public object answerer        # answers the server's requests (legacy); None: nobody does

    cdef Waiter waiter_c(self, str method, object decode, object on_progress, bint cancellable,
                         double timeout)
    cdef int refuse_c(self, Message m) except -1
    cdef int close_answerer_c(self) except -1
    cdef int arm_c(self, double at) except -1
    cdef str note_c(self, double since)
    cdef int await_c(self, Awaited request, bint cancellable, double deadline) except -1
    cdef int write_call_c(
        self, int64_t id, bytes name, object body, bint progress, bytes meta
    ) except -1
    cdef int write_request_c(
        self, int64_t id, bytes method, bytes params, bint progress, bytes ours, bytes more
    ) except -1
    cdef int write_meta_c(self, int64_t token, bint first, bytes ours, bytes more) except -1
