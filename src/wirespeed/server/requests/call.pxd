from libc.stdint cimport uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.session cimport Session
from wirespeed.server.requests.observer cimport Observer, RequestSpan, Series
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool


cdef class Operation:
    cdef readonly str name
    cdef readonly str kind             # "tool", "prompt", "resource" …: for logs and metrics
    cdef readonly object timeout       # seconds, or None
    cdef readonly bint wants_context
    cdef public object owner           # the Server that it was registered at, or None

    cdef int respond_c(self, Call call, object value) except -1
    cdef int fail_c(self, Call call, object exc) except -1


cdef class Feature(Operation):
    cdef readonly object spec          # of its function
    cdef object function
    cdef object launch                 # makes a coroutine of a call; None: calling gives one
    cdef object encode                 # (value, Revision) -> Body


cdef class Call(Completion):
    cdef readonly Serving connection
    cdef readonly Operation operation
    cdef readonly object revision      # protocol.revisions.Revision that the request is served by
    cdef readonly object context       # the handler's Context, if it takes one
    cdef readonly object input         # CallInput: what the request brought of earlier rounds
    cdef public object sink            # who gets the answer instead of the peer; or None
    cdef public object asker           # who asks the client in this request's stead; or None
    cdef uint64_t ref
    cdef Running running               # None until the handler suspended
    cdef object timer                  # of the operation's timeout
    cdef bint modern                   # revision.modern
    cdef bint cancelled                # the peer wants no answer, or is gone
    cdef readonly bint timed_out
    cdef bint given_up                 # by a shutdown whose grace time is over
    cdef bint answered                 # with questions; what the handler does now is of no account
    cdef readonly bint ended           # nothing more may be said about this request
    cdef readonly bint detached        # goes on as a task: `sink` gets what comes of it
    cdef object task                   # asyncio's, if the run is in one that is not ours; or None
    cdef bint apart                    # it may yet be detached
    cdef double began                  # of an observed request that has not ended; else 0
    cdef int code                      # of the error that it was answered with; else 0
    cdef bint failed                   # the result says isError
    cdef RequestSpan span              # of the trace, or None

    cpdef object cancel(self)
    cdef int reply_c(self, object body) except -1
    cdef int error_c(self, int code, str message, object data) except -1
    cdef int refuse_c(self, object exc) except -1
    cdef int carry_c(self, Call inner, object work) except -1
    cdef int stop_c(self) except -1
    cdef int drop_timer_c(self) except -1
    cdef Series series_c(self)


cdef class Serving(Endpoint):
    cdef readonly Session session
    cdef readonly object service
    cdef readonly object loop
    cdef readonly TaskPool pool
    cdef bytes modern_end              # what every modern result ends with, behind its own members
    cdef readonly set running          # calls whose handlers are suspended
    cdef list waiters                  # futures of those who wait for the client to read
    cdef object sink                   # of the request that is being served; see `dispatch`
    cdef dict asked                    # our requests: id -> future
    cdef bint dropping                 # notifications are being dropped
    cdef readonly bint draining
    cdef readonly unsigned long thread
    cdef readonly long long serial     # of all connections of this process
    cdef object asks                   # what every question to the client passes first, or None
    cdef readonly Observer observer    # counts and traces requests, or None
    cdef double began                  # of the request that is being served, if it is observed
    cdef RequestSpan span              # its, or None
    cdef object variables              # its handler runs in a copy of this; None: of the pool's
    cdef readonly long long n_dropped  # notifications
    cdef public object revision        # what `initialize` negotiated, or None
    cdef public object state           # the handshake's: client_info, capabilities, log_level
    cdef public object principal       # digest of the client's credential, or None

    cdef int prepare_c(self, Call call, Operation operation, Message m, object revision) except -1
    cdef int start_c(self, Call call, object work) except -1
    cdef int finish_c(self, Call call, object value, object exc) except -1
    cdef int answered_c(self, Message m) except -1
    cdef int check_drained_c(self) except -1
    cdef int cancelled_ended_c(self, Call call) except -1
    cdef int observe_c(self, Call call) except -1


cdef Series series_of(Observer observer, object service, Message m)
cdef object describe(object exc)
