"""A LiteMCP server's connection to one client: reads requests and sends answers.

LiteMCP has no answer to a frame that is not a message, to a repeated id, or to a message type that
clients do not send. Such frames are logged. Every other failure of a call is answered with a result
whose ``error`` is true.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.frames import FrameStream
from wirespeed.errors import ToolError
from wirespeed.litemcp.arguments import ArgumentError, text_of
from wirespeed.litemcp.contents import ResultError, encode_text, response_of
from wirespeed.litemcp.envelope import BadMessage, id_of
from wirespeed.litemcp.ids import SeenIds
from wirespeed.litemcp.messages import Content, IOBasic, Response, ToolCall, refuse_version
from wirespeed.server.requests.failure import describe, report, report_end
from wirespeed.transport.link import Endpoint
from wirespeed.transport.taskpool_choice import LAST_WAIT

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.slab import Lease
    from wirespeed.litemcp.server import LiteServer
    from wirespeed.litemcp.tool import LiteTool
    from wirespeed.transport.service import Peer
    from wirespeed.transport.taskpool import Running, TaskPool

logger = logging.getLogger("wirespeed.litemcp")

MAX_LOGGED_FAULTS = 100
SHOWN = 200  # bytes of a bad message in a log line

# Escapes in a JSON string: a backslash, a pair of surrogates, or (the group) a lone surrogate.
_PAIR_OR_HALF = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)", re.DOTALL
)

_encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(IOBasic).decode
_call = msgspec.json.Decoder(ToolCall).decode


class _LooseCall(msgspec.Struct):
    tool: str
    arguments: list[msgspec.Raw] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


_loose_call = msgspec.json.Decoder(_LooseCall).decode
_any = msgspec.json.Decoder().decode


class _Call:
    """A running call. `done` is called at the end of its handler."""

    __slots__ = ("arguments", "connection", "given_up", "raw_id", "running", "timed_out", "timer")

    def __init__(self, connection: LiteConnection, raw_id: bytes, arguments: list[str]) -> None:
        self.connection = connection
        self.raw_id = raw_id
        self.arguments = arguments
        self.running: Running | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.given_up = False

    def done(self, value: Any, exc: BaseException | None) -> None:
        self.connection.finish(self, value, exc)

    def expire(self) -> None:
        """Cancel the call: the time limit of the tool has passed."""
        self.timed_out = True
        self.timer = None
        self.cancel()

    def cancel(self) -> None:
        if self.running is not None:
            self.running.cancel()


class LiteConnection(Endpoint):
    """A connection of a `wirespeed.litemcp.LiteServer`."""

    def __init__(
        self,
        server: LiteServer,
        tool: LiteTool,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer,
    ) -> None:
        self.server = server
        self.loop = loop
        self.pool = pool
        self.closed: asyncio.Future[BaseException | None] = loop.create_future()
        self.principal: bytes | None = None
        self.peer: Peer | None = None
        self.draining = False
        self.faults = 0  # frames that cannot be answered
        self.wire = self.stream = FrameStream(framer, limits=server.limits)
        self._limits = server.limits
        self._strict = server.strict
        self._mask_errors = server.mask_errors
        self._tool = tool
        self._info = server.info_json
        self._version = server.version
        version = _encode(server.version)
        self._head = b'{"version":%b,"id":' % version
        self._middle = b',"type":"result","data":{"version":%b,"params":' % version
        self._seen = SeenIds()
        self._running: set[_Call] = set()
        self._at_eof = False
        self._grace_timer: asyncio.TimerHandle | None = None

    # -- events of the link ----------------------------------------------------------------------

    def on_data(self) -> None:
        """Handle the messages of the input."""
        stream = self.stream
        for frame in stream:
            if self.link is None or self.link.ending:
                continue  # the connection is closing: requests are ignored
            if frame is None:
                self._fault(f"longer than the limit of {self._limits.max_message} bytes", None)
                continue
            try:
                raw_id = id_of(stream, frame, self._limits.max_depth)
                message = _message(frame)
            except BadMessage as exc:
                self._fault(str(exc), frame)
            except (msgspec.DecodeError, RecursionError) as exc:
                self._receive_faulty(raw_id, frame, exc)
            else:
                self._receive(message, raw_id, frame)
        if self.draining:
            self._check_drained()

    def on_eof(self) -> None:
        """The client has closed its side: answer its requests, then close."""
        self._at_eof = True
        self.drain()

    def on_lost(self, exc: BaseException | None) -> None:
        """The link is lost: cancel the running calls."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None
        if exc is not None:
            logger.info("connection lost: %s", exc)
        for call in list(self._running):
            call.cancel()
        self.server.forget(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def on_drained(self) -> None:
        """The client reads again."""
        if self.draining:
            self._check_drained()

    def _fault(self, reason: str, frame: Lease | None) -> None:
        """Log a frame that cannot be answered, up to a limit: a flood must not fill the log."""
        self.faults += 1
        if self.faults <= MAX_LOGGED_FAULTS:
            text = b"" if frame is None else bytes(memoryview(frame)[:SHOWN])
            logger.warning("ignored a message: %s%s", reason, f": {text!r}" if text else "")
            if self.faults == MAX_LOGGED_FAULTS:
                logger.warning("further bad input on this connection is not logged")

    # -- requests --------------------------------------------------------------------------------

    def _receive(self, message: IOBasic, raw_id: bytes, frame: Lease) -> None:
        kind = message.type
        if kind != "call" and kind != "get":
            what = "is for clients" if kind in ("info", "result") else "is unknown"
            self._fault(f"its type {kind!r} {what}", frame)
        elif not self._seen.add(raw_id):
            self._fault(f"its id {_shown(raw_id)} was used before", frame)
        elif kind == "get":
            # a request of any version: the answer names the version of this server
            self._send(b'%b%b,"type":"info","data":%b}' % (self._head, raw_id, self._info))
        else:
            self._call_tool(message, raw_id)

    def _receive_faulty(self, raw_id: bytes, frame: Lease, exc: Exception) -> None:
        """Handle a frame that is JSON but cannot be decoded. A frame whose only fault is a lone
        surrogate is answered."""
        try:
            message = _message(_PAIR_OR_HALF.sub(_whole, bytes(frame)))
        except (msgspec.DecodeError, RecursionError):
            kind = None
        else:
            kind = message.type
        if kind == "call":
            message.data = msgspec.Raw(b"")  # `_read_call` refuses empty data
        if kind in ("call", "get"):
            self._receive(message, raw_id, frame)
        else:
            self._fault(f"not a message of LiteMCP ({exc})", frame)

    def _call_tool(self, message: IOBasic, raw_id: bytes) -> None:
        try:
            arguments = self._read_call(message)
        except ArgumentError as exc:
            self._answer(raw_id, [], _failure(str(exc)))
            return
        call = _Call(self, raw_id, arguments)
        tool = self._tool
        try:
            started = tool.start(arguments)
        except BaseException as exc:
            self.finish(call, None, exc)
            if not isinstance(exc, Exception):
                raise
            return
        if tool.inline:
            self.finish(call, started, None)
            return
        self._running.add(call)
        try:
            call.running = self.pool.start(started, call.done)
        except (RuntimeError, TypeError) as exc:  # a closed pool; not a coroutine
            self.finish(call, None, exc)
            return
        if call.running is None:
            return  # the call has ended
        if tool.timeout is not None:
            call.timer = self.loop.call_later(tool.timeout, call.expire)
        # reading stops at the limit
        self.stream.paused = len(self._running) >= self._limits.max_in_flight

    def _read_call(self, message: IOBasic) -> list[str]:
        """Return the arguments of a call. ArgumentError: the call cannot be served."""
        if reason := refuse_version(message.version, self._version):
            raise ArgumentError(reason)
        if not bytes(message.data):
            raise ArgumentError("data holds a lone surrogate: half of a pair of \\u escapes")
        call: ToolCall | _LooseCall
        try:
            call = exact = _call(message.data)
            arguments = exact.arguments or []
        except (msgspec.DecodeError, RecursionError):
            call, arguments = self._read_loosely(message.data)
        reason = refuse_version(call.version, self._version)
        if reason and (self._strict or bytes(call.version)):
            raise ArgumentError(f"data: {reason}")
        if call.tool != self._tool.name:
            name = encode_text(call.tool[:SHOWN])
            raise ArgumentError(f"unknown tool {name!r}: the tool is {self._tool.name!r}")
        return arguments

    def _read_loosely(self, data: msgspec.Raw) -> tuple[_LooseCall, list[str]]:
        """Return a call that is not strictly valid, and its arguments as strings. ArgumentError:
        the call cannot be read."""
        try:
            call = _loose_call(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ArgumentError(f"data is not a ToolCall: {_reason(exc)}") from None
        arguments = []
        for at, raw in enumerate(call.arguments or ()):
            if bytes(raw)[:1] != b'"' and self._strict:
                raise ArgumentError(f"arguments[{at}] is not a string")
            try:
                arguments.append(text_of(_any(raw)) if bytes(raw)[:1] == b'"' else _json(raw))
            except (msgspec.DecodeError, RecursionError) as exc:
                raise ArgumentError(f"arguments[{at}]: {_reason(exc)}") from None
        return call, arguments

    # -- answers ---------------------------------------------------------------------------------

    def finish(self, call: _Call, value: Any, exc: BaseException | None) -> None:
        """A handler has ended: send its result."""
        if call.timer is not None:
            call.timer.cancel()
        self._running.discard(call)
        if self.link is None:
            if exc is not None and not isinstance(exc, asyncio.CancelledError):
                logger.error("tool %s failed after its client left", self._tool.name, exc_info=exc)
            return
        if exc is None:
            try:
                response = response_of(value)
            except ResultError as failure:
                response = self._failed(call, failure)
        else:
            response = self._failed(call, exc)
        self._answer(call.raw_id, call.arguments, response)
        if self.stream.paused and len(self._running) < self._limits.max_in_flight:
            self.stream.paused = False
            self.link.pump()  # no effect inside on_data, which continues by itself
        if self.draining:
            self._check_drained()

    def _failed(self, call: _Call, exc: BaseException) -> Response:
        """Return the response to a failed call. Only the log has the traceback."""
        name = self._tool.name
        if isinstance(exc, ArgumentError):
            return _failure(str(exc))
        if call.given_up:
            return _failure("the server is shutting down")
        if call.timed_out:
            text = f"tool {name} timed out after {self._tool.timeout:g} s"
            logger.warning("%s", text)
        elif isinstance(exc, asyncio.CancelledError):
            text = f"tool {name} was cancelled"
        elif isinstance(exc, (KeyboardInterrupt, SystemExit)):
            text = f"tool {name} ended the server"
            report_end(name, exc, log=logger)
        elif isinstance(exc, ToolError):
            text = describe(exc)
            logger.info("tool %s: %s", name, text)
        else:
            text = report(f"tool {name}", exc, mask=self._mask_errors, log=logger)
        return _failure(text)

    def _answer(self, raw_id: bytes, arguments: list[str], response: Response) -> None:
        params = dict(zip(self._tool.names, arguments, strict=False))
        try:
            shown = _encode(response)
        except (UnicodeEncodeError, TypeError, RecursionError):
            logger.error("tool %s: its result is not valid text", self._tool.name)
            shown = _encode(_failure("the result cannot be sent: it holds a lone surrogate"))
        self._send(
            b'%b%b%b%b,"response":%b}}' % (self._head, raw_id, self._middle, _encode(params), shown)
        )

    def _send(self, message: bytes) -> None:
        if self.link is not None:
            self.stream.send(message)
            self.link.wrote()

    # -- shutting down ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Refuse new requests, answer running calls within the grace time, then close."""
        if self.draining or self.link is None:
            return
        self.draining = True
        self.link.closing = True
        self.link.update_reading()
        self.link.wrote()
        self._grace_timer = self.loop.call_later(self.server.shutdown_grace, self._grace_over)
        self._check_drained()

    def _check_drained(self) -> None:
        """Close when all calls are answered and all answers are sent."""
        link = self.link
        if link is None or self._running or (self._at_eof and self.stream.framer.buffered):
            return
        link.flush()
        if self.link is not None and link.idle:
            link.end()

    def _grace_over(self) -> None:
        self._grace_timer = None
        for call in list(self._running):
            logger.warning("tool %s did not end in time for the shutdown", self._tool.name)
            call.given_up = True
            call.cancel()
        # do not wait for a handler that ignores its cancellation
        self.loop.call_later(LAST_WAIT, self._end)

    def _end(self) -> None:
        if self.link is not None:
            self.link.end()

    def abort(self) -> None:
        """Close now: cancel running calls, drop queued answers."""
        if self.link is not None:
            self.link.close()


def _failure(text: str) -> Response:
    return Response([Content("text", encode_text(text))], True)


def _json(raw: Any) -> str:
    """Return a JSON text without white space between its tokens."""
    return bytes(msgspec.json.format(bytes(raw), indent=-1)).decode()


def _whole(found: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if found[1] else found[0]


def _reason(exc: BaseException) -> str:
    return "nested too deeply" if isinstance(exc, RecursionError) else encode_text(str(exc))


def _shown(raw_id: bytes) -> str:
    text = raw_id.decode("ascii")
    return text if len(text) <= 40 else text[:39] + "…"
