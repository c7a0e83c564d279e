"""The sender of a client's requests: it waits until they can be sent, and for their results."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar

import msgspec

from wirespeed.client.callback_queue import CallbackQueue
from wirespeed.client.connection.lifecycle import NOT_OPEN
from wirespeed.client.http.answers import SessionGone
from wirespeed.client.requests.middleware import OutboundRequest
from wirespeed.client.results.decode import Unfinished, decode_call_result
from wirespeed.client.results.tool_values import ListedTools
from wirespeed.client.timeouts import (
    CLIENT_DEFAULT,
    RestOfLimit,
    Timeout,
    limit_of,
    seconds_of,
    shown,
    timed_out,
)
from wirespeed.errors import CallTimeout, ConnectionClosed, InvalidResponse, RemoteError
from wirespeed.protocol import codes
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
    from wirespeed.client.output_checks import OutputChecks
    from wirespeed.client.requests.middleware import OutboundChain
    from wirespeed.protocol.revisions import Revision

__all__ = [
    "CallOptions",
    "Meta",
    "OnProgress",
    "Request",
    "RequestOptions",
    "Sender",
    "ToolCallOptions",
]

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Called with progress, total and message of each progress notification of a request."""

OnNotice: TypeAlias = Callable[[str, dict[str, Any]], object]
"""Called with method and params of each notification that belongs to a request that stays open."""

Meta: TypeAlias = Mapping[str, Any]
"""Members of a request's ``_meta`` besides those that the client writes."""

PROGRESS = "the progress callback of a call"
NOTICES = "the callback of the notifications of a request"

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
    """A request of a caller, which can be sent again.

    Attributes:
        method: The method.
        params: The JSON text of the params, without ``_meta``.
        decode: Decodes the result, or an `Unfinished` one.
        on_progress: Called with the progress of the request, or None. Progress starts again with
            each round.
        meta: JSON text of the caller's own members of ``_meta``, without the braces, or None.
        until: The loop's time at which the time limit of all rounds is over; infinity for no limit.
        limit: The time limit of all rounds, in seconds.
        what: The name of the request in errors.
        tasks: Whether the request declares the tasks extension, also where the client does not.
    """

    method: str
    params: bytes
    decode: Callable[[Any], Any]
    on_progress: OnProgress | None
    meta: bytes | None
    until: float
    limit: float
    what: str
    tasks: bool = False


class RequestOptions(TypedDict, total=False):
    """The options of every request.

    Attributes:
        timeout: Seconds; None for no limit; by default the client's. At 0 or below nothing is sent,
            and the request fails with `CallTimeout`.
        meta: Further members of the request's ``_meta``, such as ``traceparent`` (basic, "_meta");
            not those that the client writes itself.
    """

    timeout: Timeout
    meta: Meta | None


class CallOptions(RequestOptions, total=False):
    """The options of a request that may report progress.

    Attributes:
        on_progress: Called with progress, total and message of each progress notification whose
            progress is above that of the one before.
    """

    on_progress: OnProgress | None


class ToolCallOptions(CallOptions, total=False):
    """The options of a call of a tool.

    Attributes:
        type: The type of the tool's value: whatever msgspec decodes, pydantic models, paths. The
            call then returns the value of this type (`CallToolResult.data`, decoded) instead of a
            `CallToolResult`, and raises `ToolError` if the tool failed.
    """

    type: Any


class Continuation(Protocol):
    """The part of a client that continues calls whose answer is not their result."""

    async def finish(self, request: Request, answer: Unfinished) -> Any:
        """The result. InvalidResponse: the answer was not negotiated."""

    async def after_refusal(
        self,
        refusal: RemoteError,
        name: str,
        arguments: Any,
        until: float,
        limit: float,
        on_progress: OnProgress | None,
        meta: Meta | None,
    ) -> CallToolResult:
        """The result of a tools/call that the server refused. Raises the refusal if nothing else
        can be tried."""

    def unwanted(self, answer: asyncio.Future[Any]) -> None:
        """The answer to a tools/call arrived while its caller was being cancelled."""


