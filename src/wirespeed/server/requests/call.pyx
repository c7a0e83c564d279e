"""What a client can have run, and one run of it: started, timed, answered, cancelled.

Messages and eras are the connection's (`wirespeed.server.connection`), which is built on `Serving`.
"""

cimport cython
from libc.math cimport INFINITY

import asyncio
import itertools
import logging
import threading

import msgspec

from wirespeed._core._simd cimport WS_NAME, WS_PARAMS
from wirespeed._core.envelope cimport ERROR, INVALID, RESULT, Message
from wirespeed._core.session cimport Session
from wirespeed.server.requests.observer cimport CANCELLED, Observer, Series, now_c
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.taskpool cimport Completion, TaskPool

from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    LimitExceeded,
    ProtocolError,
    RemoteError,
    ResourceNotFound,
)
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import REQUEST_METHODS
from wirespeed.protocol.messages import ErrorObject
from wirespeed.server.requests import launchers
from wirespeed.server.requests.params import input_of
from wirespeed.server.requests.reply import finished
from wirespeed.transport.workers import is_coroutine_function

logger = logging.getLogger("wirespeed.server")

SHUTTING_DOWN = "The server is shutting down"

cdef object CancelledError = asyncio.CancelledError
cdef object current_task = asyncio.current_task
cdef object next_serial = itertools.count(1).__next__
cdef str UNKNOWN = "unknown"
# What a handler takes that wants one: `wirespeed.server.context` registers it when it is loaded.
cdef object context_class = None


def use_contexts(cls):
    """Make contexts of this class for the handlers that take one: called with (call, message)."""
    global context_class
    context_class = cls


cdef dict METHODS = {
    "prompt": "prompts/get", "resource": "resources/read", "completion": "completion/complete",
}
cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode


cdef class Operation:
    """Something that a client can have run: a tool, a prompt, a resource …"""

    cdef int respond_c(self, Call call, object value) except -1:
        """The handler gave a value: answer with it."""
        raise NotImplementedError

    cdef int fail_c(self, Call call, object exc) except -1:
        """The handler failed: answer with that."""
        raise NotImplementedError


@cython.final
cdef class Feature(Operation):
    """Everything that a client can have run but tools.

    Args:
        name: What it is called.
        kind: ``"prompt"``, ``"resource"`` …
        function: What to call; a plain function runs in a worker thread.
        encode: ``(value, Revision) -> Body``: the result object (see
            `wirespeed.server.requests.reply`).
        timeout: Seconds after which a call is given up; None for no limit.
        wants_context: Whether `invoke` is to be given a context.
        launch: How a call becomes a coroutine, one of `wirespeed.server.requests.launchers`; by
            default it follows from the function.
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
        if launch is None and not is_coroutine_function(function):
            self.launch = launchers.in_thread

    def __repr__(self):
        return f"<Feature {self.kind} {self.name!r}>"

    def invoke(self, list values not None, names=None):
        """A coroutine that calls the function with these values, the last of which go by names."""
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
        if call.timed_out:
            text = f"The {self.kind} {self.name} timed out after {self.timeout:g} s"
            logger.warning("%s", text)
            return call.error_c(codes.INTERNAL_ERROR, text, None)
        logger.error("%s %s failed", self.kind, self.name, exc_info=exc)
        return call.error_c(codes.INTERNAL_ERROR, "Internal error", None)


cdef class Call(Completion):
    """One request under way. The hook that the handler's end goes to."""

    def __init__(self):
        raise TypeError("calls are made by the connection")

    cdef int done_c(self, object result, object exc) except -1:
        return self.connection.finish_c(self, result, exc)

    cpdef object cancel(self):
        """Cancel the handler; no answer will be sent for it."""
        self.cancelled = True
        self.ended = True
        self.stop_c()

    def expire(self):
        """The operation's own timeout."""
        self.timed_out = True
        self.timer = None
        self.stop_c()

    def give_up(self):
        """The server shuts down and can wait no longer."""
        self.given_up = True
        self.stop_c()

    def ask_input(self, bytes result not None):
        """Answer with questions (2026-07-28 basic/patterns/mrtr) and end the handler quietly.

        ``result`` is the JSON text of the result object without the server's identity. Nothing
        happens if the call has ended already.
        """
        if self.ended:
            return
        self.ended = self.answered = True
        if self.sink is None:
            self.connection.session.result_c(self.ref, result)
        else:
            self.sink.result(result)
        self.connection.wrote()
        self.stop_c()

    cdef int stop_c(self) except -1:
        """Cancel the handler where it waits."""
        if self.running is not None:
            self.running.cancel()
        elif self.task is not None and self.task is not current_task():
            self.task.cancel()
        return 0

    cdef int carry_c(self, Call inner, object work) except -1:
        """Of a call that is the sink of another: run the other's work."""
        raise TypeError("this call carries no other")

    def task_done(self, task):
        """A run in a task that is not the pool's has ended."""
        exc = CancelledError() if task.cancelled() else task.exception()
        self.connection.finish_c(self, None if exc is not None else task.result(), exc)
        self.task = None

    cdef Series series_c(self):
        """What an observed request counts as."""
        cdef Operation operation = self.operation
        if operation.kind == "tool":
            return self.connection.observer.of_tool_c(operation.name)
        return self.connection.observer.of_method_c(METHODS.get(operation.kind, operation.name))

    cdef int drop_timer_c(self) except -1:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0

    def detach(self, body, sink not None):
        """Answer the request with a task, which the handler then works on: what comes of it goes to
        ``sink`` (as of `ServerConnection.dispatch`), and the client may go without ending it.

        ``body``: see `wirespeed.server.requests.reply`. ``sink.tagged(method, params)`` returns the
        params of a notification of the handler, or None for one that is not to be sent.
        """
        self.reply_c(body)
        self.connection.wrote()
        if self.began != 0:
            self.connection.observe_c(self)
        self.sink = sink
        self.detached = True
        self.connection.running.discard(self)

    def notify(self, str method, bytes params):
        """Send a notification about this request; nothing once it was answered or cancelled."""
        cdef Serving connection = self.connection
        if self.ended or connection.link is None:
            return
        if self.detached:
            params = self.sink.tagged(method, params)
            if params is None:
                return
        if connection.session.outbox.size >= 4 * connection.session.output_high:
            # nobody awaits, nobody reads: rather lose these than grow
            connection.n_dropped += 1
            if not connection.dropping:
                connection.dropping = True
                logger.warning("the client does not read: notifications are dropped")
            return
        connection.session.send_notification(method, params)
        connection.wrote()

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
        return self.connection.session.error_c(self.ref, code, message, data)

    cdef int refuse_c(self, object exc) except -1:
        """Answer with the `ProtocolError` that a handler raised."""
        code = exc.code
        if isinstance(exc, ResourceNotFound):
            code = self.revision.resource_not_found
        try:
            self.error_c(code, exc.message, exc.data)
        except Exception:
            logger.exception("%s %s: its error cannot be sent", self.operation.kind,
                             self.operation.name)
            self.error_c(codes.INTERNAL_ERROR, "Internal error", None)
        return 0


