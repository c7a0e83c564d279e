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
    DETACHABLE, ENDED, NOT_STOPPED, AnswerSink, Call, Operation, Pipeline, Serving,
)
from wirespeed.server.requests.observer cimport Series

from wirespeed.errors import ProtocolError, ToolError
from wirespeed.server.requests.reply import describe
from wirespeed.server.tools.results import error_content

logger = logging.getLogger("wirespeed.server")

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object)

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
        cdef HandlerAnswer answer
        if self.at == len(links):
            answer = HandlerAnswer.__new__(HandlerAnswer)
            answer.chain_call = chain_call
            if request is not chain_call.request:
                answer.message = replacement(chain_call, request)
            return call_next(answer)
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


async def call_next(HandlerAnswer self):
    """Call the handler, and return or raise its answer."""
    cdef object work = self.call_handler_c()
    if work is not None:
        try:
            value = await work
        except BaseException as exc:
            self.raised_c(exc)
        else:
            self.returned_c(value)
    return self.outcome_c()


@cython.final
cdef class HandlerAnswer(AnswerSink):
    """The handler's answer, for which `call_next` waits in the task of the chain."""

    def __init__(self):
        raise TypeError("made by call_next")

    cdef object call_handler_c(self):
        """Call the handler. Returns the awaitable that is left to wait for, or None."""
        cdef ChainCall chain_call = self.chain_call
        cdef HandlerAnswer last = chain_call.answer
        cdef Call call
        if last is not None and not last.ended or chain_call.is_open:
            raise RuntimeError("call_next was called before its last call had ended")
        chain_call.answer = self
        call = self.call = Call.__new__(Call)
        call.connection = chain_call.connection
        call.ref = chain_call.ref
        call.sink = self
        (<ServerConnection> call.connection).dispatch_c(
            call, chain_call.message if self.message is None else self.message
        )
        work, self.work = self.work, None
        return work

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
        self.work = work
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
        """Return or raise the outcome of ``call_next``."""
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
        request.client = chain_call.connection.peer_of_c(chain_call.ref)
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
        cdef HandlerAnswer answer = self.answer
        try:
            Call.done_c(self, result, exc)
        finally:
            self.request = self.answer = None
            if answer is not None:
                answer.fault = None    # the frames that it went through refer to us
        return 0

    cdef Series series_c(self):
        cdef HandlerAnswer answer = self.answer
        if answer is not None and answer.call.operation is not None:
            return answer.call.series_c()
        return self.connection.observer.of_request_c(self.message, self.connection.service)

    cpdef object cancel(self):
        if self.answer is not None and not self.answer.ended:
            self.answer.call.phase = ENDED     # a handler in a thread looks at it
        Call.cancel(self)


@cython.final
cdef class Through(Operation):
    """The operation of every `ChainCall`: answers with the reply of the chain."""

    def __init__(self):
        self.name = "through middleware"
        self.kind = "request"

    cdef int respond_c(self, Call call, object value) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        cdef HandlerAnswer answer = chain_call.answer
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
                if answer is not None and text is answer.body:
                    call.failed = answer.call.failed
                else:
                    call.failed = (<Reply> value).is_error
            if (<Reply> value).whole:
                return call.connection.session.result_c(call.ref, text)
            return call.reply_c(body_of(value) if call.modern else text)
        except Exception as exc:
            return self.fail_c(call, exc)

    cdef int fail_c(self, Call call, object exc) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        cdef HandlerAnswer answer = chain_call.answer
        if chain_call.is_open:
            logger.error("middleware failed behind an open subscription", exc_info=exc)
            return 0
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if answer is not None:
            if answer.cancelled_with_chain and isinstance(exc, CancelledError):
                # the handler cancelled itself: the same answer as without middleware
                answer.call.operation.fail_c(answer.call, exc)
                call.code, call.failed = answer.call.code, answer.call.failed
                return 0
            if answer.body is not None and isinstance(exc, (KeyboardInterrupt, SystemExit)):
                return call.connection.session.result_c(call.ref, answer.body)
        if isinstance(exc, ToolError) and chain_call.message.method == "tools/call":
            call.failed = True
            return call.reply_c(
                b'{"content":%b,"isError":true}' % error_content(describe(exc))
            )
        return call.fail_internally_c(f"middleware at {chain_call.message.method}", exc)


cdef Through THROUGH = Through()
