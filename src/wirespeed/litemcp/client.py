"""The LiteMCP clients, asynchronous and blocking: one tool, many concurrent calls.

Answers of servers are decoded strictly, or with tolerance for other JSON types.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from wirespeed._exports import set_public_home
from wirespeed.client.loop_thread import Blocking, like
from wirespeed.client.targets import Http, Socket, WebSocket, from_url
from wirespeed.client.timeouts import CLIENT_DEFAULT, DELAYS, Timeout, seconds_of, timed_out
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse, WirespeedError
from wirespeed.limits import Limits
from wirespeed.litemcp.client_connection import LiteLife, LiteRequests
from wirespeed.litemcp.messages import (
    VERSION,
    CallResult,
    Content,
    IOBasic,
    Parameter,
    Response,
    Tool,
    VersionTuple,
    parse_version,
    refuse_version,
)
from wirespeed.schema.from_strings import text_of
from wirespeed.schema.python_types import enc_hook

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed.litemcp.server import LiteServer
    from wirespeed.transport.child.command import Stdio

__all__ = ["LiteClient", "SyncLiteClient", "info_reader", "result_reader"]


LiteTarget: TypeAlias = "Stdio | Http | WebSocket | Socket | LiteServer | str"

logger = logging.getLogger("wirespeed.litemcp")

_json = msgspec.json.Encoder(enc_hook=enc_hook).encode
_VERSION = msgspec.json.encode(VERSION)


class LiteClient:
    """A client of one LiteMCP server. Use it as an async context manager, or with `open` and
    `close`::

        async with LiteClient(Stdio("python", ["calculator.py"])) as client:
            result = await client.call(2, b=3)
            print(result.text)

    Args:
        target: ``Stdio(command, args)``, `Http`, `WebSocket` or `Socket`, a URL (``http://``,
            ``https://``, ``ws://``, ``wss://``, ``unix:``, ``tcp://``), or a `LiteServer` in this
            process.
        token: Over HTTP and WebSocket, the bearer token of the server.
        headers: Further headers of each request over HTTP, and of the upgrade request of WebSocket.
        both_headers: Send the token in the header ``Authentication``, too. LiteMCP names that
            header beside ``Authorization``.
        timeout: The default time limit of a request in seconds, including the wait before the
            request is sent. After that time the request fails with `CallTimeout`, and a later
            answer is dropped. Every request has a time limit, because a server ignores messages
            that it does not understand.
        strict: Accept only the protocol's forms: three newlines end a message, and the values that
            must be strings are strings. Otherwise one newline after a whole JSON value ends a
            message, too, and other JSON values are read as their JSON text.
        limits: The limits of the connection.

    `open` launches the server or connects to it. A server that ended is started again at the next
    call, if its target allows restarts (``restart=…``). Over HTTP each request stands alone: `open`
    sends nothing, and the connections are kept for later requests.
    """

    _delays = DELAYS

    def __init__(
        self,
        target: LiteTarget,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        both_headers: bool = False,
        timeout: float = 60.0,
        strict: bool = False,
        limits: Limits | None = None,
    ) -> None:
        if timeout is None or not timeout > 0:
            raise ValueError(f"timeout must be seconds above 0, not {timeout!r}")
        self.target = as_target(target, token, headers, both_headers)
        self.timeout = timeout
        self.strict = strict
        self.limits = Limits() if limits is None else limits
        self._life = LiteLife(
            self.target, self.limits, strict, self._forget_tool, delays=self._delays
        )
        self._read_info = info_reader(strict)
        self._read_result = result_reader(strict)
        self._call_head = b""
        self._tool: Tool | None = None
        self._asking: asyncio.Future[Tool] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._life.live is None else "open"
        return f"<LiteClient of {self.target!r}: {state}>"

    # -- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Launch the server or connect to it, unless the client is open. A lost connection is made
        again.

        LaunchError: the server cannot be started. UpgradeRefused: a WebSocket server refused the
        upgrade with an HTTP status. TransportError: the server was not reached. ConnectionClosed:
        `close` was called meanwhile.
        """
        await self._life.open()

    async def close(self) -> None:
        """Close the connection. Waiting calls fail with ConnectionClosed. A child process is ended
        and reaped. A second call does nothing."""
        asking = self._asking
        await self._life.close()
        if asking is not None:
            await asyncio.wait((asking,))

    def _forget_tool(self) -> None:
        """Forget the tool: the server behind a new link may have another tool."""
        self._tool = None

    @property
    def n_outstanding(self) -> int:
        """The number of requests that wait for their answers."""
        connection = cast(LiteRequests | None, self._life.live)
        return 0 if connection is None else connection.n_outstanding

    # -- requests --------------------------------------------------------------------------------

    async def _request(self, what: str, call: bytes | None, decode: Any, timeout: Timeout) -> Any:
        seconds = seconds_of(timeout, self.timeout)
        if seconds <= 0:
            raise timed_out(what, seconds)
        connection = cast(LiteRequests | None, self._life.live)
        if connection is None or not connection.usable or connection.full:
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            try:
                async with asyncio.timeout_at(None if until == math.inf else until):
                    connection = cast(LiteRequests, await self._life.ready())
            except TimeoutError:
                raise CallTimeout(f"{what} could not be sent within {seconds:g} s") from None
            seconds = max(until - loop.time(), 0.001)
        waiter = connection.request(what, call, decode, seconds)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            connection.forget(waiter)
            raise

    async def info(self, *, timeout: Timeout = CLIENT_DEFAULT) -> Tool:
        """Ask the server for the description of its tool.

        CallTimeout: the server did not answer. InvalidResponse: the answer is not a description.
        Over HTTP, HttpStatusError: the answer has another status than 200. TransportError: the
        server was not reached.
        """
        tool: Tool = await self._request("get", None, self._read_info, timeout)
        self._remember(tool)
        return tool

    def _remember(self, tool: Tool) -> None:
        if tool.version.major != VERSION.major:
            logger.warning("the server speaks LiteMCP %s, not %s", tool.version, VERSION)
        self._tool = tool
        self._call_head = b'{"version":%b,"tool":%b,"arguments":' % (_VERSION, _json(tool.name))

    async def _known(self, timeout: Timeout) -> Tool:
        """Return the tool. The server is asked for the tool once for each link."""
        if self._tool is not None:
            return self._tool
        seconds = seconds_of(timeout, self.timeout)
        if seconds <= 0:
            raise timed_out("get", seconds)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self.info())
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        asking = self._asking
        await asyncio.wait((asking,), timeout=None if seconds == math.inf else seconds)
        if not asking.done():
            raise CallTimeout(f"get was not answered within {seconds:g} s")
        if asking.cancelled():
            raise ConnectionClosed("the client was closed")
        if (exc := asking.exception()) is not None:
            raise type(exc)(*exc.args) if isinstance(exc, WirespeedError) else exc
        return asking.result()

    async def prompt(self, *, timeout: Timeout = CLIENT_DEFAULT) -> str:
        """Return a text that describes the tool and its call to a language model."""
        return (await self._known(timeout)).prompt()

    async def call(self, *args: Any, **kwargs: Any) -> CallResult:
        """Call the tool with arguments in the order of its parameters, or by their names.

        Strings are sent unchanged, bytes as base64, all other values as their JSON text. An
        argument that is left out before a given one is sent as an empty string. A failure of the
        tool does not raise an exception: check ``result.error``.

        TypeError: unknown parameter, repeated parameter, or too many arguments. CallTimeout: the
        server did not answer. ChildExited, ConnectionLost, ConnectionClosed: the link ended before
        the answer. InvalidResponse: the answer is not a result. Over HTTP, HttpStatusError: the
        answer has another status than 200. TransportError: the server was not reached, or the
        connection broke.
        """
        return await self.invoke(args, kwargs)

    async def invoke(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
    ) -> CallResult:
        """Call the tool as `call` does, with ``args`` by position, ``kwargs`` by name, and a time
        limit of its own."""
        tool = self._tool
        if tool is None:
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds_of(timeout, self.timeout)
            tool = await self._known(timeout)
            timeout = max(until - loop.time(), 0.001)
        arguments = arrange(tool, args, kwargs or {})
        data = b"%b%b}" % (self._call_head, _json(arguments))
        result: CallResult = await self._request(tool.name, data, self._read_result, timeout)
        return result


