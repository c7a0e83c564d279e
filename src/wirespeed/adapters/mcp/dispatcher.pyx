"""The official SDK's dispatcher on a session: what is done for each message.

The SDK's seam between its transports and its handlers is `mcp.shared.dispatcher.Dispatcher`: method
names, params and results as Python objects. `SdkDispatcher` is one, and the end of a connection at
the same time. Envelopes, ids, cancellation and progress are the session's, so a message becomes
Python objects once, and no stream, task or model stands between.

Nothing of the SDK is imported here. `use_sdk` takes the few objects of it that are needed.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr

import asyncio
import contextvars
import logging
from asyncio import CancelledError

from wirespeed._core._simd cimport (
    WS_ERROR, WS_META, WS_META_PROGRESS_TOKEN, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_PARAMS,
    WS_PROGRESS_TOKEN, WS_REQUEST_ID, WS_RESULT,
)
from wirespeed._core.envelope cimport (
    ERROR, NOTIFICATION, REQUEST, RESULT, Message, method_is, poi_is, span_of,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.reply_route cimport ReplyRoute
from wirespeed._core.session cimport Session
from wirespeed._core.span cimport Span
from wirespeed.adapters.mcp.json_values cimport dumps_c, loads_bytes_c, loads_c, method_json_c
from wirespeed.peer.connection cimport DRAINING, OPEN, SessionConnection
from wirespeed.peer.http.headers cimport call_is_same_c
from wirespeed.transport.http.exchange cimport Exchange
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool

from wirespeed.adapters.mcp.json_values import use_json
from wirespeed.limits import Limits
from wirespeed.transport.taskpool_choice import close_pool, open_pool

logger = logging.getLogger("wirespeed.adapters")

cdef enum:
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    INTERNAL_ERROR = -32603
    REQUEST_TIMEOUT = -32001   # of the SDK, as the next
    CONNECTION_CLOSED = -32000
    MAX_EARLY = 8              # notifications that are kept until the first request
    QUICK_ROUNDS = 20          # cancellations of a handler that goes on, each in the next turn
    MAX_ENVELOPE = 2048        # bytes of a `_meta` that is known again

cdef double NEXT_ROUND = 0.01          # seconds between further cancellations

cdef str CLOSED_TEXT = "Connection closed"
cdef str CALL = "tools/call"
cdef str INITIALIZE = "initialize"
cdef str CANCELLED = "notifications/cancelled"
cdef str PROGRESS = "notifications/progress"
cdef str SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
cdef dict NO_OPTIONS = {}

cdef object sleep = asyncio.sleep

# Of the SDK and of its dependencies: see `use_sdk`.
cdef object McpError = None            # what answers raise: called with code, message and data
cdef object NoBackChannel = None       # the error of a request to a client that cannot be asked
cdef object error_data = None          # of an exception of a handler: code, message, data; or None
cdef object intercepted = None         # shows an intercept a notification: whether it takes it
cdef object make_event = None          # makes the event of a cancellation
cdef object is_shielded = None         # whether a task is inside of a shielded scope
cdef object is_traced = None           # whether requests have spans
cdef object ask_traced = None          # sends a request with a span; takes what `ask` takes


def use_sdk(
    *, mcp_error, no_back_channel, handler_error_data, run_notify_intercept, from_json, to_json,
    event, shielded, traced, traced_request,
):
    """Set what is needed of the SDK: the variables above, and what `use_json` takes."""
    global McpError, NoBackChannel, error_data, intercepted, make_event
    global is_shielded, is_traced, ask_traced
    McpError, NoBackChannel = mcp_error, no_back_channel
    error_data, intercepted = handler_error_data, run_notify_intercept
    use_json(from_json, to_json)
    make_event, is_shielded = event, shielded
    is_traced, ask_traced = traced, traced_request


cdef str method_of_c(Message m):
    return CALL if poi_is(m, WS_METHOD, b'"tools/call"') else m.method


# -- messages of the peer ------------------------------------------------------------------------


@cython.final
cdef class MessageContext(Completion):
    """The SDK's `DispatchContext` of one message."""

    def __init__(self):
        raise TypeError("a MessageContext is made by its dispatcher")

    cdef int done_c(self, object result, object exc) except -1:
        self.closed = True
        return self.dispatcher.answer_c(self, result, exc)

    cdef int interrupt_c(self) except -1:
        """Cancel the handler until it ends: anyio's cancellation, which the SDK's handlers know,
        lasts."""
        cdef Running running = self.running
        if self.closed or running is None:
            return 0
        self.rounds += 1
        if running.task is None or not is_shielded(running.task):
            running.cancel()
        if self.rounds < QUICK_ROUNDS:
            self.dispatcher.loop.call_soon(self._interrupt)
        else:
            self.dispatcher.loop.call_later(NEXT_ROUND, self._interrupt)
        return 0

    def _interrupt(self):
        self.interrupt_c()

    @property
    def transport(self):
        """The SDK's `TransportContext` of the message."""
        return self.dispatcher.transport_of(self)

    @property
    def can_send_request(self):
        """Whether the handler may ask the client."""
        return not (self.closed or self.modern or self.dispatcher.shared) and self.dispatcher.asks

    @property
    def message_metadata(self):
        """The SDK's `ServerMessageMetadata` of a message that HTTP brought; None elsewhere."""
        if self.metadata is None and self.exchange is not None:
            self.metadata = self.dispatcher.describe(self)
        return self.metadata

    @property
    def cancel_requested(self):
        """An event that is set when the client cancels the request."""
        if self.event is None:
            self.event = make_event()
            if self.cancelled:
                self.event.set()
        return self.event

    async def notify(self, method, params, opts=None):
        """Send a notification about the request, unless that has ended."""
        if not self.closed:
            await self.dispatcher.tell(method, params, self.ref)

    async def send_raw_request(self, method, params, opts=None):
        """Ask the client something about the request. Returns the result."""
        if not self.can_send_request:
            raise NoBackChannel(method)
        return await self.dispatcher.ask(method, params, opts, self.ref)

    async def progress(self, progress, total=None, message=None):
        """Report progress, if the client has asked for it."""
        if self.progress_token is None or self.closed:
            return
        params = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.dispatcher.tell(PROGRESS, params, self.ref)

    def refuse_before_serving(self):
        """The request is refused before it is known how to serve it: over HTTP by a status."""
        self.dispatcher.session.refused_c(self.ref)


