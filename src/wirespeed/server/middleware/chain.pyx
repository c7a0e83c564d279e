"""A request on its way through middleware, down to its handler and back.

The chain and the handler run in one task and one context: what a middleware sets in context
variables its handler sees, ``asyncio.timeout`` around ``call_next`` works, and a chain whose parts
never suspend ends in the step in which it began. `wirespeed.server.middleware.functions` has the
interface for users.
"""

cimport cython

import asyncio
import logging

from wirespeed._core.envelope cimport Message, is_modern
from wirespeed.server.connection cimport ServerConnection
from wirespeed.server.middleware.inbound cimport InboundRequest, Reply, body_of, whole_reply
from wirespeed.server.requests.call cimport (
    DETACHABLE,
    ENDED,
    NOT_STOPPED,
    AnswerSink,
    Call,
    Operation,
    Pipeline,
)
from wirespeed.server.requests.observer cimport Series
from wirespeed.server.requests.serving cimport Serving

from wirespeed.errors import ProtocolError, ToolError
from wirespeed.server.requests.failure import describe
from wirespeed.server.tools.results import error_content

logger = logging.getLogger("wirespeed.server")

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object)

cdef extern from *:
    """
    typedef PyObject *(*ws_stepper)(PyObject *, PyObject *, PySendResult *);
    static ws_stepper ws_step;

    /* One step of a coroutine; NULL with an exception set at PYGEN_ERROR. */
    static PyObject *ws_send(PyObject *coro, PyObject *value, PySendResult *status) {
        PyObject *out = NULL;
        *status = PyIter_Send(coro, value, &out);
        return out;
    }

    static PySendResult ws_am_send(PyObject *self, PyObject *value, PyObject **result) {
        PySendResult status = PYGEN_ERROR;
        *result = ws_step(self, value, &status);
        return *result == NULL ? PYGEN_ERROR : status;
    }

    /* Let `await` step the instances of a type without a StopIteration for the result. */
    static void ws_enable_send(PyObject *type, ws_stepper step) {
        ws_step = step;
        ((PyTypeObject *)type)->tp_as_async->am_send = ws_am_send;
    }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT

    ctypedef object (*ws_stepper)(object, object, PySendResult *)
    object ws_send(object coro, object value, PySendResult *status)
    void ws_enable_send(object type, ws_stepper step)

cdef object CancelledError = asyncio.CancelledError
cdef object current_task = asyncio.current_task


@cython.final
@cython.freelist(64)
cdef class Step:
    """The ``call_next`` of one middleware."""

    cdef ChainCall chain_call
    cdef Py_ssize_t at                 # which link comes next

    def __call__(self, request):
        """An awaitable of the `Reply`; None for subscriptions/listen, which stays open.

        Called again after it has ended, it asks the handler anew. ProtocolError: the answer is
        this error.
        """
        cdef ChainCall chain_call = self.chain_call
        cdef tuple links = chain_call.chain.links
        cdef Served last
        if self.at == len(links):
            last = served(chain_call)
            if request is not chain_call.request:
                last.message = replacement(chain_call, request)
            return last
        if request is not chain_call.request:
            replacement(chain_call, request)
        return links[self.at](request, step(chain_call, self.at + 1))


cdef Message replacement(ChainCall chain_call, object request):
    """The message of a request that replaces the client's."""
    cdef InboundRequest root = chain_call.request
    if (
        root is not None
        and isinstance(request, InboundRequest)
        and (<InboundRequest> request).replaced is root
    ):
        return (<InboundRequest> request).message
    raise TypeError("call_next takes the request that the middleware was given, or its replace(…)")


cdef Step step(ChainCall chain_call, Py_ssize_t at):
    cdef Step step = Step.__new__(Step)
    step.chain_call = chain_call
    step.at = at
    return step


async def awaited(work):
    return await work


