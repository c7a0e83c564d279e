"""The compiled half of `Downstream`: the checks of a client's request before it is passed on, and
the takers of results that are not sent to the client as they come."""

from libc.math cimport ceil
from libc.stdint cimport uint64_t

from wirespeed._core._simd cimport WS_METHOD, WS_NAME, WS_PARAMS
from wirespeed._core.envelope cimport (
    ERROR, Message, NOTIFICATION, RESULT, is_modern, method_is, poi_is, span_of,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.inflight cimport InFlightSlot, inflight_id
from wirespeed._core.reply_route cimport MemoryReply, ReplyRoute
from wirespeed._core.span cimport Span
from wirespeed.peer.http.headers cimport check_headers_c, copy_of
from wirespeed.peer.http.sessions cimport names_process_c
from wirespeed.proxy.flow.counted cimport CountedCalls
from wirespeed.proxy.side cimport Route, Side, abandon
from wirespeed.proxy.trace_context cimport with_fields_c
from wirespeed.server.requests.observer cimport CANCELLED
from wirespeed.server.requests.params cimport check_envelope_c

import msgspec

from wirespeed._core.envelope import parse
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.proxy.affinity import SUBSCRIPTION_OVER
from wirespeed.proxy.own_requests import ProxyRequest

cdef enum:
    MANY_TAKERS = 64


cdef class DownstreamSide(Side):
    """The base of `Downstream`.

    Args:
        session, loop, service, log: As of `Side`.

    Attributes:
        meta_tools: The tools of a search in place of a list; None: there is no search.
        hooks: The hooks of the server's tools; None: it has none.
        skills: Decides which of the server's skills the client sees; None: it sees all.
        drained: Why its requests are refused: an operator has taken the server out of use. None:
            they are not.
        identities: Finds the connections of the principal of a request; None: the server does not
            know principals.
        bound_to: The principal whose connections its requests use; None: no principal's.
        quotas: How many calls of tools its client may have in a day (`EndpointQuotas`); None: any
            number.
        state: What takes note of what its client tells the proxy, so that another host can go on
            with its session (`ClientState`); None: nothing does.
        elsewhere: Lets another process answer what names it, where the client is on a stream; None:
            there is no other process, or an HTTP endpoint does so.
        takers: Objects that take the results of requests in place of the client, by `ref`; None:
            there are none.
    """

    def __init__(self, session, loop, service=None, log=None):
        Side.__init__(self, session, loop, service, log)
        self.most_takers = MANY_TAKERS

    def changes_state(self, Message message not None):
        """A request changes the state that another host needs for the session."""
        raise NotImplementedError

    def await_rate(self, Message message not None, head, delay):
        """Let a request wait until it is known whether it is in its rate: ``delay`` is to be
        awaited. Then it is `rated`, with its head."""
        raise NotImplementedError

    def await_quota(self, Message message not None, head, spending):
        """Let a call wait until it is known whether its quota has room. Then it is `spent`, with
        its head."""
        raise NotImplementedError

    # -- checks ------------------------------------------------------------------------------------

    cdef bint is_in_rate_c(self, Message m, HttpHead head) except -1:
        """Whether this side may send a request now. If not, it was refused, or waits."""
        cdef object delay
        if method_is(m, b'"ping"', "ping") or self.is_restored_c(m):
            return True
        delay = self.rates.delay(self)
        if type(delay) is not float:
            self.await_rate(m, None if head is None else copy_of(head), delay)
            return False
        if delay == 0:
            return True
        self.n_over_rate += 1
        self.over_limit_c(m, "too many requests: the limit is a rate", delay)
        return False

    cdef bint is_restored_c(self, Message m) except -1:
        """Whether a message gives this side the state of a session of another host, which has
        counted it."""
        return type(self.session.route_of_c(m.ref)) is MemoryReply

    cdef int over_limit_c(self, Message m, str text, double delay) except -1:
        """Refuse a request that came ``delay`` seconds too early."""
        cdef ReplyRoute route = self.session.route_of_c(m.ref)
        if route is not None:
            route.retry_after(<long long> ceil(delay))
        self.refused_c(m, codes.OVERLOADED)
        self.session.error_c(
            m.ref, codes.OVERLOADED, text, {"retryAfterMs": <long long> ceil(1000 * delay)}
        )
        return 0

    def rated(self, Message message not None, HttpHead head, double delay):
        """Go on with a request that has waited for its rate. ``delay``: Seconds by which it came
        too early."""
        if not self.is_open(message):
            return
        if delay:
            self.n_over_rate += 1
            self.over_limit_c(message, "too many requests: the limit is a rate", delay)
        elif self.session.pauses_requests and (self.turn is None or self.turn.at is None):
            # it waits for its server
            if self.parked is None:
                self.parked = []
            self.parked.append((message, head))
        else:
            self.lend_c(message, head)
            self.check_c(message, head, is_modern(message))
            self.lend_c(message, None)
        if self.link is not None:
            self.passed_c()

    cdef int lend_c(self, Message m, HttpHead head) except -1:
        """Let a request have its head again, or no more."""
        cdef ReplyRoute route = self.session.route_of_c(m.ref)
        if route is not None:
            route.http_head = head
        return 0

    cdef bint agrees_c(self, Message m, HttpHead head, bint modern) except -1:
        """Whether a request that came over HTTP is valid: a request of 2026-07-28 has a whole
        envelope that agrees with the header fields, and a client without a session sends only such
        requests. If not, it was refused."""
        if not modern and not self.shared:
            return True
        try:
            check_envelope_c(m)
            check_headers_c(head, m)
        except ProtocolError as exc:
            self.refused_c(m, exc.code)
            self.session.refused_c(m.ref)
            self.session.error_c(m.ref, exc.code, exc.message, None)
            return False
        return True

    cdef bint is_own_c(self, Message m) except -1:
        """Whether a call may be one of the tools of the search."""
        cdef Span name
        cdef bytes text
        if not method_is(m, b'"tools/call"', "tools/call"):
            return False
        name = span_of(m, WS_NAME)
        text = (<const char *> name.p)[:name.n]
        return text in self.meta_tools.names or b"\\" in text

    cdef int request_c(self, Message m) except -1:
        cdef HttpHead head = self.head_of_c(m)
        if (
            self.elsewhere is not None
            and head is None
            and is_modern(m)
            and names_process_c(span_of(m, WS_PARAMS))
            and self.elsewhere.passes_on(self, m, (<const char *> m.p)[:m.n])
        ):
            return 0
        if self.rates is not None and not self.is_in_rate_c(m, head):
            return 0
        return self.check_c(m, head, is_modern(m))

    def unpark(self):
        """Go on with the requests that were in their rate while this side was paused."""
        parked, self.parked = self.parked, None
        for message, head in parked or ():
            self.rated(message, head, 0.0)

    cdef int check_c(self, Message m, HttpHead head, bint modern) except -1:
        """Check a request that may be sent now, and pass it on."""
        cdef object function
        cdef Message found
        self.newest = m.ref
        if head is not None and not self.agrees_c(m, head, modern):
            return 0
        if self.audits and self.shared and head is not None:
            self.audit.arrive(self, m)
        if self.meta_tools is not None and self.is_own_c(m):
            found = self.meta_tools.expanded(self, m)
            if found is None:
                return 0
            if found is not m:         # else it is the call of another tool, by an escaped name
                self.expanded = m.ref
                m = found
        if self.access is not None and not self.access.admits_c(self, m):
            return 0
        if self.drained is not None and not method_is(m, b'"ping"', "ping"):
            self.unserved(m)
            self.refuse(m, codes.SHUTTING_DOWN, self.drained)
            return 0
        if self.identities is not None and not self.identities.admits(self, m):
            return 0
        if self.skills is not None and not self.skills.admits(self, m):
            return 0
        if not modern and not poi_is(m, WS_METHOD, b'"tools/call"'):
            if self.state is not None and self.state.heard(m) and not self.is_restored_c(m):
                self.changes_state(m)
            function = self.requests.get(m.method)
            if function is not None:
                function(self, m)
                return 0
        if head is not None:
            m = with_fields_c(m, head)
            # the call of a tool of the search has none of the fields of the tool that it names
            if (
                self.mirrored is not None
                and self.expanded != m.ref
                and not self.mirrored.admits_c(self, m)
            ):
                return 0
        return self.go_on_c(m, modern)

    cdef int go_on_c(self, Message m, bint modern) except -1:
        """Pass a request on that was checked, if its quota has room."""
        cdef object spending
        cdef HttpHead head
        if self.quotas is not None and method_is(m, b'"tools/call"', "tools/call"):
            spending = self.quotas.spend(self, m.text_c(WS_NAME) or "")
            if spending is not None and type(spending.delay) is not float:
                head = self.head_of_c(m)
                self.await_quota(m, None if head is None else copy_of(head), spending)
                return 0
            if spending is not None and not self.is_in_quota_c(m, spending, spending.delay):
                return 0
        return self.hook_c(m, modern)

    cdef bint is_in_quota_c(self, Message m, object spending, double delay) except -1:
        """Whether a call is in its quota. If not, it was refused."""
        if delay:
            self.n_over_quota += 1
            self.over_limit_c(
                m, "too many calls today: the limit is the quota of the tool", delay
            )
            return False
        if self.counted is None:
            self.counted = CountedCalls()
        self.counted.add_c(m.ref, spending, self.session.inflight)
        return True

    def spent(self, Message message not None, HttpHead head, spending, double delay):
        """Go on with a call that has waited for its quota. ``delay``: Seconds until tomorrow, if
        the quota is used up."""
        if not self.is_open(message):
            if not delay:
                spending.give_back()
        elif self.is_in_quota_c(message, spending, delay):
            self.lend_c(message, head)
            self.hook_c(message, is_modern(message))
            self.lend_c(message, None)
        if self.link is not None:
            self.passed_c()

    cdef int hook_c(self, Message m, bint modern) except -1:
        """Pass a request on behind the hooks of its tool."""
        cdef Span name
        cdef object hooks
        if self.hooks is not None and method_is(m, b'"tools/call"', "tools/call"):
            name = span_of(m, WS_NAME)
            hooks = self.hooks[(<const char *> name.p)[:name.n]]
            if hooks:
                self.hooks.hold(self, m, hooks)
                return 0
        return self.forward_c(m, modern)

    cdef int prepare_c(self, Route route, Message m) except -1:
        if self.takers is not None:
            route.taker = self.takers.get(m.ref)
        if self.access is not None:
            route.filter = self.access.filter_c(self, m)
        if (
            self.meta_tools is not None
            and route.taker is None
            and method_is(m, b'"tools/list"', "tools/list")
        ):
            route.filter = self.meta_tools.filter(route.filter, m)
        if self.skills is not None:
            route.filter = self.skills.filter(route.filter, m)
        return 0

    # -- requests that the proxy makes of others, and their results --------------------------------

    def instead(
        self, Message message not None, str method not None, bytes params not None, ref=None
    ):
        """Return a request that takes the place of a client's request. ``params``: a JSON object.
        ``ref``: that of the client's request, if it was sent again meanwhile."""
        cdef Message m = parse(
            b'{"jsonrpc":"2.0","id":0,"method":%b,"params":%b}'
            % (msgspec.json.encode(method), params),
            max_depth=1024,
        )
        m.ref = message.ref if ref is None else <uint64_t> ref
        return m

    def is_expanded(self, Message message not None):
        """Return whether the request that is being routed was called by a tool of the search."""
        return self.expanded == message.ref

    def give_result_to(self, Message message not None, taker not None):
        """Let an object take the result of a request, in place of the client. ``taker.take(side,
        ref, text)`` is called once, and answers the request. Errors reach the client."""
        if self.takers is None:
            self.takers = {}
        elif <size_t> len(self.takers) >= self.most_takers:
            for ref in list(self.takers):
                if self.session.inflight.slot_c(ref) is NULL:      # it is over
                    del self.takers[ref]
            self.most_takers = max(<size_t> MANY_TAKERS, 2 * <size_t> len(self.takers))
        self.takers[message.ref] = taker

    def forward(self, Message message not None, /, *, bint hooked=True):
        """Pass on a client's request that was checked, unless it was cancelled meanwhile.
        ``hooked``: Whether the hooks of its tool see it first."""
        cdef bint modern = is_modern(message)
        if not self.is_open(message):
            return
        if hooked:
            self.go_on_c(message, modern)
        else:
            self.forward_c(message, modern)
        if self.link is not None:
            self.passed_c()            # of a refusal

    def deferred(self):
        """Return the requests of this side that the proxy itself answers, as their tokens."""
        return [one for one in self.session.inflight.tokens if isinstance(one, ProxyRequest)]

    def tell(self, Message message not None, bytes text not None):
        """Send a message of another process about a request, or its answer to it, as it is."""
        cdef Message m = parse(text, max_depth=1024)
        if not self.is_open(message):
            return
        if m.kind_c == NOTIFICATION:
            self.session.send_notification(m.method, m.params, about=message.ref)
        elif (m.kind_c == RESULT or m.kind_c == ERROR) and m.raw_id == message.raw_id:
            self.session.splice_reply_c(message.ref, m, 0, NULL)
        self.passed_c()

    # -- its subscriptions -------------------------------------------------------------------------

    cdef list listens_c(self):
        """The last route of each subscription of this side."""
        return [
            token
            for token in self.session.inflight.tokens
            if type(token) is Route and (<Route> token).listens
        ]

    def subscriptions(self):
        """Return the subscriptions of this side that further servers may get, as they came."""
        messages = [(<Route> route).message for route in self.listens_c()]
        return [message for message in messages if message is not None]

    def end_subscriptions(self):
        """Give this side the last word on each of its subscriptions. Their servers are told."""
        cdef Route route
        cdef InFlightSlot *slot
        cdef Span id
        for route in self.listens_c():
            abandon(route, "the proxy is shutting down", CANCELLED)
            slot = self.session.inflight.slot_c(route.ref)
            if slot is NULL:
                continue
            id = inflight_id(slot)
            text = (<const char *> id.p)[:id.n]
            self.session.send_notification(
                "notifications/cancelled", b'{"requestId":%b}' % text, about=route.ref
            )
            self.session.result_c(route.ref, SUBSCRIPTION_OVER % text)
        if self.link is not None:
            self.link.wrote_c()
