"""One end of the proxy: the session of a client, or of a server behind the proxy.

What one side asks is passed on to another. Five id spaces meet here, and none is decoded: the ids
of requests, their progress tokens, the ids in cancellations and in the messages of subscriptions,
all of them in both directions. The id that a request has on the other side is also its progress
token there. An id is never used twice by one session, so what comes late finds nothing.

Sides whose requests go to the same server take turns there while that has no room (`Turns`).
"""

cimport cython
import logging
import msgspec

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from wirespeed._core._simd cimport (
    WS_META_LOG_LEVEL, WS_META_PROGRESS_TOKEN, WS_META_SUBSCRIPTION_ID, WS_METHOD, WS_NAME,
    WS_PARAMS, WS_PROGRESS_TOKEN, WS_REQUEST_ID, WS_RESULT,
)
from wirespeed._core.envelope cimport (
    ERROR, INVALID, Message, NOTIFICATION, REQUEST, RESULT, is_modern, method_is, poi_is, span_of,
)
from wirespeed._core.envelope import parse
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.session cimport Session
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport Edit, MAX_MORE, edit_of, splice_c
from wirespeed.errors import ProtocolError
from wirespeed.peer.connection cimport DRAINING, SessionConnection
from wirespeed.protocol import codes
from wirespeed.proxy.affinity import (
    OTHER_CODE, about_subscription, code_of, replaced, whole,
)
from wirespeed.proxy.flow.turns cimport Turn, Turns
from wirespeed.proxy.own_requests import ProxyRequest
from wirespeed.proxy.trace_context cimport with_meta_c
from wirespeed.server.requests.observer cimport CANCELLED, now_c
from wirespeed.transport.memory import MemoryLink


logger = logging.getLogger("wirespeed.proxy")

# Not those of the proxy's own refusals: a server that is busy leaves the proxy ready.
cdef frozenset VERDICTS = codes.MODERN_ERRORS | {codes.METHOD_NOT_FOUND}


cdef enum:
    MAX_CODES = 32        # of one method, each counted for itself
    QUANTUM = 65536       # bytes that a side may send in its turn, while others wait


@cython.final
@cython.freelist(256)
cdef class Route:

    cdef int over_c(self, int code) except -1:
        """Count and note the end of the request, once: it has its answer, or needs none."""
        cdef double seconds
        cdef int counted = code
        if self.asks_for_logs:
            self.answerer.count_logger_c(self, -1, code)
        if self.began != 0:
            seconds = now_c() - self.began
            self.began = 0
            if code and code not in self.series.codes and len(self.series.codes) >= MAX_CODES:
                counted = OTHER_CODE
            self.series.add_c(seconds, counted, False)
            if self.breakdown is not None:
                self.breakdown.add_c(self.tool, self.whose, seconds, counted)
        if self.asker.counted is not None and not self.sent:
            self.asker.counted.refused_c(self.ref)
        if self.permit is not None:
            self.admission.done_c(self)
        if self.record is not None:
            record, self.record = self.record, None
            record.end(code)
        if self.span is not None:
            span, self.span = self.span, None
            span.end(code)
        return 0

    cdef int follow_c(self, object before) except -1:
        """Go on where the token was that the request had: its record, and whether it was sent."""
        if before is not None:
            self.record, before.record = before.record, None
            self.sent = before.sent
        return 0


cdef class AdmissionControl:
    """The base of what decides when requests are passed on."""

    cdef int admit_c(
        self, Route route, Message m, bytes name, object after, Message given
    ) except -1:
        raise NotImplementedError

    cdef int done_c(self, Route route) except -1:
        raise NotImplementedError

    cdef int heard_c(self, Route route) except -1:
        return 0


cdef class AccessCheck:
    """The base of what says what clients may do."""

    cdef bint admits_c(self, Side asker, Message m) except -1:
        raise NotImplementedError

    cdef object filter_c(self, Side asker, Message m):
        raise NotImplementedError


cdef class Choice:
    """The base of what chooses between servers."""

    cdef Side choose_c(self, Side asker, Message m):
        raise NotImplementedError


cdef class Translation:
    """The base of what edits requests and answers between two eras."""

    cdef int request_c(self, Route route, Message m, Edit *edits) except -1:
        raise NotImplementedError

    cdef bint answer_c(self, Route route, Message m) except -1:
        raise NotImplementedError

    cdef bint diverts_c(self, Message m) noexcept:
        return False


