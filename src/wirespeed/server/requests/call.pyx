"""A request of a client, from its arrival to its answer, the operation that it runs, and the
connection as it sees it.

A `Call` is what a request carries besides its message: it is made once, when the request arrives,
and passed down to the handler. A `Serving` has the calls that run, and asks the client questions.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport uint64_t

import asyncio
import itertools
import logging
import threading

import msgspec

from wirespeed._core._simd cimport WS_PARAMS
from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message
from wirespeed._core.session cimport Session
from wirespeed.peer.connection cimport DRAINING, SessionConnection
from wirespeed.server.requests.observer cimport CANCELLED, Series, now_c
from wirespeed.transport.taskpool cimport Completion, TaskPool

from wirespeed.errors import (
    CallTimeout, ConnectionClosed, InvalidResponse, LimitExceeded, ProtocolError, RemoteError,
    ResourceNotFound, ToolError,
)
from wirespeed.peer.connection import WAS_CUT_OFF
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject
from wirespeed.server.requests import launchers
from wirespeed.server.requests.params import input_of
from wirespeed.server.requests.reply import describe, finished, masks_errors, report

logger = logging.getLogger("wirespeed.server")

cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode
cdef object next_serial = itertools.count(1).__next__
cdef object CancelledError = asyncio.CancelledError
cdef object current_task = asyncio.current_task
# The class of the contexts of handlers: `wirespeed.server.context` registers it.
cdef object contexts = None
cdef dict METHODS = {
    "prompt": "prompts/get", "resource": "resources/read", "completion": "completion/complete",
}


def use_contexts(cls):
    """Make contexts of this class for the handlers that take one: called with (call, message)."""
    global contexts
    contexts = cls


def context_class():
    """The class of the contexts of handlers (`wirespeed.Context`); None before it is loaded."""
    return contexts


cdef class Operation:
    """Something that a client can have run: a tool, a prompt, a resource …"""

    cdef int respond_c(self, Call call, object value) except -1:
        """The handler returned a value: answer with it."""
        raise NotImplementedError

    cdef int fail_c(self, Call call, object exc) except -1:
        """The handler raised an exception: answer with it."""
        raise NotImplementedError


cdef class AnswerSink:
    """Gets the answer of a call instead of the client: one call of `result`, `error` or
    `cancelled`."""

    cpdef object result(self, bytes data):
        """The JSON text of the result object, complete."""
        raise NotImplementedError

    cpdef object error(self, int code, str message, object data):
        """A JSON-RPC error."""
        raise NotImplementedError

    cpdef object cancelled(self):
        """The handler was cancelled, so there is no answer."""
        raise NotImplementedError

    def tagged(self, method, params):
        """The params of a notification that a detached call sends; None: it is not sent."""
        raise NotImplementedError

    cdef dict state_c(self):
        """The dict that middleware shares with the handler; None without middleware."""
        return None

    cdef int carry_c(self, Call call, object work) except -1:
        """Run the coroutine of a call."""
        raise NotImplementedError


cdef class Call(Completion):
    """One request, and the run of its handler."""

    def __init__(self):
        raise TypeError("calls are made by the connection")

    @property
    def ended(self):
        """Whether nothing more may be said about the request. Its handler may still run."""
        return self.phase == ENDED

    @property
    def route(self):
        """The `ReplyRoute` of the body that the request came in; None: it came on the stream."""
        return self.connection.session.route_of_c(self.ref)

    @property
    def peer(self):
        """The client as the transport knows it (`Peer`), or None. For a call in flight."""
        return self.connection.peer_of_c(self.ref)

    @property
    def detached(self):
        """Whether the request was answered with a task, on which the handler works."""
        return self.phase == DETACHED

    @property
    def timed_out(self):
        """Whether the operation's timeout ended the handler."""
        return self.reason == TIMED_OUT

    # -- the handler ---------------------------------------------------------------------------

    def begin(self, Operation operation not None, Message message not None):
        """Choose the operation, and make `input` and `context`. `start` comes next.

        ProtocolError -32602: what the request brought of earlier rounds is malformed.
        """
        self.operation = operation
        if self.modern and message.scan.poi[WS_PARAMS].len:
            self.input = input_of(message, self.revision)
        self.make_context_c(message)

    cdef int make_context_c(self, Message message) except -1:
        """Make `context` for a handler that takes one. Errors are those of `begin`."""
        if self.operation.wants_context:
            self.context = contexts(self, message)
        elif self.input is not None and self.input.requestState is not None:
            contexts(self, message)    # checks the state, which this handler does not look at

    def start(self, work):
        """Run the coroutine that answers the request."""
        self.start_c(work)

    cdef int start_c(self, object work) except -1:
        cdef Serving connection = self.connection
        if self.first is not None:
            work = launchers.after(self.first, work)
            self.first = None
        if self.sink is not None:
            return self.sink.carry_c(self, work)
        self.running = connection.pool.start_c(work, self, self.variables)
        if self.running is not None:
            if self.ref != 0:          # else it was detached meanwhile
                connection.running.add(self)
                connection.session.set_token_c(self.ref, self)
            if self.operation.timeout is not None:
                self.start_timer_c()
        return 0

    cdef int start_timer_c(self) except -1:
        self.timer = self.connection.loop.call_later(self.operation.timeout, self.expire)
        return 0

    cdef int drop_timer_c(self) except -1:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0

    cdef int done_c(self, object result, object exc) except -1:
        """The handler has ended: send the answer."""
        cdef Serving connection = self.connection
        if self.running is not None:
            connection.running.discard(self)
            self.running = None        # they refer to each other
        if self.timer is not None:
            self.drop_timer_c()
        if self.reason >= BY_CLIENT:
            if self.reason == BY_CLIENT:
                if self.ref != 0 and self.sink is None:
                    connection.session.cancelled_done_c()
                connection.has_ended_c(self)
                if self.sink is not None:
                    self.sink.cancelled()
            if exc is not None and not isinstance(exc, CancelledError):
                logger.error("%s %s failed after its cancellation", self.operation.kind,
                             self.operation.name, exc_info=exc)
        elif exc is None:
            self.operation.respond_c(self, result)
        elif self.reason == SHUT_DOWN:
            self.error_c(codes.CUT_OFF, WAS_CUT_OFF, None)
        else:
            self.operation.fail_c(self, exc)
        self.end_c(None)
        if connection.link is None:
            connection.session.set_token_c(self.ref, None)    # the token may hold other objects
        else:
            connection.link.wrote_c()
        if connection.phase == DRAINING:
            connection.check_drained()
        return 0

    def task_done(self, task):
        """A run in a task that is not the pool's has ended."""
        exc = CancelledError() if task.cancelled() else task.exception()
        self.done_c(None if exc is not None else task.result(), exc)
        self.task = None

    def shared_state(self):
        """The dict that middleware and the handler share, or a new one."""
        state = None if self.sink is None else self.sink.state_c()
        return {} if state is None else state

    # -- phases --------------------------------------------------------------------------------

    cdef int stop_c(self, StopReason reason) except -1:
        """Cancel the handler where it waits. Of several reasons the highest counts."""
        if reason > self.reason:
            self.reason = reason
        if reason >= BY_CLIENT:
            self.phase = ENDED
        if self.running is not None:
            self.running.cancel()
        elif self.task is not None and self.task is not current_task():
            self.task.cancel()
        return 0

    cpdef object cancel(self):
        """The client wants no answer, or is gone: cancel the handler and send nothing."""
        self.stop_c(BY_CLIENT)

    def expire(self):
        """The operation's timeout is over."""
        self.timer = None
        self.stop_c(TIMED_OUT)

    def end(self):
        """The server shuts down: cancel the handler. What it returns then is the answer."""
        self.stop_c(SHUT_DOWN)

    def ask_input(self, bytes result not None):
        """Answer with questions (2026-07-28 basic/patterns/mrtr) and cancel the handler.

        ``result`` is the JSON text of the result object without the server's identity. Nothing
        happens if the call has ended already.
        """
        if self.phase == ENDED:
            return
        if self.sink is None:
            self.connection.session.result_c(self.ref, result)
        else:
            self.sink.result(result)
        self.connection.wrote()
        self.stop_c(ASKED)

    def detach(self, body, AnswerSink sink not None):
        """Answer the request with a task. The handler then works on the task: ``sink`` gets the
        handler's answer, and the call goes on when the client is gone.

        ``body``: see `wirespeed.server.requests.reply`.
        """
        self.connection.kept = True
        self.reply_c(body)
        self.connection.wrote()
        if self.began != 0:
            self.observe_c(None)
        if self.sink is not None and self.context is not None:
            self.context._keep_state()  # only the sink of the middleware knows it
        self.sink = sink
        self.phase = DETACHED
        self.ref = 0
        self.connection.running.discard(self)

    cdef int end_c(self, Message m) except -1:
        """Nothing more will be said about the request. ``m`` is the request where it ends without
        a handler's run, else None."""
        self.phase = ENDED
        if self.context is not None:
            self.context = None        # they refer to each other, and to input memory
        if self.sink is not None:
            self.sink = None
        if self.began != 0:
            self.observe_c(m)
        return 0

    # -- what is sent --------------------------------------------------------------------------

    def notify(self, str method, bytes params):
        """Send a notification about this request; nothing once the request has ended."""
        if self.phase == ENDED or self.connection.link is None:
            return
        if self.phase == DETACHED:
            params = self.sink.tagged(method, params)
            if params is None:
                return
        self.connection.notify_c(method, params, self.ref)

    cdef int reply_c(self, object body) except -1:
        """Answer with a result (see `wirespeed.server.requests.reply`)."""
        cdef bytes text = finished(body, self.connection.modern_end if self.modern else None)
        if self.sink is not None:
            self.sink.result(text)
            return 0
        return self.connection.session.result_c(self.ref, text)

    cdef int error_c(self, int code, str message, object data) except -1:
        """Answer with an error."""
        self.code = code
        if self.span is not None:
            self.span.note = message
        if self.sink is not None:
            self.sink.error(code, message, data)
            return 0
        if code == codes.OVERLOADED and self.route is not None:
            self.route.retry_after(1)      # over HTTP
        return self.connection.session.error_c(self.ref, code, message, data)

    cdef int refuse_c(self, object exc) except -1:
        """Answer with a `ProtocolError`."""
        code = exc.code
        if isinstance(exc, ResourceNotFound) and self.revision is not None:
            code = self.revision.resource_not_found
        try:
            self.error_c(code, exc.message, exc.data)
        except Exception:
            logger.exception("%r: the error cannot be sent", self.operation)
            self.error_c(codes.INTERNAL_ERROR, "Internal error", None)
        return 0

    cdef int fail_internally_c(self, str what, object exc) except -1:
        """Answer with -32603, because a handler or a middleware raised an exception."""
        cdef str text
        if isinstance(exc, ToolError):
            text = describe(exc)
            logger.info("%s: %s", what, text)
        else:
            text = report(what, exc, mask=masks_errors(self), default="Internal error")
        return self.refuse_c(ProtocolError(codes.INTERNAL_ERROR, text))

    # -- what is counted -----------------------------------------------------------------------

    cdef int observe_c(self, Message m) except -1:
        """An observed request has ended: see `end_c`."""
        cdef Serving connection = self.connection
        cdef int code = CANCELLED if self.reason == BY_CLIENT else self.code
        cdef Series series
        if m is None:
            series = self.series_c()
        else:
            series = connection.observer.of_request_c(m, connection.service)
        series.add_c(now_c() - self.began, code, self.failed)
        self.began = 0
        self.variables = None
        if self.span is not None:
            self.span.end_call(code, self.failed)
            self.span = None
        return 0

    cdef Series series_c(self):
        """The series that an observed request counts to, if it ran an operation."""
        cdef Operation operation = self.operation
        if operation.kind == "tool":
            return self.connection.observer.of_tool_c(operation.name)
        return self.connection.observer.of_method_c(METHODS.get(operation.kind, operation.name))


