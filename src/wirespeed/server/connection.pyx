"""One client of a server: its requests in, its answers out.

The path of ``tools/call`` is here, compiled; every other method is a Python function in
`wirespeed.server.methods`. Eras and revisions: basic/versioning of 2026-07-28, basic/lifecycle of
the others; the rules for serving both on one stdio connection are in docs/architecture.md.
"""

cimport cython
from cpython.contextvars cimport PyContext_Copy, PyContext_Enter, PyContext_Exit
from cpython.ref cimport Py_REFCNT
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t

import asyncio
import logging
import threading

import msgspec

from wirespeed._core._simd cimport (
    WS_ARGUMENTS,
    WS_META_CLIENT_CAPABILITIES,
    WS_META_CLIENT_INFO,
    WS_META_LOG_LEVEL,
    WS_META_PROTOCOL_VERSION,
    WS_METHOD,
    WS_NAME,
)
from wirespeed._core.envelope cimport (
    INVALID,
    NOTIFICATION,
    REQUEST,
    Message,
    method_is,
    poi_is,
    span_of,
)
from wirespeed._core.session cimport Session
from wirespeed._core.slab cimport Lease
from wirespeed._core.span cimport Span, span_equals
from wirespeed.server.answers cimport answer_content_c, answer_text_c, checked_result_c
from wirespeed.server.tool cimport INLINE, Tool
from wirespeed.transport.link cimport Endpoint
from wirespeed.transport.tasks cimport Completion, TaskPool

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LOG_LEVELS
from wirespeed.server import methods
from wirespeed.server.content import RawResult, error_content
from wirespeed.server.context import Context
from wirespeed.server.schema import describe_validation_error

logger = logging.getLogger("wirespeed.server")

cdef object CancelledError = asyncio.CancelledError

cdef enum:
    N_HOT = 16
    MAX_LOGGED_FAULTS = 100


@cython.final
cdef class Call(Completion):
    """One tools/call under way. The hook that the handler's end goes to."""

    def __init__(self):
        raise TypeError("calls are made by the connection")

    cdef int done_c(self, object result, object exc) except -1:
        return self.connection.finish_c(self, result, exc)

    cpdef object cancel(self):
        """Cancel the handler; no answer will be sent for it."""
        self.cancelled = True
        self.ended = True
        if self.running is not None:
            self.running.cancel()

    def expire(self):
        """The tool's own timeout."""
        self.timed_out = True
        self.timer = None
        if self.running is not None:
            self.running.cancel()

    def give_up(self):
        """The server shuts down and can wait no longer."""
        self.given_up = True
        if self.running is not None:
            self.running.cancel()

    def notify(self, str method, bytes params):
        """Send a notification about this request; nothing once it was answered or cancelled."""
        cdef ServerConnection connection = self.connection
        if self.ended or connection.link is None:
            return
        if connection.session.outbox.size >= 4 * connection.session.output_high:
            # nobody awaits, nobody reads: rather lose these than grow
            if not connection.dropping:
                connection.dropping = True
                logger.warning("the client does not read: notifications are dropped")
            return
        connection.session.send_notification(method, params)
        connection.wrote()


