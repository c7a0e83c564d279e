"""The answering half of a session: the requests of the peer, and the answers to them.

A request is in flight from when it is registered until it is answered or cancelled. An answer is
written all or not at all, by the route that the request came with (`reply_route`), or else on the
stream of the wire.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from wirespeed._core._simd cimport WS_ID
from wirespeed._core.envelope cimport Message
from wirespeed._core.framing.base cimport FrameWriter
from wirespeed._core.inflight cimport InFlight, InFlightSlot, inflight_id
from wirespeed._core.json_text cimport json_text, quoted_always
from wirespeed._core.outbox cimport Outbox, json_line, parts_of
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.span cimport Span
from wirespeed._core.splice cimport Edit, edit_of, insert_c, splice_c
from wirespeed._core.wire cimport Wire

cdef enum:
    HEAD_LEN = 22
    SHUTTING_DOWN = -31001    # ours: outside the ranges that JSON-RPC and MCP reserve
    CUT_OFF = -31006

cdef const char *HEAD = b'{"jsonrpc":"2.0","id":'


cdef class Responder(Wire):
    """The part of a `wirespeed._core.session.Session` that answers its peer. Abstract."""

    def __cinit__(self, *args, **kwargs):
        self.abstract_c(Responder)
        self.null_ids = True
        self.inflight = InFlight()

    cdef bint is_full_c(self, ReplyRoute route) noexcept:
        """Whether no more requests of a route may start. They cannot wait: held answers leave only
        when the last request of their batch is answered."""
        return (
            route is not None and route.holds and self.n_batch_bytes >= self.max_in_flight_bytes
        )

    cdef int settle_c(self, ReplyRoute route, Py_ssize_t n_done) except -1:
        """`n_done` requests or bodies of a route are done. Count the bytes that it holds."""
        cdef Responder me = self       # the route may run any code
        if n_done:
            route.release_c(n_done)
        if route.holds:
            me.n_batch_bytes = me.n_batch_bytes - route.n_counted + route.out.size
            route.n_counted = route.out.size
        return 0

    cdef FrameWriter writer_about_c(self, uint64_t ref):
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        cdef FrameWriter writer = None
        if slot is not NULL and slot.route is not NULL:
            writer = (<ReplyRoute> slot.route).notices_c()
        return self.writer if writer is None else writer

    cdef ReplyRoute route_of_c(self, uint64_t ref):
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        cdef ReplyRoute route = None
        if slot is not NULL and slot.route is not NULL:
            route = <ReplyRoute> slot.route
            while route.parent is not None:
                route = route.parent
        return route

    cdef int refused_c(self, uint64_t ref) except -1:
        cdef ReplyRoute route = self.route_of_c(ref)
        if route is not None:
            route.refused = True
        return 0

    cdef int drop_inbound_c(self, uint64_t ref) except -1:
        """Take a request out of flight without an answer."""
        return self.drop_slot_c(self.inflight.slot_c(ref))

    cdef int drop_slot_c(self, InFlightSlot *slot) except -1:
        cdef Responder me = self       # the token is freed, which may run any code
        cdef ReplyRoute route = None
        if slot.route is not NULL:
            route = <ReplyRoute> slot.route
        self.inflight.remove_slot_c(slot)
        if route is not None:
            me.settle_c(route, 1)
        return 0

    cdef Outbox open_reply_c(self, uint64_t ref):
        """Begin the answer to a request, up to and including its id. The caller writes
        ``"result":...`` or ``"error":...``, then calls `close_reply_c`, and runs no other code
        in between; when anything fails, it calls `abort_reply_c`. None when the request is no
        longer in flight."""
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        return None if slot is NULL else self.begin_reply_c(slot, b"", 0, 0)

    cdef Outbox begin_reply_c(
        self, InFlightSlot *slot, const char *member, size_t n_member, size_t room
    ):
        """The same, and the beginning of the member that follows. There is `room` behind it."""
        cdef FrameWriter writer = reply_writer(self, slot)
        cdef Outbox out = writer.out
        cdef uint8_t *p
        writer.open_c()
        p = out.reserve_c(HEAD_LEN + slot.id_len + 1 + n_member + room)
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
        try:
            reply_writer(self, slot).close_c(c'}')
        finally:
            if slot.route is NULL:
                self.inflight.remove_slot_c(slot)
            else:
                self.drop_slot_c(slot)
        return 0

    cdef int abort_reply_c(self, uint64_t ref) except -1:
        """Remove an answer that could not be finished. The request stays in flight."""
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        return (self.writer if slot is NULL else reply_writer(self, slot)).abort_c()

    cdef int reply_c(
        self, uint64_t ref, const char *member, size_t n_member, object payload
    ) except -1:
        # payload: bytes or a Payload, which cannot fail any more
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        cdef bint done = False
        if slot is NULL:
            return 0
        try:
            self.begin_reply_c(slot, member, n_member, 0).write_object_c(payload)
            self.end_reply_c(slot)
            done = True
        finally:
            if not done:
                self.abort_reply_c(ref)
        return 1

    cdef int splice_reply_c(self, uint64_t ref, Message m, int code, Edit *more) except -1:
        """Answer with the response of another peer as it came, but for its id. `code`: that of its
        error as far as the route has a use for it. 0: the request is gone."""
        cdef Responder me = self       # the framing may run any code
        cdef InFlightSlot *slot = self.inflight.slot_c(ref)
        cdef Edit edits[2]
        cdef int n = 1
        if slot is NULL:
            return 0
        edits[0] = edit_of(m, WS_ID, inflight_id(slot))
        if more is not NULL:
            n = insert_c(edits, n, more[0])
        if code and slot.route is not NULL:
            (<ReplyRoute> slot.route).code = code
        splice_c(reply_writer(self, slot), m, edits, n)
        me.messages_out += 1
        me.drop_inbound_c(ref)
        return 1

    cdef int splice_about_c(self, uint64_t ref, Message m, int which, Span text) except -1:
        """Send a notification of another peer as it came, but for the point of interest `which`,
        about a request in flight."""
        cdef Edit edit = edit_of(m, which, text)
        splice_c(self.writer_about_c(ref), m, &edit, 1)
        self.messages_out += 1
        return 0

    cdef int result_c(self, uint64_t ref, object body) except -1:
        """Answer with a result, the JSON text of an object. 0: the request is gone."""
        cdef Responder me = self       # a buffer's owner may run any code
        return me.reply_c(ref, b'"result":', 9, parts_of(body))

    cdef int error_object_c(self, uint64_t ref, object body) except -1:
        """Answer with an error, the JSON text of an object. 0: the request is gone."""
        cdef Responder me = self       # a buffer's owner may run any code
        return me.reply_c(ref, b'"error":', 8, parts_of(body))

    cdef int error_c(self, uint64_t ref, int code, str message, object data) except -1:
        """Answer with an error. 0: the request is gone."""
        cdef Responder me = self       # what encodes the data may run any code
        cdef bytes body = error_body(code, message, data)
        cdef InFlightSlot *slot = me.inflight.slot_c(ref)
        if slot is not NULL and slot.route is not NULL:
            (<ReplyRoute> slot.route).code = code
        return me.reply_c(ref, b'"error":', 8, body)

    cdef int write_error_c(
        self, ReplyRoute route, Span id, int code, str message, object data
    ) except -1:
        """An error that answers no request in flight. The route is that of its body, or None."""
        cdef FrameWriter writer = self.writer if route is None else route
        cdef bytes head = b'{"jsonrpc":"2.0",'
        if id.n:
            head += b'"id":%b,' % (<const char *> id.p)[:id.n]
        elif self.null_ids:
            head += b'"id":null,'
        head += b'"error":'
        if route is not None:
            route.code = code
        self.write_c(writer, head, error_body(code, message, data))
        return 0 if route is None else self.settle_c(route, 0)

    cdef int set_token_c(self, uint64_t ref, object token) except -1:
        """Set the token that a cancellation of the request will show."""
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
        as a bytes-like object, or as a tuple or list of these, the parts of the text.

        A part of 4 KiB or more is not copied, and must not change until it is sent. False: the
        request was cancelled or answered before, and nothing is sent. ValueError for a body that
        is empty or holds a raw newline.
        """
        return self.result_c(ref_of(request), json_line(body)) == 1

    def send_error(self, request, int code, str message, data=None, /):
        """Answer a request with an error. `data`: None, or what JSON has (bool, int, float, str,
        list, tuple, dict). False as above."""
        return self.error_c(ref_of(request), code, message, data) == 1

    cdef int cut_off_c(self, str why) except -1:
        cdef Responder me = self       # routes and tokens may run any code
        cdef InFlightSlot *slot
        cdef uint64_t ref
        for ref in me.inflight.refs_c():
            slot = me.inflight.slot_c(ref)
            if slot is NULL:
                continue
            if slot.n_bytes == 0:
                me.error_c(ref, SHUTTING_DOWN, f"{why}: the request has not begun", None)
            else:
                me.error_c(
                    ref, CUT_OFF, f"{why}: the request was cut off, and may have taken effect", None
                )
        return 0

    def send_error_object(self, request, body, /):
        """Answer a request with an error as another peer wrote it: the JSON text of the error
        object. The body is as of `send_result`."""
        return self.error_object_c(ref_of(request), json_line(body)) == 1

    def set_token(self, request, token, /):
        """Set the token that a cancellation of the request will show. A cancelled request that has
        a token counts against `max_in_flight` until `cancelled_done`."""
        return self.set_token_c(ref_of(request), token) == 1

    def cancelled_done(self):
        """The handler of a cancelled request that had a token has ended."""
        self.cancelled_done_c()

    cdef int write_c(self, FrameWriter writer, bytes head, object payload) except -1:
        """Send a message, all of it or nothing: the beginning of a JSON object and the value of its
        last member, bytes or a Payload."""
        try:
            writer.open_c()
            writer.out.text_c(head)
            writer.out.write_object_c(payload)
            writer.close_c(c'}')
        finally:
            writer.abort_c()           # of a frame that could not be finished
        self.messages_out += 1
        return 0


cdef inline FrameWriter reply_writer(Responder responder, InFlightSlot *slot):
    """The writer of the answer to a request."""
    return responder.writer if slot.route is NULL else <FrameWriter> slot.route


cdef uint64_t ref_of(object request) except? 0:
    if isinstance(request, Message):
        return (<Message> request).ref
    if not isinstance(request, int):
        raise TypeError("a request is given as its Message or as its ref")
    return request


cdef object encode_data = None     # of all sessions of the process; None: `json_text`


def encode_data_by(function, /):
    """Set the function that makes the JSON text of the data of errors, for more than JSON has."""
    global encode_data
    encode_data = function


cdef bytes error_body(int code, str message, object data):
    """The error object. Lone surrogates, which a peer's text may hold, are written as escapes."""
    cdef bytes text = b"null" if message is None else quoted_always(message)
    if data is None:
        return b'{"code":%d,"message":%b}' % (code, text)
    return b'{"code":%d,"message":%b,"data":%b}' % (
        code, text, json_text(data) if encode_data is None else encode_data(data)
    )