cdef class Pipeline:
    """The stage that every request of a connection passes before its handler."""

    cdef Call call_c(self, Serving connection, Message m):
        """The call of a request that arrived."""
        raise NotImplementedError

    cdef int run_c(self, Call call) except -1:
        """Serve a request whose call `call_c` made."""
        raise NotImplementedError


@cython.final
cdef class Feature(Operation):
    """An operation that is not a tool's: of a prompt, a resource, a completion, a method of an
    extension. A function encodes its result.

    Args:
        name: The name of the operation.
        kind: ``"prompt"``, ``"resource"`` …
        function: The function to call.
        encode: ``(value, Revision) -> Body``: the result object (see
            `wirespeed.server.requests.reply`).
        timeout: Seconds after which a call is given up; None for no limit.
        wants_context: Whether `invoke` is to be given a context.
        launch: How a call becomes a coroutine, one of `wirespeed.server.requests.launchers`; not
            needed for a coroutine function.
    """

    def __init__(self, str name not None, str kind not None, function, *, encode, timeout=None,
                 bint wants_context=False, launch=None):
        self.name = name
        self.kind = kind
        self.function = function
        self.encode = encode
        self.timeout = timeout
        self.wants_context = wants_context
        self.launch = launch

    def __repr__(self):
        return f"<Feature {self.kind} {self.name!r}>"

    def invoke(self, list values not None, names=None):
        """A coroutine that calls the function with these values, the last of which have names."""
        if self.launch is not None:
            return self.launch(self.function, values, names)
        return launchers.call(self.function, values, names)

    cdef int respond_c(self, Call call, object value) except -1:
        try:
            body = self.encode(value, call.revision)
        except Exception as exc:
            return self.fail_c(call, exc)
        return call.reply_c(body)

    cdef int fail_c(self, Call call, object exc) except -1:
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if call.reason == TIMED_OUT:
            text = f"The {self.kind} {self.name} timed out after {self.timeout:g} s"
            logger.warning("%s", text)
            return call.error_c(codes.INTERNAL_ERROR, text, None)
        return call.fail_internally_c(f"{self.kind} {self.name}", exc)


