from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from wirespeed._core.envelope cimport Message
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport Edit
from wirespeed.peer.connection cimport SessionConnection
from wirespeed.proxy.breakdown cimport Breakdown
from wirespeed.proxy.flow.counted cimport CountedCalls
from wirespeed.proxy.flow.turns cimport Turn, Turns
from wirespeed.server.requests.observer cimport Observer, Series

cdef enum:
    SHORT_TOKEN = 39


# The requests of a side that the audit log notes.
cpdef enum Audits:
    CALLS = 1
    READS = 2
    PROMPTS = 4


# A request that was passed on, while it is neither answered nor cancelled.
cdef class Route:
    cdef readonly Side asker     # who sent it; its session knows the request by `ref`
    cdef Side answerer           # who answers it; its session knows the request by `id`
    cdef readonly uint64_t ref
    cdef int64_t id
    cdef uint64_t about          # the request of the answerer that a server's is about, or 0
    cdef bint asks_for_logs      # it has a log level, and is one of the answerer's `n_loggers`
    cdef readonly bint listens   # subscriptions/listen
    cdef bint acknowledged       # the answerer of a subscription has taken it
    cdef readonly bint greets    # initialize
    cdef Route next              # of a subscription: the same request at another server
    cdef uint8_t n_token         # of the asker's progress token, JSON text
    cdef uint8_t[SHORT_TOKEN] token
    cdef bytes long_token        # one that has no room there, or None
    cdef AdmissionControl admission     # told when it is over, if there is a permit
    cdef object permit           # of this `AdmissionControl`; or None
    # None, or a function of the answer. It returns what the asker gets: the answer itself, the JSON
    # text of a result, or None: the request will be answered otherwise. ProtocolError: that error.
    cdef object after
    cdef object filter           # what a result is replaced by at last, a function of its text
    cdef object taker            # takes the result in place of the asker, or None
    cdef public object record    # notes the end of a call in the audit log; or None
    cdef readonly bint sent      # whether the request was ever sent to a server
    cdef object span             # that of the request, if the proxy is traced; or None
    # The request, while it is held. Kept, to be sent again if the answerer is lost; of a
    # subscription, for further servers. None: it is not sent again.
    cdef Message message
    cdef Series series           # counts it; or None
    cdef Breakdown breakdown     # counts it by `tool` and `whose`; or None
    cdef bytes tool              # the JSON text of the name of the tool that is called; or None
    cdef object whose            # the principal of the client; or None
    cdef object list_key         # the key by which its answer is kept (`ListCache`); or None
    cdef double began            # when it was passed on, by the clock of the observer; 0: no matter

    cdef int over_c(self, int code) except -1
    cdef int follow_c(self, object before) except -1


cdef inline Span progress_token_of(Route route) noexcept:
    """The JSON text of the progress token of a request; n == 0 without one."""
    cdef Span s
    if route.long_token is None:
        s.p, s.n = route.token, route.n_token
    else:
        s.p = <const uint8_t *> PyBytes_AS_STRING(route.long_token)
        s.n = <size_t> PyBytes_GET_SIZE(route.long_token)
    return s


cdef inline int keep_progress_token(Route route, Span token) except -1:
    """Keep the JSON text of a progress token; n == 0: none."""
    if token.n <= SHORT_TOKEN:
        memcpy(route.token, token.p, token.n)
        route.n_token = <uint8_t> token.n
        route.long_token = None
    else:
        route.long_token = (<const char *> token.p)[:token.n]
    return 0


# Decides when requests are passed on. It is asked before, and told when they are over.
cdef class AdmissionControl:
    # 1: pass the request of a new route on, which has the permit, if it needs one; 0: the request
    # is refused, or held until there is room. `name`, `after`, `given`: as of `pass_request_c`.
    cdef int admit_c(
        self, Route route, Message m, bytes name, object after, Message given
    ) except -1
    cdef int done_c(self, Route route) except -1
    cdef int heard_c(self, Route route) except -1     # the server has said something about it