cdef class Side(SessionConnection):
    """The base of `Downstream` and `Upstream`.

    Args:
        session: The session of the connection.
        loop: The event loop.
        service: What a client is connected to; None for a server.
        log: The logger of the loss; None: the loss is not logged.

    Attributes:
        binding: Where its requests go: a `wirespeed.proxy.binding.Binding`. So do `across`,
            `requests`, `admits_legacy`, `admits_modern`, `choice`, `translation` and `admission`,
            which are those of the binding.
        access: What its requests may be; None: everything.
        mirrored: What compares arguments of requests over HTTP with header fields; None: nothing.
        tracer: What makes spans of its requests; None: nothing does.
        deadline: The seconds that this side has for a request; inf: as long as it takes.
        retries: A function that says whether a request may be sent again, where this side is lost
            before it has answered (`again`); None: none may.
        retries_calls: Whether it is asked about calls of tools, too.
        rates: How many requests it may send; None: any number.
        lists: The kept lists of this server; None: it is always asked.
        outer: The client's own connection, where this one is a part of it: its link (`MemoryLink`)
            joins it to another side of the proxy.
        audit: What notes its requests; None: nothing does.
        audits: Which of them: `Audits`.
    """

    def __init__(self, Session session not None, loop, service=None, log=None):
        SessionConnection.__init__(self, session, service, loop, log)
        self.most_unread = 2 * session.output_high
        self.deadline = INFINITY

    def bind(self, binding not None):
        """Let the requests of this side go somewhere else, from the next one on."""
        self.binding = binding
        self.across, self.requests = binding.across, binding.requests
        self.admits_legacy, self.admits_modern = binding.admits_legacy, binding.admits_modern
        self.choice, self.translation = binding.choice, binding.translation
        self.admission = binding.admission

    # -- for subclasses ------------------------------------------------------------------------

    def route(self, Message message):
        """Return the side that a request goes to, or None if it was answered."""
        if self.across is None:
            self.unreachable(message)
        return self.across

    def answered(self, Message message, object token):
        """Take the answer to a request of the proxy itself; None: there will be none."""

    def gave_up(self, object token, exc):
        """A request of the proxy itself will get no answer; None: it waits no more."""

    def agreed(self, Message message):
        """Take note of the answer to an `initialize` of this side that was passed on."""

    def notified(self, Message message):
        """Take a notification that belongs to no request."""

    def notified_about(self, Message message, object token):
        """Take a notification about a request that the proxy answers, or has made."""
        self.n_late += 1

    def overheard(self, Message message):
        """Take note of a notification about a subscription of this side, which is passed on."""

    def gathers(self, Message message, object route):
        """Return whether a change for a subscription waits for what other servers say."""
        return False

    def faulty(self, Message message):
        """Take note of a message that is not valid."""

    def loss(self, exc):
        """Return the text of the error for requests that were not answered."""
        return "the connection was lost before the answer"

    def again(self, Side asker, Message message):
        """Return whether a request that this lost side has not answered will be sent again."""
        return False

    # -- events of the link ----------------------------------------------------------------------

    cdef int take_c(self, Message m) except -1:
        try:
            if m.kind_c == REQUEST:
                self.request_c(m)
            elif m.kind_c == RESULT or m.kind_c == ERROR:
                if type(m.token) is Route:
                    self.pass_answer_c(<Route> m.token, m)
                else:
                    self.answered(m, m.token)
            elif m.kind_c == NOTIFICATION:
                self.notification_c(m)
            elif m.kind_c == INVALID:
                self.fault_c(m)
        except Exception as exc:
            logger.error("internal error of the proxy at %s", m, exc_info=exc)
            if m.kind_c == REQUEST:
                self.session.error_c(m.ref, codes.INTERNAL_ERROR, "Internal error", None)
            elif type(m.token) is Route and m.kind_c != NOTIFICATION:
                self.fail_c(<Route> m.token, codes.INTERNAL_ERROR, "Internal error", None)
        return 0

    cpdef object on_data(self):
        cdef Side me = self            # an event may close the link
        SessionConnection.on_data(me)
        if me.turn is not None and not me.session.pauses_requests:
            me.end_turn_c()

    def clean_up(self, exc):
        """The link is gone. What this side had asked is cancelled, what it had been asked fails."""
        cdef Side me = self
        cdef Route route
        give_up(me, "the client has left", CANCELLED)
        if me.counted is not None:
            me.counted.close_c()
        for _, token in self.session.fail_all():
            if type(token) is Route:
                route = <Route> token
                if not me.send_again_c(route):
                    me.fail_c(route, codes.SERVER_LOST, me.loss(exc), None)
            else:
                me.answered(None, token)
        me.end_turn_c()
        me.turn = None
        me.give_turn_c()               # to all: nothing is sent here any more
        me.bind(me.binding.lost())

    cdef bint send_again_c(self, Route route) except -1:
        """Whether a request that this side has not answered, and will not, is sent again."""
        if (
            route.message is None
            or route.listens           # what was not heard meanwhile is lost
            or not self.again(route.asker, route.message)
        ):
            return False
        record, route.record = route.record, None    # the call is not over
        route.over_c(codes.SERVER_LOST)
        route.record = record
        return True

    cdef int cut_off_c(self, str why) except -1:
        cdef Side me = self
        cdef int code
        for token in list(me.session.inflight.tokens):
            if type(token) is Route and not (<Route> token).sent:     # it is held
                me.refuse_unsent_c((<Route> token).ref, (<Route> token).message, why)
                (<Route> token).over_c(codes.SHUTTING_DOWN)
        # where nothing is refused, the client has ended its session, or its side of the connection
        give_up(me, why, CANCELLED if me.session.refusal is None else codes.CUT_OFF)
        # once more: a server that is lost with that has its client refused
        code = CANCELLED if me.session.refusal is None else codes.CUT_OFF
        for ref in me.session.inflight.refs_c():
            token = me.session.inflight.token_c(ref)
            if token is None:          # `initialize` that waits
                me.refuse_unsent_c(ref, None, why)
            elif not isinstance(token, ProxyRequest):
                continue
            elif token.record is not None:
                token.note(code)
            elif token.sent or token.request is None:
                continue
            elif token.waits:
                me.refuse_unsent_c(ref, token.request, why)
            elif code != CANCELLED:
                me.refused_c(token.request, code)
        return SessionConnection.cut_off_c(me, why)

    # -- its requests ------------------------------------------------------------------------------

    cdef int unknown_c(self, Message m) except -1:
        """Refuse a request whose method its revision does not have: a server that clients share
        could take `initialize` for a handshake with all of them."""
        self.refused_c(m, codes.METHOD_NOT_FOUND)
        self.session.error_c(m.ref, codes.METHOD_NOT_FOUND, f"Method not found: {m.method}", None)
        return 0

    cdef bint is_audited_c(self, Message m) except -1:
        """Whether the audit log notes such requests."""
        return (
            (self.audits & CALLS and method_is(m, b'"tools/call"', "tools/call"))
            or (self.audits & READS and method_is(m, b'"resources/read"', "resources/read"))
            or (self.audits & PROMPTS and method_is(m, b'"prompts/get"', "prompts/get"))
        )

    cdef int refused_c(self, Message m, int code) except -1:
        """A request of this side is refused: note it if such requests are noted."""
        cdef object held = self.session.inflight.token_c(m.ref)
        if self.counted is not None:
            self.counted.refused_c(m.ref)
        if type(held) is Route and (<Route> held).record is not None:
            return (<Route> held).over_c(code)    # it waited, after its server was lost
        if isinstance(held, ProxyRequest) and held.record is not None:
            record, held.record = held.record, None
            record.end(code)           # it was passed on before
            return 0
        if self.audits and self.is_audited_c(m):
            self.audit.refuse(self, m, m.n, code)
        return 0

    cdef int keep_record_c(self, uint64_t ref, object record, int code) except -1:
        """The server has answered a call of this side. The record of the call ends, unless the
        proxy goes on with the call (`DeferredRequest`).

        ``code``: Of the answer.
        """
        cdef object held = self.session.inflight.token_c(ref)
        if isinstance(held, ProxyRequest):
            record.defer()
            held.record = record
            held.sent = True
        else:
            record.end(code)
        return 0

    def give_token(self, Message message not None, token not None):
        """Give a request of this side another token (`ProxyRequest`). It keeps the record."""
        cdef object held = self.session.inflight.token_c(message.ref)
        if held is not None:
            held.record, token.record = None, held.record
            token.sent = held.sent
        self.session.set_token_c(message.ref, token)

    def refused(self, Message message not None, int code):
        """A request of this side is refused."""
        self.refused_c(message, code)

    def unserved(self, Message message not None):
        """A request is refused because its server is not there: over HTTP, the status says so, if
        no server has ever seen the request."""
        cdef ReplyRoute route = self.session.route_of_c(message.ref)
        token = self.session.inflight.token_c(message.ref)
        if route is None or (isinstance(token, ProxyRequest) and not token.waits):
            return
        if token is None or not token.sent:
            route.unserved()

    def unreachable(self, Message message):
        """Refuse a request whose server is not there."""
        code, text = self.session.refusal or (codes.SERVER_LOST, "the server is not there")
        self.unserved(message)
        self.refused_c(message, code)
        self.session.error_c(message.ref, code, text, None)

    cdef int refuse_unsent_c(self, uint64_t ref, Message m, str why) except -1:
        """Refuse a request that is cut off before a server saw it: its client may repeat it. ``m``:
        What the audit log may note; or None."""
        if m is not None:
            self.refused_c(m, codes.SHUTTING_DOWN)
        self.session.error_c(ref, codes.SHUTTING_DOWN, f"{why}: the request has not begun", None)
        return 0

    # -- what is passed on -----------------------------------------------------------------------

    cdef int request_c(self, Message m) except -1:
        self.newest = m.ref
        return self.forward_c(m, is_modern(m))

    cdef int forward_c(self, Message m, bint modern) except -1:
        """Pass a request of this side on to where it goes."""
        cdef Side to = self.across
        if not (self.admits_modern if modern else self.admits_legacy) or (
            self.translation is not None and self.translation.diverts_c(m)
        ):
            to = None
            if modern and self.choice is not None:
                to = self.choice.choose_c(self, m)
            if to is None:
                to = self.route(m)
                if to is None:
                    return 0
        return self.pass_request_c(to, m, None, None, None)

    cdef int pass_request_c(
        self, Side to, Message m, bytes name, object after, Message given
    ) except -1:
        cdef Route route
        if to is None or to.link is None:
            self.unreachable(m)
            return 0
        route = Route.__new__(Route)
        route.asker = self
        route.answerer = to
        route.ref = m.ref
        if self.admission is not None and not self.admission.admit_c(route, m, name, after, given):
            return 0
        try:
            self.send_c(route, m, name, after, given)
        except BaseException:
            to.session.pending.take_c(route.id)
            route.over_c(codes.INTERNAL_ERROR)
            raise
        return 0

    cdef int send_c(
        self, Route route, Message m, bytes name, object after, Message given
    ) except -1:
        """Send an admitted request to the side that answers it."""
        cdef Side to = route.answerer
        cdef Edit more[MAX_MORE]
        cdef int n_more = 0, opens = 0
        cdef double deadline = INFINITY
        cdef Span token = span_of(m, WS_META_PROGRESS_TOKEN)
        if not poi_is(m, WS_METHOD, b'"tools/call"'):
            route.listens = method_is(m, b'"subscriptions/listen"', "subscriptions/listen")
            if route.listens:
                held = self.session.inflight.token_c(m.ref)
                route.next = <Route> held if type(held) is Route else None
            opens = route.listens or (self.opens is not None and m.method in self.opens)
            route.greets = method_is(m, b'"initialize"', "initialize")
            if route.greets and is_modern(m):
                route.over_c(codes.METHOD_NOT_FOUND)
                return self.unknown_c(m)
            if to.retries is not None:
                self.keep_c(route, m, given)
        elif to.retries_calls:
            self.keep_c(route, m, given)
        keep_progress_token(route, token)
        if to.deadline != INFINITY and not opens:
            deadline = self.loop.time() + to.deadline
        try:
            route.id = to.session.reserve_c(route, deadline, None)
        except OverflowError:
            route.over_c(codes.OVERLOADED)
            self.refused_c(m, codes.OVERLOADED)
            self.session.error_c(
                m.ref, codes.OVERLOADED, "too many requests at once for the server", None
            )
            return 0
        if opens:
            to.opened_c(route, m, name, after)
        if self.audits and self.is_audited_c(m):
            route.follow_c(self.session.inflight.token_c(m.ref))
            if route.record is None:
                route.record = self.audit.begin(self, to, m, m.n)
            else:
                route.record.again(to)
        route.sent = True
        if self.counted is not None:
            self.counted.sent_c(m.ref, isinstance(to.link, MemoryLink))
        self.session.set_token_c(m.ref, route)
        if to.observer is not None:
            to.observe_c(route, m)
        self.prepare_c(route, m)
        if self.tracer is not None:
            m = self.trace_c(route, m)
        if name is not None:
            more[0] = edit_of(m, WS_NAME, Span(<const unsigned char *> <char *> name,
                                               <size_t> len(name)))
            n_more = 1
        if self.translation is not None:
            n_more += self.translation.request_c(route, m, more + n_more)
        if after is not None:
            route.after = after
        if m.scan.poi[WS_META_LOG_LEVEL].len and not route.listens:
            to.count_logger_c(route, 1, 0)
        if to.session.inflight.routes is not None or to.outer is not None:
            route.about = self.about_c(to)
        if (
            to.lists is not None
            and not poi_is(m, WS_METHOD, b'"tools/call"')
            and to.has_list_c(route, m)
        ):
            return 0
        if to.outer is not None and route.about:
            to.link.hand_over(0)
        to.session.splice_request_c(route.id, m, more, n_more, route.about)
        self.n_passed += 1
        if to.outer is not None and route.about:
            to.hand_over_c(route.about)
        to.asked_c(self)
        if to.turns is not None or to.session.outbox.size >= to.session.output_high:
            to.hold_c(self, m.n)
        return 0

    cdef int prepare_c(self, Route route, Message m) except -1:
        return 0

    cdef int observe_c(self, Route route, Message m) except -1:
        return 0

    cdef int opened_c(self, Route route, Message m, bytes name, object after) except -1:
        return 0

    cdef bint reopens_c(self, Route route, object error) except -1:
        return False

    cdef uint64_t about_c(self, Side to) except? 0:
        return 0

    cdef int count_logger_c(self, Route route, int n, int code) except -1:
        return 0

    cdef bint has_list_c(self, Route route, Message m) except -1:
        cdef Span method = span_of(m, WS_METHOD)
        cdef Message answer
        if method.n < 6 or memcmp(method.p + method.n - 6, b'/list"', 6) != 0:
            return False
        key = self.lists.key(route.asker, m)
        answer = None if key is None else self.lists.find(key)
        if answer is None:
            route.list_key = key
            return False
        self.session.pending.take_c(route.id)
        route.began = 0                # the server has not worked
        self.n_answered -= 1
        self.pass_answer_c(route, answer)
        return True

    cdef Message trace_c(self, Route route, Message m):
        """Begin the span of a request, and return the request with the context of the span."""
        route.span, meta = self.tracer.begin(self, route.answerer, m)
        return m if meta is None else with_meta_c(m, meta)

    cdef int keep_c(self, Route route, Message m, Message given) except -1:
        """Keep a request that may be sent again, once, or a subscription, for further servers."""
        cdef Message kept = m if given is None else given
        if route.listens:              # a copy: it may stay long
            route.message = parse((<const char *> kept.p)[:kept.n], max_depth=1024)
            route.message.ref = m.ref
        elif (
            given is None
            and type(self.session.inflight.token_c(m.ref)) is not Route
            and route.answerer.retries(m)
        ):
            route.message = m
        return 0

    cdef int pass_answer_c(self, Route route, Message m) except -1:
        """This side has answered."""
        cdef Side asker = route.asker
        cdef InFlightSlot *slot
        cdef Span id
        cdef bytes text
        cdef int code = code_of(m.error) if m.kind_c == ERROR else 0
        cdef int done
        cdef object record = None
        if code == codes.OVERLOADED and route.permit is not None and self.reopens_c(route, m.error):
            return 0
        self.n_answered += not route.greets
        if asker.counted is not None:
            asker.counted.answered_c(route.ref, code)
        if route.list_key is not None and m.kind_c == RESULT:
            self.lists.keep(route.list_key, m)
        if route.record is not None:
            route.record.bytes_out = m.n
            if route.after is not None or route.taker is not None or route.filter is not None:
                record, route.record = route.record, None
        route.over_c(code)
        done = 0 if route.after is None else asker.replaced_c(route, m)
        if done:
            code = code if done == 1 else done
            return 0 if record is None else asker.keep_record_c(route.ref, record, code)
        slot = asker.session.inflight.slot_c(route.ref)
        if record is not None and (
            asker.link is None or slot is NULL or m.kind_c != RESULT
            or (route.taker is None and route.filter is None)
        ):
            record.end(code)
            record = None
        if asker.link is None or slot is NULL:
            self.n_late += 1
            return 0
        if route.greets and m.kind_c == RESULT:
            asker.agreed(m)
        if m.kind_c == RESULT and (route.filter is not None or route.taker is not None or (
            self.tags is not None and may_be_given(span_of(m, WS_RESULT))
        )):
            try:
                text = replaced(m.result, self.tags, asker, route.filter)
                if route.taker is not None:
                    route.taker.take(asker, route.ref, bytes(m.result) if text is None else text)
                    return 0 if record is None else asker.keep_record_c(route.ref, record, code)
            except ProtocolError as exc:
                route.record = record
                return self.fail_c(route, exc.code, exc.message, exc.data)
            except Exception as exc:
                logger.error("internal error of the proxy at %s", m, exc_info=exc)
                route.record = record
                return self.fail_c(route, codes.INTERNAL_ERROR, "the answer is not valid", None)
            if record is not None:
                record.end(code)
            if text is not None:
                asker.session.result_c(route.ref, text)
                return asker.passed_c()
        if route.listens and not asker.last_c(route):
            return 0
        if route.listens and m.kind_c == RESULT:
            id = inflight_id(slot)
            asker.session.result_c(
                route.ref, about_subscription(m.result, (<const char *> id.p)[:id.n])
            )
        else:
            # some codes decide about the status of an HTTP response
            asker.session.splice_reply_c(route.ref, m, code if code in VERDICTS else 0, NULL)
        return asker.passed_c()

    cdef int replaced_c(self, Route route, Message m) except? -1:
        """Replace an answer to this side. Returns 1; 0 if it is to be passed on as it came; the
        code of the error that this side got instead."""
        cdef Side me = self            # the function may run any code
        cdef object text
        cdef int done = 1
        if (
            me.translation is not None
            and route.filter is None
            and route.taker is None
            and me.translation.answer_c(route, m)
        ):
            me.passed_c()
            return 1
        try:
            text = route.after(m)
            if route.filter is not None and text is not None and text is not m:
                text = route.filter(text)
        except ProtocolError as exc:
            done = exc.code
            me.session.error_c(route.ref, exc.code, exc.message, exc.data)
        except Exception as exc:
            logger.error("internal error of the proxy at %s", m, exc_info=exc)
            done = codes.INTERNAL_ERROR
            me.session.error_c(route.ref, codes.INTERNAL_ERROR, "Internal error", None)
        else:
            if text is None:
                return 1
            if text is m:
                return 0
            if route.taker is not None:
                route.taker.take(me, route.ref, text)
                return 1
            me.session.result_c(route.ref, text)
        if me.link is not None:
            me.passed_c()
        return done

    cdef int passed_c(self) except -1:
        """An answer to this side was written."""
        self.link.wrote_c()
        if self.phase == DRAINING:
            self.check_drained()
        return 0

    cdef bint last_c(self, Route route) except -1:
        """A server has ended a subscription of this side: whether it was the last one that has it.
        """
        cdef Route one
        if self.session.inflight.slot_c(route.ref) is NULL:
            return True
        one = self.session.inflight.token_c(route.ref)
        if one is route:
            if route.next is not None:
                self.session.set_token_c(route.ref, route.next)
            return route.next is None
        while one is not None and one.next is not route:
            one = one.next
        if one is not None:
            one.next = route.next
        return False

    cdef int notification_c(self, Message m) except -1:
        cdef object token = m.token
        if token is None and m.scan.poi[WS_META_SUBSCRIPTION_ID].len:
            token = self.session.pending.peek_c(
                self.session.pending.find_c(span_of(m, WS_META_SUBSCRIPTION_ID))
            )
        if type(token) is Route:
            return self.pass_notice_c(<Route> token, m)
        if token is not None:
            self.notified_about(m, token)
            return 0
        if (
            m.scan.poi[WS_META_SUBSCRIPTION_ID].len
            or method_is(m, b'"notifications/progress"', "notifications/progress")
            or method_is(m, b'"notifications/cancelled"', "notifications/cancelled")
        ):
            self.n_late += 1           # about a request that is over, or never was
            return 0
        self.notified(m)
        return 0

    cdef int pass_notice_c(self, Route route, Message m) except -1:
        """A notification of this side about a request that was passed on."""
        cdef InFlightSlot *slot
        cdef bytes text = None
        cdef bint marks
        if m.ref:                      # its own request, which it cancels
            while route is not None:
                if route.answerer.session.pending.is_live_c(route.id):
                    route.answerer.pass_cancel_c(route.id, m, route.about)
                route.over_c(CANCELLED)
                route = route.next
            return self.session.cancelled_done_c()
        slot = route.asker.session.inflight.slot_c(route.ref)
        if slot is NULL or route.asker.link is None:
            self.n_late += 1
            return 0
        if route.permit is not None:
            route.admission.heard_c(route)
        if m.scan.poi[WS_META_SUBSCRIPTION_ID].len:
            if self.lists is not None:
                self.lists.heard(m.method)
            route.asker.overheard(m)
            marks = method_is(
                m, b'"notifications/subscriptions/acknowledged"',
                "notifications/subscriptions/acknowledged",
            )
            if marks:
                route.acknowledged = True
                if acknowledged_elsewhere(route):
                    return 0           # the first one is enough
            if self.tags is not None and (marks or may_be_given(span_of(m, WS_PARAMS))):
                text = self.tags.marked(m.params, route.asker)
            if text is not None:
                m = parse(whole(m.method, msgspec.Raw(text), id=None), max_depth=1024)
            elif self.gathers(m, route):
                return 0
            return self.pass_about_c(route, m, WS_META_SUBSCRIPTION_ID, inflight_id(slot))
        if method_is(m, b'"notifications/cancelled"', "notifications/cancelled"):
            return self.pass_about_c(route, m, WS_REQUEST_ID, inflight_id(slot))
        if progress_token_of(route).n == 0:     # the asker wants no progress
            self.n_late += 1
            return 0
        route.message = None           # what another server said would begin anew
        return self.pass_about_c(route, m, WS_PROGRESS_TOKEN, progress_token_of(route))

    cdef int pass_about_c(self, Route route, Message m, int which, Span text) except -1:
        if route.asker.drops_c(route.ref):
            return 0
        route.asker.session.splice_about_c(route.ref, m, which, text)
        return route.asker.link.wrote_c()

    cdef int fault_c(self, Message m) except -1:
        if type(m.token) is Route:
            self.fail_c(
                <Route> m.token, codes.SERVER_LOST, f"the answer is not valid: {m.reason}", None
            )
        elif m.token is not None:
            self.answered(None, m.token)
        self.faulty(m)
        if self.link is not None:
            self.link.wrote_c()
        return 0

    cdef int fail_c(self, Route route, int code, str message, object data) except -1:
        """Answer a request that was passed on with an error of the proxy."""
        cdef Side asker = route.asker
        route.over_c(code)
        if asker.link is None or (route.listens and not asker.last_c(route)):
            return 0
        if asker.session.error_c(route.ref, code, message, data):
            asker.passed_c()
        return 0

    # -- turns -------------------------------------------------------------------------------------

    cdef int hold_c(self, Side asker, size_t n) except -1:
        """Another side has sent n bytes here, while there is no room or others wait for it: let its
        requests wait for its turn, unless it is its turn."""
        cdef Turn turn = asker.turn
        if turn is None:
            turn = asker.turn = Turn(asker)
        elif turn.at is not None and turn.at is not self.turns:
            if asker.session.pauses_requests:
                return 0               # it waits for another server
            asker.end_turn_c()
        if self.turns is None:
            self.turns = Turns(QUANTUM, self)
        if (
            not self.turns.sent_c(turn, <long long> n)
            or self.session.outbox.size >= self.session.output_high
        ):
            asker.session.pauses_requests = True
            self.give_turn_c()
        return 0

    cdef int give_turn_c(self) except -1:
        """Let the next of those that wait send, if there is room: else `on_drained` will come."""
        cdef Turn turn
        cdef Side asker
        cdef bint fresh
        while self.turns is not None:
            if self.link is not None and self.session.outbox.size >= self.session.output_high:
                return 0
            fresh = self.turns.current is None
            turn = self.turns.next_c()
            if turn is None:
                self.turns = None
                return 0
            self.n_turns += fresh
            asker = turn.owner
            asker.session.pauses_requests = False
            if asker.link is not None and asker.session.wants_turn_c():
                asker.link.wrote_c()
                if self.link is not None and asker.session.has_room_c():
                    return 0
            self.turns.leave_c(turn)
        return 0

    cdef int end_turn_c(self) except -1:
        """This side has sent what it may. The turn passes to the next side."""
        cdef Side to
        cdef Turn turn = self.turn
        if turn is not None and turn.at is not None:
            to = turn.at.owner
            turn.at.leave_c(turn)
            to.give_turn_c()
        return 0

    cpdef object on_drained(self):
        """This side has read: go on with what waited for that."""
        if self.turns is not None:
            self.give_turn_c()
        SessionConnection.on_drained(self)

    # -- what the proxy says itself --------------------------------------------------------------

    def pass_request(
        self, Message message, Side to, bytes name=None, bytes text=None, object after=None
    ):
        """Pass a request of this side on to another. It is refused where there is none. Nothing
        happens if it was cancelled meanwhile.

        ``name``: JSON text that stands in the place of its ``params.name``. ``text``: what is sent
        instead of the request, a whole message with any id. ``after``: see `Route.after`.
        """
        cdef Message m = message
        if not self.is_open(message):
            return
        if text is not None:
            m = parse(text, max_depth=1024)
            m.ref = message.ref
        self.pass_request_c(to, m, name, after, None if text is None else message)
        if self.link is not None:
            self.passed_c()            # of a refusal

    def cancel(self, int64_t id, str reason not None, uint64_t about=0):
        """Cancel a request that this side was asked, and that the session has forgotten. ``about``:
        the ``ref`` of the request that it was about."""
        self.n_given_up += 1
        if self.link is not None:
            self.session.send_notification(
                "notifications/cancelled",
                b'{"requestId":%d,"reason":"%b"}' % (id, reason.encode()), about=about,
            )
            self.link.wrote_c()

    cdef int asked_c(self, Side asker) except -1:
        """A request to this side was written. It leaves with what others ask in this turn of the
        loop, if there is work here, or if several connections had some in the last turn."""
        cdef bint several = self.session.pending.live > 1
        cdef bint joined = several or self.joins
        if joined:
            self.joins = several and (
                asker.session.inflight.routes is not None or self.asked_by != <void *> asker
            )
        self.asked_by = <void *> asker
        return self.link.wrote_more_c() if joined else self.link.wrote_c()

    cdef int pass_cancel_c(self, int64_t id, Message m, uint64_t about) except -1:
        """Pass a client's cancellation to this side, or a short one if this side does not read."""
        if self.session.outbox.size >= self.session.output_high:
            self.session.pending.take_c(id)
            self.cancel(id, "the client has cancelled it", about)
            return 0
        self.n_given_up += 1
        self.session.splice_cancel_c(id, m, about)
        return 0 if self.link is None else self.link.wrote_c()

    def pass_notification(self, Message message, Side to not None, uint64_t about=0, /):
        """Send a notification of this side to another as it came. ``about``: the ``ref`` of the
        request that it is about. It is dropped and counted if that side does not read."""
        if to.link is not None and not to.drops_c(about):
            splice_c(to.session.writer_about_c(about), message, NULL, 0)
            to.link.wrote_c()

    cdef int hand_over_c(self, uint64_t about) except -1:
        """Hand over what was written about a request of this side, whose peer is another side of
        the proxy: it learns which one."""
        cdef InFlightSlot *slot = self.session.inflight.slot_c(about)
        cdef Span id
        if slot is not NULL and self.link is not None:
            id = inflight_id(slot)
            self.link.hand_over(int((<const char *> id.p)[:id.n]))
        return 0

    cdef bint carries_c(self, uint64_t ref) except -1:
        return self.session.writer_about_c(ref) is not self.session.writer

    cdef uint64_t open_c(self) except? 0:
        cdef InFlight inflight = self.session.inflight
        cdef uint32_t i
        cdef uint64_t ref = self.newest
        if inflight.routes is None:
            return 0                   # its messages share one stream
        if self.carries_c(ref):
            return ref
        for i in range(inflight.used):
            if inflight.slots[i].id_len:
                ref = (<uint64_t> inflight.slots[i].generation << 32) | (i + 1)
                if self.carries_c(ref):
                    return ref
        return 0

    def open_request(self):
        """Return the ``ref`` of a request of this side whose response takes messages before the
        answer, the newest one if it does; 0: none does."""
        return self.open_c()

    def say(self, str method not None, bytes params not None, uint64_t about=0, /):
        """Send a notification of the proxy to this side. ``about``: the ``ref`` of the request that
        it is about. It is dropped and counted if this side does not read."""
        if self.link is not None:
            self.notify_c(method, params, about)

    def is_open(self, Message message not None, /):
        """Return whether a request of this side is neither answered nor cancelled."""
        return self.link is not None and self.session.inflight.slot_c(message.ref) is not NULL

    def awaits(self, int64_t id):
        """Return whether a request that this side was asked waits for its answer."""
        return self.session.pending.is_live_c(id)


