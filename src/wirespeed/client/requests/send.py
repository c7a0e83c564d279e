"""Requests of a client, whatever they are about: when they can be sent, what they fail with, and
where their answers pass."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from wirespeed.client.callback_queue import InTurn
from wirespeed.client.connection.lifecycle import NOT_OPEN
from wirespeed.client.requests.middleware import Passed
from wirespeed.client.results.decode import Unfinished, decode_call_result
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, seconds_of, shown, timed_out
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse
from wirespeed.protocol.meta import check_json
from wirespeed.protocol.results import CallToolResult
from wirespeed.protocol.revisions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
)

if TYPE_CHECKING:
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.connection.handshake import Agreement
    from wirespeed.client.connection.lifecycle import Lifecycle
    from wirespeed.client.requests.middleware import OutboundChain
    from wirespeed.client.validation.checks import OutputChecks

__all__ = ["Calls", "Meta", "OnProgress", "Request"]

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with progress, total and message of each progress notification of a request."""

Meta: TypeAlias = Mapping[str, Any]
"""Members of a request's ``_meta`` besides those that the client writes."""

PROGRESS = "the progress callback of a call"

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
any_result = msgspec.json.Decoder(dict[str, Any]).decode

_OURS = frozenset(
    {
        "progressToken",
        META_PROTOCOL_VERSION,
        META_CLIENT_CAPABILITIES,
        META_CLIENT_INFO,
        META_LOG_LEVEL,
    }
)


class Request(msgspec.Struct, frozen=True):
    """A request as its caller made it, so that it can be sent once more.

    Attributes:
        method: Its method.
        params: The JSON text of its params, without ``_meta``.
        decode: Makes the result of its JSON text, or an `Unfinished` one.
        on_progress: Gets its progress, or None; each round's rises by itself.
        meta: JSON text of the caller's own members of ``_meta``, without the braces, or None.
        until: The loop's time at which the whole of it ends; infinity for no limit.
        limit: The seconds that it may take altogether.
        what: What errors call it.
    """

    method: str
    params: bytes
    decode: Callable[[Any], Any]
    on_progress: OnProgress | None
    meta: bytes | None
    until: float
    limit: float
    what: str


