"""The asking half of a session: requests to the peer, their ids and deadlines; notifications."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t

import msgspec

from wirespeed._core._simd cimport (
    WS_ARGUMENTS,
    WS_ID,
    WS_META_PROGRESS_TOKEN,
    WS_PARAMS,
    WS_REQUEST_ID,
)
from wirespeed._core.envelope cimport (
    FAULT_NONE,
    FAULT_RESPONSE,
    INVALID,
    RESULT,
    Message,
    nothing_c,
    span_of,
    valid_id,
)
from wirespeed._core.framing.writer cimport FrameWriter
from wirespeed._core.outbox cimport Outbox, json_line
from wirespeed._core.responder cimport Responder, ref_of
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport (
    DIGITS,
    MAX_MORE,
    Edit,
    digits_of,
    edit_of,
    insert_c,
    splice_c,
)

cdef object encode = msgspec.json.Encoder().encode


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


cdef class Requester(Responder):
    """What `wirespeed._core.session.Session` knows of its own requests. Abstract."""

    def __cinit__(self, *args, **kwargs):
        self.abstract_c(Requester)

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
            b'{"jsonrpc":"2.0","id":%b,"method":%b' % (self.pending.text_c(id), encode(method)),
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
        cdef Requester me = self     # the token is freed, which may run any code
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
            b'{"jsonrpc":"2.0","method":' + encode(method), params,
        )

    cdef int call_c(self, FrameWriter writer, bytes head, object params) except -1:
        cdef Requester me = self     # a buffer's owner may run any code
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
                params += b',"reason":' + encode(reason)
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

    cdef int hold_back_c(self, Message m) except -1:
        """Have a message be an event after the present one."""
        return 0
