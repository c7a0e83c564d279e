"""What a `Side` is by itself: what the proxy says to it, its turns, and its end.

Sides whose requests go to the same server take turns there while that has no room (`Turns`).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from wirespeed._core.envelope cimport Message, method_is
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.session cimport Session
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport splice_c
from wirespeed.proxy.flow.turns cimport Turn, Turns
from wirespeed.server.http.headers cimport check_headers_c
from wirespeed.server.requests.observer cimport CANCELLED
from wirespeed.server.requests.params cimport check_envelope_c
from wirespeed.transport.served cimport Served

from math import ceil

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.proxy.ongoing import Ongoing

cdef enum:
    QUANTUM = 65536       # bytes that a side may send in its turn, while others wait


cdef class Party(Served):
    """The base of `Side`.

    Args:
        session: The session of the connection.
        loop: The event loop.

    Attributes:
        rates: How many requests it may send; None: any number.
        outer: The client's own connection, where this one is a part of it: its link (`MemoryLink`)
            joins it to another side of the proxy.
        audit: What notes its requests; None: nothing does.
        audits: Which of them: `Audits`.
    """

    def __init__(self, Session session not None, loop):
        Served.__init__(self, session, loop)

    # -- for subclasses ------------------------------------------------------------------------

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

    def again(self, Party asker, Message message):
        """Return whether a request that this lost side has not answered will be sent again."""
        return False

    # -- its requests ----------------------------------------------------------------------------

    cdef bint is_in_rate_c(self, Message m) except -1:
        """Whether this side may send a request now. If not, it was refused."""
        cdef ReplyRoute route
        cdef double delay
        if method_is(m, b'"ping"', "ping"):
            return True
        delay = self.rates.delay(self)
        if delay == 0:
            return True
        self.n_over_rate += 1
        route = self.session.route_of_c(m.ref)
        if route is not None:
            route.retry_after(ceil(delay))
        self.refused_c(m, codes.OVERLOADED)
        self.session.error_c(
            m.ref, codes.OVERLOADED, "too many requests: the limit is a rate",
            {"retryAfterMs": ceil(1000 * delay)},
        )
        return False

    cdef bint agrees_c(self, Message m, bint modern) except -1:
        """Whether a request that came over HTTP has a whole envelope, and says what the fields say,
        if it is one of 2026-07-28, as it must be where its client has no session. If not, it was
        refused."""
        if not modern and not self.shared:
            return True
        try:
            check_envelope_c(m)
            check_headers_c(self.head, m)
        except ProtocolError as exc:
            self.refused_c(m, exc.code)
            self.session.refused_c(m.ref)
            self.session.error_c(m.ref, exc.code, exc.message, None)
            return False
        return True

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
        if isinstance(held, Ongoing) and held.record is not None:
            record, held.record = held.record, None
            record.end(code)           # it was passed on before
            return 0
        if self.audits and self.is_audited_c(m):
            self.audit.refuse(self, m, m.n, code)
        return 0

    cdef int keep_record_c(self, uint64_t ref, object record, int code) except -1:
        """The server has answered a call of this side. The record of the call ends, unless the
        proxy goes on with the call (`Work`).

        ``code``: Of the answer.
        """
        cdef object held = self.session.inflight.token_c(ref)
        if isinstance(held, Ongoing):
            record.defer()
            held.record = record
            held.sent = True
        else:
            record.end(code)
        return 0

    def give_token(self, Message message not None, token not None):
        """Give a request of this side another token (`Ongoing`), which goes on with its record."""
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
        if route is None or (isinstance(token, Ongoing) and not token.waits):
            return
        if token is None or not token.sent:
            route.unserved()

    def unreachable(self, Message message):
        """Refuse a request whose server is not there."""
        code, text = self.session.refusal or (codes.SERVER_LOST, "the server is not there")
        self.unserved(message)
        self.refused_c(message, code)
        self.session.error_c(message.ref, code, text, None)

    cdef int cut_off_c(self, str why) except -1:
        cdef Party me = self
        # where nothing is refused, the client has ended its session, or its side of the connection
        cdef int code = CANCELLED if self.session.refusal is None else codes.CUT_OFF
        for ref in me.session.inflight.refs_c():
            token = me.session.inflight.token_c(ref)
            if token is None:          # `initialize` that waits
                me.refuse_unsent_c(ref, None, why)
            elif not isinstance(token, Ongoing):
                continue
            elif token.record is not None:
                token.note(code)
            elif token.sent or token.request is None:
                continue
            elif token.waits:
                me.refuse_unsent_c(ref, token.request, why)
            elif code != CANCELLED:
                me.refused_c(token.request, code)
        return Served.cut_off_c(me, why)

    cdef int refuse_unsent_c(self, uint64_t ref, Message m, str why) except -1:
        """Refuse a request that is cut off before a server saw it: its client may repeat it. ``m``:
        What the audit log may note; or None."""
        if m is not None:
            self.refused_c(m, codes.SHUTTING_DOWN)
        self.session.error_c(ref, codes.SHUTTING_DOWN, f"{why}: the request has not begun", None)
        return 0

    # -- turns -----------------------------------------------------------------------------------

    cdef int hold_c(self, Party asker, size_t n) except -1:
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
        cdef Party asker
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
        cdef Party to
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
        if self.draining:
            self.check_drained()

    # -- what the proxy says itself --------------------------------------------------------------

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

    cdef int asked_c(self, Party asker) except -1:
        """A request to this side was written. It leaves with what others ask in this turn of the
        loop, if there is work here, or if several connections had some in the last turn."""
        cdef bint several = self.session.pending.live > 1
        cdef bint joined = several or self.joins
        if joined:
            self.joins = several and (asker.head is not None or self.asked_by != <void *> asker)
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

    def pass_notification(self, Message message, Party to not None, uint64_t about=0, /):
        """Send a notification of this side to another as it came. ``about``: the ``ref`` of the
        request that it is about. It is dropped and counted if that side does not read."""
        cdef FrameWriter writer
        if to.link is None:
            return
        writer = to.session.writer_about_c(about)
        if writer.out.size >= 2 * to.session.output_high:
            to.n_dropped += 1
            return
        splice_c(writer, message, NULL, 0)
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
        if self.link is None:
            return
        if self.session.writer_about_c(about).out.size >= 2 * self.session.output_high:
            self.n_dropped += 1
            return
        self.session.send_notification(method, params, about=about)
        self.link.wrote_c()

    def is_open(self, Message message not None, /):
        """Return whether a request of this side is neither answered nor cancelled."""
        return self.link is not None and self.session.inflight.slot_c(message.ref) is not NULL

    # -- the end ---------------------------------------------------------------------------------

    def check_drained(self):
        """Close a draining connection once everything is answered and sent."""
        cdef Party me = self            # the flush may close the connection
        if (
            self.link is not None
            and self.session.inflight.live == 0
            and self.session.n_whole == 0
        ):
            self.link.closing = True
            self.link.update_reading()
            self.link.flush()
            if me.link is not None and me.link.idle:
                me.link.end()

    def awaits(self, int64_t id):
        """Return whether a request that this side was asked waits for its answer."""
        return self.session.pending.is_live_c(id)