@cython.final
cdef class SentRequest:
    def _expire(self):
        if not self.future.done():
            self.expired = True
            self.future.set_result(None)


@cython.final
cdef class _Notice(Completion):
    """The end of a handler that answers nothing."""

    cdef str what

    cdef int done_c(self, object result, object exc) except -1:
        if exc is not None and not isinstance(exc, CancelledError):
            logger.error("%s raised", self.what, exc_info=exc)
        return 0


cdef class SdkDispatcher(SessionConnection):
    """One end of a connection, which the SDK's runner or client session drives.

    Args:
        service: The service whose connection it is: it has ``limits`` and ``shutdown_grace``.
        loop: The event loop.
        role: "server" or "client".
        framer: How messages lie in the stream; one a line by default.
        pool: Runs the handlers; None: `run` opens one.
        make_link: Makes the link, which `run` starts; None: the link is made by the caller.
    """

    def __init__(
        self, service, loop, *, str role="server", framer=None, TaskPool pool=None, make_link=None
    ):
        limits = Limits() if service is None else service.limits
        SessionConnection.__init__(
            self, Session(limits=limits, role=role, framer=framer), service, loop, logger
        )
        self.pool = pool
        self.make_link = make_link
        self.live = set()
        self.interrupts = True
        self.names_requests = self.asks = True
        if role == "client":
            self.era = ANY_ERA

    # -- life ------------------------------------------------------------------------------------

    def serve(
        self, on_request, on_notify, on_modern=None, on_modern_notify=None, on_stateless=None, *,
        intercept=None, context=None,
    ):
        """Serve messages from now on.

        Args:
            on_request: Called with a context, a method and params: returns the coroutine of an
                answer.
            on_notify: The same for notifications.
            on_modern: `on_request` for requests of 2026-07-28; None: eras are not told apart.
            on_modern_notify: `on_notify` for their connections.
            on_stateless: `on_request` for requests of older revisions without a session.
            intercept: Sees each notification first, in its order.
            context: Handlers run in copies of it; by default of the caller's.
        """
        self.on_request, self.on_notify = on_request, on_notify
        self.on_modern, self.on_modern_notify = on_modern, on_modern_notify
        self.on_stateless, self.intercept = on_stateless, intercept
        self.context = contextvars.copy_context() if context is None else context
        if on_modern is None:
            self.era = ANY_ERA
        else:
            self.parks = True
            if self.shared:
                self.era = MODERN
        self.started = True

    async def run(self, on_request, on_notify, on_notify_intercept=None, *, task_status=None):
        """Serve messages until the connection ends (`mcp.shared.dispatcher.Dispatcher.run`)."""
        self.serve(on_request, on_notify, intercept=on_notify_intercept)
        await self.serve_until_closed(task_status)

    async def serve_until_closed(self, task_status=None):
        """Start the link, and wait for the end of the connection. A cancellation ends it."""
        cdef object pool
        if self.pool is None:
            self.pool = open_pool(self.loop)
            self.owns_pool = True
        try:
            if self.make_link is not None:
                self.make_link(self).start()
                self.wrote()               # what was said before
            if task_status is not None:
                task_status.started()
            await asyncio.shield(self.closed)
        finally:
            self.stop_c()
            pool = self.pool
            if self.owns_pool and not pool.closed:
                closing = self.loop.create_task(close_pool(pool))
                while not closing.done():
                    try:
                        await asyncio.shield(closing)
                    except CancelledError:
                        # the caller's; the handlers have a bounded time
                        await until_done(closing)
                        raise
                    finally:
                        self.leave()
            self.leave()
        if self.failure is not None:
            raise self.failure

    @property
    def _closed(self):
        """Whether nothing can be asked any more. By this name of the SDK's own dispatcher FastMCP
        looks whether the server that it has kept is alive."""
        return self.shut

    def stop(self):
        """Take and ask nothing more: handlers are cancelled, what was not answered fails."""
        self.stop_c()

    def fail_sent(self, int64_t number, exc):
        """A request of ours gets no answer, for a reason."""
        cdef object sent = self.session.forget(number)
        if isinstance(sent, SentRequest) and not (<SentRequest> sent).future.done():
            (<SentRequest> sent).future.set_exception(exc)

    def leave(self):
        """Send what is queued, as far as the peer reads it, and close."""
        if self.link is not None:
            self.link.flush()
        if self.link is not None:
            self.link.close()

    cdef int stop_c(self) except -1:
        """Nothing more is taken or asked: cancel the handlers, fail what was not answered."""
        cdef SdkDispatcher me = self
        cdef MessageContext c
        if me.shut:
            return 0
        me.shut = True
        for c in list(me.live):
            c.interrupt_c()
        me.fail_sent_c()
        return 0

    cdef int fail_sent_c(self) except -1:
        cdef SentRequest sent
        for _, sent in self.session.fail_all():
            if not sent.future.done():
                sent.future.set_exception(McpError(CONNECTION_CLOSED, CLOSED_TEXT))
        return 0

    def clean_up(self, exc):
        cdef SdkDispatcher me = self
        me.stop_c()
        SessionConnection.clean_up(me, exc)
        if me.hold_timer is not None:
            me.resume_c()
        me.release_waiters_c()
        if me.on_ended is not None:
            me.on_ended()

    cpdef object on_eof(self):
        cdef SdkDispatcher me = self
        if me.drains_at_eof:
            me.fail_sent_c()               # no answer can come
            me.drain_c()
            return
        # as the SDK: what runs is cancelled, and its requests are answered with an error
        me.stop_c()
        if me.phase == OPEN:
            me.phase = DRAINING
            if me.answered_all():
                me.check_drained()
            else:
                me.wait_last(me.leave)
                if me.link is not None:
                    me.link.wrote_c()      # requests that waited are refused

    def drain(self):
        """Take no more requests, answer those in flight within the grace time, then close."""
        cdef SdkDispatcher me = self
        if me.phase == OPEN:
            me.session.refusal = (CONNECTION_CLOSED, "the server is shutting down")
            me.drain_c()

    cpdef bint answered_all(self) except -1:
        return SessionConnection.answered_all(self) and self.session.n_cancelled == 0

    def on_grace_over(self):
        cdef SdkDispatcher me = self
        cdef MessageContext c
        for c in list(me.live):
            logger.warning("%s did not end in time for the shutdown", c.method)
            c.interrupt_c()
        me.wait_last(me.cut_off, "the server is shutting down")

    def fail(self, exc):
        """End the connection with an exception, which `run` raises."""
        if self.failure is None:
            self.failure = exc
            self.loop.call_soon(self.leave)

    # -- messages --------------------------------------------------------------------------------

    cdef int take_c(self, Message m) except -1:
        if m.kind_c == REQUEST:
            return self.request_c(m)
        if m.kind_c == NOTIFICATION:
            return self.notification_c(m)
        if self.shared and m.token is None and (m.kind_c == RESULT or m.kind_c == ERROR):
            self.peer.refuse_response()
            return 0
        return self.answered_c(m)

    cdef int request_c(self, Message m) except -1:
        cdef SdkDispatcher me = self       # a handler may end the connection
        cdef MessageContext c = MessageContext.__new__(MessageContext)
        cdef Span s = span_of(m, WS_PARAMS)
        cdef object params = None, meta, coro
        cdef Running running
        c.dispatcher = me
        c.ref = m.ref
        c.request_id = m.id
        c.method = method_of_c(m)
        if me.shut:
            return me.refuse_c(c, CONNECTION_CLOSED, CLOSED_TEXT)
        if s.n:
            if s.p[0] != c'{':
                return me.refuse_c(c, INVALID_REQUEST, "params must be an object")
            try:
                params = loads_c(s)
            except Exception as exc:
                return me.refuse_c(c, PARSE_ERROR, f"params cannot be decoded: {exc}")
            if m.scan.poi[WS_META_PROGRESS_TOKEN].len:
                meta = params.get("_meta")
                if type(meta) is dict:
                    meta = meta.get("progressToken")
                    if type(meta) is str or type(meta) is int:
                        c.progress_token = meta
        if me.describe is not None:
            c.exchange = exchange_of_c(me.session, m)
        try:
            coro = me.handler_c(c, m, params)
            if coro is None:
                return 0                   # it is refused
            running = me.pool.start_c(coro, c, me.context)
        except Exception as exc:
            if c.closed:
                raise
            c.closed = True
            return me.answer_c(c, None, exc)
        if running is not None:
            c.running = running
            me.live.add(c)
            me.session.set_token_c(c.ref, c)
            if me.parks and c.method == INITIALIZE:
                me.parked = c              # the requests behind it see what it agreed on
                me.session.paused = True
        return 0

    cdef object handler_c(self, MessageContext c, Message m, object params):
        """The coroutine that answers a request; None: it is refused."""
        cdef bint modern
        cdef HttpHead head
        if self.era == ANY_ERA:
            return self.on_request(c, c.method, params)
        if self.shared and self.revision is not None:
            c.modern = True                # there is no way back to the client
            return self.on_stateless(c, c.method, params)
        modern = m.scan.poi[WS_META_PROTOCOL_VERSION].off != 0 and c.method != INITIALIZE
        if self.era == UNDECIDED:
            self.era = MODERN if modern else LEGACY
            if self.early is not None:
                early, self.early = self.early, None
                for method, said in early:
                    self.note_c(method, said)
        if self.era == MODERN:
            c.modern = True
            c.envelope = self.envelope_c(m)
            if c.exchange is not None:
                head = self.head_of_c(m)
                c.is_routed = head is not None and call_is_same_c(head, m)
            return self.on_modern(c, c.method, params)
        if modern:
            self.refuse_c(
                c, INVALID_REQUEST,
                "this connection serves the handshake protocol era; requests carrying the "
                "2026-07-28 envelope are not accepted on it",
            )
            return None
        return self.on_request(c, c.method, params)

    cdef bytes envelope_c(self, Message m):
        """The text of `_meta`, by which the envelope of an earlier request is known again. None: it
        names a progress token, which differs in each, or it is too long, or something is there
        twice."""
        cdef Span s = span_of(m, WS_META)
        if (
            s.n == 0 or s.n > MAX_ENVELOPE or m.scan.poi[WS_META_PROGRESS_TOKEN].len
            or m.scan.duplicates
        ):
            return None
        return PyBytes_FromStringAndSize(<const char *> s.p, <Py_ssize_t> s.n)

    cdef int refuse_c(self, MessageContext c, int code, str text) except -1:
        c.closed = True
        self.error_c(c, code, text, None)
        if self.phase == DRAINING:
            self.check_drained()
        return 0

    cdef int answer_c(self, MessageContext c, object result, object exc) except -1:
        """A handler has ended."""
        cdef SdkDispatcher me = self
        if c.running is not None:
            c.running = None
            me.live.discard(c)
        if c.cancelled:
            me.unwound_c(c)
            if me.raises and isinstance(exc, Exception) and error_data(exc) is None:
                me.fail(exc)
        elif exc is None:
            if c.method == INITIALIZE and me.agreed is not None:
                me.agree(me.agreed())      # before the answer leaves
            me.result_c(c, result)
        else:
            me.fail_c(c, exc)
        if me.parked is c:
            me.parked = None
            me.loop.call_soon(me._go_on)
        if me.phase == DRAINING:
            me.check_drained()
        return 0

    cdef int result_c(self, MessageContext c, object result) except -1:
        cdef SdkDispatcher me = self
        cdef bytes body
        try:
            body = dumps_c(result)
        except Exception as exc:
            logger.error("a result of %r cannot be encoded", c.method, exc_info=exc)
            return me.error_c(c, INTERNAL_ERROR, f"the result cannot be encoded: {exc}", None)
        me.session.result_c(c.ref, body)
        return 0 if me.link is None else me.link.wrote_c()

    cdef int fail_c(self, MessageContext c, object exc) except -1:
        """Answer with the exception of a handler."""
        cdef object error
        if isinstance(exc, CancelledError):
            return self.error_c(c, CONNECTION_CLOSED, CLOSED_TEXT, None)
        error = error_data(exc)
        if error is not None:
            return self.error_c(c, error.code, error.message, error.data, True)
        logger.error("handler for %r raised", c.method, exc_info=exc)
        try:
            text = str(exc)
        except Exception:
            text = type(exc).__name__
        self.error_c(c, 0, text, None)
        if self.raises:
            self.fail(exc)
        return 0

    cdef int error_c(
        self, MessageContext c, object code, str text, object data, bint of_handler=False
    ) except -1:
        cdef SdkDispatcher me = self
        # over HTTP a handler's error has a status in the era without sessions alone, and only as
        # `mcp.shared.inbound.ERROR_CODE_HTTP_STATUS` says
        cdef bint has_status = c.exchange is None or not of_handler or (
            me.era == MODERN and me.revision is None
            and code in (-32700, -32600, -32601, -32602, -32020, -32021, -32022)
        )
        if data is not None and type(data) is not str:
            try:
                data = loads_bytes_c(dumps_c(data))
            except Exception as exc:       # the client must get an answer
                logger.error("the error data of %r cannot be encoded", c.method, exc_info=exc)
                data = None
        if has_status and -2147483648 <= code <= 2147483647:
            me.session.error_c(c.ref, code, text, data)
        else:
            from json import dumps as json_dumps    # it takes lone surrogates, too

            body = {"code": code, "message": text}
            if data is not None:
                body["data"] = data
            me.session.error_object_c(c.ref, json_dumps(body).encode())
        return 0 if me.link is None else me.link.wrote_c()

    def _go_on(self):
        """`initialize` is answered: serve the requests behind it."""
        self.session.paused = False
        if self.link is not None:
            self.link.pump()

    # -- notifications ---------------------------------------------------------------------------

    cdef int notification_c(self, Message m) except -1:
        cdef SdkDispatcher me = self
        cdef str method = m.method
        cdef Span s = span_of(m, WS_PARAMS)
        cdef object params = None, token = m.token
        if s.n:
            try:
                params = loads_c(s)
            except Exception as exc:
                logger.debug("a notification cannot be decoded: %s", exc)
                return 0
            if type(params) is not dict:
                return 0
        if method_is(m, b'"notifications/cancelled"', CANCELLED):
            if token is None:
                token = me.by_other_type_c(span_of(m, WS_REQUEST_ID))
            if isinstance(token, MessageContext):
                me.cancel_c(<MessageContext> token)
        elif params is not None and method_is(m, b'"notifications/progress"', PROGRESS):
            if token is None and me.session.pending.live:
                ids = me.session.pending.alike_c(span_of(m, WS_PROGRESS_TOKEN))
                if ids and len(ids) == 1:
                    token = me.session.pending.peek_c(ids[0])
            if isinstance(token, SentRequest):
                me.progress_c(<SentRequest> token, params)
        if me.aliases is not None and params is not None:
            me.name_subscription_c(params)
        if me.intercept is not None and intercepted(me.intercept, method, params):
            return 0
        return me.note_c(method, params)

    cdef int name_subscription_c(self, dict params) except -1:
        """Name the request of a subscription as its caller does."""
        cdef object meta = params.get("_meta")
        if type(meta) is dict:
            name = self.aliases.get(str(meta.get(SUBSCRIPTION)))
            if name is not None:
                meta[SUBSCRIPTION] = name
        return 0

    cdef int progress_c(self, SentRequest sent, object params) except -1:
        cdef object progress = params.get("progress"), total = params.get("total")
        cdef object message = params.get("message")
        if sent.on_progress is None or type(progress) not in (int, float):
            return 0
        return self.start_notice_c(
            sent.on_progress(
                float(progress),
                float(total) if isinstance(total, (int, float)) else None,
                message if isinstance(message, str) else None,
            ),
            "a progress callback",
        )

    cdef int note_c(self, str method, object params) except -1:
        """Let a handler see a notification."""
        cdef MessageContext c
        cdef object handler = self.on_notify
        if self.shared:
            return 0                       # of no connection: there is nothing that it can act on
        if self.era == UNDECIDED:
            if self.early is None:
                self.early = []
            if len(self.early) < MAX_EARLY:
                self.early.append((method, params))
            return 0
        c = MessageContext.__new__(MessageContext)
        c.dispatcher = self
        c.method = method
        if self.era == MODERN:
            c.modern = True
            handler = self.on_modern_notify
        return self.start_notice_c(
            handler(c, method, params), f"notification handler for {method!r}"
        )

    cdef int start_notice_c(self, object coro, str what) except -1:
        cdef _Notice notice = _Notice.__new__(_Notice)
        notice.what = what
        if self.pool.closed:
            coro.close()
            return 0
        self.pool.start_c(coro, notice, self.context)
        return 0

    # -- cancellations ---------------------------------------------------------------------------

    cdef object by_other_type_c(self, Span id):
        """Cancel the request whose id says the same as the one that is named: for the SDK, "7" and
        7 are one id."""
        cdef bytes text
        cdef Span other
        cdef uint64_t ref
        if id.n == 0 or not self.session.inflight.live:
            return None
        if id.p[0] == c'"':
            text = PyBytes_FromStringAndSize(<const char *> id.p + 1, <Py_ssize_t> id.n - 2)
            if not text.isdigit() or (len(text) > 1 and text[:1] == b"0"):
                return None
        elif memchr(id.p, c'.', id.n) is NULL and id.n < 64:
            text = b'"%b"' % PyBytes_FromStringAndSize(<const char *> id.p, <Py_ssize_t> id.n)
        else:
            return None
        other.p = <const unsigned char *> <const char *> text
        other.n = <size_t> len(text)
        ref = self.session.inflight.find_c(other)
        return self.session.cancel_inbound_c(ref) if ref else None

    cdef int cancel_c(self, MessageContext c) except -1:
        """The peer wants no answer any more. Later requests wait until the handler has ended, for a
        short time: it may hold what they need."""
        c.cancelled = True
        if c.event is not None:
            c.event.set()
        if c.closed or not self.interrupts:
            return 0
        self.await_end_c(c)
        return c.interrupt_c()

    cdef int unwound_c(self, MessageContext c) except -1:
        """The handler of a cancelled request has ended."""
        self.session.cancelled_done_c()
        return self.has_ended_c(c)

    # -- answers of the peer ---------------------------------------------------------------------

    cdef int answered_c(self, Message m) except -1:
        cdef SentRequest sent
        cdef object exc, body
        cdef Span s
        if not isinstance(m.token, SentRequest):
            if m.kind_c != RESULT and m.kind_c != ERROR:
                self.log_fault(self.session.faults, "bad input: %s", m.reason)
            elif m.kind_c == RESULT:
                return 0
            if self.on_stream_exception is not None:
                text = m.reason or f"an error that names no request: {bytes(m.error or b'')!r}"
                self.start_notice_c(
                    self.on_stream_exception(ValueError(text)), "the observer of bad messages"
                )
            return 0
        sent = <SentRequest> m.token
        if sent.future.done():
            return 0
        try:
            if m.kind_c == RESULT:
                s = span_of(m, WS_RESULT)
                if s.p[0] != c'{':
                    raise ValueError("a result that is not an object")
                sent.future.set_result(loads_c(s))
                return 0
            if m.kind_c != ERROR:
                raise ValueError(m.reason)
            body = loads_c(span_of(m, WS_ERROR))
            exc = McpError(body["code"], body["message"], body.get("data"))
        except Exception as fault:
            exc = McpError(INTERNAL_ERROR, f"the response is not valid: {fault}")
        sent.future.set_exception(exc)
        return 0

    # -- messages of ours ------------------------------------------------------------------------

    def transport_of(self, MessageContext context not None):
        """The SDK's `TransportContext` of a message."""
        return self.make_transport(context)

    def next_request_id(self):
        """An id for a request, which the caller passes on as its ``request_id``."""
        self.last_id += 1
        return self.last_id

    async def send_raw_request(self, method, params, opts=None):
        """Send a request. Returns its result; raises the error that the peer answered with."""
        return await self.ask(method, params, opts, 0)

    async def ask(self, str method, params, opts, uint64_t about, bint traced=False):
        """Send a request about a request of the peer (its `ref`), or about none (0)."""
        cdef SdkDispatcher me = self
        cdef SentRequest sent
        cdef int64_t number
        cdef object timer = None, room, seconds, result
        if me.shut or (me.started and me.link is None):
            raise McpError(CONNECTION_CLOSED, CLOSED_TEXT)
        if not me.started or me.link is None:
            raise RuntimeError("send_raw_request() was called before run()")
        if opts is None:
            opts = NO_OPTIONS
        if not traced and is_traced():
            return await ask_traced(me, method, params, opts, about)
        while (room := me.wait_for_room(about)) is not None:
            await room
        if me.shut or me.link is None:     # it ended meanwhile
            raise McpError(CONNECTION_CLOSED, CLOSED_TEXT)
        sent = SentRequest.__new__(SentRequest)
        sent.future = me.loop.create_future()
        sent.on_progress = opts.get("on_progress")
        number = me.send_c(sent, method, params, opts.get("request_id"), about)
        try:
            seconds = opts.get("timeout")
            if seconds is not None:
                timer = me.loop.call_later(seconds, sent._expire)
            result = await sent.future
        except CancelledError:
            me.give_up(number, opts, "caller cancelled", about)
            raise
        except GeneratorExit:
            me.session.forget(number)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if me.aliases is not None:
                me.aliases.pop(str(number), None)
        if sent.expired:
            me.give_up(number, opts, f"timed out after {seconds}s", about)
            raise McpError(REQUEST_TIMEOUT, f"Request {method!r} timed out")
        return result

    cdef int64_t send_c(
        self, SentRequest sent, str method, object params, object id, uint64_t about
    ) except -1:
        cdef Session session = self.session
        cdef int64_t number = 0
        cdef bytes text = None
        cdef bint done = False
        if not self.names_requests:
            number = session.reserve_c(sent, INFINITY, None)
            if id is not None:
                if self.aliases is None:
                    self.aliases = {}
                self.aliases[str(number)] = id
            id = number
        elif id is not None:
            try:
                number = session.reserve_c(sent, INFINITY, dumps_c(id))
            except ValueError:
                raise ValueError(f"request id {id!r} is already in flight") from None
        while number == 0:
            self.last_id += 1
            id = self.last_id
            try:
                number = session.reserve_c(sent, INFINITY, b"%d" % id)
            except ValueError:
                pass                       # a caller has chosen it
        try:
            if sent.on_progress is not None:
                params = dict(params or ())
                params["_meta"] = {**(params.get("_meta") or {}), "progressToken": id}
            if params:
                text = dumps_c(params if type(params) is dict else dict(params))
            session.call_c(
                session.writer_about_c(about),
                b'{"jsonrpc":"2.0","id":%b,"method":%b' % (
                    session.pending.text_c(number), method_json_c(method)
                ),
                text,
            )
            done = True
        finally:
            if not done:
                session.pending.take_c(number)
        self.link.wrote_c()
        return number

    def give_up(self, int64_t number, opts, str reason, uint64_t about):
        """Nobody waits for the answer to a request any more: tell the peer, where that may be."""
        if self.link is None or not opts.get("cancel_on_abandon", True):
            self.session.forget(number)
        else:
            self.session.cancel(number, reason, about=about)
            self.link.wrote_c()

    async def notify(self, method, params, opts=None):
        """Send a notification, unless the connection has ended."""
        await self.tell(method, params, 0)

    async def tell(self, str method, params, uint64_t about):
        """Send a notification about a request of the peer (its `ref`), or about none (0)."""
        cdef SdkDispatcher me = self
        cdef bytes text = None if params is None else dumps_c(dict(params))
        cdef object room
        while (room := me.wait_for_room(about)) is not None:
            await room
        if (me.link is None and me.started) or (me.shut and about == 0):
            return
        me.session.call_c(
            me.session.writer_about_c(about),
            b'{"jsonrpc":"2.0","method":%b' % method_json_c(method), text,
        )
        me.wrote()
        await sleep(0)                     # it leaves before the handler goes on

    # -- lanes of HTTP ---------------------------------------------------------------------------

    cpdef bint renew(self) except -1:
        """Get ready for the next client of a lane."""
        return SessionConnection.renew(self) and not self.live and not self.shut


async def until_done(future):
    """Wait for a future whatever cancels the caller."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except CancelledError:
            pass


cdef object exchange_of_c(Session session, Message m):
    """The exchange of HTTP that brought a request, with its head; None: there is none."""
    cdef ReplyRoute route = session.route_of_c(m.ref)
    if not isinstance(route, Exchange):
        return None
    (<Exchange> route).keep_head_c()
    return route