def arrange(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the strings of a call, in order. TypeError: the arguments do not match the tool's
    parameters."""
    parameters = tool.parameters
    if len(args) > len(parameters):
        raise TypeError(
            f"{tool.name} takes {len(parameters)} arguments, but {len(args)} were given"
        )
    arguments = [to_text(value) for value in args]
    if not kwargs:
        return arguments
    names = [parameter.name for parameter in parameters]
    for name in kwargs:
        if name not in names:
            known = ", ".join(names) or "none"
            raise TypeError(f"{tool.name} has no parameter {name!r}; it has: {known}")
        if name in names[: len(args)]:
            raise TypeError(f"{tool.name}: {name!r} was given twice")
    last = max(map(names.index, kwargs))
    wanted = names[len(args) : last + 1]
    return arguments + [to_text(kwargs[name]) if name in kwargs else "" for name in wanted]


def to_text(value: Any) -> str:
    """Return an argument as a string. TypeError: the argument has no JSON form."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    text = _json(value).decode()
    return msgspec.json.decode(text, type=str) if text[0] == '"' else text


class SyncLiteClient(Blocking[LiteClient]):
    """A `LiteClient` whose event loop runs in a thread of its own. The arguments are those of
    `LiteClient`.

    Its methods are those of `LiteClient`, and block. Several threads may call them at once: the
    calls share one link. After an interrupt (Ctrl-C) of a call, its answer is dropped.
    """

    @like(LiteClient.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(LiteClient(*args, **options))

    def info(self, *, timeout: Timeout = CLIENT_DEFAULT) -> Tool:
        """As `LiteClient.info`."""
        return self._run(self._client.info(timeout=timeout))

    def prompt(self, *, timeout: Timeout = CLIENT_DEFAULT) -> str:
        """As `LiteClient.prompt`."""
        return self._run(self._client.prompt(timeout=timeout))

    def call(self, *args: Any, **kwargs: Any) -> CallResult:
        """As `LiteClient.call`."""
        return self._run(self._client.call(*args, **kwargs))

    def invoke(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
    ) -> CallResult:
        """As `LiteClient.invoke`."""
        return self._run(self._client.invoke(args, kwargs, timeout=timeout))


# -- targets ---------------------------------------------------------------------------------------


def as_target(
    target: Any, token: str | None, headers: Mapping[str, str] | None, both_headers: bool
) -> Stdio | Http | WebSocket | Socket | LiteServer:
    """Return the target that a client's arguments name. No process is started and no host name is
    resolved. TypeError, ValueError: the arguments do not name a target."""
    if isinstance(target, str):
        target = from_url(target)
    if isinstance(target, (Http, WebSocket)):
        return _with_credentials(target, token, headers, both_headers)
    if token is not None or headers or both_headers:
        raise ValueError("token and headers are for HTTP and WebSocket only")
    from wirespeed.transport.child.command import Stdio

    if isinstance(target, (Stdio, Socket)):
        return target
    from wirespeed.litemcp.server import LiteServer

    if isinstance(target, LiteServer):
        return target
    raise TypeError(
        "a target is Stdio(command, args), Http(url), WebSocket(url), Socket(url), a URL or a "
        f"LiteServer, not {type(target).__name__}"
    )


def _with_credentials(
    target: Http | WebSocket,
    token: str | None,
    headers: Mapping[str, str] | None,
    both_headers: bool,
) -> Http | WebSocket:
    if getattr(target, "auth", None) is not None:
        raise TypeError("LiteMCP has no authorization: Http(auth=…) is for MCP; use token")
    merged = dict(target.headers or {}) | dict(headers or {})
    if token is None:
        token = target.token
    if both_headers:
        # LiteMCP's pages say "Authorization", and show "Authentication: Bearer …"
        if token is None:
            raise ValueError("both_headers needs a token")
        if "authentication" in map(str.lower, merged):
            raise ValueError("both_headers and the header Authentication exclude each other")
        merged["Authentication"] = f"Bearer {token}"
    return replace(target, headers=merged, token=token)


# -- answers ---------------------------------------------------------------------------------------


class _Info(msgspec.Struct):
    name: str
    version: msgspec.Raw = msgspec.Raw(b"")
    description: str | None = None
    example: str | None = None
    parameters: list[Parameter] | None = None


class _Result(msgspec.Struct):
    params: dict[str, str]
    response: Response
    version: msgspec.Raw = msgspec.Raw(b"")


class _LooseParameter(msgspec.Struct):
    name: str
    type: Any = None
    description: Any = None
    example: Any = None


class _LooseInfo(msgspec.Struct):
    name: str
    version: msgspec.Raw = msgspec.Raw(b"")
    description: Any = None
    example: Any = None
    parameters: list[_LooseParameter] | None = None


class _LooseContent(msgspec.Struct):
    type: Any = None
    data: Any = None


class _LooseResponse(msgspec.Struct):
    content: list[_LooseContent] | None = None
    error: bool = False


class _LooseResult(msgspec.Struct):
    response: _LooseResponse
    params: dict[str, Any] | None = None
    version: msgspec.Raw = msgspec.Raw(b"")


_info = msgspec.json.Decoder(_Info).decode
_result = msgspec.json.Decoder(_Result).decode
_loose_info = msgspec.json.Decoder(_LooseInfo).decode
_loose_result = msgspec.json.Decoder(_LooseResult).decode


def _string(value: Any) -> str | None:
    return None if value is None else text_of(value)


def _decode(strict: Any, loose: Any, message: IOBasic) -> Any:
    """Decode the data of a message with `strict`, then, if that fails, with `loose` if given."""
    try:
        return strict(message.data)
    except (msgspec.DecodeError, RecursionError) as exc:
        if loose is None:
            raise _invalid(message, exc) from exc
    try:
        return loose(message.data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _invalid(message, exc) from exc


def _invalid(message: IOBasic, exc: BaseException) -> InvalidResponse:
    return InvalidResponse(f"the data of {message.type!r} is not valid: {exc}")


def info_reader(strict: bool) -> Callable[[IOBasic], Tool]:
    """Return a decoder of ``info``, which accepts every version of LiteMCP."""

    def read(message: IOBasic) -> Tool:
        found = _decode(_info, None if strict else _loose_info, message)
        parameters = [
            Parameter(
                p.name, _string(p.type) or "string", _string(p.description), _string(p.example)
            )
            for p in found.parameters or ()
        ]
        names = [parameter.name for parameter in parameters]
        if len(set(names)) != len(names):
            raise InvalidResponse("the tool has two parameters with the same name")
        version = _version(found.version, strict) or _version(message.version, strict)
        return Tool(
            found.name,
            _string(found.description),
            _string(found.example),
            parameters,
            version or VERSION,
        )

    return read


def result_reader(strict: bool) -> Callable[[IOBasic], CallResult]:
    """Return a decoder of ``result``, which accepts an equal major version only."""

    def read(message: IOBasic) -> CallResult:
        found = _decode(_result, None if strict else _loose_result, message)
        for version in (message.version, found.version):
            if (strict or bytes(version)) and (reason := refuse_version(version)):
                raise InvalidResponse(f"the result cannot be read: {reason}")
        response = found.response
        if isinstance(found, _LooseResult):
            contents = [
                Content(_string(c.type) or "text", _string(c.data) or "")
                for c in response.content or ()
            ]
            params = {name: text_of(value) for name, value in (found.params or {}).items()}
            return CallResult(params, Response(contents, response.error))
        version = _version(found.version, strict) or VERSION
        return CallResult(found.params, response, version)

    return read


def _version(raw: msgspec.Raw, strict: bool) -> VersionTuple | None:
    text = bytes(raw)
    if not text and not strict:
        return None
    if text == b"[1,0,0]":
        return VERSION
    try:
        return parse_version(text)
    except ValueError as exc:
        if strict:
            raise InvalidResponse(f"the version of the answer is not valid: {exc}") from None
        return None


set_public_home(globals())
