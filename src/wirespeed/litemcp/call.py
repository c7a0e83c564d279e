"""The calls of a LiteMCP tool: how each is read, run and answered, over every transport."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.errors import ToolError
from wirespeed.litemcp.contents import LiteResultError, encode_text, response_of
from wirespeed.litemcp.messages import Content, Response, ToolCall, refuse_version
from wirespeed.schema.from_strings import ArgumentError, text_of
from wirespeed.server.requests.reply import describe, report, report_end

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.litemcp.messages import VersionTuple
    from wirespeed.litemcp.tool import LiteTool
    from wirespeed.transport.taskpool import Running, TaskPool

__all__ = ["SHOWN", "Calls", "LiteCall", "LiteServerOptions", "NotACall"]

logger = logging.getLogger("wirespeed.litemcp")

SHOWN = 200  # bytes of bad input in a log line, and of an unknown name in an answer

_encode = msgspec.json.Encoder().encode
_call = msgspec.json.Decoder(ToolCall).decode


class _LooseCall(msgspec.Struct):
    tool: str
    arguments: list[msgspec.Raw] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


_loose_call = msgspec.json.Decoder(_LooseCall).decode
_any = msgspec.json.Decoder().decode


class NotACall(ArgumentError):
    """JSON is not a ToolCall, or one of another version."""


class LiteServerOptions(Protocol):
    """The options of a `wirespeed.litemcp.LiteServer`, for its calls and connections.

    Attributes:
        info_json: The JSON of the tool.
    """

    auth_headers: tuple[str, ...]
    info_json: bytes
    limits: Limits
    mask_errors: bool
    refusal_status: int
    shutdown_grace: float
    strict: bool
    version: VersionTuple

    def forget(self, connection: Any, /) -> None:
        """Remove a connection that is lost."""


class LiteCall:
    """A running call, and how its client gets the result. Subclasses define `gone` and `send`."""

    __slots__ = ("arguments", "calls", "given_up", "running", "timed_out", "timer")

    def __init__(self, calls: Calls, arguments: list[str]) -> None:
        self.calls = calls
        self.arguments = arguments
        self.running: Running | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.given_up = False

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        raise NotImplementedError

    def send(self, result: bytes) -> None:
        """Send the JSON of the result, unless the client has left. The call has left
        `Calls.running`."""
        raise NotImplementedError

    def done(self, value: Any, exc: BaseException | None) -> None:
        """The handler has ended: send its result."""
        if self.timer is not None:
            self.timer.cancel()
        calls = self.calls
        calls.running.discard(self)
        if exc is None:
            try:
                response = response_of(value)
            except LiteResultError as failure:
                response = calls.failed(self, failure)
        elif not self.gone:
            response = calls.failed(self, exc)
        else:
            if not isinstance(exc, asyncio.CancelledError):
                name = calls.tool.name
                logger.error("tool %s failed after its client left", name, exc_info=exc)
            return
        self.send(calls.result(self.arguments, response))

    def expire(self) -> None:
        """Cancel the call: the time limit of the tool has passed."""
        self.timed_out = True
        self.timer = None
        self.cancel()

    def cancel(self) -> None:
        """Cancel the handler."""
        if self.running is not None:
            self.running.cancel()


class Calls:
    """The calls of a connection, or of an HTTP endpoint.

    Args:
        server: The server, whose options apply.
        tool: Its tool.
        loop: The event loop.
        pool: Runs the handlers.
    """

    def __init__(
        self,
        server: LiteServerOptions,
        tool: LiteTool,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
    ) -> None:
        self.tool = tool
        self.running: set[LiteCall] = set()
        self._server = server
        self._strict = server.strict
        self._version = server.version
        self._loop = loop
        self._pool = pool
        self._head = b'{"version":%b,"params":' % _encode(server.version)

    def read(self, data: Any, what: str) -> list[str]:
        """Return the arguments of a ToolCall, JSON text. ``what``: the name of the text in errors.
        NotACall: the text is not a ToolCall of this version. ArgumentError: the call cannot be
        served."""
        call: ToolCall | _LooseCall
        try:
            call = exact = _call(data)
            arguments = exact.arguments or []
        except (msgspec.DecodeError, RecursionError):
            call, arguments = self._read_loosely(data, what)
        reason = refuse_version(call.version, self._version)
        if reason and (self._strict or bytes(call.version)):
            raise NotACall(f"{what}: {reason}")
        if call.tool != self.tool.name:
            name = encode_text(call.tool[:SHOWN])
            raise ArgumentError(f"unknown tool {name!r}: the tool is {self.tool.name!r}")
        return arguments

    def _read_loosely(self, data: Any, what: str) -> tuple[_LooseCall, list[str]]:
        """Return a call that is not strictly valid, and its arguments as strings. ArgumentError:
        the call cannot be read."""
        try:
            call = _loose_call(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise NotACall(f"{what} is not a ToolCall: {_reason(exc)}") from None
        arguments = []
        for at, raw in enumerate(call.arguments or ()):
            if bytes(raw)[:1] != b'"' and self._strict:
                raise ArgumentError(f"arguments[{at}] is not a string")
            try:
                arguments.append(text_of(_any(raw)) if bytes(raw)[:1] == b'"' else _json(raw))
            except (msgspec.DecodeError, RecursionError) as exc:
                raise ArgumentError(f"arguments[{at}]: {_reason(exc)}") from None
        return call, arguments

    def start(self, call: LiteCall) -> None:
        """Run the tool. The result may be sent at once."""
        tool = self.tool
        try:
            started = tool.start(call.arguments)
        except BaseException as exc:
            call.done(None, exc)
            if not isinstance(exc, Exception):
                raise
            return
        if tool.inline:
            call.done(started, None)
            return
        self.running.add(call)
        try:
            call.running = self._pool.start(started, call.done)
        except (RuntimeError, TypeError) as exc:  # a closed pool; not a coroutine
            call.done(None, exc)
            return
        if call.running is not None and tool.timeout is not None:
            call.timer = self._loop.call_later(tool.timeout, call.expire)

    def failed(self, call: LiteCall, exc: BaseException) -> Response:
        """Return the response to a failed call. Only the log has the traceback."""
        name = self.tool.name
        if isinstance(exc, ArgumentError):
            return _failure(str(exc))
        if call.given_up:
            return _failure("the server is shutting down")
        if call.timed_out:
            text = f"tool {name} timed out after {self.tool.timeout:g} s"
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
            text = report(f"tool {name}", exc, mask=self._server.mask_errors, log=logger)
        return _failure(text)

    def refused(self, exc: ArgumentError) -> bytes:
        """Return the result of a call that was not run."""
        return self.result([], _failure(str(exc)))

    def result(self, arguments: list[str], response: Response) -> bytes:
        """Return the JSON of a CallResult."""
        params = dict(zip(self.tool.names, arguments, strict=False))
        try:
            shown = _encode(response)
        except (UnicodeEncodeError, TypeError, RecursionError):
            logger.error("tool %s: its result is not valid text", self.tool.name)
            shown = _encode(_failure("the result cannot be sent: it holds a lone surrogate"))
        return b'%b%b,"response":%b}' % (self._head, _encode(params), shown)

    def give_up(self) -> None:
        """Cancel the running calls: the grace time of a shutdown is over."""
        for call in list(self.running):
            logger.warning("tool %s did not end in time for the shutdown", self.tool.name)
            call.given_up = True
            call.cancel()


def _failure(text: str) -> Response:
    return Response([Content("text", encode_text(text))], True)


def _json(raw: Any) -> str:
    """Return a JSON text without white space between its tokens."""
    return bytes(msgspec.json.format(bytes(raw), indent=-1)).decode()


def _reason(exc: BaseException) -> str:
    return "nested too deeply" if isinstance(exc, RecursionError) else encode_text(str(exc))
