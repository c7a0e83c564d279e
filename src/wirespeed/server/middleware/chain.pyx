"""A request on its way through middleware, down to its handler and back.

The chain and the handler run in one task and one context: what a middleware sets in context
variables its handler sees, ``asyncio.timeout`` around ``call_next`` works, and a chain whose parts
never suspend ends in the step in which it began. `wirespeed.server.middleware.stack` has the user's
side.
"""

cimport cython

import asyncio
import logging

import msgspec

from wirespeed._core._simd cimport (
    WS_META,
    WS_META_CLIENT_CAPABILITIES,
    WS_META_CLIENT_INFO,
    WS_META_PROTOCOL_VERSION,
    WS_OK,
    WS_PARAMS,
    WS_ROOT_OBJECT,
    kernels,
    ws_scan,
)
from wirespeed._core.envelope cimport Message
from wirespeed.server.middleware.eager cimport (
    PYGEN_ERROR,
    PYGEN_RETURN,
    Ahead,
    PySendResult,
    begun,
    take_ahead,
    ws_send,
)
from wirespeed.server.requests.call cimport Call, Operation, Serving, series_of
from wirespeed.server.connection cimport ServerConnection
from wirespeed.server.requests.observer cimport Series
from wirespeed.server.requests.params cimport is_modern, name_of

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

cdef enum:
    MAX_DEPTH = 1024           # of what middleware encodes itself


@cython.final
@cython.freelist(64)
cdef class Reply:
    """What a request is answered with: the JSON text of its result.

    ``call_next`` gives it complete, as it would leave. One of your own, made by `result`, gets what
    its era asks for (``resultType``, the server's identity) if it has it not. Errors are no
    replies: they are raised, as `wirespeed.errors.ProtocolError`.
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

        TypeError, ValueError: it is no JSON object.
        """
        cdef Reply reply = Reply.__new__(Reply)
        cdef bytes text
        cdef ws_scan scan
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = bytes(value).strip()
            if (
                kernels.json(<const unsigned char *> <const char *> text, len(text), MAX_DEPTH,
                             &scan) != WS_OK
                or scan.root != WS_ROOT_OBJECT
            ):
                raise ValueError("a result must be the JSON text of an object")
            # in JSON raw newlines stand between tokens only
            text = text.replace(b"\n", b" ") if b"\n" in text else text
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

    It, and the leases that it gives, keep the input memory that the request lies in: do not keep
    them when the request is over.
    """

    cdef Passage passage

    def __init__(self):
        raise TypeError("requests are made by the connection")

    def __repr__(self):
        return f"<InboundRequest {self.method} id={self.raw_id.decode('utf-8', 'replace')[:40]}>"

    @property
    def method(self):
        """The method."""
        return self.passage.message.method

    @property
    def id(self):
        """The id, int or str."""
        return self.passage.message.id

    @property
    def raw_id(self):
        """The id's exact JSON text."""
        return self.passage.message.raw_id

    @property
    def params(self):
        """The params where they lie, a bytes-like `wirespeed.core.Lease` of JSON text; or None."""
        return self.passage.message.lease_c(WS_PARAMS)

    @property
    def name(self):
        """What the request is for, or None: ``params.uri`` of the methods of resources, and
        ``params.name`` of all others (the tool, the prompt)."""
        return name_of(self.passage.message)

    @property
    def meta(self):
        """The ``_meta`` of the params, decoded; a new dict each time, empty where there is none."""
        cdef object lease = self.passage.message.lease_c(WS_META)
        found = None if lease is None else decode_any(lease)
        return found if isinstance(found, dict) else {}

    @property
    def protocol_version(self):
        """The revision that the request names, or that was negotiated; None before that."""
        cdef Passage passage = self.passage
        if passage.message.scan.poi[WS_META_PROTOCOL_VERSION].len:
            return passage.message.text_c(WS_META_PROTOCOL_VERSION)
        revision = passage.connection.revision
        return None if revision is None else revision.version

    @property
    def modern(self):
        """Whether the request is of the era without a handshake (2026-07-28 on)."""
        return is_modern(self.passage.message)

    @property
    def client_info(self):
        """What the client says it is; self-reported. None where it says nothing."""
        return self._told(WS_META_CLIENT_INFO, self.passage.connection.state.client_info)

    @property
    def client_capabilities(self):
        """What the client says it can do."""
        return self._told(
            WS_META_CLIENT_CAPABILITIES, self.passage.connection.state.capabilities
        ) or {}

    cdef object _told(self, int which, object legacy):
        cdef Message m = self.passage.message
        if not is_modern(m):
            return legacy
        lease = m.lease_c(which)
        told = None if lease is None else decode_any(lease)
        return told if isinstance(told, dict) else None

    @property
    def principal(self):
        """A digest of the credential that the client came with, bytes; None without one."""
        return self.passage.connection.principal

    @property
    def connection_id(self):
        """A number that no other connection of this process has or had."""
        return self.passage.connection.serial


