"""One link to a server, from the client's side: many callers, one stream.

Calls are futures that the server's answers resolve; everything about eras, launching and restarts
is above (`wirespeed.client.client`).
"""

cimport cython
from libc.math cimport INFINITY

import logging

import msgspec

from wirespeed._core.envelope cimport (
    ERROR,
    INVALID,
    NOTIFICATION,
    REQUEST,
    RESULT,
    Message,
    method_is,
)
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed.transport.link cimport Endpoint

from wirespeed.client.results import Progress, decode_call_result
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject

logger = logging.getLogger("wirespeed.client")

cdef object encode = msgspec.json.Encoder().encode
cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode
cdef object decode_progress = msgspec.json.Decoder(Progress).decode
cdef object RAW_TYPES = (bytes, bytearray, memoryview)

cdef enum:
    MAX_NAMES = 4096


@cython.final
@cython.freelist(64)
cdef class Waiter:
    """A call that waits for its answer."""

    def __init__(self):
        raise TypeError("waiters are made by the connection")


@cython.final
cdef class ClientConnection(Endpoint):
    """A client's end of a link.

    Args:
        loop: The loop that everything happens on.
        limits: What the connection may take.
        owner: An object with ``on_notification(message)`` and ``on_link_lost(exc)``.
    """

    def __init__(self, loop, limits, owner):
        self.loop = loop
        self.owner = owner
        self.session = Session(limits=limits, role="client")
        self.session.batches = True        # what a server of 2025-03-26 may send
        self.meta = b""
        self.names = {}
        self.timer_at = INFINITY
        self.room_waiters = []

    # -- calls ---------------------------------------------------------------------------------

    def use(self, revision, bytes meta not None):
        """The handshake is done: the revision, and what every request's ``_meta`` carries."""
        self.revision = revision
        self.meta = meta
        self.session.batches = revision.batches

    cdef Waiter waiter_c(self, str method, object decode, object on_progress, bint cancellable,
                         double timeout):
        cdef Waiter waiter
        cdef double deadline = INFINITY
        if self.link is None:
            raise self.error()
        waiter = Waiter.__new__(Waiter)
        waiter.method = method
        waiter.decode = decode
        waiter.on_progress = on_progress
        waiter.cancellable = cancellable
        waiter.future = self.loop.create_future()
        if timeout != INFINITY:
            deadline = <double> self.loop.time() + timeout
        waiter.id = self.session.pending.add_c(waiter, deadline)
        if deadline < self.timer_at:
            self.arm_c(deadline)
        return waiter

    cdef int write_meta_c(self, Waiter waiter, bint first) except -1:
        """``"_meta":{...}`` of a request's params, where there is something to say."""
        cdef Outbox out = self.session.outbox
        cdef bytes digits
        if not self.meta and waiter.on_progress is None:
            return 0
        out.text_c(b'"_meta":{' if first else b',"_meta":{')
        out.text_c(self.meta)
        if waiter.on_progress is not None:
            digits = b'%b"progressToken":%d' % (b"," if self.meta else b"", waiter.id)
            out.text_c(digits)
        out.text_c(b"}")
        return 0

    def call_tool(self, str name not None, arguments, double timeout, on_progress):
        """Start tools/call; a `Waiter` whose future becomes a `CallToolResult`.

        `arguments`: a mapping or struct, JSON text as bytes, or None. OverflowError when too many
        calls are outstanding; ConnectionClosed or ChildExited when the link is gone.
        """
        cdef Waiter waiter
        cdef Outbox out
        cdef object name_json = self.names.get(name)
        cdef object body
        if name_json is None:
            name_json = encode(name)
            if len(self.names) < MAX_NAMES:
                self.names[name] = name_json
        if arguments is None or isinstance(arguments, RAW_TYPES):
            body = arguments
        else:
            body = encode(arguments)
        waiter = self.waiter_c("tools/call", decode_call_result, on_progress, True, timeout)
        out = self.session.open_request_c(waiter.id)
        out.text_c(b'"method":"tools/call","params":{"name":')
        out.write_object_c(name_json)
        if body is not None:
            out.text_c(b',"arguments":')
            out.write_object_c(body)
        self.write_meta_c(waiter, False)
        out.text_c(b"}}\n")
        self.link.wrote_c()
        return waiter

    def request(self, str method not None, bytes params, decode, *, double timeout=INFINITY,
                on_progress=None, bint cancellable=True):
        """Start any request; a `Waiter` whose future becomes what `decode` makes of the result.

        `params` is the JSON text of an object without ``_meta``, or None.
        """
        cdef bytes method_json = encode(method)
        cdef Waiter waiter = self.waiter_c(method, decode, on_progress, cancellable, timeout)
        cdef Outbox out = self.session.open_request_c(waiter.id)
        out.text_c(b'"method":')
        out.write_object_c(method_json)
        if params is not None or self.meta or on_progress is not None:
            params = b"{}" if params is None else params
            out.text_c(b',"params":')
            out.write_object_c(params[:len(params) - 1])
            self.write_meta_c(waiter, len(params) == 2)
            out.text_c(b"}")
        out.text_c(b"}\n")
        self.link.wrote_c()
        return waiter

    def notify(self, str method not None, bytes params=None):
        """Send a notification."""
        if self.link is None:
            raise self.error()
        self.session.send_notification(method, params)
        self.link.wrote_c()

    def abandon(self, Waiter waiter not None, str reason=None):
        """Its caller waits no more: tell the server, unless the answer is there already."""
        if waiter.cancellable:
            if self.session.cancel(waiter.id, reason) is not None and self.link is not None:
                self.link.wrote_c()
        else:
            self.session.forget(waiter.id)

    def error(self):
        """What a call fails with now that the link is gone."""
        if self.lost_error is not None:
            return type(self.lost_error)(*self.lost_error.args)
        return ConnectionClosed("the connection is closed")

    # -- back-pressure -------------------------------------------------------------------------

    @property
    def full(self):
        """Whether so much is queued that callers should wait (`wait_for_room`)."""
        return self.session.outbox.size >= self.session.output_high and self.link is not None

    def wait_for_room(self):
        """A future: the server has read on, or the link is gone."""
        waiter = self.loop.create_future()
        self.room_waiters.append(waiter)
        return waiter

    cpdef object on_drained(self):
        cdef list waiters = self.room_waiters
        self.room_waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- deadlines -----------------------------------------------------------------------------

    cdef int arm_c(self, double at) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = at
        self.timer = self.loop.call_at(at, self._expire)
        return 0

    def _expire(self):
        cdef Waiter waiter
        self.timer = None
        self.timer_at = INFINITY
        # loops round their clocks: what is due within a millisecond is due
        for _, waiter in self.session.expire(<double> self.loop.time() + 0.001):
            if waiter.cancellable and self.link is not None:
                self.session.send_notification(
                    "notifications/cancelled",
                    encode({"requestId": waiter.id, "reason": "timed out"}),
                )
                self.link.wrote_c()
            if not waiter.future.done():
                waiter.future.set_exception(
                    CallTimeout(f"no answer to {waiter.method} within its time limit")
                )
        at = self.session.next_deadline()
        if at is not None:
            self.arm_c(at)

    # -- what the link tells -------------------------------------------------------------------

    cpdef object on_data(self):
        cdef Message m
        while True:
            m = None           # so that the session may use it again
            m = self.session.next_c()
            if m is None:
                return
            try:
                if m.kind_c == RESULT:
                    self.resolve_c(m)
                elif m.kind_c == ERROR or m.kind_c == INVALID:
                    self.refuse_c(m)
                elif m.kind_c == NOTIFICATION:
                    self.notification(m)
                elif m.kind_c == REQUEST:
                    self.inbound(m)
            except Exception:
                logger.exception("internal error at a message of the server")

    cdef int resolve_c(self, Message m) except -1:
        cdef Waiter waiter = <Waiter> m.token
        cdef object result
        if waiter.future.done():
            return 0
        try:
            result = waiter.decode(m.result)
        except InvalidResponse as exc:
            waiter.future.set_exception(exc)
        except (msgspec.DecodeError, ValueError) as exc:
            waiter.future.set_exception(
                InvalidResponse(f"the result of {waiter.method} is not valid: {exc}")
            )
        else:
            waiter.future.set_result(result)
        return 0

    cdef int refuse_c(self, Message m) except -1:
        """An error response, or something that is no message."""
        cdef Waiter waiter
        if m.token is None:
            if m.kind_c == ERROR:
                logger.warning("the server reports an error: %s", bytes(m.error)[:500])
            else:
                logger.warning("skipped what is no message (%s)", m.reason)
                self.owner.on_bad_line(m)
            return 0
        waiter = <Waiter> m.token
        if waiter.future.done():
            return 0
        if m.kind_c == INVALID:
            waiter.future.set_exception(
                InvalidResponse(f"the response to {waiter.method} is not valid: {m.reason}")
            )
            return 0
        try:
            error = decode_error(m.error)
        except msgspec.DecodeError as exc:
            waiter.future.set_exception(
                InvalidResponse(f"the error of {waiter.method} is not valid: {exc}")
            )
        else:
            waiter.future.set_exception(RemoteError(error.code, error.message, error.data))
        return 0

    def notification(self, Message m not None):
        cdef Waiter waiter
        if m.token is not None and method_is(
            m, b'"notifications/progress"', "notifications/progress"
        ):
            waiter = <Waiter> m.token
            if waiter.on_progress is not None and not waiter.future.done():
                try:
                    progress = decode_progress(m.params)
                except msgspec.DecodeError as exc:
                    logger.warning("a progress notification is not valid: %s", exc)
                    return
                waiter.on_progress(progress.progress, progress.total, progress.message)
            return
        self.owner.on_notification(m)

    def inbound(self, Message m not None):
        """A request of the server (legacy only)."""
        if method_is(m, b'"ping"', "ping"):
            self.session.result_c(m.ref, b"{}")
        else:
            self.session.error_c(
                m.ref, codes.METHOD_NOT_FOUND, f"Method not found: {m.method}", None
            )

    cpdef object on_eof(self):
        self.owner.on_link_eof()

    cpdef object on_lost(self, exc):
        self.on_drained()
        self.owner.on_link_lost(exc)

    def fail(self, exc):
        """The link is gone for good: every call fails at once with `exc`."""
        cdef Waiter waiter
        if self.lost_error is None:
            self.lost_error = exc
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for _, waiter in self.session.fail_all():
            if not waiter.future.done():
                waiter.future.set_exception(self.error())
        self.on_drained()
