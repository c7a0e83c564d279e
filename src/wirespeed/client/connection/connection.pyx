"""One link to a server, from the client's side: many callers, one stream.

Calls are futures that the server's answers resolve. `wirespeed.peer.connection` has the life of the
link, `wirespeed.client.connection.lifecycle` its launches and restarts.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

import logging
from collections.abc import Mapping

import msgspec

from wirespeed._core._simd cimport (
    WS_DEPTH, WS_ID_INTEGER, WS_OK, WS_ROOT_OBJECT, WS_UTF8, kernels, ws_scan, ws_status,
)
from wirespeed._core.envelope cimport (
    ERROR, FAULT_PARSE, INVALID, NOTIFICATION, REQUEST, RESULT, Message, method_is, valid_id,
)
from wirespeed._core.outbox cimport Outbox
from wirespeed._core.session cimport Session
from wirespeed._core.span cimport Span, span_holds
from wirespeed.peer.connection cimport OPEN, AskingConnection

from wirespeed.client.results.decode import (
    decode_call_result,
    decode_legacy_call_result,
    legacy_form,
)
from wirespeed.client.results.features import Progress
from wirespeed.client.timeouts import timed_out
from wirespeed.errors import InvalidResponse, LimitExceeded, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.client")

cdef object encode = msgspec.json.Encoder().encode
cdef object decode_error = msgspec.json.Decoder(ErrorObject).decode
cdef object decode_progress = msgspec.json.Decoder(Progress).decode
cdef object RAW_TYPES = (bytes, bytearray, memoryview)

cdef enum:
    MAX_NAMES = 4096


cdef inline Span span_of_text(bytes text) noexcept:
    return Span(<const uint8_t *> <const char *> text, <size_t> len(text))


cdef class Awaited:
    """A request that waits for its answer."""

    def __init__(self):
        raise TypeError("requests that wait are made by their connection")

    cdef int answered_c(self, ClientConnection connection, Message m) except -1:
        raise NotImplementedError

    cdef int notified_c(self, ClientConnection connection, Message m) except -1:
        return 0

    cdef int expired_c(self, ClientConnection connection) except -1:
        raise NotImplementedError

    cdef bint failed_c(self, object exc) except -1:
        raise NotImplementedError


@cython.final
cdef class Waiter(Awaited):
    """A request whose answer resolves a future."""

    cdef str what_c(self):
        """The name of the request in error texts."""
        return self.method if self.tool is None else f"tool {self.tool}"

    cdef int answered_c(self, ClientConnection connection, Message m) except -1:
        if self.future.done():
            return 0
        self.other_id = m.scan.id_kind != WS_ID_INTEGER
        if m.kind_c == RESULT:
            return self.result_c(m)
        if m.kind_c == ERROR:
            return self.error_c(connection, m)
        self.future.set_exception(
            InvalidResponse(f"the response to {self.method} is not valid: {m.reason}")
        )
        return 0

    cdef int result_c(self, Message m) except -1:
        cdef object result
        try:
            result = self.decode(m.result)
        except InvalidResponse as exc:
            self.future.set_exception(exc)
        except (msgspec.DecodeError, ValueError) as exc:
            self.future.set_exception(
                InvalidResponse(f"the result of {self.method} is not valid: {exc}")
            )
        except StopIteration as exc:       # which futures refuse
            self.future.set_exception(RuntimeError(f"decode of {self.method} raised {exc!r}"))
        except Exception as exc:
            self.future.set_exception(exc)
        else:
            self.future.set_result(result)
        return 0

    cdef int error_c(self, ClientConnection connection, Message m) except -1:
        try:
            error = decode_error(m.error)
        except msgspec.DecodeError as exc:
            self.future.set_exception(
                InvalidResponse(f"the error of {self.method} is not valid: {exc}")
            )
        else:
            if error.code == codes.URL_ELICITATION_REQUIRED and connection.answerer is not None:
                connection.answerer.required(error.data)
            self.future.set_exception(RemoteError(error.code, error.message, error.data))
        return 0

    cdef int notified_c(self, ClientConnection connection, Message m) except -1:
        if method_is(m, b'"notifications/progress"', "notifications/progress"):
            if self.on_progress is not None and not self.future.done():
                self.progress_c(connection, m)
        elif self.method == "subscriptions/listen":
            # its end, on stdio; the result that should follow may be missing
            connection.session.forget(self.id)
            if not self.future.done():
                self.future.set_result(None)
        return 0

    cdef int progress_c(self, ClientConnection connection, Message m) except -1:
        try:
            progress = decode_progress(m.params)
        except msgspec.DecodeError as exc:
            connection.quiet.log(
                logging.WARNING, "a progress notification is not valid: %s", exc
            )
            return 0
        try:
            self.on_progress(progress.progress, progress.total, progress.message)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            logger.exception("the progress callback of a call failed")
        return 0

    cdef int expired_c(self, ClientConnection connection) except -1:
        if not self.future.done():
            self.future.set_exception(
                timed_out(self.what_c(), self.limit, connection.note_c(self.deadline - self.limit))
            )
        return 0

    cdef bint failed_c(self, object exc) except -1:
        if self.future.done():
            return False
        self.future.set_exception(exc)
        return True


@cython.final
cdef class ClientConnection(AskingConnection):
    """A client's end of a link.

    Args:
        loop: The event loop of the connection.
        limits: The limits of the connection.
        owner: Receives ``lost(connection, reason)``, ``notified(connection, message)``,
            ``skipped(message)``, and ``spawn(work)`` for tasks that end with the client.
        framer: The framing of the stream; one message per line by default.
        released: Called when the link is gone; or None.
    """

    def __init__(self, loop, limits, owner, framer=None, released=None):
        AskingConnection.__init__(self, loop, owner, released)
        self.wire = self.session = Session(limits=limits, role="client", framer=framer)
        self.session.shows_late_responses = True
        self.session.batches = True        # servers of 2025-03-26 may send batches
        self.resends = True
        self.max_depth = limits.max_depth
        self.version = self.meta = self.tasks_meta = b""
        self.names = {}
        self.timer_at = INFINITY
        self.quiet = RateLimitedLog(logger)

    # -- calls ---------------------------------------------------------------------------------

    def use(self, revision, bytes meta not None=b"", bytes tasks_meta not None=b""):
        """The handshake is done: set the revision, and the ``_meta`` members of every request, also
        of those that declare the tasks extension."""
        self.revision = revision
        self.version = encode(revision.version)
        self.meta = meta
        self.tasks_meta = tasks_meta
        self.session.batches = revision.batches

    cdef Waiter waiter_c(self, str method, object decode, object on_progress, bint cancellable,
                         double timeout):
        cdef Waiter waiter
        if not timeout > 0 and self.usable:
            raise timed_out(method, timeout)
        waiter = Waiter.__new__(Waiter)
        waiter.method = method
        waiter.decode = decode
        waiter.on_progress = on_progress
        waiter.future = self.loop.create_future()
        waiter.limit = timeout
        self.await_c(
            waiter, cancellable,
            INFINITY if timeout == INFINITY else <double> self.loop.time() + timeout,
        )
        return waiter

    cdef int await_c(self, Awaited request, bint cancellable, double deadline) except -1:
        """Give a request its id and its deadline. ConnectionClosed, ChildExited: the link is gone.
        LimitExceeded: too many requests are outstanding."""
        if self.link is None or self.phase != OPEN:
            raise self.error()
        if self.session.pending.live >= self.session.pending.limit:
            raise LimitExceeded(
                f"{self.session.pending.limit} requests already wait for their answers"
                " (max_outstanding)"
            )
        request.cancellable = cancellable
        request.deadline = deadline
        request.id = self.session.pending.add_c(request, deadline)
        if deadline < self.timer_at:
            self.arm_c(deadline)
        return 0

    cdef int write_meta_c(
        self, int64_t token, bint first, bytes ours, bytes more
    ) except -1:
        """Write ``"_meta":{...}`` of a request's params, or nothing for an empty ``_meta``.
        `token`: its progress token, or 0. `ours`, `more`: JSON text of the client's and of the
        caller's members."""
        cdef Outbox out = self.session.outbox
        cdef bytes digits
        if not ours and token == 0 and not more:
            return 0
        out.text_c(b'"_meta":{' if first else b',"_meta":{')
        out.text_c(ours)
        if more:
            if ours:
                out.text_c(b",")
            out.write_object_c(more)
        if token:
            digits = b'%b"progressToken":%d' % (b"," if ours or more else b"", token)
            out.text_c(digits)
        out.text_c(b"}")
        return 0

    def call_tool(self, str name not None, arguments, double timeout, on_progress,
                  bytes meta=None):
        """Start tools/call. Returns a `Waiter` whose future becomes a `CallToolResult`.

        `arguments`: a mapping or struct, JSON text as bytes, or None. `meta`: further members of
        ``_meta``, as JSON text without the braces.

        Nothing is sent on an error. TypeError, ValueError: the arguments cannot be sent.
        LimitExceeded: too many requests are outstanding. ConnectionClosed, ChildExited: the link
        is gone.
        """
        cdef Waiter waiter
        cdef bytes name_json = self.names.get(name)
        cdef object body
        if not timeout > 0:
            raise timed_out(f"tool {name}", timeout)
        if name_json is None:
            name_json = encode(name)
            if len(self.names) < MAX_NAMES:
                self.names[name] = name_json
        body = None if arguments is None else arguments_text(arguments, self.max_depth)
        waiter = self.waiter_c(
            "tools/call",
            decode_call_result if self.meta else decode_legacy_call_result,
            on_progress, True, timeout,
        )
        waiter.tool = name
        if self.meta:
            # a modern server may ask for the same request again (basic/patterns/mrtr)
            waiter.arguments = body
        self.write_call_c(waiter.id, name_json, body, on_progress is not None, meta)
        self.link.wrote_c()
        return waiter

    cdef int write_call_c(
        self, int64_t id, bytes name, object body, bint progress, bytes meta
    ) except -1:
        """Write tools/call with the id of `await_c`; the caller then calls `Link.wrote_c`.

        `name`, `body`: the JSON texts of the tool's name and of its arguments, or None.
        """
        cdef Outbox out
        cdef bint written = False
        try:
            out = self.session.open_request_c(id)
            out.text_c(b'"method":"tools/call","params":{"name":')
            out.write_object_c(name)
            if body is not None:
                out.text_c(b',"arguments":')
                out.write_object_c(body)
            self.write_meta_c(id if progress else 0, False, self.meta, meta)
            out.text_c(b"}")
            self.session.close_request_c()
            written = True
        finally:
            if not written:
                self.session.abort_request_c(id)
        if self.session.calls is not None and not meta:      # which may name another version
            self.session.called_c(id, span_of_text(self.version), span_of_text(name))
        return 0

    def request(self, str method not None, bytes params, decode, *, double timeout=INFINITY,
                double limit=0, on_progress=None, bint cancellable=True, bytes meta=None,
                bint tasks=False):
        """Start any request. Returns a `Waiter` whose future becomes the decoded result.

        `params` is the JSON text of an object without ``_meta``, on one line, or None. `decode`
        converts the JSON text of the result. `limit`: the time limit that the error names, in place
        of `timeout`. `tasks`: the request declares the tasks extension. `meta` and errors are those
        of `call_tool`.
        """
        cdef bytes method_json = encode(method)
        cdef Waiter waiter = self.waiter_c(
            method,
            decode if self.revision is None or self.revision.modern else legacy_form(decode),
            on_progress, cancellable, timeout,
        )
        if limit > 0:
            waiter.limit = limit
        self.write_request_c(
            waiter.id, method_json, params, on_progress is not None,
            self.tasks_meta if tasks else self.meta, meta,
        )
        self.link.wrote_c()
        return waiter

    cdef int write_request_c(
        self, int64_t id, bytes method, bytes params, bint progress, bytes ours, bytes more
    ) except -1:
        """Write any request with the id of `await_c`; the caller then calls `Link.wrote_c`.

        `method`: its JSON text. `params`: as of `request`. `ours`, `more`: as of `write_meta_c`.
        """
        cdef Outbox out
        cdef bint written = False
        try:
            out = self.session.open_request_c(id)
            out.text_c(b'"method":')
            out.write_object_c(method)
            if params is not None or ours or more or progress:
                params = b"{}" if params is None else params
                out.text_c(b',"params":')
                out.write_object_c(params[:len(params) - 1])
                self.write_meta_c(id if progress else 0, len(params) == 2, ours, more)
                out.text_c(b"}")
            self.session.close_request_c()
            written = True
        finally:
            if not written:
                self.session.abort_request_c(id)
        return 0

    def probe(self):
        """Send a request that every server answers, at least with an error. Returns the future of
        the answer; None when no such request can be sent now."""
        if self.revision is None or not self.usable:
            return None
        try:
            method = "server/discover" if self.revision.modern else "ping"
            return self.request(method, None, bool, cancellable=False).future
        except LimitExceeded:
            return None

    def notify(self, str method not None, bytes params=None):
        """Send a notification."""
        if self.link is None or self.phase != OPEN:
            raise self.error()
        if self.watch is not None:
            self.watch(True, method, params)
        self.session.send_notification(method, params)
        self.link.wrote_c()

    def answer(self, uint64_t ref, bytes result not None):
        """Answer a request of the server with a result, JSON text. Returns False when the request
        no longer waits."""
        if not self.usable or not self.session.result_c(ref, result):
            return False
        self.link.wrote_c()
        return True

    def refuse(self, uint64_t ref, int code, str message not None, data=None):
        """Answer a request of the server with an error. Returns False when the request no longer
        waits."""
        if not self.usable or not self.session.error_c(ref, code, message, data):
            return False
        self.link.wrote_c()
        return True

    def measure(self, on_stray):
        """Hide nothing of the server: a function gets each response that answers no request, and
        what is refused over HTTP is not sent again. None ends it."""
        self.on_stray = on_stray
        self.resends = on_stray is None

    def abandon(self, Awaited request not None, str reason=None):
        """The caller of a request gave up: cancel the request, unless its answer has arrived."""
        if request.cancellable and self.phase == OPEN:
            if self.session.cancel(request.id, reason) is not None and self.link is not None:
                self.link.wrote_c()
        else:
            self.session.forget(request.id)

    def awaits(self, int64_t id):
        """Whether the request with this id still waits for its answer."""
        return self.session.pending.peek_c(id) is not None

    def fail_request(self, int64_t id, exc not None):
        """No answer to this request will come: its call fails with `exc`. Returns False when the
        request no longer waits."""
        cdef Awaited request = self.session.forget(id)
        return request is not None and request.failed_c(exc)

    # -- back-pressure -------------------------------------------------------------------------

    @property
    def ready(self):
        """Whether a request can be sent at once."""
        return (
            self.link is not None and self.phase == OPEN
            and self.session.outbox.size < self.session.output_high
        )

    @property
    def full(self):
        """Whether callers should wait until queued data are sent (`wait_for_room`)."""
        return self.session.outbox.size >= self.session.output_high and self.link is not None

    # -- deadlines -----------------------------------------------------------------------------

    cdef int arm_c(self, double at) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = at
        self.timer = self.loop.call_at(at, self._expire)
        return 0

    def stand_still(self):
        """Stop the time limits of the requests that wait. Returns them for `go_on`."""
        return self.session.pending.suspend()

    def go_on(self, held, double seconds):
        """Set time limits that were stopped, later by so many seconds."""
        self.session.pending.resume(held, seconds)
        self._expire()

    def _expire(self):
        cdef Awaited request
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        self.timer_at = INFINITY
        # loops round their clocks: a deadline within a millisecond counts as reached
        for _, request in self.session.expire(<double> self.loop.time() + 0.001):
            if request.cancellable and self.link is not None and self.phase == OPEN:
                self.session.send_notification(
                    "notifications/cancelled",
                    encode({"requestId": request.id, "reason": "timed out"}),
                )
                self.link.wrote_c()
            request.expired_c(self)
        at = self.session.next_deadline()
        if at is not None:
            self.arm_c(at)

    cdef str note_c(self, double since):
        """Return further facts for the error of a request without an answer.

        since: When it was sent, of the loop's clock.
        """
        if self.skipped is None or self.skipped_at < since:
            return self.exit_note
        return f"{self.exit_note}; a message of the server was skipped meanwhile: {self.skipped}"

    # -- events of the link --------------------------------------------------------------------

    cpdef object on_data(self):
        cdef ClientConnection me = self    # a callback may close the connection
        cdef Message m
        while True:
            m = None           # so that the session may use it again
            m = me.session.next_c()
            if m is None:
                if self.session.framer.over and self.phase == OPEN:
                    self.leave()
                    self.owner.lost(self, "the server closed the connection")
                return
            try:
                if m.kind_c == RESULT and m.token is not None:
                    (<Awaited> m.token).answered_c(self, m)
                elif m.kind_c == RESULT or m.kind_c == ERROR or m.kind_c == INVALID:
                    self.refuse_c(m)
                elif m.kind_c == NOTIFICATION:
                    self.notification(m)
                elif m.kind_c == REQUEST:
                    self.inbound(m)
            except Exception:
                logger.exception("internal error in handling a message of the server")

    cdef int refuse_c(self, Message m) except -1:
        """Handle an error response, a response to no request, or one that is not valid."""
        if m.token is None and self.probing and m.kind_c == ERROR and not valid_id(m):
            m.token = self.session.forget(self.probing)
        if m.token is not None:
            return (<Awaited> m.token).answered_c(self, m)
        if self.on_stray is not None:
            self.on_stray(m)
        if m.kind_c == ERROR and not valid_id(m):
            self.quiet.log(
                logging.WARNING,
                "the server reports an error: %r", bytes(memoryview(m.error)[:500]),
            )
            return 0
        # late, or without an id that is one of ours
        if m.kind_c != INVALID:
            id = m.raw_id[:40].decode("ascii", "backslashreplace")
            m.reason = f"an answer with the id {id}, which no request has"
        if m.fault_c != FAULT_PARSE and m.reason is not None:
            self.skipped_at, self.skipped = <double> self.loop.time(), m.reason
        if m.kind_c == INVALID or m.scan.id_kind != WS_ID_INTEGER:
            self.owner.skipped(m)
        return 0

    def notification(self, Message m not None):
        """A notification of the server."""
        if self.watch is not None:
            params = m.params
            self.watch(False, m.method, None if params is None else params.copy())
        if m.ref:
            if m.token is not None:
                m.token.cancel()       # the server cancelled its request
        elif m.token is not None:
            (<Awaited> m.token).notified_c(self, m)
        elif self.answerer is not None and method_is(
            m, b'"notifications/elicitation/complete"', "notifications/elicitation/complete"
        ):
            self.answerer.completed(m)
        else:
            self.owner.notified(self, m)

    def inbound(self, Message m not None):
        """Handle a request of the server. Only legacy servers send requests (basic/patterns of
        2026-07-28: "clients do not send JSON-RPC responses")."""
        if not self.session.answers_requests:
            if m.ref:                  # it waited since the handshake
                self.session.drop_inbound_c(m.ref)
            if not self.reported:
                self.reported = True
                logger.warning(
                    "the server sends requests (%.100r), which %s does not allow;"
                    " the client does not answer them", m.method, self.revision.version,
                )
        elif method_is(m, b'"ping"', "ping") and (
            self.revision is None or self.probing or not self.revision.modern
        ):
            self.session.result_c(m.ref, b"{}")
        elif self.answerer is not None:
            self.answerer.asked(m)
        else:
            self.session.error_c(
                m.ref, codes.METHOD_NOT_FOUND, f"Method not found: {m.method}", None
            )

    def clean_up(self, exc):
        self.close_answerer_c()
        AskingConnection.clean_up(self, exc)

    def fail_requests(self):
        cdef Awaited request
        self.close_answerer_c()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for _, request in self.session.fail_all():
            request.failed_c(self.error())

    cdef int close_answerer_c(self) except -1:
        if self.answerer is not None:
            self.answerer.close()
        return 0