# -- its connection --------------------------------------------------------------------------------


cdef object gone():
    return ConnectionClosed("the client is gone")


cdef class Serving(SessionConnection):
    """The base of a server's connection."""

    def __init__(self, service, loop, TaskPool pool not None, framer=None):
        session = Session(limits=service.limits, role="server", framer=framer)
        SessionConnection.__init__(self, session, service, loop, logger)
        self.pool = pool
        self.thread = threading.get_ident()
        self.serial = next_serial()
        self.observer = service.middleware.observer
        if self.observer is not None:
            self.observer.joined()
        self.asks = service.middleware.asks
        self.watch = service.middleware.watch
        self.modern_end = service.discovery.modern_end
        self.running = set()

    # -- a client that does not read -----------------------------------------------------------

    cdef bint drops_c(self, uint64_t about) except -1:
        cdef bint drops = SessionConnection.drops_c(self, about)
        if drops and not self.dropping:
            self.dropping = True
            logger.warning("the client does not read: notifications are dropped")
        return drops

    cpdef object on_drained(self):
        self.dropping = False
        SessionConnection.on_drained(self)

    cpdef bint renew(self) except -1:
        self.dropping = False
        return SessionConnection.renew(self)

    # -- notifications -------------------------------------------------------------------------

    cdef int notify_c(self, str method, bytes params, uint64_t about) except -1:
        if self.watch is not None:
            self.watch(self, True, method, params)
        return SessionConnection.notify_c(self, method, params, about)

    def send_notification(self, str method not None, bytes params=None, *, uint64_t about=0):
        """Send a notification, whether the client reads or not; the caller then calls `wrote`.
        ``about``: the `ref` of the client's request that it is about."""
        if self.watch is not None:
            self.watch(self, True, method, params)
        self.session.send_notification(method, params, about=about)

    # -- questions to the client (legacy eras): elicitation, sampling, roots, ping -------------

    def ask(self, str method not None, bytes params, *, timeout=None, about=0):
        """Send a request to the client: a future of the JSON text of its result.

        The future fails with RemoteError, InvalidResponse, CallTimeout (after ``timeout`` seconds;
        the client is told to cancel), ConnectionClosed, or LimitExceeded (`Limits.max_outstanding`
        questions have no answer yet). Cancelling the future cancels the request on the wire.
        ``about``: the `ref` of the client's request that it is about.
        """
        if self.asks is not None:
            return self.asks(self, method, params, timeout, about)
        return self.ask_client(method, params, timeout, about)

    def ask_client(self, str method not None, bytes params, timeout, about):
        """`ask`, behind all middleware."""
        future = self.loop.create_future()
        if self.link is None or self.session.framer.eof:   # no answer can come
            future.set_exception(gone())
            return future
        try:
            id = self.session.send_request(
                method, params, token=future, deadline=INFINITY, about=about
            )
        except OverflowError as exc:
            future.set_exception(LimitExceeded(str(exc)))
            return future
        timer = None
        if timeout is not None:
            timer = self.loop.call_later(timeout, self._expired, id, future, method, about)
        future.add_done_callback(lambda done: self._asked(id, done, timer, about))
        self.link.wrote_c()
        return future

    def _expired(self, id, future, method, about):
        if not future.done():
            self._withdraw(id, "timed out", about)
            future.set_exception(CallTimeout(f"no answer to {method} within its time limit"))

    def _asked(self, id, future, timer, about):
        if timer is not None:
            timer.cancel()
        if future.cancelled():
            self._withdraw(id, None, about)

    def _withdraw(self, id, reason, about):
        if self.link is not None:
            self.session.cancel(id, reason, about=about)
            self.link.wrote_c()

    cdef int answered_c(self, Message m) except -1:
        """The client answered one of the questions."""
        cdef object future = m.token
        if future is None or future.done():
            return 0
        if m.kind_c == RESULT:
            future.set_result(m.result.copy())
        elif m.kind_c == INVALID:
            future.set_exception(InvalidResponse(f"the client's response is not valid: {m.reason}"))
        elif m.kind_c == ERROR:
            try:
                error = decode_error(m.error)
            except msgspec.DecodeError as exc:
                future.set_exception(InvalidResponse(f"the client's error is not valid: {exc}"))
            else:
                future.set_exception(RemoteError(error.code, error.message, error.data))
        return 0

    cdef int fail_questions_c(self) except -1:
        """The client is gone, so no answers will come."""
        for _, future in self.session.fail_all():
            if not future.done():
                future.set_exception(gone())
        return 0


logger = logging.getLogger("wirespeed.server")