@cython.final
@cython.freelist(64)
cdef class Step:
    """The ``call_next`` of one middleware."""

    cdef Passage passage
    cdef Py_ssize_t at                 # which link comes next

    def __call__(self, request):
        """An awaitable of the `Reply`; None for subscriptions/listen, which stays open.

        Called again after it has ended, it asks the handler anew. ProtocolError: the answer is
        this error.
        """
        cdef Passage passage = self.passage
        cdef tuple links = passage.chain.links
        if request is not passage.asked:
            raise TypeError("call_next takes the request that the middleware was given")
        if self.at == len(links):
            return served(passage)
        return links[self.at](request, step(passage, self.at + 1))


cdef Step step(Passage passage, Py_ssize_t at):
    cdef Step step = Step.__new__(Step)
    step.passage = passage
    step.at = at
    return step


@cython.final
cdef class Served(Ahead):
    """What the last ``call_next`` gives: the handler, which is called where this is awaited."""

    cdef Passage passage

    cdef object reach_c(self):
        return self.passage.reach_c(self)


take_ahead(Served)


cdef Served served(Passage passage):
    cdef Served served = Served.__new__(Served)
    served.passage = passage
    return served


async def awaited(work):
    return await work


@cython.final
cdef class Chain:
    """What every request of a connection passes first; called with the connection and the message.

    Args:
        links: Middleware, outermost first.
    """

    def __init__(self, links):
        self.links = tuple(links)

    def __call__(self, Serving connection not None, Message message not None):
        cdef Passage passage = Passage.__new__(Passage)
        cdef InboundRequest request = InboundRequest.__new__(InboundRequest)
        passage.connection = connection
        passage.operation = THROUGH
        passage.ref = message.ref
        passage.message = message
        passage.chain = self
        passage.asked = request
        request.passage = passage
        passage.began = connection.began
        passage.span = connection.span
        passage.begin_c()


@cython.final
cdef class Passage(Call):
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

    cdef object reach_c(self, Ahead ahead):
        """The end of the chain: the handler. Gives what `call_next` does, if that is here already;
        else ``ahead.rest`` is what is left to do."""
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
                work = begun(work, value, fault)
        ahead.rest = self.rest(work)

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
        """Have the handler's coroutine awaited here. A run that may become a task, and then goes on
        after it is answered, gets an `asyncio.Task` with this context."""
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
        """The client wants no answer, or is gone."""
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
    """The operation of every passage: answers with what came out of the chain."""

    def __init__(self):
        self.name = "through middleware"
        self.kind = "request"

    cdef int respond_c(self, Call call, object value) except -1:
        cdef Passage passage = <Passage> call
        try:
            if value is None and passage.open:
                return 0
            if type(value) is not Reply:
                raise TypeError(f"a middleware must return a Reply, not {type(value).__name__}")
            if passage.open:
                raise TypeError("subscriptions/listen is open: it has no other answer")
            if passage.began != 0:
                if passage.body_failed >= 0 and (<Reply> value).data is passage.body:
                    passage.failed = passage.body_failed != 0
                else:
                    passage.failed = (<Reply> value).is_error
            if (<Reply> value).whole:
                passage.connection.session.result_c(passage.ref, (<Reply> value).data)
            else:
                passage.connection.session.result_c(
                    passage.ref, completed(passage, (<Reply> value).data)
                )
        except Exception as exc:
            return self.fail_c(call, exc)
        return 0

    cdef int fail_c(self, Call call, object exc) except -1:
        cdef Passage passage = <Passage> call
        if passage.open:
            logger.error("middleware failed behind an open subscription", exc_info=exc)
            return 0
        if isinstance(exc, ProtocolError):
            return call.refuse_c(exc)
        if passage.cut is not None and isinstance(exc, CancelledError):
            # neither client nor shutdown did it: the handler has, and is answered as without us
            passage.cut.operation.fail_c(passage.cut, exc)
            passage.code, passage.failed = passage.cut.code, passage.cut.failed
            return 0
        if isinstance(exc, (KeyboardInterrupt, SystemExit)) and passage.body is not None:
            passage.connection.session.result_c(passage.ref, passage.body)
            return 0
        logger.error("middleware failed at a %s", passage.message.method, exc_info=exc)
        return call.error_c(codes.INTERNAL_ERROR, "Internal error", None)


cdef Through THROUGH = Through()


cdef bytes completed(Passage passage, bytes data):
    """A result that middleware made, with what its era asks for and it has not."""
    cdef dict members, meta, own
    if not is_modern(passage.message):
        return data                    # a connection of the era without a handshake has no other
    members = decode_members(data)
    own = decode_members(b"{" + passage.connection.modern_end[1:])
    members.setdefault("resultType", own["resultType"])
    meta = decode_members(members["_meta"]) if "_meta" in members else {}
    meta.setdefault(META_SERVER_INFO, decode_members(own["_meta"])[META_SERVER_INFO])
    members["_meta"] = meta
    return encode(members)
