"""Limits of the requests that a server works on at once: in all, of one client, of one tool. And
the clients' shares of the requests that stay open.

Requests beyond these wait here, in a queue for each client and limit. The clients take turns, a
request each. A client that waits for one tool does not wait with its other requests. When too many
wait, the newest request of the client with the most is refused.

A request that stays open has no limit here: the server has its own. Where the server refuses one,
the client that has the most of them there loses its newest one for it, if the server says that
this makes room (``data.open`` of the error).
"""

cimport cython
from libc.stdint cimport uint64_t

from wirespeed._core._simd cimport WS_METHOD, WS_NAME
from wirespeed._core.envelope cimport Message, method_is, poi_is, span_of
from wirespeed._core.envelope import parse
from wirespeed._core.span cimport Span
from wirespeed.proxy.side cimport AdmissionControl, Route, Side, abandon

import logging
from collections import OrderedDict
from fnmatch import fnmatchcase

from msgspec.json import decode

from wirespeed.protocol import codes
from wirespeed.proxy.flow.rates import client_of

cdef enum:
    MAX_KINDS = 1000      # names of tools whose limits are remembered
    MAX_NAME = 200               # bytes of a name that is kept
    MAX_SKIPPED = 64      # clients whose server has ended that are looked at in one go
    PIECE = 16384         # bytes by which a request that stays open counts once more

logger = logging.getLogger("wirespeed.proxy")

cdef double PAUSE = 0.1   # seconds between two searches for the successor of an ended server


cdef _length(Queue queue):
    return len(queue.waiting)


@cython.final
cdef class Share:
    pass


@cython.final
cdef class Queue:
    pass


@cython.final
@cython.freelist(256)
cdef class Permit:
    pass


