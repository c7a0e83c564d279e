from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from wirespeed._core.envelope cimport Message
from wirespeed._core.span cimport Span
from wirespeed.server.requests.observer cimport Observer, Series
from wirespeed.transport.served cimport Served

cdef enum:
    SHORT_TOKEN = 39


# A request that was passed on, while it is neither answered nor cancelled.
cdef class Route:
    cdef Side asker              # who sent it; its session knows the request by `ref`
    cdef Side answerer           # who answers it; its session knows the request by `id`
    cdef uint64_t ref
    cdef int64_t id
    cdef bint listens            # subscriptions/listen
    cdef bint greets             # initialize
    cdef Route next              # of a subscription: the same request at another server
    cdef uint8_t n_token         # of the asker's progress token, JSON text
    cdef uint8_t[SHORT_TOKEN] token
    cdef bytes long_token        # one that has no room there, or None
    cdef Series series           # what it is counted in; None: nothing
    cdef double began            # when it was passed on, by the clock of the observer; 0: no matter

    cdef int over_c(self, int code) except -1


cdef inline Span token_of(Route route) noexcept:
    """The JSON text of the progress token of a request; n == 0 without one."""
    cdef Span s
    if route.long_token is None:
        s.p, s.n = route.token, route.n_token
    else:
        s.p = <const uint8_t *> PyBytes_AS_STRING(route.long_token)
        s.n = <size_t> PyBytes_GET_SIZE(route.long_token)
    return s


cdef class Side(Served):
    cdef public Side across              # where its requests go; None: nowhere
    cdef public dict requests            # method -> function of (side, message), not of `across`
    cdef public bint admits_legacy       # False: `route` is asked for each request of this era
    cdef public bint admits_modern
    cdef public str tag                  # before what is to come back to this server; None: nothing
    cdef public Observer observer        # counts the requests that this side is asked; None: off
    cdef list held                       # sides that wait until this one has read
    cdef readonly long long n_passed     # requests of this side
    cdef readonly long long n_abandoned  # requests left unanswered at its loss
    cdef readonly long long n_late       # answers and progress that nobody waits for
    cdef readonly long long n_dropped    # notifications that this side did not read in time

    # `name`: JSON text that stands in the place of `params.name`, or None
    cdef int pass_request_c(self, Side to, Message m, bytes name) except -1
    cdef int observe_c(self, Route route, Message m) except -1
    cdef int pass_answer_c(self, Route route, Message m) except -1
    cdef int pass_notice_c(self, Route route, Message m) except -1
    cdef int pass_about_c(self, Route route, Message m, int which, Span text) except -1
    cdef int request_c(self, Message m) except -1
    cdef int notification_c(self, Message m) except -1
    cdef int fault_c(self, Message m) except -1
    cdef int hold_c(self, Side asker) except -1
    cdef int passed_c(self) except -1
    cdef bint last_c(self, Route route) except -1
    cdef int fail_c(self, Route route, int code, str message, object data) except -1
