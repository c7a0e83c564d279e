"""One client of a server: its requests in, its answers out.

The path of ``tools/call`` is here, compiled; `wirespeed.server.methods` names the handler of
every other method. Eras and revisions: basic/versioning of 2026-07-28, basic/lifecycle of the
others; docs/explanation/readings.md says how both are served on one connection.
"""

cimport cython
from cpython.contextvars cimport PyContext_Copy, PyContext_Enter, PyContext_Exit
from cpython.ref cimport Py_REFCNT

import logging

import msgspec

from wirespeed._core._simd cimport WS_ARGUMENTS, WS_META_PROTOCOL_VERSION, WS_METHOD, WS_NAME
from wirespeed._core.envelope cimport (
    ERROR, INVALID, NOTIFICATION, REQUEST, RESULT, Message, is_modern, method_is, poi_is, span_of,
)
from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.slab cimport Lease
from wirespeed._core.span cimport Span, span_equals
from wirespeed.peer.http.headers cimport check_headers_c, check_params_c
from wirespeed.server.requests.call cimport (
    DETACHABLE, GREETED, INITIALIZED, MODERN, NEW, NOT_STOPPED, RUNNING, SHUT_DOWN, Call, Serving,
)
from wirespeed.server.requests.observer cimport now_c
from wirespeed.server.requests.params cimport check_envelope_c, has_other_params_c
from wirespeed.server.tools.tool cimport INLINE, Tool
from wirespeed.transport.taskpool cimport TaskPool

from wirespeed._core.envelope import parse
from wirespeed.errors import ProtocolError, shortened
from wirespeed.peer.connection import FAREWELL
from wirespeed.protocol import codes
from wirespeed.server import methods
from wirespeed.server.methods import check_offered, handler_of
from wirespeed.server.permissions import check_scopes
from wirespeed.server.requests.operation import unknown
from wirespeed.server.requests.params import input_of
from wirespeed.server.requests.reply import Whole
from wirespeed.server.session_state import State
from wirespeed.server.subscriptions import ChangeNotifier

logger = logging.getLogger("wirespeed.server")

cdef enum:
    N_HOT = 16


