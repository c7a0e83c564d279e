"""The compiled half of `Upstream`: which request of a client a message of the server belongs to."""

from libc.math cimport INFINITY
from libc.stdint cimport uint64_t

from wirespeed._core._simd cimport WS_META_SUBSCRIPTION_ID, WS_METHOD, WS_NAME
from wirespeed._core.envelope cimport Message, poi_is, span_of
from wirespeed._core.inflight cimport InFlightSlot, inflight_id
from wirespeed._core.session cimport Session
from wirespeed._core.span cimport Span
from wirespeed.proxy.flow.admission cimport OpenRequests
from wirespeed.proxy.side cimport (
    Route, Side, acknowledged_elsewhere, keep_progress_token, progress_token_of,
)
from wirespeed.server.requests.observer cimport CANCELLED, now_c

from wirespeed._core.envelope import parse
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import REQUEST_METHODS


cdef class UpstreamSide(Side):
    """The base of `Upstream`.

    Attributes:
        n_loggers: How many requests to it ask for log messages.
    """

    def __init__(self, Session session not None, loop):
        Side.__init__(self, session, loop)
        self.gave_up_logs_at = -INFINITY
        self.open_requests = OpenRequests()

    cdef int observe_c(self, Route route, Message m) except -1:
        """Measure a request that this side is asked, unless it is one without an end. Methods that
        the protocol does not have are counted as one."""
        cdef str method = "tools/call"
        cdef Side asker
        cdef Span name
        if route.listens:
            return 0
        if not poi_is(m, WS_METHOD, b'"tools/call"'):
            method = m.method
            if method not in REQUEST_METHODS:
                method = "other"
        elif self.breakdown is not None:
            name = span_of(m, WS_NAME)
            route.tool = (<const char *> name.p)[:name.n]
        if self.breakdown is not None:
            asker = route.asker
            while asker.outer is not None:
                asker = asker.outer
            route.whose = asker.principal
            route.breakdown = self.breakdown
        route.series = self.observer.of_method_c(method)
        route.began = now_c()
        return 0

    # -- requests that stay open -------------------------------------------------------------------

    cdef int opened_c(self, Route route, Message m, bytes name, object after) except -1:
        return self.open_requests.add_c(route, m, name, after)

    cdef bint reopens_c(self, Route route, object error) except -1:
        return route.admission is self.open_requests and self.open_requests.reopen_c(route, error)

    # -- which request a message is about ----------------------------------------------------------

    cdef Route stream_c(self):
        cdef object id = getattr(self.link, "reads_for", None)
        cdef object token = None if id is None else self.session.pending.peek_c(id)
        return <Route> token if type(token) is Route and not (<Route> token).listens else None

    def stream(self):
        """Return the request whose response brings the message that is read just now, or None."""
        return self.stream_c()

    def is_late(self):
        """Return whether the message that is read just now came in the response to a request that
        is over, or to one of the proxy itself: it is for nobody."""
        return getattr(self.link, "reads_for", None) is not None and self.stream_c() is None

    cdef uint64_t about_c(self, Side to) except? 0:
        """The request that a message is about; one whose response can bring the message, where that
        is not known."""
        cdef Route route
        if to.session.inflight.routes is None and to.outer is None:
            return 0                   # its messages share one stream
        route = self.stream_c()
        return route.ref if route is not None and route.asker is to else to.open_c()

    def pass_on(self, Message message not None, Side to not None, /):
        """Send a notification of this server to a client as it came, in the response to the request
        that it is about."""
        cdef uint64_t about = self.about_c(to)
        if to.outer is not None and about and to.link is not None:
            to.link.hand_over(0)
            self.pass_notification(message, to, about)
            to.hand_over_c(about)
        else:
            self.pass_notification(message, to, about)

    cdef int count_logger_c(self, Route route, int n, int code) except -1:
        route.asks_for_logs = n > 0
        self.n_loggers += n
        if code == CANCELLED or code == codes.REQUEST_TIMEOUT:
            self.gave_up_logs_at = self.loop.time()
        return 0

    def logs_for(self, double pause):
        """Return the request that a log message of 2026-07-28 belongs to: the response to the
        request brings the message, or no other request asks for any. Returns None where neither
        holds.

        ``pause``: The seconds in which the server may go on about a request that was given up.
        """
        cdef Route route = self.stream_c()
        if route is not None:
            return route
        if self.n_loggers != 1 or self.loop.time() < self.gave_up_logs_at + pause:
            return None
        if self.logger is None or not self.logger.asks_for_logs:
            self.logger = None
            for token in self.session.pending.tokens:
                if type(token) is Route and (<Route> token).asks_for_logs:
                    self.logger = <Route> token
        return self.logger

    def n_unfinished(self):
        """Return how many requests this side has not answered. A subscription that another server
        has acknowledged is not counted."""
        cdef size_t n = self.session.pending.live
        for token in self.session.pending.tokens or ():
            if type(token) is Route and (<Route> token).listens:
                n -= acknowledged_elsewhere(<Route> token)
        return n

    # -- what the proxy makes of them --------------------------------------------------------------

    def pass_change(self, Message message not None, Route route not None, /):
        """Tell a client of a change that its subscription is about, if this is open."""
        cdef InFlightSlot *slot = route.asker.session.inflight.slot_c(route.ref)
        if slot is not NULL and route.asker.link is not None:
            self.pass_about_c(route, message, WS_META_SUBSCRIPTION_ID, inflight_id(slot))

    def pass_error(self, Route route not None, bytes text not None):
        """Pass an error of this side on that its link has read. ``text``: a whole response."""
        self.pass_answer_c(route, parse(text, max_depth=1024))

    def send_again(self, Route route not None):
        """Return whether a request that this side cannot answer is sent again."""
        return self.send_again_c(route)

    def unsent(self, Route route not None, bytes text not None):
        """Return a request of which nothing reached the server, as it was to be sent, for another
        server (`pass_unsent`). ``text``: What was to be sent."""
        cdef Message m = parse(text, max_depth=1024)
        m.ref = route.ref
        record, route.record = route.record, None    # it is not over
        route.over_c(codes.SERVER_LOST)
        route.record = record
        return m

    def pass_unsent(self, Route route not None, Message message not None, Side to not None):
        """Pass such a request to another server, for the asker and with the progress token of the
        route that has failed."""
        route.asker.pass_request(message, to, after=route.after)
        held = route.asker.session.inflight.token_c(message.ref)
        if type(held) is Route and held is not route:
            keep_progress_token(<Route> held, progress_token_of(route))

    def move_requests(self, str why not None):
        """Have those requests sent again that may be, and cancel them here."""
        cdef Route route
        for token in list(self.session.pending.tokens or ()):
            if type(token) is Route and self.send_again_c(<Route> token):
                route = <Route> token
                self.session.pending.take_c(route.id)
                self.cancel(route.id, why, route.about)

    def fail(self, Route route not None, int code, str message not None, object data=None):
        """Answer a request that was passed on to this side with an error of the proxy."""
        self.fail_c(route, code, message, data)
