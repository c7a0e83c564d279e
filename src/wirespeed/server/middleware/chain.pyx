"""A request on its way through middleware, down to its handler and back.

The chain and the handler run in one task and one context: what a middleware sets in context
variables its handler sees, ``asyncio.timeout`` around ``call_next`` works, and a chain whose parts
never suspend ends in the step in which it began. `wirespeed.server.middleware.stack` has the
interface for users.
"""

cimport cython
from cpython.object cimport PyTypeObject

import asyncio
import logging

import msgspec

from wirespeed._core._simd cimport (
    WS_META,
    WS_META_CLIENT_CAPABILITIES,
    WS_META_CLIENT_INFO,
    WS_META_PROTOCOL_VERSION,
    WS_PARAMS,
)
from wirespeed._core.envelope cimport Message
from wirespeed.server.middleware.eager cimport (
    PYGEN_ERROR,
    PYGEN_RETURN,
    EagerAwaitable,
    PySendResult,
    enable_send,
    started,
    ws_send,
)
from wirespeed.server.requests.call cimport Call, Operation, Serving, series_of
from wirespeed.server.connection cimport ServerConnection
from wirespeed.server.requests.observer cimport Series
from wirespeed.server.requests.params cimport is_modern, name_of
from wirespeed.server.tools.encode cimport object_line_c

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SERVER_INFO

logger = logging.getLogger("wirespeed.server")

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object)

cdef object CancelledError = asyncio.CancelledError
cdef object current_task = asyncio.current_task
cdef object encode = msgspec.json.Encoder().encode
cdef object decode_any = msgspec.json.Decoder().decode
cdef object decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@cython.final
@cython.freelist(64)
cdef class Reply:
    """What a request is answered with: the JSON text of its result.

    ``call_next`` returns a complete reply, as it would be sent. A reply of your own, made by
    `result`, gets the members of its era (``resultType``, the server's identity) that it lacks.
    An error is not a reply: it is raised as `wirespeed.errors.ProtocolError`.
    """

    cdef readonly bytes data
    cdef bint whole

    def __init__(self):
        raise TypeError("replies are made by Reply.result")

    def __repr__(self):
        return f"<Reply of {len(self.data)} bytes>"

    @staticmethod
    def result(value):
        """A reply with this result: the JSON text of an object as bytes, or what encodes to one.

        TypeError, ValueError: the value is not a JSON object.
        """
        cdef Reply reply = Reply.__new__(Reply)
        cdef bytes text
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = object_line_c(value)
        else:
            text = encode(value)
            if text[0] != c"{":
                raise TypeError(f"a result must be a JSON object, not {type(value).__name__}")
        reply.data = text
        return reply

    def decode(self, type=dict):
        """The result as a dict, or as another type that msgspec knows.

        msgspec.DecodeError: it does not fit.
        """
        return msgspec.json.decode(self.data, type=type)

    @property
    def is_error(self):
        """Of tools/call: whether the tool failed (``isError``)."""
        return b'"isError"' in self.data and decode_any(self.data).get("isError") is True


@cython.final
@cython.freelist(64)
cdef class InboundRequest:
    """A request as middleware sees it: before anything of it is decoded.

    The request and its leases keep the input memory of the message: do not keep them after the
    request.
    """

    cdef ChainCall chain_call

    def __init__(self):
        raise TypeError("requests are made by the connection")

    def __repr__(self):
        return f"<InboundRequest {self.method} id={self.raw_id.decode('utf-8', 'replace')[:40]}>"

    @property
    def method(self):
        """The method."""
        return self.chain_call.message.method

    @property
    def id(self):
        """The id, int or str."""
        return self.chain_call.message.id

    @property
    def raw_id(self):
        """The id's exact JSON text."""
        return self.chain_call.message.raw_id

    @property
    def params(self):
        """The params where they lie, a bytes-like `wirespeed.core.Lease` of JSON text; or None."""
        return self.chain_call.message.lease_c(WS_PARAMS)

    @property
    def name(self):
        """The target of the request, or None: ``params.uri`` for methods of resources, else
        ``params.name`` (of the tool or prompt)."""
        return name_of(self.chain_call.message)

    @property
    def meta(self):
        """The ``_meta`` of the params, decoded into a new dict; empty if there is none."""
        cdef object lease = self.chain_call.message.lease_c(WS_META)
        found = None if lease is None else decode_any(lease)
        return found if isinstance(found, dict) else {}

    @property
    def protocol_version(self):
        """The revision that the request names, or that was negotiated; None before that."""
        cdef ChainCall chain_call = self.chain_call
        if chain_call.message.scan.poi[WS_META_PROTOCOL_VERSION].len:
            return chain_call.message.text_c(WS_META_PROTOCOL_VERSION)
        revision = chain_call.connection.revision
        return None if revision is None else revision.version

    @property
    def modern(self):
        """Whether the request is of the era without a handshake (2026-07-28 on)."""
        return is_modern(self.chain_call.message)

    @property
    def client_info(self):
        """The client's name and version, as the client reports them; None if it does not."""
        return self._told(WS_META_CLIENT_INFO, self.chain_call.connection.state.client_info)

    @property
    def client_capabilities(self):
        """The capabilities that the client declared."""
        return self._told(
            WS_META_CLIENT_CAPABILITIES, self.chain_call.connection.state.capabilities
        ) or {}

    cdef object _told(self, int which, object legacy):
        cdef Message m = self.chain_call.message
        if not is_modern(m):
            return legacy
        lease = m.lease_c(which)
        told = None if lease is None else decode_any(lease)
        return told if isinstance(told, dict) else None

    @property
    def principal(self):
        """A digest of the client's credential, as bytes; None without a credential."""
        return self.chain_call.connection.principal

    @property
    def connection_id(self):
        """The serial number of the connection, unique in this process."""
        return self.chain_call.connection.serial


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
        if request is not chain_call.asked:
            raise TypeError("call_next takes the request that the middleware was given")
        if self.at == len(links):
            return served(chain_call)
        return links[self.at](request, step(chain_call, self.at + 1))