@cython.final
cdef class Served(AnswerSink):
    """What the last ``call_next`` returns: awaiting it calls the handler, whose answer it gets.

    It can be awaited once. The handler runs in the steps of the awaiter: a coroutine around the
    handler would cost a frame, a wrapper for ``await`` and a StopIteration.
    """

    def __init__(self):
        raise TypeError("made by call_next")

    def __await__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """One step, for awaiters that do not use ``am_send``."""
        cdef PySendResult status = PYGEN_ERROR
        given = served_step_c(self, value, &status)
        if status == PYGEN_RETURN:
            raise StopIteration(given)
        return given

    def throw(self, *exc):
        """Raise an exception where the handler waits."""
        self.started = True
        if self.work is None:
            raise exc[0] if len(exc) < 2 or exc[1] is None else exc[1]
        try:
            return self.work.throw(*exc)
        except StopIteration as stop:
            self.returned_c(stop.value)
        except BaseException as error:
            self.raised_c(error)
        raise StopIteration(self.outcome_c())

    def close(self):
        """End the handler where it waits."""
        self.started = True
        if self.work is not None:
            try:
                self.work.close()
            finally:
                self.abandon_c()

    cdef int call_handler_c(self) except -1:
        """Call the handler, in the first step. `work` is what is left to do."""
        cdef ChainCall chain_call = self.chain_call
        cdef Served last = chain_call.served
        cdef Call call
        if last is not None and not last.ended or chain_call.is_open:
            raise RuntimeError("call_next was called before its last call had ended")
        chain_call.served = self
        call = self.call = Call.__new__(Call)
        call.connection = chain_call.connection
        call.ref = chain_call.ref
        call.sink = self
        return (<ServerConnection> call.connection).dispatch_c(
            call, chain_call.message if self.message is None else self.message
        )

    cdef dict state_c(self):
        cdef InboundRequest request = self.chain_call.request
        return None if request is None else request.state

    cdef int carry_c(self, Call call, object work) except -1:
        """Take the handler's coroutine. A call that may become a task, and so outlive its request,
        runs in an `asyncio.Task` with this context."""
        if call.phase == DETACHABLE:
            loop = call.connection.loop
            call.task = loop.create_task(work)
            call.task.add_done_callback(call.task_done)
            self.waiter = loop.create_future()
            work = self.waiter
        elif call.operation.timeout is not None or call.operation.wants_context:
            call.task = current_task()     # where the timeout, and questions, cancel the handler
        self.work = work if PyCoro_CheckExact(work) else awaited(work)
        if call.operation.timeout is not None:
            call.start_timer_c()
        return 0

    cdef int returned_c(self, object value) except -1:
        """The handler has returned."""
        self.leave_c()
        if self.waiter is None:
            self.call.done_c(value, None)
        return 0

    cdef int raised_c(self, object exc) except -1:
        """The handler has raised an exception, or the awaiter was cancelled."""
        cdef Call call = self.call
        if self.waiter is not None or isinstance(exc, GeneratorExit):
            self.abandon_c()
            raise exc
        self.leave_c()
        if isinstance(exc, CancelledError):
            if call.reason != NOT_STOPPED:
                if current_task().cancelling():
                    current_task().uncancel()
            elif current_task().cancelling():  # the chain is cancelled, not only the handler
                self.cancelled_with_chain = True
                self.abandon_c()
                raise exc
        call.done_c(None, exc)
        if isinstance(exc, (KeyboardInterrupt, SystemExit)):
            raise exc
        return 0

    cdef int leave_c(self) except -1:
        self.ended = True
        self.work = None
        if self.waiter is None:
            self.call.task = None
        return 0

    cdef int abandon_c(self) except -1:
        """The awaiter does not wait for the handler's end."""
        self.leave_c()
        if self.waiter is None:
            self.call.drop_timer_c()
            return self.call.end_c(None)
        self.call.phase = ENDED
        if self.call.task is not None:     # else the handler has just ended
            self.call.task.cancel()
        return 0

    cdef object outcome_c(self):
        """What ``call_next`` returns or raises."""
        self.ended = True
        if self.fault is not None:
            raise self.fault
        if self.body is None:
            self.chain_call.is_open = True
            self.chain_call.ref = 0        # the subscription has the request now
            return None
        return whole_reply(self.body)

    # -- the sink of the handler's call --------------------------------------------------------

    cpdef object result(self, bytes data):
        self.body = data
        self.wake_c()

    cpdef object error(self, int code, str message, object data):
        self.fault = ProtocolError(code, message, data)
        self.wake_c()

    cpdef object cancelled(self):
        self.wake_c()

    cdef int wake_c(self) except -1:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return 0