# What clients may do. A side shows its requests to it, if it has one, before they are passed on.
cdef class AccessCheck:
    # Whether a request may be passed on. If not, it was answered.
    cdef bint admits_c(self, Side asker, Message m) except -1
    # What the result of a request is replaced by, a function of its text; None: it stays.
    cdef object filter_c(self, Side asker, Message m)


# Chooses between servers of 2026-07-28.
cdef class Choice:
    # The server that gets a request; None: that is to be looked at.
    cdef Side choose_c(self, Side asker, Message m)


# Looks at the requests of a side and the answers to them, and edits these for a server of another
# era.
cdef class Translation:
    # The edits of a request, MAX_MORE at most. Returns how many. It may set `Route.after`.
    cdef int request_c(self, Route route, Message m, Edit *edits) except -1
    # Pass an answer on with edits, for a route with `after`. 0: that function has to look at it.
    cdef bint answer_c(self, Route route, Message m) except -1
    # Whether `route` is asked for a request: it needs more than edits.
    cdef bint diverts_c(self, Message m) noexcept


cdef class Side(SessionConnection):
    cdef readonly object binding         # where its requests go (`Binding`); what follows is of it
    cdef readonly Side across            # where its requests go; None: nowhere
    cdef readonly dict requests          # method -> function of (side, message), not of `across`
    cdef readonly bint admits_legacy     # False: `route` is asked for each request of this era
    cdef readonly bint admits_modern
    cdef readonly Choice choice          # asked before `route`, for the modern era; or None
    cdef readonly Translation translation       # None: servers of its own era
    cdef readonly AdmissionControl admission    # of its requests; None: all are passed on at once
    cdef public object tags              # on what is to come back to this server (`Tags`), or None
    cdef public AccessCheck access            # what its requests may be; None: everything
    cdef public AccessCheck mirrored          # its arguments in fields of HTTP; None: not compared
    cdef public object tracer            # makes spans of its requests; None: off
    cdef public double deadline          # seconds that it has for a request; inf: it has all time
    cdef public object retries           # says whether a request may be sent again; None: none may
    cdef public bint retries_calls       # whether calls of tools are among these
    cdef public object lists             # its lists that are kept (`ListCache`), or None
    cdef public Observer observer        # counts the requests that this side is asked; None: off
    cdef readonly long long n_passed     # requests of this side
    cdef readonly long long n_answered   # requests that it has answered, without `initialize`
    cdef Turns turns                     # of sides that wait for room here; None: nobody waits
    cdef Turn turn                       # its own, at another side; None: it never waited
    cdef public object opens             # methods of requests that stay open, a set; None: none
    cdef public object rates             # how many requests it may send (`Rates`); None: any
    cdef public Side outer               # the client's own, where this one is a part of it
    cdef readonly long long n_turns      # turns that were given
    cdef readonly long long n_over_rate  # its requests that came too early for `rates`
    cdef readonly long long n_over_quota  # its calls that were more than a quota has
    cdef CountedCalls counted            # calls that no server has and quotas count; or None
    cdef public object audit             # what notes its requests; None: nothing does
    cdef public int audits               # which of them (`Audits`)
    cdef public long long n_given_up     # requests to it that were cancelled, or expired
    cdef readonly long long n_late       # answers and progress that nobody waits for
    cdef uint64_t newest                 # the last request of this side; perhaps over
    cdef void *asked_by                  # who sent it the last request; to be compared only
    cdef bint joins                      # the next request may wait for those of other connections

    # `name`: JSON text that stands in the place of `params.name`, or None. `after`: `Route.after`,
    # or None. `given`: the request as it came, if `m` is for one server alone: it is never sent
    # again; or None.
    cdef int pass_request_c(
        self, Side to, Message m, bytes name, object after, Message given
    ) except -1
    cdef int send_c(
        self, Route route, Message m, bytes name, object after, Message given
    ) except -1
    cdef int keep_c(self, Route route, Message m, Message given) except -1
    # Answers a request for a list from the kept ones. Whether it did.
    cdef bint has_list_c(self, Route route, Message m) except -1
    cdef int observe_c(self, Route route, Message m) except -1
    cdef int pass_answer_c(self, Route route, Message m) except -1
    cdef int replaced_c(self, Route route, Message m) except? -1
    cdef int pass_notice_c(self, Route route, Message m) except -1
    cdef int pass_about_c(self, Route route, Message m, int which, Span text) except -1
    # Override, for a client: the checks of a request.
    cdef int request_c(self, Message m) except -1
    cdef int forward_c(self, Message m, bint modern) except -1
    # Override, for a client: who takes the result of a request that is sent now, and what that is
    # replaced by.
    cdef int prepare_c(self, Route route, Message m) except -1
    cdef int notification_c(self, Message m) except -1
    cdef int fault_c(self, Message m) except -1
    # Override, for a server: a request that stays open was passed on to it. Whether such a request,
    # which it has refused with -31000, is sent again in place of another one.
    cdef int opened_c(self, Route route, Message m, bytes name, object after) except -1
    cdef bint reopens_c(self, Route route, object error) except -1
    # Override, for a server: the request of another side that a message to it is about, or 0.
    cdef uint64_t about_c(self, Side to) except? 0
    # Override, for a server: a request that asks for log messages begins (n is 1), or ends (-1)
    # with this code.
    cdef int count_logger_c(self, Route route, int n, int code) except -1
    cdef Message trace_c(self, Route route, Message m)
    cdef int passed_c(self) except -1
    cdef bint last_c(self, Route route) except -1
    cdef bint send_again_c(self, Route route) except -1
    cdef int fail_c(self, Route route, int code, str message, object data) except -1
    cdef bint is_audited_c(self, Message m) except -1
    cdef int asked_c(self, Side asker) except -1
    cdef int hold_c(self, Side asker, size_t n) except -1
    cdef int give_turn_c(self) except -1
    cdef int end_turn_c(self) except -1
    cdef int unknown_c(self, Message m) except -1
    # `about`: what the request was about (`Route.about`)
    cdef int pass_cancel_c(self, int64_t id, Message m, uint64_t about) except -1
    # Whether the response to a request of this side takes messages before the answer. Such a
    # request, the newest if it is one; 0: none is.
    cdef bint carries_c(self, uint64_t ref) except -1
    cdef uint64_t open_c(self) except? 0
    cdef int refused_c(self, Message m, int code) except -1
    cdef int refuse_unsent_c(self, uint64_t ref, Message m, str why) except -1
    cdef int hand_over_c(self, uint64_t about) except -1
    cdef int keep_record_c(self, uint64_t ref, object record, int code) except -1