cdef Step step(ChainCall chain_call, Py_ssize_t at):
    cdef Step step = Step.__new__(Step)
    step.chain_call = chain_call
    step.at = at
    return step


@cython.final
cdef class Served(EagerAwaitable):
    """What the last ``call_next`` returns: awaiting it calls the handler."""

    cdef ChainCall chain_call

    cdef object reach_c(self):
        return self.chain_call.reach_c(self)


enable_send(Served)


cdef Served served(ChainCall chain_call):
    cdef Served served = Served.__new__(Served)
    served.chain_call = chain_call
    return served


async def awaited(work):
    return await work


@cython.final
cdef class Chain:
    """The middleware of a connection; called with the connection and the message of a request.

    Args:
        links: Middleware, outermost first.
    """

    def __init__(self, links):
        self.links = tuple(links)

    def __call__(self, Serving connection not None, Message message not None):
        cdef ChainCall chain_call = ChainCall.__new__(ChainCall)
        cdef InboundRequest request = InboundRequest.__new__(InboundRequest)
        chain_call.connection = connection
        chain_call.operation = THROUGH
        chain_call.ref = message.ref
        chain_call.message = message
        chain_call.chain = self
        chain_call.asked = request
        request.chain_call = chain_call
        chain_call.began = connection.began
        chain_call.span = connection.span
        chain_call.begin_c()