@cython.final
cdef class ServerConnection(Serving):
    """A connection of a `wirespeed.Server`."""

    def __init__(self, service, loop, TaskPool pool not None, framer=None):
        Serving.__init__(self, service, loop, pool, framer)
        self.tools = service.tools.items
        self.modern = methods.newest(service.discovery.modern_versions)
        self.modern_version = b""
        if self.modern is not None:
            self.modern_version = msgspec.json.encode(self.modern.version)
        self.session.null_ids = service.discovery.null_ids
        self.forget_tools()
        self.changes = ChangeNotifier(self)
        self.listens = self.changes.listens
        self.through = service.middleware.chain
        self.state = State()
        self.search = service.tool_search

    # -- what the link tells -------------------------------------------------------------------

    cdef int take_c(self, Message m) except -1:
        cdef Call call = None
        cdef HttpHead head
        cdef Message given = m
        cdef object fault = None
        try:
            if m.kind_c == REQUEST:
                if self.search is not None and method_is(m, b'"tools/call"', "tools/call"):
                    try:
                        m = self.called_c(m)
                    except ProtocolError as exc:
                        fault = exc
                call = self.call_c(m)
                if self.observer is not None:
                    self.observe_c(call, m)
                head = self.head_of_c(m)
                if head is not None:
                    self.check_http_c(call, given, head)
                if fault is not None:
                    raise fault
                if self.through is not None:
                    self.through.run_c(call)
                else:
                    self.serve_c(call, m)
            elif m.kind_c == NOTIFICATION:
                self.notification(m)
            elif m.kind_c == RESULT or m.kind_c == ERROR or m.token is not None:
                if self.shared and self.revision is None:
                    self.peer.refuse_response()
                else:
                    self.answered_c(m)
            elif m.kind_c == INVALID:
                self.log_fault(self.session.faults, "bad input: %s", m.reason)
        except Exception as exc:
            self.fail_c(call, m, exc)
        return 0

    cdef Message called_c(self, Message m):
        """Return the call that takes the place of a call by ``call_tool``; any other call as it
        is. ProtocolError: it names no tool."""
        cdef Span s = span_of(m, WS_NAME)
        cdef bytes name = (<const char *> s.p)[:s.n]
        cdef Message called
        if name not in self.search.names and b"\\" not in name:
            return m
        if m.text_c(WS_NAME) != self.search.config.call_name:
            return m
        params = self.search.config.called(m.params)
        called = parse(
            b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":%b}' % (m.raw_id, params),
            max_depth=1024,
        )
        called.ref = self.expanded = m.ref
        return called

    cdef int fail_c(self, Call call, Message m, object exc) except -1:
        """Answer a request that failed before its handler ran. ``call`` is None for other
        messages."""
        if not isinstance(exc, ProtocolError):
            logger.error("internal error at a %s", shortened(m.method), exc_info=exc)
            exc = ProtocolError(codes.INTERNAL_ERROR, "Internal error")
        if call is not None:
            if call.revision is None:
                self.session.refused_c(call.ref)
            call.refuse_c(exc)
            call.end_c(m)
        return 0

    cpdef object on_eof(self):
        cdef ServerConnection me = self
        me.fail_questions_c()          # no answer can come
        me.drain_c()                   # no more requests can come

    def loss_level(self, exc):
        return logging.INFO if isinstance(exc, ConnectionError) else logging.WARNING

    def clean_up(self, exc):
        cdef Call call
        for call in list(self.running):
            call.cancel()
        self.fail_questions_c()
        self.listens.clear()
        self.spare_call = None
        self.release_waiters_c()
        if self.observer is not None:
            self.observer.left({**self.session.counters, "dropped": self.n_dropped})
        self.service.connections.discard(self)

    # -- requests ------------------------------------------------------------------------------

    cdef Call call_c(self, Message m):
        """The call of a request that arrived: the last one again, if that ended at once and
        nothing keeps it."""
        cdef Call call
        if self.through is not None:
            return self.through.call_c(self, m)
        call = self.spare_call
        if call is None or Py_REFCNT(call) != 2:
            call = self.spare_call = Call.__new__(Call)
            call.connection = self
        else:
            call.phase = RUNNING
            call.reason = NOT_STOPPED
            call.code = 0
            call.failed = False
        call.ref = m.ref
        return call

    cdef int observe_c(self, Call call, Message m) except -1:
        """Measure the duration of a request, and make a span if the observer traces."""
        call.began = now_c()
        if self.observer.tracer is not None:
            call.span = self.observer.tracer.begin(m, self.revision)
            if call.span is not None:
                call.variables = call.span.entered(self.pool.context)
        return 0

    cdef int dispatch_c(self, Call call, Message m) except -1:
        """Serve a request that middleware passed on."""
        try:
            self.serve_c(call, m)
        except Exception as exc:
            self.fail_c(call, m, exc)
        return 0

    cdef int serve_c(self, Call call, Message m) except -1:
        cdef object handler, body
        cdef str method
        call.modern = is_modern(m)
        call.revision = None
        if poi_is(m, WS_METHOD, b'"tools/call"'):
            return self.call_tool_c(call, m)
        method = m.method
        if method == "tools/call":          # spelled with escapes
            return self.call_tool_c(call, m)
        self.spare_call = None              # the handler may keep the call
        handler = self.extension_handlers_c(call.modern).get(method)
        if handler is None:
            handler = handler_of(method)
        if method != "initialize" or call.modern:
            call.revision = self.revision_for_c(m, call.modern)
        check_offered(self.service.discovery, method)
        body = handler(call, m)
        if call.modern and method != "server/discover":
            self.pin_modern_c()
        if body is None:
            return 0                        # answered later
        if not isinstance(body, (bytes, tuple, Whole)):
            call.begin(methods.answer(method), m)
            return call.start_c(body)
        call.reply_c(body)
        return call.end_c(m)

    cdef int pin_modern_c(self) except -1:
        """A modern request was served: this connection stays modern, if it is one client's."""
        if not self.shared:
            self.handshake = MODERN
            self.session.null_ids = False
        return 0

    cdef object revision_for_c(self, Message m, bint modern):
        """The revision to serve a request by. ProtocolError: it cannot be served."""
        cdef object revision
        if modern:
            revision = self.modern_revision_c(m)
        else:
            revision = self.revision
            if revision is None:
                if m.method == "ping" and not self.shared:
                    return methods.LATEST_LEGACY_REVISION      # allowed before the handshake
                methods.refuse_uninitialized(self, m)
        if (
            not poi_is(m, WS_METHOD, b'"tools/call"')
            and m.method not in revision.requests
            and m.method not in self.extension_handlers_c(modern)
        ):
            raise ProtocolError(
                codes.METHOD_NOT_FOUND,
                f"Method not found in {revision.version}: {shortened(m.method)}",
            )
        return revision

    cdef dict extension_handlers_c(self, bint modern):
        """The handlers of the methods that extensions add to an era."""
        extensions = self.service.extensions
        return extensions.handlers if modern else extensions.legacy_handlers

    cdef object modern_revision_c(self, Message m):
        cdef object revision
        check_envelope_c(m)
        if (
            self.modern is not None
            and poi_is(m, WS_META_PROTOCOL_VERSION, self.modern_version)
        ):
            revision = self.modern
        else:
            revision = methods.modern_revision(self, m.text_c(WS_META_PROTOCOL_VERSION))
        if self.revision is not None and m.method != "server/discover":
            raise ProtocolError(
                codes.INVALID_REQUEST,
                f"this connection was initialized for {self.revision.version}",
            )
        return revision

    cdef int check_http_c(self, Call call, Message m, HttpHead head) except -1:
        """Compare a request with the fields of the HTTP request that brought it, before middleware
        awaits anything or changes the request. The order is that of docs/explanation/readings.md:
        envelope, fields, version."""
        call.revision = None
        if is_modern(m):
            check_envelope_c(m)
            check_headers_c(head, m)
            if self.through is not None and method_is(m, b'"tools/call"', "tools/call"):
                self.check_arguments_c(call, m, head)
        return 0

    cdef int check_arguments_c(self, Call call, Message m, HttpHead head) except -1:
        """The same for arguments that are mirrored."""
        cdef Tool tool
        try:
            tool = self.find_tool_c(call, m)
        except ProtocolError:
            return 0                    # middleware may know better
        if tool.header_params is not None:
            check_params_c(head, tool.header_params, m.lease_c(WS_ARGUMENTS))
        return 0

    # -- tools/call ----------------------------------------------------------------------------

    cdef Tool find_tool_c(self, Call call, Message m):
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
        shows = self.service.visibility.of("tools", call)
        if found is None or (shows is not None and not shows(name, found.entry)):
            raise unknown("tool", name, self.tools if shows is None else ())
        tool = <Tool> found
        if shows is None and span_equals(s, tool.name_json, len(tool.name_json)):
            self.hot_tools[slot] = tool
        return tool

    def forget_tools(self):
        """The server's tools changed: look up each again."""
        self.hot_tools = [None] * N_HOT

    cdef int call_tool_c(self, Call call, Message m) except -1:
        cdef object revision
        cdef Tool tool
        cdef Span s = span_of(m, WS_ARGUMENTS)
        cdef object decoded, value, as_task = None
        cdef HttpHead head
        cdef Lease arguments = None
        call.revision = revision = self.revision_for_c(m, call.modern)
        tool = self.find_tool_c(call, m)
        if tool.scopes is not None:
            check_scopes(call, tool.scopes, f"the tool {tool.name}")
        if s.n:
            if s.p[0] != c'{':
                raise ProtocolError(codes.INVALID_PARAMS, "params.arguments must be an object")
            arguments = Lease.of(m.slab, s.p, s.n)
        if (
            tool.header_params is not None and call.modern and self.through is None
            and self.expanded != m.ref     # a call by `call_tool` has no such fields
        ):
            head = self.head_of_c(m)
            if head is not None:
                check_params_c(head, tool.header_params, arguments)
        call.operation = tool
        if call.modern and self.handshake != MODERN:
            self.pin_modern_c()
        if has_other_params_c(m):
            self.spare_call = None
            call.input = input_of(m, revision)
        if tool.tasks is not None or (call.input is not None and call.input.task is not None):
            self.spare_call = None
            as_task = self.service.tasks.as_task(call, m)
        try:
            decoded = tool.decode_c(arguments)
        except (msgspec.DecodeError, RecursionError) as exc:
            return tool.refuse_arguments_c(call, exc, as_task is not None and not call.modern)
        except Exception as exc:
            return call.done_c(None, exc)
        if tool.wants_context or call.input is not None:
            call.make_context_c(m)
        try:
            if tool.how == INLINE and call.sink is None:
                value = self.call_inline_c(call, tool, decoded)
            else:                      # a call with a sink has the context of the middleware
                value = tool.invoke_c(decoded, call.context)
        except BaseException as exc:
            call.done_c(None, exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
            return 0
        if tool.how == INLINE:
            return call.done_c(value, None)
        if as_task is not None:
            value = as_task(call, value)
            call.phase = DETACHABLE
        decoded = arguments = None      # the input memory may go before the handler ends
        call.start_c(value)
        if call.running is not None:
            self.spare_call = None      # the handler goes on
        return 0

    cdef object call_inline_c(self, Call call, Tool tool, object decoded):
        """Call a plain function here and now, with context variables of its own."""
        cdef object variables = PyContext_Copy(
            self.pool.context if call.variables is None else call.variables
        )
        PyContext_Enter(variables)
        try:
            return tool.invoke_c(decoded, call.context)
        finally:
            PyContext_Exit(variables)

    # -- notifications -------------------------------------------------------------------------

    def notification(self, Message m not None):
        """Handle a notification. Notifications are never answered."""
        if self.watch is not None:
            params = m.params
            self.watch(self, False, m.method, None if params is None else params.copy())
        if m.token is not None and m.ref:
            self.cancel_c(m.token)     # notifications/cancelled of a request in flight
        elif method_is(m, b'"notifications/initialized"', "notifications/initialized"):
            if self.handshake == GREETED:
                self.handshake = INITIALIZED
        elif m.method in self.state.heard:
            self.state.heard[m.method](m)
        elif method_is(
            m, b'"notifications/roots/list_changed"', "notifications/roots/list_changed"
        ):
            self.service.roots.changed(self)
        elif self.service.extensions.heard:
            self.service.extensions.hear(m)

    cdef int cancel_c(self, object request) except -1:
        """Cancel a request. Later requests wait until its handler has ended."""
        request.cancel()
        if isinstance(request, Call) and (<Call> request).running is not None:
            return self.await_end_c(request)
        return 0

    # -- without a handshake -------------------------------------------------------------------

    cdef int assume_c(self, object revision) except -1:
        Serving.assume_c(self, revision)
        self.handshake = INITIALIZED
        return 0

    cpdef bint renew(self) except -1:
        if self.revision is not None:
            self.state = State()
            self.handshake = NEW
            self.changes.forget()
        return Serving.renew(self) and not (self.kept or self.running or self.listens)

    # -- shutting down -------------------------------------------------------------------------

    def on_draining(self):
        self.changes.end()

    cpdef bint answered_all(self) except -1:
        return Serving.answered_all(self) and self.session.n_cancelled == 0

    def on_grace_over(self):
        cdef Call call
        for call in list(self.running):
            logger.warning("%s %s did not end in time for the shutdown", call.operation.kind,
                           call.operation.name)
            call.stop_c(SHUT_DOWN)
        self.wait_last(self.cut_off, FAREWELL)