@cython.final
cdef class RequestLimits(AdmissionControl):
    """The limits of one server, for the connections of all clients to all of its processes.

    Args:
        config: A `FlowConfig`.
        server: The server's name, for errors.

    Attributes:
        n_in_flight: Requests that the server works on.
        n_queued, n_queued_bytes: Requests that wait, and the bytes of their messages.
        n_refused: Requests that were refused, because too many waited.
    """

    def __init__(self, config, str server not None):
        cdef size_t none = <size_t> -1
        self.server = server
        self.max_in_flight = config.max_in_flight or none
        self.max_in_flight_per_client = config.max_in_flight_per_client or none
        self.max_queued = config.max_queued
        self.max_queued_bytes = config.max_queued_bytes
        self.globs = list(config.tools)
        self.max_of = [none, *config.tools.values()]
        self.n_of = [0] * len(self.max_of)
        self.rings = [OrderedDict() for _ in self.max_of]
        self.kinds = {}
        self.shares = {}

    @property
    def n_clients(self):
        """The number of clients that have requests here."""
        return len(self.shares)

    cdef int kind_c(self, Message m) except -1:
        """The number of the first limit of tools that holds for a request; 0 for none."""
        cdef Span name
        cdef bytes text
        if not self.globs or not (
            poi_is(m, WS_METHOD, b'"tools/call"') or method_is(m, b'"tools/call"', "tools/call")
        ):
            return 0
        name = span_of(m, WS_NAME)
        text = (<const char *> name.p)[:name.n]
        kind = self.kinds.get(text)
        if kind is None:
            tool = m.text_c(WS_NAME)
            kind = 0
            if tool is not None:
                for i, glob in enumerate(self.globs):
                    if fnmatchcase(tool, glob):
                        kind = i + 1
                        break
            if len(self.kinds) >= MAX_KINDS:
                self.kinds.clear()
            if name.n <= <size_t> MAX_NAME:
                self.kinds[text] = kind
        return kind

    cdef Share share_c(self, Side asker):
        cdef object key = client_of(asker)
        cdef Share share = self.shares.get(key)
        if share is None:
            share = Share.__new__(Share)
            share.key = key
            share.queues = {}
            self.shares[key] = share
        return share

    cdef bint has_room_c(self, Share share, int kind) except -1:
        return (
            self.n_in_flight < self.max_in_flight
            and share.n < self.max_in_flight_per_client
            and <size_t> self.n_of[kind] < <size_t> self.max_of[kind]
        )

    cdef int admit_c(
        self, Route route, Message m, bytes name, object after, Message given
    ) except -1:
        cdef Permit permit
        cdef Side asker = route.asker
        if (
            method_is(m, b'"subscriptions/listen"', "subscriptions/listen")
            or (asker.opens is not None and m.method in asker.opens)
        ):
            return 1                   # it has no end
        permit = Permit.__new__(Permit)
        permit.kind = self.kind_c(m)
        permit.share = self.share_c(asker)
        ahead = permit.kind in permit.share.queues     # its client's earlier requests
        if self.passing or not ahead and self.has_room_c(permit.share, permit.kind):
            self.n_in_flight += 1
            permit.share.n += 1
            self.n_of[permit.kind] += 1
            route.admission, route.permit = self, permit
            return 1
        if not self.make_room_c(permit.share, m.n):
            self.refuse_c(asker, m)
            self.forget_c(permit.share)
            return 0
        permit.asker, permit.to, permit.message = asker, route.answerer, m
        permit.name, permit.after = name, after
        permit.once = given is not None or type(asker.session.inflight.token_c(m.ref)) is Route
        self.hold_c(permit, route)
        if ahead:
            self.go_on_c()             # there may be room: these have waited for another server
        return 0

    cdef bint make_room_c(self, Share share, size_t n) except -1:
        """Whether a client's request of n bytes may wait. Clients of which more waits lose their
        newest requests for it."""
        cdef Share most, one
        cdef Queue queue
        cdef Permit permit
        cdef size_t least
        while True:
            if self.n_queued_bytes + n > self.max_queued_bytes:
                least, most = share.n_queued_bytes + n, None
                for one in self.shares.values():
                    if one.n_queued_bytes > least:
                        least, most = one.n_queued_bytes, one
            elif self.n_queued >= self.max_queued:
                least, most = share.n_queued + 1, None
                for one in self.shares.values():
                    if one.n_queued > least:
                        least, most = one.n_queued, one
            else:
                return True
            if most is None:
                return False
            queue = max(most.queues.values(), key=_length)
            permit = next(reversed(queue.waiting))
            self.leave_c(permit)
            self.refuse_c(permit.asker, permit.message)
            self.forget_c(most)
            if permit.asker.link is not None:
                permit.asker.passed_c()

    cdef int refuse_c(self, Side asker, Message m) except -1:
        self.n_refused += 1
        asker.refused_c(m, codes.OVERLOADED)
        asker.session.error_c(
            m.ref, codes.OVERLOADED, f"too many requests wait for {self.server}", None
        )
        return 0

    cdef int hold_c(self, Permit permit, Route route) except -1:
        """Let a request wait. Its route tells us of its end."""
        cdef Queue queue = permit.share.queues.get(permit.kind)
        if queue is None:
            queue = Queue.__new__(Queue)
            queue.share, queue.kind, queue.waiting = permit.share, permit.kind, OrderedDict()
            permit.share.queues[permit.kind] = queue
            self.rings[permit.kind][queue] = None
        permit.queue = queue
        queue.waiting[permit] = None
        self.n_queued += 1
        self.n_queued_bytes += permit.message.n
        permit.share.n_queued += 1
        permit.share.n_queued_bytes += permit.message.n
        route.admission, route.permit, route.message = self, permit, permit.message
        permit.route = route
        route.follow_c(permit.asker.session.inflight.token_c(route.ref))
        permit.asker.session.set_token_c(route.ref, route)
        return 0

    cdef int leave_c(self, Permit permit) except -1:
        """A request waits no more."""
        cdef Queue queue = permit.queue
        permit.queue = None
        permit.route.permit = None
        permit.route = None
        del queue.waiting[permit]
        self.n_queued -= 1
        self.n_queued_bytes -= permit.message.n
        permit.share.n_queued -= 1
        permit.share.n_queued_bytes -= permit.message.n
        if not queue.waiting:
            del queue.share.queues[queue.kind]
            self.rings[queue.kind].pop(queue, None)
        return 0

    cdef int done_c(self, Route route) except -1:
        cdef RequestLimits me = self         # what is freed may run any code
        cdef Permit permit = route.permit
        cdef Share share = permit.share
        route.permit = None
        if permit.queue is not None:
            me.leave_c(permit)
        else:
            me.n_in_flight -= 1
            me.n_of[permit.kind] -= 1
            share.n -= 1
            for kind, queue in share.queues.items():
                me.rings[kind].setdefault(queue)     # it has left the ring at the client's limit
        me.forget_c(share)
        return me.go_on_c()

    cdef Queue next_c(self):
        """The queue whose turn it is and for which there is room; None: none."""
        cdef Queue queue
        cdef int kind
        if self.n_in_flight >= self.max_in_flight:
            return None
        for _ in range(len(self.rings)):
            kind = self.next_kind
            self.next_kind = (kind + 1) % <int> len(self.rings)
            ring = self.rings[kind]
            while ring and <size_t> self.n_of[kind] < <size_t> self.max_of[kind]:
                queue = ring.popitem(False)[0]
                if queue.share.n < self.max_in_flight_per_client:
                    ring[queue] = None
                    return queue
        return None

    cdef int go_on_c(self) except -1:
        """Pass on what has waited, as far as there is room."""
        cdef RequestLimits me = self         # what is freed may run any code
        cdef Permit permit
        cdef Queue queue
        cdef Route route
        cdef Side to, across
        cdef int n_skipped = 0
        if self.passing:
            return 0
        while me.n_queued:
            queue = me.next_c()
            if queue is None:
                return 0
            permit = next(iter(queue.waiting))
            to = permit.to
            across = permit.asker.across
            if to.link is None and permit.asker.is_open(permit.message) and (
                across is None or across.link is None    # else there is another server already
            ):
                # The server has ended. Who its successor is shows when its end was dealt with.
                if not me.looking:
                    me.rings[queue.kind].move_to_end(queue, False)
                    me.next_kind = queue.kind            # it keeps its turn, and the room
                    return me.look_c(permit.asker.loop, 0)
                if across is None and permit.asker.session.pauses_requests:
                    n_skipped += 1     # there is no successor yet
                    if n_skipped == 1:
                        me.look_c(permit.asker.loop, PAUSE)
                    if n_skipped == MAX_SKIPPED:
                        return 0
                    continue
            route = permit.route
            me.leave_c(permit)
            if permit.asker.is_open(permit.message):     # else its client leaves just now
                me.pass_on_c(permit, route)
            me.forget_c(permit.share)
        return 0

    cdef int pass_on_c(self, Permit permit, Route held) except -1:
        """Pass a request on that has waited with a route. A fault is its own: it gets an error."""
        cdef RequestLimits me = self
        cdef Side asker = permit.asker
        cdef Side to = permit.to
        cdef Message m = permit.message
        if not held.sent:
            asker.session.set_token_c(m.ref, None)
        me.passing = True
        try:
            if to.link is None:
                to = asker.route(m)
            if to is not None:
                asker.pass_request_c(to, m, permit.name, permit.after, m if permit.once else None)
        except Exception as exc:
            logger.error("internal error of the proxy at %s", m, exc_info=exc)
            held.over_c(codes.INTERNAL_ERROR)
            asker.session.error_c(m.ref, codes.INTERNAL_ERROR, "Internal error", None)
        finally:
            me.passing = False
        return 0 if asker.link is None else asker.passed_c()

    cdef int look_c(self, object loop, double delay) except -1:
        """Call `_look` after ``delay`` seconds, or when an earlier call of this is due."""
        if self.timer is not None:
            if delay or self.soon:
                return 0
            self.timer.cancel()
        self.soon = not delay
        self.timer = loop.call_later(delay, self._look)
        return 0

    def _look(self):
        """Look again at what waits for servers that have ended."""
        self.timer = None
        self.looking = True
        try:
            self.go_on_c()
        finally:
            self.looking = False

    cdef int forget_c(self, Share share) except -1:
        """Forget a client without requests."""
        if not share.n and not share.queues:
            self.shares.pop(share.key, None)
        return 0