def totals(sides):
    """Sum up the counters of sides, and what they hold now. A proxy may have thousands of clients,
    and is not to stop for a scrape.

    ``waiting``: requests of these sides that were not passed on yet; ``asked``: requests that these
    sides are asked; ``unsent``: bytes; ``turns``: those that these sides have given.
    """
    cdef Side side
    cdef long long messages_in = 0, messages_out = 0, bytes_in = 0, bytes_out = 0, faults = 0
    cdef long long refused = 0, late = 0, dropped = 0, passed = 0, waiting = 0, asked = 0
    cdef long long unsent = 0, over_rate = 0, over_quota = 0, turns = 0
    for side in sides:
        messages_in += side.session.messages_in
        messages_out += side.session.messages_out
        bytes_in += side.session.bytes_in
        bytes_out += side.session.bytes_out
        faults += side.session.faults
        refused += side.session.refused
        late += side.n_late + side.session.late_responses
        dropped += side.n_dropped
        passed += side.n_passed
        over_rate += side.n_over_rate
        over_quota += side.n_over_quota
        turns += side.n_turns
        if side.session.inflight.live:
            waiting += side.session.inflight.live
            for token in side.session.inflight.tokens:
                waiting -= type(token) is Route
        asked += side.session.pending.live
        unsent += <long long> side.session.outbox.size
    return dict(
        messages_in=messages_in, messages_out=messages_out, bytes_in=bytes_in, bytes_out=bytes_out,
        faults=faults, refused=refused, late=late, dropped=dropped, passed=passed,
        over_rate=over_rate, over_quota=over_quota, turns=turns, waiting=waiting, asked=asked,
        unsent=unsent,
    )