@cython.final
cdef class ChainCall(Call):
    """One request in the chain: a call of its own, around the handler's, and that one's sink."""

    cdef int begin_c(self) except -1:
        cdef object work
        try:
            work = self.chain.links[0](self.asked, step(self, 1))
            if not PyCoro_CheckExact(work) and not asyncio.iscoroutine(work):
                work = awaited(work)
        except BaseException as exc:
            self.done_c(None, exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        return self.connection.start_c(self, work)

    cdef object reach_c(self, EagerAwaitable eager):
        """The end of the chain: the handler. Gives what `call_next` does, if that is here already;
        else ``eager.rest`` is what is left to do."""
        cdef Call inner
        cdef object work, value = None, fault = None
        cdef PySendResult status = PYGEN_ERROR
        if self.inner is not None or self.open:
            raise RuntimeError("call_next was called before its last call had ended")
        self.body = self.fault = self.cut = None
        (<ServerConnection> self.connection).dispatch_c(self.message, self)
        inner = self.inner
        self.body_failed = -1
        if inner is None:
            return self.outcome_c()
        self.reached = inner.operation
        work, self.work = self.work, None
        if work is not None:
            if inner.operation.timeout is not None or inner.operation.wants_context:
                inner.task = current_task()    # where its timeout, and its questions, end it
            if PyCoro_CheckExact(work):
                try:
                    value = ws_send(work, None, &status)
                except BaseException as exc:
                    fault = exc
                if status == PYGEN_RETURN:
                    try:
                        self.connection.finish_c(inner, value, None)
                    finally:
                        inner.task = self.inner = None
                    self.body_failed = inner.failed
                    return self.outcome_c()
                work = started(work, value, fault)
        eager.rest = self.rest(work)

    async def rest(self, work):
        """The handler until it ends, from its first suspension on."""
        cdef Call inner = self.inner
        cdef object value
        if work is None:
            try:
                await self.waiter          # the run may go on behind it, as a task
            except (CancelledError, GeneratorExit):
                inner.ended = True
                if inner.task is not None:     # else it has just ended
                    inner.task.cancel()
                raise
            finally:
                self.waiter = self.inner = None
        else:
            try:
                value = await work
            except CancelledError as exc:
                if inner.timed_out or inner.answered:
                    if current_task().cancelling():
                        current_task().uncancel()
                elif current_task().cancelling():  # the chain is cancelled, not only the handler
                    inner.ended = True
                    inner.context = inner.sink = None
                    inner.drop_timer_c()
                    self.body = self.fault = None
                    self.cut = inner
                    raise
                self.connection.finish_c(inner, None, exc)
            except GeneratorExit:              # who awaited it has closed it
                inner.ended = True
                inner.context = inner.sink = None
                inner.drop_timer_c()
                raise
            except BaseException as exc:
                self.connection.finish_c(inner, None, exc)
                if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                    raise
            else:
                self.connection.finish_c(inner, value, None)
            finally:
                inner.task = self.inner = None
        self.body_failed = inner.failed
        return self.outcome_c()

    cdef object outcome_c(self):
        if self.fault is not None:
            raise self.fault
        if self.body is None:
            self.open = True
            self.detached = True           # who has the request now is told of its cancellation
            return None
        return whole(self.body)

    cdef int done_c(self, object result, object exc) except -1:
        try:
            self.connection.finish_c(self, result, exc)
        finally:
            # the request refers to us, and so do the frames that the fault went through
            self.asked = self.cut = self.fault = None
        return 0

    # -- the sink of the handler's call --------------------------------------------------------

    def result(self, bytes data not None):
        """The handler's result, complete."""
        self.body = data
        self.heard_c()

    def error(self, int code, str message not None, data):
        """The handler's error."""
        self.fault = ProtocolError(code, message, data)
        self.heard_c()

    def cancelled(self):
        """The handler was cancelled: so is the chain."""
        self.heard_c()

    cdef int heard_c(self) except -1:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return 0

    cdef int carry_c(self, Call inner, object work) except -1:
        """Take the handler's coroutine, to be awaited here. A run that may become a task, and so
        outlive its request, gets an `asyncio.Task` with this context."""
        self.inner = inner
        if inner.apart:
            self.waiter = self.connection.loop.create_future()
            inner.task = self.connection.loop.create_task(work)
            inner.task.add_done_callback(inner.task_done)
        else:
            self.work = work
        if inner.operation.timeout is not None:
            inner.timer = self.connection.loop.call_later(inner.operation.timeout, inner.expire)
        return 0

    cdef Series series_c(self):
        if self.reached is not None and self.reached.kind == "tool":
            return self.connection.observer.of_tool_c(self.reached.name)
        return series_of(self.connection.observer, self.connection.service, self.message)

    cpdef object cancel(self):
        """The client cancelled the request, or is gone."""
        if self.inner is not None:
            self.inner.ended = True        # a handler in a thread looks at it
        Call.cancel(self)


cdef Reply whole(bytes data):
    cdef Reply reply = Reply.__new__(Reply)
    reply.data = data
    reply.whole = True
    return reply


@cython.final
cdef class Through(Operation):
    """The operation of every `ChainCall`: answers with the reply of the chain."""

    def __init__(self):
        self.name = "through middleware"
        self.kind = "request"

    cdef int respond_c(self, Call call, object value) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        try:
            if value is None and chain_call.open:
                return 0
            if type(value) is not Reply:
                raise TypeError(f"a middleware must return a Reply, not {type(value).__name__}")
            if chain_call.open:
                raise TypeError("subscriptions/listen is open: it has no other answer")
            if chain_call.began != 0:
                if chain_call.body_failed >= 0 and (<Reply> value).data is chain_call.body:
                    chain_call.failed = chain_call.body_failed != 0
                else:
                    chain_call.failed = (<Reply> value).is_error
            if (<Reply> value).whole:
                chain_call.connection.session.result_c(chain_call.ref, (<Reply> value).data)
            else:
                chain_call.connection.session.result_c(
                    chain_call.ref, completed(chain_call, (<Reply> value).data)
                )
        except Exception as exc:
            return self.fail_c(call, exc)
        return 0

    cdef int fail_c(self, Call call, object exc) except -1:
        cdef ChainCall chain_call = <ChainCall> call
        if chain_call.open:
            logger.error("middleware failed behind an open subscription", exc_info=exc)
            return 0
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if chain_call.cut is not None and isinstance(exc, CancelledError):
            # the handler cancelled itself: the same answer as without middleware
            chain_call.cut.operation.fail_c(chain_call.cut, exc)
            chain_call.code, chain_call.failed = chain_call.cut.code, chain_call.cut.failed
            return 0
        if isinstance(exc, (KeyboardInterrupt, SystemExit)) and chain_call.body is not None:
            chain_call.connection.session.result_c(chain_call.ref, chain_call.body)
            return 0
        logger.error("middleware failed at a %s", chain_call.message.method, exc_info=exc)
        return call.error_c(codes.INTERNAL_ERROR, "Internal error", None)


cdef Through THROUGH = Through()


cdef bytes completed(ChainCall chain_call, bytes data):
    """A result that middleware made, with the members of its era that it lacks."""
    cdef dict members, meta, own
    if not is_modern(chain_call.message):
        return data                    # legacy results have no such members
    members = decode_members(data)
    own = decode_members(b"{" + chain_call.connection.modern_end[1:])
    members.setdefault("resultType", own["resultType"])
    meta = decode_members(members["_meta"]) if "_meta" in members else {}
    meta.setdefault(META_SERVER_INFO, decode_members(own["_meta"])[META_SERVER_INFO])
    members["_meta"] = meta
    return encode(members)


# An extension type is immutable: its public home (`wirespeed._exports`) stands in its name in C.
(<PyTypeObject *>InboundRequest).tp_name = "wirespeed.server.InboundRequest"
(<PyTypeObject *>Reply).tp_name = "wirespeed.server.Reply"