@cython.final
cdef class ServerConnection(Endpoint):
    """A connection of a `wirespeed.server.Server`."""

    def __init__(self, server, loop, TaskPool pool not None, framer=None):
        self.server = server
        self.loop = loop
        self.pool = pool
        self.thread = threading.get_ident()
        self.wire = self.session = Session(limits=server.limits, role="server", framer=framer)
        self.tools = server._tools
        self.modern = methods.newest(server.modern_versions)
        self.modern_version = b""
        if self.modern is not None:
            self.modern_version = msgspec.json.encode(self.modern.version)
        self.modern_end = server._modern_end
        self.session.null_ids = server._null_ids
        self.running = set()
        self.forget_tools()
        self.listens = {}
        self.waiters = []
        self.state = methods.State()
        self.closed = loop.create_future()

    # -- what the link tells -------------------------------------------------------------------

    cpdef object on_data(self):
        cdef Message m
        while True:
            m = None           # so that the session may use it again
            m = self.session.next_c()
            if m is None:
                break
            try:
                if m.kind_c == REQUEST:
                    self.request_c(m)
                elif m.kind_c == NOTIFICATION:
                    self.notification(m)
                elif m.kind_c == INVALID:
                    self.log_fault_c(m)
            except ProtocolError as exc:
                self.session.error_c(m.ref, exc.code, exc.message, exc.data)
            except Exception:
                logger.exception("internal error at a %s", m.method)
                self.session.error_c(m.ref, codes.INTERNAL_ERROR, "Internal error", None)
        if self.draining:
            self.check_drained_c()

    cdef int log_fault_c(self, Message m) except -1:
        """The first faults of a connection are logged: a flood of them must not fill the log, nor
        block us on a stderr that nobody reads."""
        if self.session.faults <= MAX_LOGGED_FAULTS:
            logger.warning("bad input: %s", m.reason)
            if self.session.faults == MAX_LOGGED_FAULTS:
                logger.warning("further bad input on this connection is not logged")
        return 0

    cpdef object on_eof(self):
        self.drain()

    cpdef object on_lost(self, exc):
        cdef Call call
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None
        if exc is not None:
            logger.info("connection lost: %s", exc)
        for call in list(self.running):
            call.cancel()
        self.listens.clear()
        self.spare_call = None
        self._release_waiters()
        self.server._connections.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)

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

    def schedule_tools_changed(self):
        """From any thread: tell the client, once for all changes of a tick."""
        if not self.tools_changed:
            self.tools_changed = True
            self.loop.call_soon_threadsafe(self._say_tools_changed)

    def _say_tools_changed(self):
        self.tools_changed = False
        if self.link is not None:
            methods.tools_changed(self)

    # -- requests ------------------------------------------------------------------------------

    cdef int request_c(self, Message m) except -1:
        cdef object revision, handler, result
        cdef str method
        if poi_is(m, WS_METHOD, b'"tools/call"'):
            revision = self.revision_for_c(m)
            return self.call_tool_c(m, revision)
        method = m.method
        if method == "tools/call":          # spelled with escapes
            return self.call_tool_c(m, self.revision_for_c(m))
        handler = methods.HANDLERS.get(method)
        if handler is None:
            raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {method}")
        revision = None
        if method != "initialize" or self.is_modern_c(m):
            revision = self.revision_for_c(m)
        result = handler(self, m, revision)
        if result is not None:
            self.session.result_c(m.ref, result)
        if revision is not None and revision.modern and method != "server/discover":
            self.pin_modern_c()
        return 0

    cdef int pin_modern_c(self) except -1:
        """A modern request was served: this connection stays modern."""
        self.pinned_modern = True
        self.session.null_ids = False
        return 0

    cdef bint is_modern_c(self, Message m) noexcept:
        """Whether a request carries any member of the modern envelope."""
        return (
            m.scan.poi[WS_META_PROTOCOL_VERSION].len != 0
            or m.scan.poi[WS_META_CLIENT_CAPABILITIES].len != 0
            or m.scan.poi[WS_META_CLIENT_INFO].len != 0
        )

    cdef object revision_for_c(self, Message m):
        """The revision to serve a request by. ProtocolError: it cannot be served."""
        cdef object revision
        if self.is_modern_c(m):
            revision = self.modern_revision_c(m)
        else:
            revision = self.revision
            if revision is None:
                if m.method == "ping":
                    return methods.LATEST_LEGACY_REVISION      # allowed before the handshake
                methods.refuse_uninitialized(self, m)
        if not poi_is(m, WS_METHOD, b'"tools/call"') and m.method not in revision.requests:
            raise ProtocolError(
                codes.METHOD_NOT_FOUND, f"Method not found in {revision.version}: {m.method}"
            )
        return revision

    cdef object modern_revision_c(self, Message m):
        cdef object revision
        cdef Span s
        if (
            self.modern is not None
            and poi_is(m, WS_META_PROTOCOL_VERSION, self.modern_version)
        ):
            revision = self.modern
        else:
            revision = methods.modern_revision(self, m)
        s = span_of(m, WS_META_CLIENT_CAPABILITIES)
        if s.n == 0 or s.p[0] != c'{':
            raise ProtocolError(
                codes.INVALID_PARAMS,
                "params._meta must have io.modelcontextprotocol/clientCapabilities, an object",
            )
        s = span_of(m, WS_META_CLIENT_INFO)
        if s.n and s.p[0] != c'{':
            raise ProtocolError(
                codes.INVALID_PARAMS, "io.modelcontextprotocol/clientInfo must be an object"
            )
        if self.revision is not None and m.method != "server/discover":
            raise ProtocolError(
                codes.INVALID_REQUEST,
                f"this connection was initialized for {self.revision.version}",
            )
        if m.scan.poi[WS_META_LOG_LEVEL].len and m.text_c(WS_META_LOG_LEVEL) not in LOG_LEVELS:
            raise ProtocolError(
                codes.INVALID_PARAMS,
                f"io.modelcontextprotocol/logLevel must be one of {', '.join(LOG_LEVELS)}",
            )
        return revision

    # -- tools/call ----------------------------------------------------------------------------

    cdef Tool find_tool_c(self, Message m):
        """The tool that a request names. ProtocolError: there is none."""
        cdef Span s = span_of(m, WS_NAME)
        cdef Tool tool
        cdef str name
        cdef size_t slot
        if s.n < 2 or s.p[0] != c'"':
            raise ProtocolError(codes.INVALID_PARAMS, "params.name must be a string")
        slot = (s.n + s.p[s.n - 2]) % N_HOT
        tool = <Tool> self.hot_tools[slot]
        if tool is not None and span_equals(s, tool.name_json, len(tool.name_json)):
            return tool
        name = m.text_c(WS_NAME)
        found = self.tools.get(name)
        if found is None:
            raise ProtocolError(codes.INVALID_PARAMS, f"Unknown tool: {name}")
        tool = <Tool> found
        if span_equals(s, tool.name_json, len(tool.name_json)):
            self.hot_tools[slot] = tool
        return tool

    def forget_tools(self):
        """The server's tools changed: look each up anew."""
        self.hot_tools = [None] * N_HOT

    cdef int call_tool_c(self, Message m, object revision) except -1:
        cdef Tool tool = self.find_tool_c(m)
        cdef Span s = span_of(m, WS_ARGUMENTS)
        cdef object decoded, value, context = None
        cdef Call call
        cdef Lease arguments = None
        if s.n:
            if s.p[0] != c'{':
                raise ProtocolError(codes.INVALID_PARAMS, "params.arguments must be an object")
            arguments = Lease.of(m.slab, s.p, s.n)
        call = self.spare_call
        if call is None or Py_REFCNT(call) != 2:
            call = self.spare_call = Call.__new__(Call)
            call.connection = self
        else:
            call.context = None        # nobody kept the last one, and it ended at once
            call.ended = False
        call.tool = tool
        call.ref = m.ref
        call.revision = revision
        call.modern = revision is not self.revision
        if call.modern and not self.pinned_modern:
            self.pin_modern_c()
        try:
            decoded = tool.decode_c(arguments)
        except (msgspec.DecodeError, RecursionError) as exc:
            return self.bad_arguments(call, exc)
        except Exception as exc:
            return self.finish_c(call, None, exc)
        if tool.wants_context:
            context = call.context = Context(call, m)
        try:
            if tool.how == INLINE:
                value = self.call_inline_c(tool, decoded, context)
            else:
                value = tool.invoke_c(decoded, context)
        except BaseException as exc:
            self.finish_c(call, None, exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        if tool.how == INLINE:
            return self.finish_c(call, value, None)
        decoded = arguments = None      # the input memory may go before the handler ends
        call.running = self.pool.start_c(value, call)
        if call.running is not None:
            self.spare_call = None
            self.running.add(call)
            self.session.set_token_c(call.ref, call)
            if tool.timeout is not None:
                call.timer = self.loop.call_later(tool.timeout, call.expire)
        return 0

    cdef object call_inline_c(self, Tool tool, object decoded, object context):
        """Call a plain function here and now, with context variables of its own."""
        cdef object variables = PyContext_Copy(self.pool._base)
        PyContext_Enter(variables)
        try:
            return tool.invoke_c(decoded, context)
        finally:
            PyContext_Exit(variables)

    def bad_arguments(self, Call call, exc):
        """Arguments that break the tool's schema (SEP-1303: a result, since 2025-11-25)."""
        cdef str text = f"Invalid arguments for tool {call.tool.name}: " + (
            describe_validation_error(exc)
        )
        call.ended = True
        if call.revision.argument_errors_in_results:
            self.send_content_c(call, error_content(text), None, True, None)
        else:
            self.session.error_c(call.ref, codes.INVALID_PARAMS, text, None)
        self.wrote()
        return 0

    cdef int finish_c(self, Call call, object value, object exc) except -1:
        """A handler ended: send what came of it."""
        cdef object encoded
        if call.running is not None:
            self.running.discard(call)
            call.running = None        # they refer to each other
            if call.timer is not None:
                call.timer.cancel()
                call.timer = None
        if call.cancelled:
            self.session.cancelled_done_c()
            if exc is not None and not isinstance(exc, CancelledError):
                logger.error("tool %s failed after its cancellation", call.tool.name,
                             exc_info=exc)
        elif exc is not None:
            self.fail_c(call, exc)
        elif call.tool.plain_text and type(value) is str:
            self.send_text_c(call, <str> value)
        elif type(value) is RawResult:
            self.send_raw_c(call, value.data)
        else:
            try:
                encoded = call.tool.encode(value, call.revision.version)
            except Exception as failure:
                self.fail_c(call, failure)
            else:
                self.send_content_c(call, encoded[0], encoded[1], encoded[2], encoded[3])
        call.ended = True
        if self.link is not None:
            self.link.wrote_c()
        else:
            self.session.set_token_c(call.ref, None)    # what it holds goes with it
        if self.draining:
            self.check_drained_c()
        return 0

    cdef int fail_c(self, Call call, object exc) except -1:
        """A tool's failure is a result with ``isError``, so that the model sees it; the
        traceback is for the log only."""
        cdef str text
        if call.given_up:
            self.session.error_c(
                call.ref, codes.SHUTTING_DOWN, "The server is shutting down", None
            )
            return 0
        if isinstance(exc, ProtocolError):
            try:
                self.session.error_c(call.ref, exc.code, exc.message, exc.data)
            except Exception:
                logger.exception("tool %s: its error cannot be sent", call.tool.name)
                self.session.error_c(call.ref, codes.INTERNAL_ERROR, "Internal error", None)
            return 0
        if call.timed_out:
            text = f"Tool {call.tool.name} timed out after {call.tool.timeout:g} s"
            logger.warning("%s", text)
        elif isinstance(exc, CancelledError):
            text = f"Tool {call.tool.name} was cancelled"
        elif isinstance(exc, (KeyboardInterrupt, SystemExit)):
            text = f"Tool {call.tool.name} ended the server"
            logger.error("tool %s ended the server: %r", call.tool.name, exc)
        else:
            text = describe(exc)
            logger.error("tool %s failed", call.tool.name, exc_info=exc)
        return self.send_content_c(call, error_content(text), None, True, None)

    cdef int send_text_c(self, Call call, str text) except -1:
        """The commonest result: one text and nothing more."""
        cdef Py_ssize_t n = 0
        cdef const char *utf8
        try:
            utf8 = PyUnicode_AsUTF8AndSize(text, &n)
        except UnicodeEncodeError as exc:
            return self.fail_c(call, ValueError(f"the result is not valid text: {exc.reason}"))
        return answer_text_c(
            self.session, call.ref, text, <const uint8_t *> utf8, <size_t> n,
            self.modern_end if call.modern else b"}",
        )

    cdef int send_raw_c(self, Call call, object data) except -1:
        """A result that its tool has encoded: checked, for what leaves must be valid."""
        cdef bytes text
        try:
            text = checked_result_c(data)
        except Exception as exc:
            return self.fail_c(call, exc)
        self.session.result_c(call.ref, text)
        return 0

    cdef int send_content_c(
        self, Call call, bytes content, bytes structured, bint is_error, bytes meta
    ) except -1:
        """A result of encoded parts."""
        cdef bytes tail = self.modern_end if call.modern else b"}"
        if meta is not None:
            if call.modern:
                meta = methods.with_server_info(self.server, meta)
            tail = b'%b,"_meta":%b}' % (b',"resultType":"complete"' if call.modern else b"", meta)
        return answer_content_c(self.session, call.ref, content, structured, is_error, tail)

    # -- notifications -------------------------------------------------------------------------

    def notification(self, Message m not None):
        """A notification: never answered, whatever it holds."""
        if m.token is not None and m.ref:
            m.token.cancel()           # notifications/cancelled of a request in flight
        elif method_is(m, b'"notifications/initialized"', "notifications/initialized"):
            self.state.initialized = self.revision is not None

    # -- shutting down -------------------------------------------------------------------------

    def drain(self):
        """Take no more requests, answer those there are within the grace time, then close."""
        if self.draining:
            return
        self.draining = True
        methods.end_listens(self)
        if self.link is not None:
            self.link.closing = True
            self.link.update_reading()
            self.wrote()
            self.grace_timer = self.loop.call_later(self.server.shutdown_grace, self._grace_over)
            self.check_drained_c()

    def _grace_over(self):
        cdef Call call
        self.grace_timer = None
        for call in list(self.running):
            logger.warning("tool %s did not end in time for the shutdown", call.tool.name)
            call.give_up()
        # a handler that ignores its cancellation is not waited for
        self.grace_timer = self.loop.call_later(0.25, self._close)

    cdef int check_drained_c(self) except -1:
        """Close once everything is answered and sent."""
        if (
            self.link is not None
            and self.session.inflight.live == 0
            and self.session.n_cancelled == 0
        ):
            self.link.flush()
            if self.link is not None and self.link.idle:
                self._close()
        return 0

    cpdef object on_drained(self):
        self.dropping = False
        self._release_waiters()
        if self.draining:
            self.check_drained_c()

    def abort(self):
        """Close now: what is in flight is cancelled, what is queued is dropped."""
        if self.link is not None:
            self.link.close()

    def _close(self):
        if self.link is not None:
            self.link.end()


cdef str describe(exc):
    """What a peer may see of an exception: its own words, or its kind."""
    try:
        return str(exc) or type(exc).__name__
    except Exception:
        return type(exc).__name__