cdef bytes arguments_text(object arguments, uint32_t max_depth):
    """Return the arguments of a call as the JSON text of an object, on one line."""
    cdef bytes text
    cdef ws_scan scan
    cdef ws_status status
    if type(arguments) is not dict:
        if isinstance(arguments, RAW_TYPES):
            # a copy: the buffer may change before it is sent
            text = arguments if type(arguments) is bytes else bytes(arguments)
            if len(text) > 0x7FFFFFFF:
                raise ValueError("arguments of more than 2 GiB")
            status = kernels.json(
                <const uint8_t *> <const char *> text, len(text), max_depth, &scan
            )
            if status == WS_DEPTH:
                raise ValueError(f"the arguments are nested deeper than {max_depth} levels")
            if status == WS_UTF8:
                raise ValueError(f"the arguments are not UTF-8 at byte {scan.error_at}")
            if status != WS_OK:
                raise ValueError(f"the arguments are not JSON at byte {scan.error_at}")
            if scan.root != WS_ROOT_OBJECT:
                raise TypeError("the arguments must be a JSON object")
            # in JSON a raw newline is only ever white space
            return text.replace(b"\n", b" ") if b"\n" in text else text
        if isinstance(arguments, Mapping):
            arguments = dict(arguments)
    text = encode(arguments)
    if text[0] != c"{":
        raise TypeError(
            f"arguments must be a mapping, a struct or bytes, not {type(arguments).__name__}"
        )
    if span_holds(span_of_text(text), b"null", 4):
        from wirespeed.schema.json_schema import nonfinite_in

        found = nonfinite_in(arguments)
        if found is not None:
            raise ValueError(f"the arguments hold {found}: JSON has no NaN and no Infinity")
    return text