class Sender:
    """The sender of one client's requests.

    Attributes:
        life: The client's links, one after another.
        timeout: The time limit of requests without one of their own.
        middleware: The middleware of all requests, or None.
        checks: Checks results by the output schemas of tools; None: no result is checked.
        listed: The listed tools.
        notices: What gets the notifications of requests that stay open, by the ids of these.
        relist: Lists the tools again, up to a time of the loop, where calls repeat arguments in
            header fields (HTTP); else None.
        continuation: Continues calls whose answer is not their result.
        start_at_use: Whether the first request opens the client.
    """

    life: Lifecycle
    continuation: Continuation

    def __init__(
        self,
        timeout: float | None,
        middleware: OutboundChain | None,
        open_client: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.timeout = timeout
        self.limit = seconds_of(timeout, None)  # in seconds; infinity for none
        self.middleware = middleware
        self.checks: OutputChecks | None = None
        self.listed = ListedTools()
        self._wraps = self.listed.wraps
        self.notices: dict[int, OnNotice] = {}
        self.relist: Callable[[float], Awaitable[object]] | None = None
        self.start_at_use = False
        self._open = open_client
        self._opening: asyncio.Task[None] | None = None

    # -- when a request can be sent --------------------------------------------------------------

    @property
    def agreed(self) -> Agreement:
        """The outcome of the handshake. ConnectionClosed: the client is not open."""
        agreement = self.life.agreement
        if agreement is None:
            raise ConnectionClosed(NOT_OPEN)
        return agreement

    async def revision(self) -> Revision:
        """The revision agreed on. Opens the client if the first request has to."""
        if self.start_at_use and self.life.live is None:
            await self._opened()
        return self.agreed.revision

    async def ready(self, what: str, timeout: float) -> tuple[ClientConnection, float]:
        """Wait until a request can be sent. Returns the connection and the remaining seconds."""
        if timeout <= 0:
            raise timed_out(what, timeout)
        live = self.life.live
        if live is not None and live.ready and live.loop is asyncio.get_running_loop():
            return live, timeout
        until = self.until(timeout)
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                if self.start_at_use and self.life.live is None:
                    await self._opened()
                connection = await self.life.ready()
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout):  # why the server could not be started
                raise
            text = f"{what}: could not be sent within {shown(limit_of(timeout))}"
            lost = self.life.live
            if lost is not None and not lost.usable:
                text = f"{text}: {lost.error()}"
            raise CallTimeout(text) from None
        return connection, self.seconds_until(until)

    async def _opened(self) -> None:
        """Wait for the start that the first request begins. The start continues when that request
        is cancelled, so that a slow server is ready for a later request."""
        start = self._opening
        if start is None or start.done() or start.get_loop() is not asyncio.get_running_loop():
            start = self._opening = asyncio.ensure_future(self._open())
            start.add_done_callback(_seen)
        await asyncio.wait((start,))
        if start.cancelled():
            raise ConnectionClosed("the client was closed while it was being opened")
        start.result()

    def give_up_start(self) -> asyncio.Task[None] | None:
        """Cancel the start that the first request began. Returns its task, if it runs on this
        loop."""
        self.start_at_use = False
        opening, self._opening = self._opening, None
        if opening is None or opening.get_loop() is not asyncio.get_running_loop():
            return None
        opening.cancel()
        return opening

    # -- time limits -----------------------------------------------------------------------------

    @staticmethod
    def until(seconds: float) -> float:
        """The time of the event loop in ``seconds`` seconds."""
        return asyncio.get_running_loop().time() + seconds

    @staticmethod
    def seconds_until(until: float) -> float:
        """The seconds until a time of the loop; 0 if it has passed."""
        return max(0.0, until - asyncio.get_running_loop().time())

    def rest(self, until: float, limit: float | None = None) -> float | None:
        """The seconds until a time of the loop as a ``timeout``. ``limit``: The time limit that
        errors name; None: these seconds."""
        if until == math.inf:
            return None
        seconds = self.seconds_until(until)
        return seconds if limit is None else RestOfLimit(seconds, limit)

    def seconds(self, timeout: Timeout) -> float:
        """A ``timeout`` in seconds; infinity for no limit."""
        return seconds_of(timeout, self.timeout)

    # -- requests --------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
        relisted: bool = False,
        again: bool = False,
    ) -> CallToolResult:
        """Send tools/call past the middleware, and wait for its result. ``relisted``: the tools
        were listed again, because the server refused the header fields of the call. ``again``: It
        is sent again, because its session had ended before it."""
        limit = self.limit if timeout is CLIENT_DEFAULT else self.seconds(timeout)
        members = None if meta is None else meta_text(meta)
        callback = on_progress
        if on_progress is not None:
            on_progress = CallbackQueue(on_progress, PROGRESS, self.life.spawn)
        checks, check = self.checks, None
        if checks is not None:
            until = self.until(limit)
            check = await checks.of(name, until)
            limit = self.seconds_until(until)
        connection = self.life.live
        if (
            connection is None
            or not connection.ready
            or connection.loop is not asyncio.get_running_loop()
        ):
            connection, limit = await self.ready(f"tool {name}", limit)
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
                self.continuation.unwanted(waiter.future)
            raise
        except SessionGone:
            if again or not self.life.restarts:
                raise
            left = self.rest(waiter.deadline)
            return await self.call_tool(name, arguments, left, callback, meta, relisted, True)
        except RemoteError as exc:
            if exc.code == codes.HEADER_MISMATCH and self.relist is not None and not relisted:
                await self.relist(waiter.deadline)
                left = self.rest(waiter.deadline)
                return await self.call_tool(name, arguments, left, callback, meta, True)
            return await self.continuation.after_refusal(
                exc, name, arguments, waiter.deadline, self.seconds(timeout), callback, meta
            )
        self.life.crashes = 0
        if type(result) is Unfinished:
            params = tool_params(name, waiter.arguments)
            request = Request(
                "tools/call",
                params,
                decode_call_result,
                on_progress,
                members,
                waiter.deadline,
                self.seconds(timeout),
                f"tool {name}",
            )
            finished: CallToolResult = await self.continuation.finish(request, result)
            result = finished
        if check is not None:
            await checks.verify(name, check, result, until)  # type: ignore[union-attr, arg-type]
        wraps = self._wraps.get(name)
        if wraps is not False and type(result) is CallToolResult:  # middleware may return anything
            if wraps:
                result.wrapped = True
            else:
                await self.listed.mark(name, result, waiter.deadline)
        return result  # type: ignore[return-value]

    async def send(
        self,
        method: str,
        params: bytes | None,
        decode: Callable[[Any], T | Unfinished],
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
        on_notice: OnNotice | None = None,
    ) -> T:
        """Send a request through the middleware, and wait for its result."""
        if on_notice is not None:
            on_notice = CallbackQueue(on_notice, NOTICES, self.life.spawn)
        through = self.middleware
        if through is None:
            return await self.send_past(
                method, params, decode, timeout, on_progress, meta, on_notice
            )

        async def send(passed: OutboundRequest) -> T:
            return await self.send_past(
                method, passed.params, decode, passed.timeout, on_progress, passed.meta, on_notice
            )

        request = OutboundRequest(self, method, None, params, None, meta, timeout)
        result: T = await through.run(request, send)
        return result

    async def send_past(
        self,
        method: str,
        params: bytes | None,
        decode: Callable[[Any], T | Unfinished],
        timeout: Timeout,
        on_progress: OnProgress | None,
        meta: Meta | None,
        on_notice: OnNotice | None = None,
        again: bool = False,
    ) -> T:
        """Send a request past the middleware, and wait for its result. ``again``: It is sent again,
        because its session had ended before it."""
        members = None if meta is None else meta_text(meta)
        callback = on_progress
        if on_progress is not None:
            on_progress = CallbackQueue(on_progress, PROGRESS, self.life.spawn)
        limit = self.seconds(timeout)
        connection, left = await self.ready(method, limit)
        progress = None if on_progress is None else rising(on_progress)
        waiter = connection.request(
            method,
            params,
            decode,
            timeout=left,
            limit=limit_of(limit),
            on_progress=progress,
            meta=members,
            tasks=method.startswith("tasks/"),
        )
        if on_notice is not None:
            self.notices[waiter.id] = on_notice
        try:
            result: T | Unfinished = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            raise
        except SessionGone:
            if again or not self.life.restarts:
                raise
            if self.notices.get(waiter.id) is on_notice:
                self.notices.pop(waiter.id, None)  # a request of the next session may have this id
            rest = self.rest(waiter.deadline, limit_of(limit))
            return await self.send_past(
                method, params, decode, rest, callback, meta, on_notice, True
            )
        finally:
            if on_notice is not None and self.notices.get(waiter.id) is on_notice:
                del self.notices[waiter.id]
        self.life.crashes = 0
        if isinstance(result, Unfinished):
            request = Request(
                method,
                params or b"{}",
                decode,
                on_progress,
                members,
                waiter.deadline,
                limit_of(limit),
                method,
            )
            finished: T = await self.continuation.finish(request, result)
            return finished
        return result


def not_negotiated(answer: Unfinished) -> InvalidResponse:
    """The error of a call whose answer has an unknown ``resultType``."""
    return InvalidResponse(
        f"the result has resultType {answer.result_type!r}, which was not negotiated"
    )


def _seen(start: asyncio.Future[None]) -> None:
    """Mark the exception as retrieved: the requests that wait raise it, if there are any."""
    if not start.cancelled():
        start.exception()


def tool_params(name: str, arguments: bytes | None) -> bytes:
    """The params of a tools/call from the JSON text of its arguments."""
    if arguments is None:
        return encode({"name": name})
    return encode({"name": name, "arguments": msgspec.Raw(arguments)})


def meta_text(meta: Meta) -> bytes | None:
    """Members of ``_meta`` as JSON text without the braces. TypeError, ValueError: a member cannot
    be sent."""
    if not isinstance(meta, Mapping):
        raise TypeError(f"meta must be a mapping, not {type(meta).__name__}")
    for key in meta:
        if not isinstance(key, str):
            raise TypeError(f"keys of meta must be strings, not {type(key).__name__}")
        if key in _OURS:
            raise ValueError(f"the client itself writes {key} of _meta")
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