cdef object served_step_c(object awaitable, object value, PySendResult *status):
    """One step: what the handler yields, or the reply at the last step."""
    cdef Served self = <Served> awaitable
    cdef object given
    if not self.started:
        self.started = True
        self.call_handler_c()
    elif self.work is None:
        raise RuntimeError("the awaitable of call_next can be awaited only once")
    if self.work is not None:
        try:
            given = ws_send(self.work, value, status)
        except BaseException as exc:
            self.raised_c(exc)
        else:
            if status[0] == PYGEN_NEXT:
                return given
            self.returned_c(given)
    status[0] = PYGEN_RETURN
    return self.outcome_c()


ws_enable_send(Served, served_step_c)


cdef Served served(ChainCall chain_call):
    cdef Served served = Served.__new__(Served)
    served.chain_call = chain_call
    return served


@cython.final
cdef class Chain(Pipeline):
    """The middleware of a server.

    Args:
        links: Middleware, outermost first.
    """

    def __init__(self, links):
        self.links = tuple(links)

    cdef Call call_c(self, Serving connection, Message m):
        cdef ChainCall chain_call = ChainCall.__new__(ChainCall)
        cdef InboundRequest request = InboundRequest.__new__(InboundRequest)
        request.connection = connection
        request.message = m
        chain_call.connection = connection
        chain_call.operation = THROUGH
        chain_call.ref = m.ref
        chain_call.modern = is_modern(m)
        request.client = chain_call.peer_c()
        chain_call.message = m
        chain_call.chain = self
        chain_call.request = request
        return chain_call

    cdef int run_c(self, Call call) except -1:
        cdef object work
        try:
            work = self.links[0]((<ChainCall> call).request, step(<ChainCall> call, 1))
            if not PyCoro_CheckExact(work) and not asyncio.iscoroutine(work):
                work = awaited(work)
        except BaseException as exc:
            call.done_c(None, exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        return call.start_c(work)


@cython.final
cdef class ChainCall(Call):
    """One request in the chain: a call of its own, around the handler's."""

    cdef int done_c(self, object result, object exc) except -1:
        cdef Served served = self.served
        try:
            Call.done_c(self, result, exc)
        finally:
            self.request = self.served = None
            if served is not None:
                served.fault = None    # the frames that it went through refer to us
        return 0

    cdef Series series_c(self):
        cdef Served served = self.served
        if served is not None and served.call.operation is not None:
            return served.call.series_c()
        return self.connection.observer.of_request_c(self.message, self.connection.service)

    cpdef object cancel(self):
        if self.served is not None and not self.served.ended:
            self.served.call.phase = ENDED     # a handler in a thread looks at it
        Call.cancel(self)


@cython.final
cdef class Through(Operation):
    """The operation of every `ChainCall`: answers with the reply of the chain."""

    def __init__(self):
        self.name = "through middleware"
        self.kind = "request"

    cdef int respond_c(self, Call call, object value) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        cdef Served served = chain_call.served
        cdef bytes text
        try:
            if value is None and chain_call.is_open:
                return 0
            if type(value) is not Reply:
                raise TypeError(f"a middleware must return a Reply, not {type(value).__name__}")
            if chain_call.is_open:
                raise TypeError("subscriptions/listen is open: it has no other answer")
            text = (<Reply> value).data
            if call.began != 0:
                if served is not None and text is served.body:
                    call.failed = served.call.failed
                else:
                    call.failed = (<Reply> value).is_error
            if (<Reply> value).whole:
                return call.connection.session.result_c(call.ref, text)
            return call.reply_c(body_of(value) if call.modern else text)
        except Exception as exc:
            return self.fail_c(call, exc)

    cdef int fail_c(self, Call call, object exc) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        cdef Served served = chain_call.served
        if chain_call.is_open:
            logger.error("middleware failed behind an open subscription", exc_info=exc)
            return 0
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if served is not None:
            if served.cancelled_with_chain and isinstance(exc, CancelledError):
                # the handler cancelled itself: the same answer as without middleware
                served.call.operation.fail_c(served.call, exc)
                call.code, call.failed = served.call.code, served.call.failed
                return 0
            if served.body is not None and isinstance(exc, (KeyboardInterrupt, SystemExit)):
                return call.connection.session.result_c(call.ref, served.body)
        if isinstance(exc, ToolError) and chain_call.message.method == "tools/call":
            call.failed = True
            return call.reply_c(
                b'{"content":%b,"isError":true}' % error_content(describe(exc))
            )
        return call.fail_internally_c(f"middleware at {chain_call.message.method}", exc)


cdef Through THROUGH = Through()
