"""One JSON-RPC peer over one ordered byte stream: bytes in, events out; calls in, bytes out.

No I/O and no clock: a transport reads into ``get_buffer`` / ``receive_data``, sends what
``data_to_send`` gives, and stops reading while ``want_read`` is false; deadlines are numbers of the
caller's clock.

What a session does by itself, and what it leaves to its owner:

* Bad input is answered (by a server) or only reported (by a client), as the table of
  docs/architecture.md says, and shows as an event of kind "invalid".
* A request is registered before it becomes an event; a second one with an id still in flight gets
  -32600, and the first goes on. The owner answers by ``send_result`` or ``send_error``, once.
  Where there are no answers (a client of 2026-07-28: ``answers_requests`` is False), a request is
  an event and nothing else.
* A response is matched to its caller; late, unknown and double ones are counted, not shown.
* ``notifications/cancelled`` takes the request out of flight: an answer given later is dropped.
* Flow control: while `max_in_flight` requests are worked on, or `output_high` bytes wait for the
  peer, further requests wait, and everything else (responses, notifications, ping) still gets
  through. When too many wait, reading stops; only when our own side waits for the peer too, they
  are refused instead, because the answer may lie behind them.
* With a ``refusal``, a pair of code and message, requests that come from then on are answered by
  this error and not shown. Those that came before, and everything else, go their way.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from cpython.ref cimport Py_INCREF

from collections import deque

import msgspec

from wirespeed._core._simd cimport (
    WS_ID,
    WS_ID_INVALID,
    WS_METHOD,
    WS_PROGRESS_TOKEN,
    WS_REQUEST_ID,
)
from wirespeed._core.batch cimport BatchReply
from wirespeed._core.envelope cimport (
    BATCH,
    FAULT_PARSE,
    FAULT_REQUEST,
    FAULT_RESPONSE,
    INVALID,
    NOTIFICATION,
    REQUEST,
    Message,
    method_is,
    span_of,
    valid_id,
)
from wirespeed._core.framing.base cimport Framer
from wirespeed._core.framing.line cimport LineFramer
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.outbox cimport Outbox, json_line, payload_of
from wirespeed._core.pending cimport Pending
from wirespeed._core.reader cimport MessageReader
from wirespeed._core.slab cimport slabs_live
from wirespeed._core.span cimport Span
from wirespeed._core.wire cimport Wire

from wirespeed.limits import Limits

cdef object encode = msgspec.json.Encoder().encode
cdef object to_builtins = msgspec.to_builtins

cdef enum:
    HEAD_LEN = 22
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    OVERLOADED = -31000       # ours: outside the ranges that JSON-RPC and MCP reserve

cdef const char *HEAD = b'{"jsonrpc":"2.0","id":'
cdef object WAITS = object()      # the token of a request that waits for room


@cython.final
cdef class Session(Wire):
    """The state of one connection.

    Args:
        limits: What the connection may take.
        role: "server" answers bad input with error responses, "client" only reports it.
        framer: How messages lie in the stream; one a line by default.
    """

    def __cinit__(self, *, limits=None, str role="server", Framer framer=None):
        if role not in ("server", "client"):
            raise ValueError('role must be "server" or "client"')
        limits = Limits() if limits is None else limits
        self.join_c(limits, LineFramer(limits.max_message) if framer is None else framer)
        self.answers_faults = role == "server"
        self.null_ids = True
        self.answers_requests = True
        self.max_id = limits.max_id
        self.max_in_flight = limits.max_in_flight
        self.max_in_flight_bytes = limits.max_in_flight_bytes
        self.max_waiting = limits.max_waiting
        self.max_waiting_bytes = limits.max_waiting_bytes
        self.reader = MessageReader(limits=limits, framer=self.framer)
        self.pending = Pending(limits.max_outstanding)
        self.inflight = InFlight()
        self.waiting = deque()

    @property
    def batches(self):
        """Whether arrays are batches: 2025-03-26 was negotiated."""
        return self.reader.batches

    @batches.setter
    def batches(self, bint value):
        self.reader.batches = value

    # -- events out ----------------------------------------------------------------------------

    def next_event(self):
        """The next message that its owner must look at, or None until more bytes come."""
        return self.next_c()

    def events(self):
        """Iterate over the events there are now."""
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
            self.inflight.live + self.n_gone + <size_t> self.n_cancelled
            < self.n_waiting + self.max_in_flight
            and self.inflight.n_bytes + self.n_cancelled_bytes < self.max_in_flight_bytes
            and self.outbox.size < self.output_high
        )

    cdef bint is_flooded_c(self) noexcept:
        """Whether even short errors must wait, because the peer reads none."""
        return self.outbox.size >= 2 * self.output_high and self.batch is None

    cdef bint must_stop_c(self) noexcept:
        """Whether as many requests wait as may."""
        return (
            self.n_waiting >= self.max_waiting or self.n_waiting_bytes >= self.max_waiting_bytes
        )

    cdef bint want_read_c(self) noexcept:
        if self.outbox.size >= 2 * self.output_high and (
            self.reader.elements or self.refusal is not None
        ):
            return False           # their errors cannot wait by themselves
        return not self.must_stop_c() or (
            self.pending.live != 0 and self.outbox.size < 2 * self.output_high
        )

    cdef bint awaits_c(self) noexcept:
        return self.pending.live != 0

    cdef bint wants_turn_c(self) noexcept:
        return self.n_waiting != 0

    cdef Message next_c(self):
        """The next event, or None."""
        cdef Message m
        cdef BatchReply batch
        while True:
            if self.batch is not None and not self.reader.elements:
                batch = self.batch
                self.batch = None
                self.settle_batch_c(batch, 1)
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
                    return None
                m = self.reader.next_c()
                if m is None:
                    return None
                if m.kind_c == BATCH:
                    self.batch = BatchReply.new()
                    self.batch.n_open = 1      # until all elements were looked at
                    continue
            self.messages_in += 1
            if m.kind_c == REQUEST and m.scan.poi[WS_ID].len > self.max_id:
                m.scan.id_kind = WS_ID_INVALID       # too long to be kept or echoed
                m.invalid_c(FAULT_REQUEST, f"an id of more than {self.max_id} bytes")
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

    cdef bint batch_is_full_c(self, BatchReply batch) noexcept:
        """Whether no more requests of a batch may start. They cannot wait: the answers that are
        held leave only when the last request of their batch is answered."""
        return batch is not None and self.n_batch_bytes >= self.max_in_flight_bytes

    cdef int refuse_request_c(self, uint64_t ref, BatchReply batch) except -1:
        """Answer a registered request with -31000."""
        self.refused += 1
        if self.batch_is_full_c(batch):
            text = f"the answers of open batches have {self.max_in_flight_bytes} bytes or more"
        else:
            text = (
                f"too many requests at once (the limits are {self.max_in_flight} requests"
                f" and {self.max_in_flight_bytes} bytes)"
            )
        self.error_c(ref, OVERLOADED, text, None)
        return 0

    cdef int settle_batch_c(self, BatchReply batch, Py_ssize_t n_done) except -1:
        """So many requests of a batch are done: send its answers when none is open, and count the
        bytes that are held."""
        batch.n_open -= n_done
        batch.finish_c(self.writer)
        self.n_batch_bytes = self.n_batch_bytes - batch.n_counted + batch.out.size
        batch.n_counted = batch.out.size
        return 0

    cdef int register_c(self, Message m) except -1:
        """A request came in. 1: its owner is to see it now."""
        cdef uint64_t ref
        cdef bint can_start
        cdef Span id = span_of(m, WS_ID)
        cdef InFlightSlot *slot
        if self.batch is not None and method_is(m, b'"initialize"', "initialize"):
            self.faults += 1
            self.write_error_c(
                self.batch, id, INVALID_REQUEST, "initialize cannot be part of a batch", None
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
            self.write_error_c(
                self.batch, id, INVALID_REQUEST, "a request with this id is in flight already",
                None,
            )
            return 0
        m.ref = ref
        if self.batch is not None:
            slot = self.inflight.slot_c(ref)
            slot.batch = <void *> self.batch
            Py_INCREF(self.batch)
            self.batch.n_open += 1
            if self.refusal is None and self.batch_is_full_c(self.batch):
                return self.refuse_request_c(ref, self.batch)
        if self.refusal is not None:
            self.refused += 1
            self.error_c(ref, self.refusal[0], self.refusal[1], None)
            return 0
        if can_start:
            return 1
        if method_is(m, b'"ping"', "ping") and self.outbox.size < 2 * self.output_high:
            return 1
        if self.must_stop_c():
            # we wait for the peer ourselves: its answer may lie behind this request
            return self.refuse_request_c(ref, None)
        self.set_token_c(ref, WAITS)
        self.wait_c(m)
        return 0

    cdef bint leave_queue_c(self, Message m) except -1:
        """A message has waited. False: nothing of it is left to be shown."""
        cdef BatchReply batch = None
        cdef InFlightSlot *slot = self.inflight.slot_c(m.ref)
        if slot is not NULL:
            self.inflight.set_token_c(m.ref, None)
            if slot.batch is not NULL:
                batch = <BatchReply> slot.batch
            if self.batch_is_full_c(batch):
                self.refuse_request_c(m.ref, batch)
                return False
            self.inflight.start_c(slot, m.n)
            return True
        self.n_gone -= 1
        if m.ref:
            return False           # cancelled meanwhile
        # of no batch; one may be open
        batch = self.batch
        self.batch = None
        try:
            if m.kind_c == INVALID:
                self.fault_c(m)
                return True
            return self.register_c(m)      # its id was taken when it came
        finally:
            self.batch = batch

    cdef int wait_c(self, Message m) except -1:
        """Hold a message back until there is room."""
        if m.ref == 0:
            self.n_gone += 1
        self.waiting.append(m)
        self.n_waiting += 1
        self.n_waiting_bytes += m.n
        return 0

    cdef int respond_c(self, Message m) except -1:
        """A response came in. 1: its owner is to see it; m.token is the caller's."""
        cdef int64_t id
        if not valid_id(m):
            return 1          # an error about something of ours that the peer could not read
        id = self.pending.find_c(span_of(m, WS_ID))
        if id == 0:
            self.late_responses += 1
            return 0
        m.token = self.pending.take_c(id)
        return 1

    cdef int notice_c(self, Message m) except -1:
        """A notification came in: give it the token of what it is about."""
        cdef uint64_t ref
        cdef int64_t id
        cdef Span raw
        cdef object token
        if method_is(m, b'"notifications/cancelled"', "notifications/cancelled"):
            raw = span_of(m, WS_REQUEST_ID)
            if raw.n == 0:
                return 0
            ref = self.inflight.find_c(raw)
            if ref:
                self.cancelled_in += 1
                token = self.inflight.token_c(ref)
                m.ref = ref
                if token is WAITS:
                    self.n_gone += 1
                elif token is not None:
                    m.token = token
                    self.n_cancelled += 1
                    self.n_cancelled_bytes += self.inflight.slot_c(ref).n_bytes
                self.drop_inbound_c(ref)
            else:
                # the other direction: the server ends a subscription of ours
                m.token = self.pending.peek_c(self.pending.find_c(raw))
        elif method_is(m, b'"notifications/progress"', "notifications/progress"):
            id = self.pending.find_c(span_of(m, WS_PROGRESS_TOKEN))
            if id:
                m.token = self.pending.peek_c(id)
        return 0

    cdef int drop_inbound_c(self, uint64_t ref) except -1:
        """Take a request out of flight without an answer."""
        return self.drop_slot_c(self.inflight.slot_c(ref))

    cdef int drop_slot_c(self, InFlightSlot *slot) except -1:
        cdef BatchReply batch = None
        if slot.batch is not NULL:
            batch = <BatchReply> slot.batch
        self.inflight.remove_slot_c(slot)
        if batch is not None:
            self.settle_batch_c(batch, 1)
        return 0

    cdef int fault_c(self, Message m) except -1:
        """Something that is no message came in: answer what must be answered."""
        cdef int64_t id = 0
        cdef Span raw = span_of(m, WS_ID)
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
            self.write_error_c(self.batch, raw, PARSE_ERROR, "Parse error: " + m.reason, None)
        elif m.fault_c == FAULT_REQUEST:
            self.write_error_c(
                self.batch, raw, INVALID_REQUEST, "Invalid request: " + m.reason, None
            )
        return 0

    # -- answering the peer --------------------------------------------------------------------

    cdef Outbox open_reply_c(self, uint64_t ref):
        """Begin the answer to a request, up to and including its id. The caller writes
        ``"result":...`` or ``"error":...``, then calls `close_reply_c`, and runs no other code
        in between; when anything fails, it calls `abort_reply_c`. None when the request is no
        longer in flight."""
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        return None if slot is NULL else self.begin_reply_c(slot, b"", 0)

    cdef Outbox begin_reply_c(self, InFlightSlot *slot, const char *member, size_t n_member):
        cdef Outbox out = self.outbox
        cdef uint8_t *p
        if slot.batch is not NULL:
            (<BatchReply> slot.batch).begin_answer_c()
            out = (<BatchReply> slot.batch).out
        else:
            self.writer.open_c()
        p = out.reserve_c(HEAD_LEN + slot.id_len + 1 + n_member)
        memcpy(p, HEAD, HEAD_LEN)
        p += HEAD_LEN
        memcpy(p, inflight_id(slot).p, slot.id_len)
        p += slot.id_len
        p[0] = c','
        memcpy(p + 1, member, n_member)
        out.commit_c(HEAD_LEN + slot.id_len + 1 + n_member)
        return out

    cdef int close_reply_c(self, uint64_t ref) except -1:
        """End the answer, which takes the request out of flight even if the framing fails."""
        return self.end_reply_c(self.inflight.slot_c(ref))

    cdef int end_reply_c(self, InFlightSlot *slot) except -1:
        self.messages_out += 1
        if slot.batch is not NULL:
            (<BatchReply> slot.batch).out.text_c(b"}")
            return self.drop_slot_c(slot)
        try:
            self.writer.close_c(c'}')
        finally:
            self.inflight.remove_slot_c(slot)
        return 0

    cdef int abort_reply_c(self, uint64_t ref) except -1:
        """Remove an answer that could not be finished. The request stays in flight."""
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        if slot is not NULL and slot.batch is not NULL:
            return (<BatchReply> slot.batch).abort_answer_c()
        return self.writer.abort_c()

    cdef int reply_c(
        self, uint64_t ref, const char *member, size_t n_member, object payload
    ) except -1:
        # payload: bytes or a Payload, which cannot fail any more
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        cdef bint done = False
        if slot is NULL:
            return 0
        try:
            self.begin_reply_c(slot, member, n_member).write_object_c(payload)
            self.end_reply_c(slot)
            done = True
        finally:
            if not done:
                self.abort_reply_c(ref)
        return 1

    cdef int result_c(self, uint64_t ref, object body) except -1:
        """Answer with a result, the JSON text of an object. 0: the request is gone."""
        return self.reply_c(ref, b'"result":', 9, payload_of(body))

    cdef int error_c(self, uint64_t ref, int code, str message, object data) except -1:
        """Answer with an error. 0: the request is gone."""
        return self.reply_c(ref, b'"error":', 8, error_body(code, message, data))

    cdef int write_error_c(
        self, BatchReply batch, Span id, int code, str message, object data
    ) except -1:
        """An error that answers no request in flight."""
        cdef bytes head = b'{"jsonrpc":"2.0",'
        if id.n:
            head += b'"id":%b,' % (<const char *> id.p)[:id.n]
        elif self.null_ids:
            head += b'"id":null,'
        head += b'"error":'
        if batch is None:
            return self.write_c(head, error_body(code, message, data))
        batch.answer_c(head + error_body(code, message, data) + b"}")
        self.messages_out += 1
        return self.settle_batch_c(batch, 0)

    cdef int set_token_c(self, uint64_t ref, object token) except -1:
        """Remember who works on a request, for its cancellation."""
        return self.inflight.set_token_c(ref, token)

    cdef int cancelled_done_c(self) except -1:
        """The handler of a cancelled request has ended."""
        if self.n_cancelled:
            # which of them ended is not known: each stands for an equal share of the bytes
            self.n_cancelled_bytes -= self.n_cancelled_bytes // <size_t> self.n_cancelled
            self.n_cancelled -= 1
        return 0

    def send_result(self, request, body, /):
        """Answer a request (its message, or its `ref`) with a result: the JSON text of an object,
        as a bytes-like object.

        Short bodies are copied, longer ones are sent from where they lie and must not change
        until then. False: the request was cancelled or answered before, and nothing is sent.
        ValueError for a body that is empty or holds a raw newline.
        """
        return self.result_c(ref_of(request), json_line(body)) == 1

    def send_error(self, request, int code, str message, data=None, /):
        """Answer a request with an error; `data` is any JSON-encodable value. False as above."""
        return self.error_c(ref_of(request), code, message, data) == 1

    def set_token(self, request, token, /):
        """Remember who works on a request: a later cancellation shows this as its token, and the
        request counts against `max_in_flight` until `cancelled_done`."""
        return self.set_token_c(ref_of(request), token) == 1

    def cancelled_done(self):
        """The handler of a request that was cancelled, and had a token, has ended."""
        self.cancelled_done_c()

    # -- asking the peer -----------------------------------------------------------------------

    def reserve(self, token not None, /, double deadline=INFINITY):
        """An id for a request of ours, to be sent by `send_reserved`; usable as its progress
        token. OverflowError when too many are outstanding."""
        return self.pending.add_c(token, deadline)

    def send_reserved(self, int64_t id, str method not None, params=None, /):
        """Send the request that an id was reserved for. `params`: JSON text, or None."""
        self.call_c(b'{"jsonrpc":"2.0","id":%d,"method":%b' % (id, encode(method)), params)

    cdef Outbox open_request_c(self, int64_t id):
        """Begin a request, up to and including its id. The caller writes ``"method":...`` and the
        rest without the closing brace, then calls `close_request_c`, and runs no other code in
        between; when anything fails, it calls `abort_request_c`."""
        cdef char digits[24]
        cdef char *p = digits + sizeof(digits)
        cdef Outbox out = self.outbox
        p -= 1
        p[0] = c','
        while True:
            p -= 1
            p[0] = c'0' + <char> (id % 10)
            id //= 10
            if id == 0:
                break
        self.writer.open_c()
        out.write_c(HEAD, HEAD_LEN)
        out.write_c(p, <size_t> (digits + sizeof(digits)) - <size_t> p)
        self.messages_out += 1
        return out

    cdef int close_request_c(self) except -1:
        return self.writer.close_c(c'}')

    cdef int abort_request_c(self, int64_t id) except -1:
        """Remove a request that could not be finished; its id is no longer outstanding."""
        self.pending.take_c(id)
        return self.writer.abort_c()

    def send_request(self, str method not None, params=None, /, *, token, double deadline=INFINITY):
        """Send a request; returns its id. Its response becomes an event with this token."""
        cdef int64_t id = self.reserve(token, deadline)
        try:
            self.send_reserved(id, method, params)
        except BaseException:
            self.pending.take_c(id)
            raise
        return id

    def send_notification(self, str method not None, params=None, /):
        """Send a notification. `params`: JSON text, or None."""
        self.call_c(b'{"jsonrpc":"2.0","method":' + encode(method), params)

    cdef int call_c(self, bytes head, object params) except -1:
        if params is None:
            return self.write_c(head, b"")
        return self.write_c(head + b',"params":', json_line(params))

    cdef int write_c(self, bytes head, object payload) except -1:
        """Send a message, all of it or nothing: the beginning of a JSON object and the value of its
        last member, bytes or a Payload."""
        try:
            self.writer.open_c()
            self.outbox.text_c(head)
            self.outbox.write_object_c(payload)
            self.writer.close_c(c'}')
        finally:
            self.writer.abort_c()      # of a frame that could not be finished
        self.messages_out += 1
        return 0

    def cancel(self, int64_t id, str reason=None, /):
        """Give up a request of ours and tell the peer. Returns its token, None if it was not
        outstanding (nothing is sent then)."""
        token = self.pending.take_c(id)
        if token is not None:
            params = {"requestId": id} if reason is None else {"requestId": id, "reason": reason}
            self.send_notification("notifications/cancelled", encode(params))
        return token

    def forget(self, int64_t id, /):
        """Give up a request of ours without telling the peer (``initialize`` may not be
        cancelled). Returns its token, or None."""
        return self.pending.take_c(id)

    def next_deadline(self):
        """When the earliest deadline is, on the caller's clock; None without one."""
        return self.pending.next_deadline()

    def expire(self, double now, /):
        """The requests of ours whose deadline has come, now forgotten: a list of (id, token).
        Telling the peer is left to the owner, who knows which may be cancelled."""
        return self.pending.expire(now)

    def fail_all(self):
        """The link is gone: every request of ours, now forgotten, as a list of (id, token)."""
        return self.pending.take_all()

    # -- figures -------------------------------------------------------------------------------

    @property
    def counters(self):
        """What went through so far, and what is held now.

        `payload_bytes_copied`: bytes of messages that had to be moved because they did not arrive
        in one piece; 0 while every message arrives whole. `output_bytes_copied`: bytes of short
        payloads packed into output blocks.
        """
        return {
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "payload_bytes_copied": self.framer.bytes_moved,
            "output_bytes_copied": self.outbox.bytes_copied,
            "slabs_live": slabs_live(),
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


cdef uint64_t ref_of(object request) except? 0:
    if isinstance(request, Message):
        return (<Message> request).ref
    if not isinstance(request, int):
        raise TypeError("a request is named by its message or its ref")
    return request


cdef bytes error_body(int code, str message, object data):
    """The error object. Lone surrogates, which a peer's words may hold, are written as escapes."""
    cdef dict body = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    try:
        return encode(body)
    except UnicodeEncodeError:
        return encode(escaped(to_builtins(body)))


cdef object escaped(object value):
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {escaped(key): escaped(member) for key, member in value.items()}
    if isinstance(value, list):
        return [escaped(member) for member in value]
    return value
