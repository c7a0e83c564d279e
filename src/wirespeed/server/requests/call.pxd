from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.server.requests.observer cimport Observer, RequestSpan, Series
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool


cdef enum Phase:
    RUNNING = 0
    DETACHABLE = 1                     # the call may become a task
    DETACHED = 2                       # the request is answered: the call works on a task
    ENDED = 3                          # nothing more may be said about the request


cdef enum StopReason:                  # of a handler: a higher reason replaces a lower one
    NOT_STOPPED = 0
    TIMED_OUT = 1
    SHUT_DOWN = 2                      # the grace time of the shutdown is over
    BY_CLIENT = 3                      # the client cancelled the request, or is gone
    ASKED = 4                          # the request was answered with questions


cdef class Operation:
    cdef readonly str name
    cdef readonly str kind             # "tool", "prompt", "resource" …: for logs and metrics
    cdef readonly object timeout       # seconds, or None
    cdef readonly bint wants_context
    cdef public object owner           # the Server that it was registered at, or None

    cdef int respond_c(self, Call call, object value) except -1
    cdef int fail_c(self, Call call, object exc) except -1


cdef class AnswerSink:
    cpdef object result(self, bytes data)
    cpdef object error(self, int code, str message, object data)
    cpdef object cancelled(self)
    cdef dict state_c(self)
    cdef int carry_c(self, Call call, object work) except -1


cdef class Call(Completion):
    cdef readonly Serving connection
    cdef readonly Operation operation  # None until it is known
    cdef readonly object revision      # protocol.revisions.Revision that the request is served by
    cdef readonly object context       # the handler's Context, if it takes one
    cdef readonly object input         # CallInput: what the request brought of earlier rounds
    cdef public object asker           # asks the client in place of this request, or None
    cdef public object first           # is called and awaited before the handler runs, or None
    cdef AnswerSink sink               # gets the answer instead of the client, or None
    cdef readonly uint64_t ref         # of the request; 0: the request is not this call's any more
    cdef bint modern                   # the request is of the era without a handshake
    cdef Phase phase
    cdef StopReason reason
    cdef Running running               # None until the handler suspends
    cdef object task                   # asyncio's, of a run outside of the pool; or None
    cdef object timer                  # of the operation's timeout
    cdef object variables              # the handler runs in a copy of these; None: of the pool's
    cdef double began                  # of an observed request that has not ended; else 0
    cdef RequestSpan span              # of the trace, or None
    cdef int code                      # of the error that the request was answered with; else 0
    cdef bint failed                   # the result says isError

    cpdef object cancel(self)
    cdef int make_context_c(self, Message message) except -1
    cdef int start_c(self, object work) except -1
    cdef int start_timer_c(self) except -1
    cdef int drop_timer_c(self) except -1
    cdef int stop_c(self, StopReason reason) except -1
    cdef int reply_c(self, object body) except -1
    cdef int error_c(self, int code, str message, object data) except -1
    cdef int refuse_c(self, object exc) except -1
    cdef int fail_internally_c(self, str what, object exc) except -1
    cdef int end_c(self, Message m) except -1
    cdef int observe_c(self, Message m) except -1
    cdef Series series_c(self)


# What a client has said of itself so far. docs/architecture.md, "Handshakes", has the table.
cpdef enum Handshake:
    NEW = 0
    GREETED = 1                        # `initialize` is answered
    INITIALIZED = 2                    # the client has confirmed that
    MODERN = 3                         # a modern request was served: no handshake can follow


cdef class Serving(SessionConnection):
    cdef readonly TaskPool pool
    cdef bytes modern_end              # what every modern result ends with, behind its own members
    cdef readonly set running          # calls whose handlers are suspended
    cdef bint dropping                 # notifications are being dropped
    cdef object asks                   # middleware around every question, or None
    cdef object watch                  # sees every notification, or None
    cdef readonly unsigned long thread
    cdef readonly long long serial     # unique among the connections of this process
    cdef readonly Observer observer    # counts and traces requests, or None
    cdef public bint kept              # a task works on for a client whose request has ended
    cdef public object state           # the handshake's: client_info, capabilities, log_level
    cdef public Handshake handshake

    cdef int answered_c(self, Message m) except -1
    cdef int fail_questions_c(self) except -1


cdef class Pipeline:
    cdef Call call_c(self, Serving connection, Message m)
    cdef int run_c(self, Call call) except -1


cdef class Feature(Operation):
    cdef object function
    cdef object launch                 # makes a coroutine of a call; None: calling returns one
    cdef object encode                 # (value, Revision) -> Body