class Calls:
    """What every request of a client goes through."""

    timeout: float | None
    _life: Lifecycle
    _start_at_use = False
    _opening: asyncio.Task[None] | None = None
    """The start that the first request began."""
    _outgoing: OutboundChain | None = None
    """The middleware, if there is some."""
    _checks: OutputChecks | None = None
    """Of structured output; None where there is nothing to check it by."""
    _task_tools: AbstractSet[str] = frozenset()
    """Listed tools that only run as tasks (2025-11-25, ``taskSupport: "required"``)."""

    async def open(self) -> None:
        """Launch or connect, and agree on a revision."""
        raise NotImplementedError

    @property
    def _agreed(self) -> Agreement:
        agreement = self._life.agreement
        if agreement is None:
            raise ConnectionClosed(NOT_OPEN)
        return agreement

    async def _ready(self, what: str, timeout: float) -> tuple[ClientConnection, float]:
        """The connection, when a request can be sent, and the seconds that are left for it."""
        if timeout <= 0:
            raise timed_out(what, timeout)
        live = self._life.live
        if live is not None and live.ready and live.loop is asyncio.get_running_loop():
            return live, timeout
        until = self._until(timeout)
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                if self._start_at_use and self._life.live is None:
                    await self._opened()
                connection = await self._life.ready()
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout):  # why the server could not be started
                raise
            raise CallTimeout(f"{what}: could not be sent within {shown(timeout)}") from None
        return connection, self._seconds_until(until)

    async def _opened(self) -> None:
        """Wait for the start that is left to the first request. It goes on when that is given up,
        so that a server which is slow to start is there for a later one."""
        start = self._opening
        if start is None or start.done() or start.get_loop() is not asyncio.get_running_loop():
            start = self._opening = asyncio.ensure_future(self.open())
            start.add_done_callback(_seen)
        await asyncio.wait((start,))
        if start.cancelled():
            raise ConnectionClosed("the client was closed while it was being opened")
        start.result()

    @staticmethod
    def _until(seconds: float) -> float:
        """The loop's time, so many seconds from now."""
        return asyncio.get_running_loop().time() + seconds

    @staticmethod
    def _seconds_until(until: float) -> float:
        return max(0.0, until - asyncio.get_running_loop().time())

    def _rest(self, until: float) -> float | None:
        """The seconds until then as a ``timeout``."""
        return None if until == math.inf else self._seconds_until(until)

    def _seconds(self, timeout: Timeout) -> float:
        return seconds_of(timeout, self.timeout)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> CallToolResult:
        """Call a tool (server/tools). Cancelling the asyncio task cancels the call on the server.
        A tool that was listed as one that only runs as a task is run as a task; the call returns
        the task's result.

        Args:
            name: The tool.
            arguments: A mapping or a msgspec struct, or the JSON text of an object as bytes (which
                is checked).
            timeout: Seconds; None for no limit; by default the client's. At 0 or below nothing is
                sent, and the call fails with `CallTimeout`.
            on_progress: Called with progress, total and message of each progress notification
                whose progress is above that of the one before.
            meta: Further members of the request's ``_meta``, such as ``traceparent`` (basic,
                "_meta"); not those that the client writes itself.

        Raises:
            TypeError, ValueError: The arguments cannot be sent; nothing was.
            LimitExceeded: ``max_outstanding`` calls wait for their answers already.
            CallTimeout: No answer in time; said by this side, never by the server.
            RemoteError: The server answered with an error (a tool that fails is no error, but a
                result with ``is_error``).
            InvalidResponse: The answer is not valid.
            ConnectionClosed, ChildExited, ConnectionLost: The link is gone.
            TransportError: A lost connection cannot be made again.
        """
        through = self._outgoing
        if through is not None and type(meta) is not Passed:
            passed: CallToolResult = await through.call_tool(
                self, name, arguments, timeout, on_progress, meta
            )
            return passed
        if name in self._task_tools:
            return await self._call_as_task(name, arguments, timeout, on_progress, meta)
        limit = self._seconds(timeout)
        members = None if meta is None else meta_text(meta)
        if on_progress is not None:
            on_progress = InTurn(on_progress, PROGRESS, self._life.spawn)
        checks, check = self._checks, None
        if checks is not None:
            until = self._until(limit)
            check = await checks.of(name, until)
            limit = self._seconds_until(until)
        connection = self._life.live
        if (
            connection is None
            or not connection.ready
            or connection.loop is not asyncio.get_running_loop()
        ):
            connection, limit = await self._ready(f"tool {name}", limit)
        progress = None if on_progress is None else rising(on_progress)
        try:
            waiter = connection.call_tool(name, arguments, limit, progress, members)
        except UnicodeEncodeError:
            given = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
            check_json("call_tool", {"name": name, **given})
            raise
        try:
            result: CallToolResult | Unfinished = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            else:
                self._unwanted(waiter.future)
            raise
        self._life.crashes = 0
        if type(result) is Unfinished:
            params = tool_params(name, waiter.arguments)
            request = Request(
                "tools/call",
                params,
                decode_call_result,
                on_progress,
                members,
                waiter.deadline,
                self._seconds(timeout),
                f"tool {name}",
            )
            finished: CallToolResult = await self._finish(request, result)
            result = finished
        if check is not None:
            await checks.verify(name, check, result, until)  # type: ignore[union-attr, arg-type]
        return result  # type: ignore[return-value]

    async def _call_as_task(
        self,
        name: str,
        arguments: Any,
        timeout: Timeout,
        on_progress: OnProgress | None,
        meta: Meta | None,
    ) -> CallToolResult:
        """`call_tool` of a tool that only runs as a task."""
        raise NotImplementedError

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
        decode: Callable[[Any], Any] = any_result,
    ) -> Any:
        """Send any request. ``params`` is without ``_meta``, which the client adds; ``decode``
        makes something of the result's JSON text (bytes-like, to be kept only as a copy). The rest
        as of `call_tool`. Nothing is done about what the result says of itself (``resultType``)."""
        body = None
        if params is not None:
            if not isinstance(params, Mapping):
                raise TypeError(f"params must be a mapping, not {type(params).__name__}")
            if "_meta" in params:
                raise ValueError("params._meta is what the client writes: see the argument meta")
            body = params_text(method, dict(params))
        return await self._call(method, body, decode, timeout, on_progress, meta)

    async def _call(
        self,
        method: str,
        params: bytes | None,
        decode: Callable[[Any], T | Unfinished],
        timeout: Timeout,
        on_progress: OnProgress | None,
        meta: Meta | None,
    ) -> T:
        """Send a request, and wait for its answer."""
        through = self._outgoing
        if through is not None and type(meta) is not Passed:
            passed: T = await through.call(self, method, params, decode, timeout, on_progress, meta)
            return passed
        members = None if meta is None else meta_text(meta)
        if on_progress is not None:
            on_progress = InTurn(on_progress, PROGRESS, self._life.spawn)
        connection, limit = await self._ready(method, self._seconds(timeout))
        progress = None if on_progress is None else rising(on_progress)
        waiter = connection.request(
            method, params, decode, timeout=limit, on_progress=progress, meta=members
        )
        try:
            result: T | Unfinished = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            raise
        self._life.crashes = 0
        if isinstance(result, Unfinished):
            request = Request(
                method,
                params or b"{}",
                decode,
                on_progress,
                members,
                waiter.deadline,
                self._seconds(timeout),
                method,
            )
            finished: T = await self._finish(request, result)
            return finished
        return result

    def _unwanted(self, answer: asyncio.Future[Any]) -> None:
        """The answer to a call of a tool came in the very moment in which that was given up."""

    async def _finish(self, request: Request, answer: Unfinished) -> Any:
        """Make a result of an answer that is none yet. Everything that can be answered so passes
        here: tools/call, prompts/get and resources/read. ``request.decode`` is to see the answer of
        each further round, so that none of them is cached."""
        raise InvalidResponse(
            f"the result has resultType {answer.result_type!r}, which was not negotiated"
        )