cdef inline bint may_be_given(Span text) noexcept:
    """Whether a JSON text may have a member that a server gives and a client brings back (the names
    are in `wirespeed.proxy.affinity`): the end of its name is there. Nothing is decoded."""
    cdef const uint8_t *p = text.p
    cdef const uint8_t *end = text.p + text.n
    cdef const uint8_t *quote
    while p < end:
        quote = <const uint8_t *> memchr(p, c'"', <size_t> end - <size_t> p)
        if quote is NULL:
            return False
        if <size_t> quote - <size_t> text.p > 5 and (
            memcmp(quote - 5, "ursor", 5) == 0
            or memcmp(quote - 5, "askId", 5) == 0
            or memcmp(quote - 5, "State", 5) == 0
        ):
            return True
        p = quote + 1
    return False


cdef inline bint acknowledged_elsewhere(Route route) except -1:
    """Whether another server has acknowledged a subscription."""
    cdef object held = route.asker.session.inflight.token_c(route.ref)
    cdef Route one = <Route> held if type(held) is Route else None
    while one is not None and (one is route or not one.acknowledged):
        one = one.next
    return one is not None


cdef inline int abandon(Route route, str why, int code) except -1:
    """Cancel a request where it was passed on to, and count and note it with a code."""
    while route is not None:
        if route.answerer.session.pending.take_c(route.id) is not None:
            route.answerer.cancel(route.id, why, route.about)
        route.over_c(code)
        route = route.next
    return 0


cdef inline int give_up(Side side, str why, int code) except -1:
    """The same for all requests of a side."""
    for token in list(side.session.inflight.tokens):
        if type(token) is Route:
            abandon(<Route> token, why, code)
    return 0
