"""One JSON-RPC peer over one ordered byte stream: bytes in, events out; calls in, bytes out.

A session does no I/O and reads no clock. A transport reads into ``get_buffer`` or
``receive_data``, sends what ``data_to_send`` returns, and stops reading while ``want_read`` is
false. Deadlines are numbers on the caller's clock.

What a session does by itself, and what it leaves to its owner:

* Bad input is answered (by a server) or only reported (by a client), as the table of
  docs/explanation/readings.md says, and becomes an event of kind "invalid". A message that is too
  deep or too long is known by the members before the fault: a response fails its call.
* A request is registered before it becomes an event. A second request with an id in flight gets
  -32600, and the first goes on. The owner answers by ``send_result`` or ``send_error``, once.
  Where requests are not answered (a client of 2026-07-28: ``answers_requests`` is False), a
  request is only an event.
* A response is matched to its caller. Late, unknown and repeated responses are counted, and shown
  to an owner that wants them (``shows_late_responses``).
* ``notifications/cancelled`` takes the request out of flight: a later answer is dropped.
* Flow control: while `max_in_flight` requests or `max_in_flight_bytes` are worked on, or
  `output_high` bytes wait for the peer, further requests wait. Responses, notifications and pings
  still get through. When too many requests wait, reading stops. While our own side awaits an
  answer, requests are refused instead, because the answer may lie behind them. Requests of a batch
  are refused while the held answers of open batches have `max_in_flight_bytes`: they cannot wait
  for each other.
* With a ``refusal``, a pair of code and message, further requests are answered by this error and
  not shown. Earlier requests, and all other messages, are not affected.
* A message may also come whole, beside the stream (``receive_message``): the body of an HTTP
  request. All of the above holds for it. What answers it goes to its reply route, which is full or
  closed without effect on the others, so errors never wait for a peer that does not read. When
  reading has stopped, texts that came whole are looked at: notifications, responses and pings get
  through, and a cancellation drops the request that waits before it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from collections import deque

from wirespeed._core._simd cimport (
    WS_ARGUMENTS, WS_ID, WS_ID_INVALID, WS_META_PROGRESS_TOKEN, WS_META_PROTOCOL_VERSION, WS_METHOD,
    WS_NAME, WS_PARAMS, WS_PROGRESS_TOKEN, WS_REQUEST_ID,
)
from wirespeed._core.envelope cimport (
    BATCH, FAULT_NONE, FAULT_PARSE, FAULT_REQUEST, FAULT_RESPONSE, INVALID, NOTIFICATION, REQUEST,
    RESULT, Message, method_is, nothing_c, poi_is, span_of, valid_id, values_shown,
)
from wirespeed._core.framing.base cimport FrameWriter, Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.inflight cimport InFlightSlot, says_same_c
from wirespeed._core.json_text cimport quoted
from wirespeed._core.outbox cimport Outbox, json_line
from wirespeed._core.pending cimport Pending
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.reply_route cimport BatchReply, ReplyRoute
from wirespeed._core.responder cimport Responder, ref_of
from wirespeed._core.slab cimport Slab, slabs_live
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport DIGITS, MAX_MORE, Edit, digits_of, edit_of, insert_c, splice_c
from wirespeed._core.wire cimport show_whole_c

from wirespeed.limits import Limits

cdef object DEFAULTS = Limits()    # they never change

cdef enum:
    MAX_PINGS = 64            # that are worked on beyond `max_in_flight`
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    MAX_KEY = 1024            # bytes of a `WrittenCall.key`
    OVERLOADED = -31000       # ours: outside the ranges that JSON-RPC and MCP reserve

cdef inline bint is_blank(uint8_t c) noexcept:
    return c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09


cdef object WAITS = object()      # the token of a request that waits
cdef tuple NONE_YET = ()          # in place of a deque: most connections never need one


cdef int filled_c(Message m, int which, Edit *edits, int n) noexcept:
    """Put an object in the place of a null that counts as absent: not every server takes it."""
    cdef Edit edit
    cdef int i
    edit.at = m.scan.poi[which].off
    for i in range(n):
        if edits[i].at == edit.at:
            return n                 # something stands in its place already
    edit.n = nothing_c(m.p + edit.at, True)
    edit.text = Span(<const uint8_t *> b"{}", 2)
    return insert_c(edits, n, edit)


@cython.final
@cython.freelist(64)
cdef class WrittenCall:
    pass


@cython.final
cdef class Session(Responder):
    """The state of one connection.

    Args:
        limits: The limits of the connection.
        role: "server" answers bad input with error responses, "client" only reports it.
        framer: How messages lie in the stream; one a line by default.
        reads_always: Whether reading goes on whatever waits. Requests that cannot wait are refused.
            They are invalid messages without an answer while the peer does not read. Two peers that
            both stop reading until the other has read wait for ever: of a proxy and its server, the
            proxy reads always.

    Attributes:
        paused: No events come while this is True; bytes are read on, up to `max_waiting_bytes`.
            After it was set to False, the owner asks for events again (``link.wrote()``).
        shows_late_responses: Responses to requests that are not outstanding (any more) are events,
            too, without a token. Else they are only counted.
    """

    def __cinit__(
        self, *, limits=None, str role="server", Framer framer=None, bint reads_always=False
    ):
        if role not in ("server", "client"):
            raise ValueError('role must be "server" or "client"')
        limits = DEFAULTS if limits is None else limits
        self.join_c(limits, LineFramer(limits.max_message) if framer is None else framer)
        self.max_in_flight_bytes = limits.max_in_flight_bytes
        self.answers_faults = role == "server"
        self.answers_requests = True
        self.reads_always = reads_always
        self.max_id = limits.max_id
        self.max_in_flight = limits.max_in_flight
        self.max_waiting = limits.max_waiting
        self.max_waiting_bytes = limits.max_waiting_bytes
        self.reader = MessageReader(limits=limits, framer=self.framer)
        self.pending = Pending(limits.max_outstanding)
        self.waiting = self.more_whole = NONE_YET

    @property
    def batches(self):
        """Whether arrays are batches: 2025-03-26 was negotiated."""
        return self.reader.batches

    @batches.setter
    def batches(self, bint value):
        self.reader.batches = value

    @property
    def paused(self):
        """Whether events wait, while bytes are read on."""
        return self.is_paused

    @paused.setter
    def paused(self, bint value):
        if value and not self.is_paused:
            self.paused_at = self.bytes_in
        self.is_paused = value

    # -- events out ----------------------------------------------------------------------------

    def next_event(self):
        """The next message for the owner, or None until more bytes arrive."""
        return self.next_c()

    def events(self):
        """Iterate over the events that are there now."""
        return iter(self)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m = self.next_c()
        if m is None:
            raise StopIteration
        return m

    cdef bint has_room_c(self) noexcept:
        """Whether one more request may be worked on."""
        return (
            not self.pauses_requests
            and not self.is_paused
            and self.inflight.live + self.n_gone + <size_t> self.n_cancelled
            < self.n_waiting + self.max_in_flight
            and self.inflight.n_bytes + self.n_cancelled_bytes < self.max_in_flight_bytes
            and self.outbox.size < self.output_high
        )

    def keep_open(self, request, /):
        """A request (its message, or its `ref`) stays open, as a subscription does: it counts
        against `max_in_flight` and `max_in_flight_bytes` no more. Call `open_done` when it has
        ended. The owner bounds the number of such requests."""
        cdef InFlightSlot *slot = self.inflight.slot_c(ref_of(request))
        self.max_in_flight += 1
        if slot is not NULL and slot.n_bytes:
            self.inflight.n_bytes -= slot.n_bytes - 1
            slot.n_bytes = 1           # it has begun

    def open_done(self):
        """A request of `keep_open` has ended, or the handler of one that was cancelled."""
        self.max_in_flight -= 1

    cdef bint is_flooded_c(self) noexcept:
        """Whether even short errors must wait, because the peer reads nothing."""
        cdef bint full = self.outbox.size >= 2 * self.output_high
        return full and self.route is None and not self.reads_always

    cdef bint must_stop_c(self) noexcept:
        """Whether no further request may wait."""
        return self.n_waiting >= self.max_waiting or self.n_waiting_bytes >= self.max_waiting_bytes

    cdef bint want_read_c(self) noexcept:
        if self.is_paused:
            return self.bytes_in - self.paused_at < <long long> self.max_waiting_bytes
        if self.reads_always:
            return True
        if self.outbox.size >= 2 * self.output_high and (
            self.reader.elements or self.refusal is not None
        ):
            return False           # errors of batches, and refusals, cannot wait
        return not self.must_stop_c() or (
            self.pending.live != 0 and self.outbox.size < 2 * self.output_high
        )

    cdef bint awaits_c(self) noexcept:
        return self.pending.live != 0

    cdef bint wants_turn_c(self) noexcept:
        return self.n_waiting != 0 or self.n_whole != 0 or self.held

    cdef Message next_c(self):
        """The next event, or None."""
        cdef Session me = self     # tokens and input memory are freed, which may run any code
        cdef Message m
        cdef ReplyRoute route
        self.held = self.is_paused
        while not self.is_paused:
            if self.route is not None and not self.reader.elements:
                route = self.route
                self.route = None
                self.settle_c(route, 1)
            if self.reader.elements and self.want_read_c():
                m = <Message> self.reader.elements.pop()
            elif self.n_waiting and self.has_room_c():
                m = <Message> self.waiting.popleft()
                self.n_waiting -= 1
                self.n_waiting_bytes -= m.n
                if self.leave_queue_c(m):
                    return m
                continue
            elif self.reader.elements:
                return None
            else:
                if not self.want_read_c():
                    m = me.take_passing_c()
                else:
                    m = me.take_whole_c() if self.n_whole else me.reader.next_c()
                if m is None:
                    return None
                if m.kind_c == BATCH:
                    self.route = BatchReply.new(self.writer, self.route)
                    continue
            self.messages_in += 1
            if m.kind_c == REQUEST and m.scan.poi[WS_ID].len > self.max_id:
                m.scan.id_kind = WS_ID_INVALID       # too long to be kept or echoed
                m.invalid_c(FAULT_REQUEST, f"an id of more than {self.max_id} bytes")
            if (
                m.kind_c == REQUEST
                and self.reads_always
                and self.outbox.size >= 2 * self.output_high
            ):
                m.invalid_c(FAULT_REQUEST, "a request, while its sender reads no answers")
            if m.kind_c == REQUEST:
                if not self.answers_requests or self.register_c(m):
                    return m
            elif m.kind_c == NOTIFICATION:
                self.notice_c(m)
                return m
            elif m.kind_c == INVALID:
                if self.answers_faults and self.is_flooded_c():
                    self.wait_c(m)
                    continue
                self.fault_c(m)
                return m
            elif self.respond_c(m):
                return m

    def receive_message(self, data, ReplyRoute route=None, /):
        """Take in a message, or a batch, that came whole: JSON text in a contiguous bytes-like
        object, which is read in place and must not change.

        Its events follow those of the bytes that `next_event` has read. Its answers go to the
        route (`MemoryReply`, for one), which is done when they are all there and the next event was
        asked for; without a route, to the stream of the wire. While `want_read` is False requests
        and batches wait as texts, whatever their length: their owner bounds them. Other messages
        are events before them, and a cancellation drops the request that it names.

        Returns whether nothing waits before it: it is the next event, or makes the next events.
        """
        cdef Slab slab = Slab.borrow(data)
        show_whole_c(self, slab.base, slab.capacity)
        self.receive_message_c(slab, slab.base, slab.capacity, route)
        return self.n_waiting == 0 and self.n_whole == 1

    cdef int receive_message_c(
        self, Slab slab, const uint8_t *p, size_t n, ReplyRoute route
    ) except -1:
        cdef Message m = Message.new()
        while n and is_blank(p[n - 1]):
            n -= 1
        if n >= 3 and p[0] == 0xEF and memcmp(p, b"\xef\xbb\xbf", 3) == 0:    # a byte order mark
            p, n = p + 3, n - 3
        while n and is_blank(p[0]):
            p += 1
            n -= 1
        m.hold_c(slab, p, n)
        return self.take_in_c(m, route)

    cdef int take_in_c(self, Message m, ReplyRoute route) except -1:
        if route is not None and route.out is None:
            raise TypeError(f"{type(route).__name__} has no outbox: it is not a route for replies")
        m.token = route
        if self.n_whole and self.more_whole is NONE_YET:
            self.more_whole = deque()
        if self.n_whole:
            self.more_whole.append(m)
        else:
            self.first_whole = m
        self.n_whole += 1
        self.bytes_in += <long long> m.n
        if route is not None:
            route.n_open += 1
        return 0

    cdef Message whole_c(self, size_t i):
        """A text that came whole and was not taken; 0 is the oldest."""
        return self.first_whole if i == 0 else <Message> self.more_whole[i - 1]

    cdef int drop_whole_c(self, size_t i) except -1:
        """Forget a text that came whole."""
        if i:
            del self.more_whole[i - 1]
        else:
            self.first_whole = <Message> self.more_whole.popleft() if self.n_whole > 1 else None
        self.n_whole -= 1
        return 0

    cdef Message take_whole_c(self):
        """Read the oldest text that came whole."""
        cdef Message m = self.first_whole
        cdef Slab slab = m.slab        # which `m` pins only while it has the text
        self.drop_whole_c(0)
        self.route = <ReplyRoute> m.token
        if self.n_seen:
            self.n_seen -= 1
        if m.kind_c:
            m.token = None             # it was read before
        else:
            self.reader.read_c(m, slab, Span(m.p, m.n))
        return m

    cdef Message take_passing_c(self):
        """While reading has stopped: the oldest text that came whole and need not wait for room, a
        notification, a response or a ping. None: there is none. Each text is read once."""
        cdef Message m
        cdef Slab slab
        cdef ReplyRoute route
        while self.n_seen < self.n_whole:
            m = self.whole_c(self.n_seen)
            if m.n == 0 or m.p[0] != c'[':     # the parts of a batch wait together
                route = <ReplyRoute> m.token
                slab = m.slab
                if not m.kind_c:
                    self.reader.read_c(m, slab, Span(m.p, m.n))
                m.token = None
                if m.kind_c != INVALID and (
                    m.kind_c != REQUEST or method_is(m, b'"ping"', "ping")
                ):
                    self.drop_whole_c(self.n_seen)
                    self.route = route
                    return m
                m.token = route
            self.n_seen += 1
        return None

    cdef bint withdraw_c(self, Span id) except -1:
        """Drop a request that was seen and waits to be taken. False: none has the id."""
        cdef Session me = self         # the route may run any code
        cdef Message m
        for i in range(self.n_seen):
            m = self.whole_c(i)
            if m.kind_c == REQUEST and says_same_c(span_of(m, WS_ID), id):
                self.drop_whole_c(i)
                self.n_seen -= 1
                self.cancelled_in += 1
                if m.token is not None:
                    me.settle_c(<ReplyRoute> m.token, 1)
                return True
        return False

    def cancel_route(self, ReplyRoute route not None, /):
        """Cancel the requests of a route, as ``notifications/cancelled`` does: its client is gone.
        Returns a list of the tokens that they have. The route is done when the next event was asked
        for."""
        cdef list tokens = []
        if self.route is not None and (self.route is route or self.route.parent is route):
            self.reader.elements = None
        for ref in self.inflight.routed_c(route):
            token = self.cancel_inbound_c(ref)
            if token is not None:
                tokens.append(token)
        self.drop_bodies_c(route)
        return tokens

    cdef int drop_bodies_c(self, ReplyRoute route) except -1:
        """Drop what came whole with a route and was not read yet."""
        cdef Session me = self         # the route may run any code
        cdef Message m
        cdef size_t i = 0, n_before = self.n_whole
        while i < self.n_whole:
            m = self.whole_c(i)
            if m.token is not route:
                i += 1
                continue
            self.drop_whole_c(i)
            if i < self.n_seen:
                self.n_seen -= 1
        if n_before != self.n_whole:
            me.settle_c(route, <Py_ssize_t> (n_before - self.n_whole))
        return 0

    cdef list open_routes_c(self):
        """The routes of the bodies that are not done; a batch in a body has the body's."""
        cdef ReplyRoute route
        cdef list found = [self.whole_c(i).token for i in range(self.n_whole)]
        if self.inflight.routes is not None:
            found += self.inflight.routes
        for i in range(len(found)):
            route = <ReplyRoute> found[i]
            while route is not None and route.parent is not None:
                route = found[i] = route.parent
        return [one for one in found if one is not None]

    cdef int refuse_request_c(self, uint64_t ref, ReplyRoute route) except -1:
        """Answer a registered request with -31000."""
        cdef str text = f"the answers of open batches have {self.max_in_flight_bytes} bytes or more"
        self.refused += 1
        if not self.is_full_c(route):
            text = (f"too many requests at once (the limits are {self.max_in_flight} requests"
                    f" and {self.max_in_flight_bytes} bytes)")
        route = self.route_of_c(ref)
        if route is not None:
            route.retry_after(1)
        self.error_c(ref, OVERLOADED, text, None)
        return 0

    cdef int register_c(self, Message m) except -1:
        """Handle a request. 1: it is an event now."""
        cdef uint64_t ref
        cdef bint can_start
        cdef Span id = span_of(m, WS_ID)
        if type(self.route) is BatchReply and method_is(m, b'"initialize"', "initialize"):
            self.faults += 1
            self.write_error_c(
                self.route, id, INVALID_REQUEST, "initialize cannot be part of a batch", None
            )
            return 0
        can_start = self.n_waiting == 0 and self.has_room_c()
        ref = self.inflight.add_c(id, m.n if can_start else 0)
        if ref == 0 and self.is_flooded_c():
            m.ref = 0
            self.wait_c(m)
            return 0
        if ref == 0:
            self.duplicate_ids += 1
            text = "a request with this id is in flight already"
            self.write_error_c(self.route, id, INVALID_REQUEST, text, None)
            return 0
        m.ref = ref
        if self.route is not None:
            self.inflight.set_route_c(ref, self.route)
            self.route.n_open += 1
            if self.refusal is None and self.is_full_c(self.route):
                return self.refuse_request_c(ref, self.route)
        if self.refusal is not None:
            self.refused += 1
            if self.route is not None:
                self.route.unserved()
            self.error_c(ref, self.refusal[0], self.refusal[1], None)
            return 0
        if can_start:
            return 1
        if (
            method_is(m, b'"ping"', "ping")
            and self.outbox.size < 2 * self.output_high
            and self.inflight.live < self.n_waiting + self.max_in_flight + MAX_PINGS
        ):
            return 1
        if self.must_stop_c():
            # we await an answer ourselves, which may lie behind this request
            return self.refuse_request_c(ref, None)
        self.set_token_c(ref, WAITS)
        self.wait_c(m)
        return 0

    cdef bint leave_queue_c(self, Message m) except -1:
        """Handle a message that waited. False: it is not an event."""
        cdef ReplyRoute route = None
        cdef InFlightSlot *slot = self.inflight.slot_c(m.ref)
        if slot is not NULL:
            self.inflight.set_token_c(m.ref, None)
            if slot.route is not NULL:
                route = <ReplyRoute> slot.route
            if self.is_full_c(route):
                self.refuse_request_c(m.ref, route)
                return False
            self.inflight.start_c(slot, m.n)
            return True
        self.n_gone -= self.n_gone != 0
        if m.ref:
            return False           # cancelled or cut off meanwhile
        # it has no route, and a body may be open
        route = self.route
        self.route = None
        try:
            if m.kind_c == INVALID:
                self.fault_c(m)
                return True
            return self.register_c(m)      # its id was in flight when it arrived
        finally:
            self.route = route

    cdef int wait_c(self, Message m) except -1:
        """Hold a message back until there is room."""
        if m.ref == 0:
            self.n_gone += 1
        if self.waiting is NONE_YET:
            self.waiting = deque()
        self.waiting.append(m)
        self.n_waiting += 1
        self.n_waiting_bytes += m.n
        return 0

    cdef int hold_back_c(self, Message m) except -1:
        return self.wait_c(m)

    cdef int notice_c(self, Message m) except -1:
        """Handle a notification: set its token to that of the request that it is about."""
        cdef uint64_t ref
        cdef int64_t id
        cdef Span raw
        if method_is(m, b'"notifications/cancelled"', "notifications/cancelled"):
            raw = span_of(m, WS_REQUEST_ID)
            if raw.n == 0:
                return 0
            ref = self.inflight.find_c(raw)
            if ref:
                m.ref = ref
                m.token = self.cancel_inbound_c(ref)
            elif not self.n_seen or not self.withdraw_c(raw):
                # a server ends a subscription of ours
                m.token = self.pending.peek_c(self.pending.find_c(raw))
        elif method_is(m, b'"notifications/progress"', "notifications/progress"):
            id = self.pending.find_c(span_of(m, WS_PROGRESS_TOKEN))
            if id:
                m.token = self.pending.peek_c(id)
        return 0

    cdef object cancel_inbound_c(self, uint64_t ref):
        """Take a request out of flight: the peer wants no answer. Returns its token, or None."""
        cdef object token = self.inflight.token_c(ref)
        self.cancelled_in += 1
        if token is WAITS:
            self.n_gone += 1
            token = None
        elif token is not None:
            self.n_cancelled += 1
            self.n_cancelled_bytes += self.inflight.slot_c(ref).n_bytes
        self.drop_inbound_c(ref)
        return token

    cdef int fault_c(self, Message m) except -1:
        """Handle an invalid message: answer it where an answer is due."""
        cdef int64_t id = 0
        cdef Span raw = span_of(m, WS_ID)
        if m.token is not None:        # see `match_alike_c`
            return 0
        if m.lacks_only_id_c() and self.match_alike_c(m):
            return 0
        if not valid_id(m):
            raw.n = 0
        self.faults += 1
        if m.fault_c == FAULT_REQUEST and raw.n and not m.is_call_c():
            id = self.pending.find_c(raw)
        elif m.fault_c == FAULT_RESPONSE and raw.n:
            id = self.pending.find_c(raw)
        if id:
            m.fault_c = FAULT_RESPONSE
            m.token = self.pending.take_c(id)
            return 0
        if not self.answers_faults:
            return 0
        if m.fault_c == FAULT_PARSE:
            raw.n = 0
            self.write_error_c(self.route, raw, PARSE_ERROR, "Parse error: " + m.reason, None)
        elif m.fault_c == FAULT_REQUEST:
            reason = "Invalid request: " + m.reason
            self.write_error_c(self.route, raw, INVALID_REQUEST, reason, None)
        return 0

    # -- requests of ours ----------------------------------------------------------------------

    def reserve(self, token not None, /, double deadline=INFINITY, *, id=None):
        """Reserve an id for a request of ours, to be sent by `send_reserved`. The id may serve as
        the progress token. OverflowError when `max_outstanding` requests are outstanding.

        `id`: what stands in the message, the JSON text (bytes) of a string or an integer. The
        number that is returned is then this session's name for the request. ValueError for another
        text, and for an id that is outstanding.
        """
        return self.reserve_c(token, deadline, id)

    cdef int64_t reserve_c(self, object token, double deadline, object text) except -1:
        cdef int64_t id = self.pending.add_c(token, deadline)
        cdef bint done = False
        if text is None:
            return id
        try:
            self.pending.choose_c(id, bytes(text))
            done = True
        finally:
            if not done:
                self.pending.take_c(id)
        return id

    def send_reserved(self, int64_t id, str method not None, params=None, /, *, about=0):
        """Send the request that an id was reserved for. `params`: JSON text, or None. `about`: see
        `send_notification`."""
        self.call_c(
            self.writer_about_c(ref_of(about)),
            b'{"jsonrpc":"2.0","id":%b,"method":%b' % (self.pending.text_c(id), quoted(method)),
            params,
        )

    cdef Outbox open_request_c(self, int64_t id):
        """Begin a request, up to and including its id. The caller writes ``"method":...`` and the
        rest without the closing brace, then calls `close_request_c`, and runs no other code in
        between; when anything fails, it calls `abort_request_c`."""
        cdef char room[DIGITS]
        cdef Span digits
        cdef Outbox out = self.outbox
        if self.pending.texts is not None:
            self.writer.open_c()
            out.text_c(b'{"jsonrpc":"2.0","id":%b,' % self.pending.text_c(id))
            self.messages_out += 1
            return out
        digits = digits_of(id, room)
        self.writer.open_c()
        out.text_c(b'{"jsonrpc":"2.0","id":')
        out.write_c(digits.p, digits.n)
        out.write_c(b",", 1)
        self.messages_out += 1
        return out

    cdef int close_request_c(self) except -1:
        return self.writer.close_c(c'}')

    cdef int splice_request_c(
        self, int64_t id, Message m, Edit *more, int n_more, uint64_t about
    ) except -1:
        """Send a request of another peer as it came, with this id, which is its progress token as
        well if it has one."""
        cdef char room[DIGITS]
        cdef Edit edits[MAX_MORE + 3]
        cdef Span digits = digits_of(id, room)
        cdef int i, n = 1
        edits[0] = edit_of(m, WS_ID, digits)
        if m.scan.poi[WS_META_PROGRESS_TOKEN].len:
            n = insert_c(edits, n, edit_of(m, WS_META_PROGRESS_TOKEN, digits))
        for i in range(n_more):
            n = insert_c(edits, n, more[i])
        if m.scan.poi[WS_PARAMS].len == 0 and m.scan.poi[WS_PARAMS].off:
            n = filled_c(m, WS_PARAMS, edits, n)
        elif m.scan.poi[WS_ARGUMENTS].len == 0 and m.scan.poi[WS_ARGUMENTS].off:
            n = filled_c(m, WS_ARGUMENTS, edits, n)
        splice_c(self.writer if about == 0 else self.writer_about_c(about), m, edits, n)
        self.messages_out += 1
        if self.calls is not None and about == 0 and poi_is(m, WS_METHOD, b'"tools/call"'):
            if n_more == 0:
                self.called_c(id, span_of(m, WS_META_PROTOCOL_VERSION), span_of(m, WS_NAME))
            elif n_more == 1 and more[0].at == m.scan.poi[WS_NAME].off:
                self.called_c(id, span_of(m, WS_META_PROTOCOL_VERSION), more[0].text)
        return 0

    cdef int called_c(self, int64_t id, Span version, Span name) except -1:
        cdef WrittenCall call
        cdef char *q
        if version.n == 0 or name.n == 0 or version.n + name.n > MAX_KEY:
            return 0                   # its text says what the fields are
        call = WrittenCall.__new__(WrittenCall)
        call.id = id
        call.end = self.bytes_out + <long long> self.outbox.size
        call.key = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (version.n + name.n))
        q = PyBytes_AS_STRING(call.key)
        memcpy(q, version.p, version.n)
        memcpy(q + version.n, name.p, name.n)
        self.calls.append(call)
        return 0

    cdef int splice_cancel_c(self, int64_t id, Message m, uint64_t about) except -1:
        """Send a cancellation of another peer as it came, for the request of ours with this id. The
        request is removed: an answer to it counts as late."""
        cdef char room[DIGITS]
        cdef Edit edit = edit_of(m, WS_REQUEST_ID, digits_of(id, room))
        self.pending.take_c(id)
        splice_c(self.writer_about_c(about), m, &edit, 1)
        self.messages_out += 1
        return 0

    cdef int abort_request_c(self, int64_t id) except -1:
        """Remove a request that could not be finished; its id is no longer outstanding."""
        cdef Session me = self     # the token is freed, which may run any code
        self.pending.take_c(id)
        return me.writer.abort_c()

    def send_request(
        self, str method not None, params=None, /, *, token not None, double deadline=INFINITY,
        about=0, id=None
    ):
        """Send a request; returns its id. Its response becomes an event with this token. `about`:
        see `send_notification`; `id`: see `reserve`."""
        cdef int64_t number = self.reserve_c(token, deadline, id)
        try:
            self.send_reserved(number, method, params, about=about)
        except BaseException:
            self.pending.take_c(number)
            raise
        return number

    def send_notification(self, str method not None, params=None, /, *, about=0):
        """Send a notification. `params`: JSON text, or None. `about`: the request of the peer (its
        message, or its `ref`) that this is about; a reply route that carries notifications gets it,
        before the answer."""
        self.call_c(
            self.writer_about_c(ref_of(about)),
            b'{"jsonrpc":"2.0","method":' + quoted(method), params,
        )

    cdef int call_c(self, FrameWriter writer, bytes head, object params) except -1:
        cdef Session me = self     # a buffer's owner may run any code
        if params is None:
            return self.write_c(writer, head, b"")
        return me.write_c(writer, head + b',"params":', json_line(params))

    def cancel(self, int64_t id, str reason=None, /, *, about=0):
        """Cancel a request of ours and notify the peer. Returns its token; None when it was not
        outstanding, and then nothing is sent. `about`: what the request had."""
        cdef bytes params = b'{"requestId":' + self.pending.text_c(id)
        token = self.pending.take_c(id)
        if token is not None:
            if reason is not None:
                params += b',"reason":' + quoted(reason)
            self.send_notification("notifications/cancelled", params + b"}", about=about)
        return token

    def forget(self, int64_t id, /):
        """Drop a request of ours without notifying the peer (``initialize`` must not be
        cancelled). Returns its token, or None."""
        return self.pending.take_c(id)

    def next_deadline(self):
        """The earliest deadline, on the caller's clock, or None."""
        return self.pending.next_deadline()

    def expire(self, double now, /):
        """Drop the requests of ours whose deadline has passed. Returns a list of (id, token), with
        the ids that `reserve` returned. The owner notifies the peer, because it knows which
        requests may be cancelled."""
        return self.pending.expire(now)

    def fail_all(self):
        """Drop all requests of ours, because the link is lost. Returns a list of (id, token)."""
        return self.pending.take_all()

    # -- answers -------------------------------------------------------------------------------

    cdef int respond_c(self, Message m) except -1:
        """Handle a response. 1: it is an event; m.token is the caller's."""
        cdef int64_t id
        if not valid_id(m):
            self.match_alike_c(m)
            return 1          # perhaps an error about a message of ours that could not be read
        id = self.pending.find_c(span_of(m, WS_ID))
        if id == 0:
            if self.match_alike_c(m):
                return 1
            self.late_responses += 1
            return self.shows_late_responses
        m.token = self.pending.take_c(id)
        return 1

    cdef bint match_alike_c(self, Message m) except -1:
        """Find the request that a response answers whose id has another type than the request's.
        Where several may be meant, each of them fails. False: none is."""
        cdef Message other
        cdef Span raw = span_of(m, WS_ID)
        cdef list ids
        if raw.n == 0 or self.pending.live == 0:
            return False
        ids = self.pending.alike_c(raw)
        if not ids:
            return False
        if len(ids) == 1:
            if m.kind_c == INVALID:
                m.kind_c = RESULT
                m.fault_c = FAULT_NONE
                m.reason = None
            m.token = self.pending.take_c(ids[0])
            return True
        text = (<const char *> raw.p)[:raw.n].decode()
        reason = f"its id {text} may be that of {len(ids)} requests"
        for id in ids[1:]:
            other = Message.new()
            other.invalid_c(FAULT_RESPONSE, reason)
            other.token = self.pending.take_c(id)
            self.hold_back_c(other)
        m.invalid_c(FAULT_RESPONSE, reason)
        m.token = self.pending.take_c(ids[0])
        return True

    # -- figures -------------------------------------------------------------------------------

    @property
    def counters(self):
        """Counts of messages and bytes since the start, and what is held now.

        `payload_bytes_copied`: bytes of messages that had to be moved because they did not arrive
        in one piece; 0 while every message arrives whole. `output_bytes_copied`: bytes of short
        payloads that were copied into output blocks. `values_shown`: values of messages, of all
        sessions of the process, that were given out as leases or strings, which is where decoding
        begins.
        """
        return {
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "payload_bytes_copied": self.framer.bytes_moved,
            "output_bytes_copied": self.outbox.bytes_copied,
            "slabs_live": slabs_live(),
            "values_shown": values_shown(),
            "requests_in_flight": self.inflight.live,
            "requests_waiting": self.n_waiting,
            "requests_outstanding": self.pending.live,
            "bytes_in_flight": self.inflight.n_bytes,
            "bytes_in_batches": self.n_batch_bytes,
            "bytes_queued": self.outbox.size,
            "faults": self.faults,
            "duplicate_ids": self.duplicate_ids,
            "late_responses": self.late_responses,
            "refused": self.refused,
            "cancelled": self.cancelled_in,
        }