def _seen(start: asyncio.Future[None]) -> None:
    """Who waited for it is told how it ended; maybe nobody did."""
    if not start.cancelled():
        start.exception()


def tool_params(name: str, arguments: bytes | None) -> bytes:
    """The params of a tools/call from the JSON text of its arguments."""
    if arguments is None:
        return encode({"name": name})
    return encode({"name": name, "arguments": msgspec.Raw(arguments)})


def meta_text(meta: Meta) -> bytes | None:
    """Members of ``_meta`` as JSON text without the braces. TypeError, ValueError: they cannot be
    sent."""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta must be a mapping, not {type(meta).__name__}")
    for key in meta:
        if not isinstance(key, str):
            raise TypeError(f"keys of meta must be strings, not {type(key).__name__}")
        if key in _OURS:
            raise ValueError(f"{key} of _meta is what the client writes")
    return params_text("meta", dict(meta))[1:-1] or None


def params_text(owner: str, params: dict[str, Any]) -> bytes:
    """Params as JSON text. ValueError: a lone surrogate, in the member that the error names."""
    try:
        return encode(params)
    except UnicodeEncodeError:
        check_json(owner, params)
        raise


def rising(on_progress: OnProgress) -> OnProgress:
    """A callback for one request, that hands on only what went on: progress must rise with each
    notification for a token (basic/utilities/progress, "Progress Flow")."""
    last = -math.inf

    def risen(progress: float, total: float | None, message: str | None) -> object:
        nonlocal last
        if progress <= last:
            return None
        last = progress
        return on_progress(progress, total, message)

    return risen