cdef class Serving(Endpoint):
    """The running side of a server's connection."""

    def __init__(self, service, loop, TaskPool pool not None, framer=None):
        self.service = service
        self.loop = loop
        self.pool = pool
        self.thread = threading.get_ident()
        self.serial = next_serial()
        self.asks = service.middleware.asks
        self.observer = service.middleware.observer
        if self.observer is not None:
            self.observer.joined()
        self.wire = self.session = Session(limits=service.limits, role="server", framer=framer)
        self.modern_end = service.discovery.modern_end
        self.running = set()
        self.waiters = []
        self.asked = {}

    # -- calls ---------------------------------------------------------------------------------

    cdef int prepare_c(self, Call call, Operation operation, Message m, object revision) except -1:
        call.connection = self
        call.operation = operation
        call.ref = m.ref
        call.revision = revision
        call.modern = revision.modern
        call.sink = self.sink
        call.detached = call.apart = call.failed = False
        call.timed_out = call.cancelled = call.given_up = call.answered = False
        call.began = self.began
        call.span = self.span
        call.code = 0
        return 0

    def begin(self, Operation operation not None, Message message not None, revision not None):
        """A `Call` for a request, to be given to `start` once its work is made.

        ProtocolError -32602: what the request brought of earlier rounds is malformed.
        """
        cdef Call call = Call.__new__(Call)
        self.prepare_c(call, operation, message, revision)
        if call.modern and message.scan.poi[WS_PARAMS].len:
            call.input = input_of(message, revision)
        if operation.wants_context:
            call.context = context_class(call, message)
        elif call.input is not None and call.input.requestState is not None:
            context_class(call, message)   # checks the state, which this function does not look at
        return call

    def start(self, Call call not None, work):
        """Run the coroutine that answers a call."""
        self.start_c(call, work)

    cdef int start_c(self, Call call, object work) except -1:
        if call.sink is not None and isinstance(call.sink, Call):
            return (<Call> call.sink).carry_c(call, work)
        call.running = self.pool.start_c(work, call, self.variables)
        if call.running is not None:
            if not call.detached:
                self.running.add(call)
                self.session.set_token_c(call.ref, call)
            if call.operation.timeout is not None:
                call.timer = self.loop.call_later(call.operation.timeout, call.expire)
        return 0

    cdef int finish_c(self, Call call, object value, object exc) except -1:
        """A handler ended: send what came of it."""
        if call.running is not None:
            self.running.discard(call)
            call.running = None        # they refer to each other
        if call.timer is not None:
            call.drop_timer_c()
        if call.answered or call.cancelled:
            if call.cancelled and not call.answered:
                if not call.detached and call.task is None:
                    self.session.cancelled_done_c()
                self.cancelled_ended_c(call)
                if call.sink is not None:
                    call.sink.cancelled()
            if exc is not None and not isinstance(exc, CancelledError):
                logger.error("%s %s failed after its cancellation", call.operation.kind,
                             call.operation.name, exc_info=exc)
        elif exc is None:
            call.operation.respond_c(call, value)
        elif call.given_up:
            call.error_c(codes.SHUTTING_DOWN, SHUTTING_DOWN, None)
        else:
            call.operation.fail_c(call, exc)
        call.ended = True
        if call.context is not None:
            call.context = None        # they refer to each other, and to input memory
        if call.sink is not None:
            call.sink = None
        if call.began != 0:
            self.observe_c(call)
        if self.link is not None:
            self.link.wrote_c()
        else:
            self.session.set_token_c(call.ref, None)    # what it holds goes with it
        if self.draining:
            self.check_drained_c()
        return 0

    cdef int check_drained_c(self) except -1:
        return 0

    cdef int cancelled_ended_c(self, Call call) except -1:
        return 0

    cdef int observe_c(self, Call call) except -1:
        """An observed request has ended."""
        cdef int code = CANCELLED if call.cancelled and not call.answered else call.code
        call.series_c().add_c(now_c() - call.began, code, call.failed)
        call.began = 0
        if call.span is not None:
            call.span.end_call(code, call.failed)
            call.span = None
        return 0

    # -- questions -----------------------------------------------------------------------------

    def ask(self, str method not None, bytes params, *, timeout=None):
        """A request to the client (legacy eras): a future of the JSON text of its result.

        It fails with RemoteError, InvalidResponse, CallTimeout (after ``timeout`` seconds; the
        client is told to cancel), ConnectionClosed, or LimitExceeded (`Limits.max_outstanding` are
        under way). Cancelling it cancels on the wire.
        """
        if self.asks is not None:
            return self.asks(self, method, params, timeout)
        return self.ask_wire(method, params, timeout)

    def ask_wire(self, str method not None, bytes params, timeout):
        """`ask`, past all middleware."""
        future = self.loop.create_future()
        if self.link is None or self.session.framer.eof:   # no answer can come any more
            future.set_exception(ConnectionClosed("the client is gone"))
            return future
        try:
            id = self.session.send_request(method, params, token=future, deadline=INFINITY)
        except OverflowError as exc:
            future.set_exception(LimitExceeded(str(exc)))
            return future
        self.asked[id] = future
        timer = None
        if timeout is not None:
            timer = self.loop.call_later(timeout, self._ask_expired, id, future, method)
        future.add_done_callback(lambda _: self._ask_done(id, timer))
        self.wrote()
        return future

    def _ask_expired(self, id, future, method):
        if not future.done():
            self.session.cancel(id, "timed out")
            self.wrote()
            future.set_exception(CallTimeout(f"no answer to {method} within its time limit"))

    def _ask_done(self, id, timer):
        if timer is not None:
            timer.cancel()
        future = self.asked.pop(id, None)
        if future is not None and future.cancelled() and self.link is not None:
            self.session.cancel(id, None)
            self.wrote()

    cdef int answered_c(self, Message m) except -1:
        """The client answered one of our questions."""
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

    def fail_asked(self):
        """The client is gone: nobody will answer."""
        self.session.fail_all()
        for future in list(self.asked.values()):
            if not future.done():
                future.set_exception(ConnectionClosed("the client is gone"))

    # -- output --------------------------------------------------------------------------------

    def wrote(self):
        """Something was queued: it leaves at the end of this tick."""
        if self.link is not None:
            self.link.wrote_c()

    def wait_for_room(self):
        """A future to await while the client is slow to read; None while it is not."""
        if self.link is None or self.session.outbox.size < self.session.output_high:
            return None
        waiter = self.loop.create_future()
        self.waiters.append(waiter)
        return waiter

    def _release_waiters(self):
        cdef list waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    cpdef object on_drained(self):
        self.dropping = False
        self._release_waiters()
        if self.draining:
            self.check_drained_c()


cdef Series series_of(Observer observer, object service, Message m):
    """What a request counts as that has come to no call: names that nobody registered are one."""
    cdef str method = m.method
    cdef str name
    if method == "tools/call":
        name = m.text_c(WS_NAME)
        return observer.of_tool_c(name if name in service.tools.items else UNKNOWN)
    if method not in REQUEST_METHODS and method not in service.extensions.handlers:
        method = UNKNOWN
    return observer.of_method_c(method)


cdef object describe(object exc):
    """What a peer may see of an exception: its text, with its class where the text is a value."""
    try:
        text = str(exc)
        if isinstance(exc, KeyError) and text:
            return f"{type(exc).__name__}: {text}"
        return text or type(exc).__name__
    except Exception:
        return type(exc).__name__