@cython.final
cdef class OpenRequest:
    pass


@cython.final
cdef class OpenShare:
    pass


@cython.final
cdef class OpenRequests(AdmissionControl):
    """The requests that stay open at one connection to a server."""

    def __init__(self):
        self.shares = {}

    cdef int add_c(self, Route route, Message m, bytes name, object after) except -1:
        """A request is sent there that stays open."""
        cdef OpenRequest one = OpenRequest.__new__(OpenRequest)
        cdef object key = client_of(route.asker)
        one.share = self.shares.get(key)
        if one.share is None:
            one.share = OpenShare.__new__(OpenShare)
            one.share.key, one.share.requests = key, {}
            self.shares[key] = one.share
        one.route, one.name, one.after, one.again = route, name, after, self.again
        one.message = parse((<const char *> m.p)[:m.n], max_depth=1024)
        one.message.ref = m.ref
        one.weight = 1 + m.n // PIECE
        one.share.requests[one] = None
        one.share.weight += one.weight
        route.admission, route.permit = self, one
        return 0

    cdef int done_c(self, Route route) except -1:
        cdef OpenRequests me = self          # what is freed may run any code
        cdef OpenRequest one = route.permit
        cdef OpenShare share = one.share
        route.permit = None
        del share.requests[one]
        share.weight -= one.weight
        if not share.requests:
            me.shares.pop(share.key, None)
        return 0

    cdef bint reopen_c(self, Route route, object error) except -1:
        """The server refuses a request with -31000. If it does because too many stay open, and
        another client has more of them, that one's newest is ended, and the request is sent once
        more. Any other reason is the request's own."""
        cdef OpenRequests me = self
        cdef OpenRequest one = route.permit
        cdef OpenShare share, most = one.share
        cdef Side asker = route.asker
        for share in me.shares.values():
            if share.weight > most.weight:
                most = share
        if (
            most is one.share or one.again or one.message is None
            or not asker.is_open(one.message)
        ):
            return False
        data = decode(error).get("data")
        if not isinstance(data, dict) or "open" not in data:
            return False
        for last in reversed(most.requests):     # one that takes less place would make no room
            if (<OpenRequest> last).weight >= one.weight:
                break
        else:
            return False
        me.end_c(last)
        route.over_c(codes.OVERLOADED)
        if not asker.is_open(one.message):
            return True
        if asker.last_c(route):
            asker.session.set_token_c(route.ref, None)
        me.again = True
        try:
            asker.pass_request_c(
                route.answerer, one.message, one.name, one.after, route.message or one.message
            )
        finally:
            me.again = False
        return True

    cdef int end_c(self, OpenRequest one) except -1:
        """End a request for another client's, at each process that has it."""
        cdef Side asker = one.route.asker
        cdef uint64_t ref = one.route.ref
        cdef object held = asker.session.inflight.token_c(ref)
        abandon(
            <Route> held if type(held) is Route else one.route,
            "another client has fewer open requests", codes.OVERLOADED,
        )
        if asker.link is not None and asker.session.error_c(
            ref, codes.OVERLOADED, "too many requests stay open, and other clients have fewer", None
        ):
            asker.passed_c()
        return 0

    cdef int heard_c(self, Route route) except -1:
        (<OpenRequest> route.permit).message = None      # the server has taken it
        return 0
