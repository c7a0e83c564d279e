"""Sessions of `mcp` 1.x on a `ConnectionEnd`: what `BaseSession` does for each message, without the
envelopes as models between it and the streams.

Each function here makes the replacement of a method of `BaseSession`. The replacement does what the
stock method does where both streams of the session are the adapter's own; in every other session
the stock method runs.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin

import httpx
from anyio import ClosedResourceError, EndOfStream
from mcp.shared.exceptions import McpError
from mcp.shared.session import RequestResponder
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    CancelledNotification,
    ErrorData,
    JSONRPCError,
    ProgressNotification,
)
from pydantic_core import from_json, to_json

from wirespeed.adapters.mcp1.envelopes import (
    MODELS,
    decode,
    fits,
    id_text,
    json_of,
    session_message,
)
from wirespeed.adapters.mcp1.streams import ConnectionEnd, ReadStream, WriteStream

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message

Stock = Callable[..., Awaitable[Any]]

# The stock methods log by the functions of `logging`, which programs may replace.
# ruff: noqa: G004, LOG015

# Turns of the loop that a message waits for the start of the handlers of requests before it.
START_TURNS = 20
# Messages that a server's loop has not taken.
MOST_HANDED = 16
# Seconds that running handlers have after the end of the input: those of a client that sends a few
# requests and closes its output at once.
LAST_CALLS = 0.1


def end_of(session: Any) -> ConnectionEnd | None:
    """The end of the connection of a session, if both of its streams are the adapter's."""
    read, write = session._read_stream, session._write_stream
    if type(read) is ReadStream and type(write) is WriteStream and read.end is write.end:
        return read.end
    return None


class Waiter:
    """A request of ours that has no answer yet, in the place of the stock memory stream."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def settle(self, outcome: Any) -> None:
        if not self.future.done():
            self.future.set_result(outcome)

    async def send(self, root: Any) -> None:
        """Take a response as the stock code has it: a model."""
        self.settle(root if isinstance(root, JSONRPCError) else root.result)

    async def aclose(self) -> None:
        """Nothing is held."""


class Handoff:
    """The messages from a server's session to its loop, in the place of a pair of memory streams.

    A sender waits for room, not until its message was taken.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False

    async def send(self, item: Any) -> None:
        if self._closed:
            raise ClosedResourceError
        while len(self._items) >= MOST_HANDED:
            if self._room is None or self._room.done():
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        self._items.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> Any:
        while not self._items:
            if self._closed:
                raise EndOfStream
            self._waiting = self._loop.create_future()
            await self._waiting
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return self._items.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._closed = True
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def server_session_init(stock: Callable[..., None]) -> Callable[..., None]:
    """Make an `__init__` that puts a `Handoff` in the place of the memory streams."""

    @functools.wraps(stock)
    def init(self: Any, *args: Any, **options: Any) -> None:
        stock(self, *args, **options)
        end = end_of(self)
        if end is not None:
            self._incoming_message_stream_writer.close()
            self._incoming_message_stream_reader.close()
            handoff = Handoff(end.loop)
            self._incoming_message_stream_writer = handoff
            self._incoming_message_stream_reader = handoff

    return init


# -- models by method ------------------------------------------------------------------------------

_members: dict[type[Any], dict[str, type[Any]]] = {}


def members(union: type[Any]) -> dict[str, type[Any]]:
    """The members of a union of requests or notifications by their methods; none for a type that
    is no such union."""
    found = _members.get(union)
    if found is None:
        found = _members[union] = _find_members(union)
    return found


def _find_members(union: type[Any]) -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    root = getattr(union, "model_fields", {}).get("root")
    for member in get_args(root.annotation) if root is not None else ():
        method = getattr(member, "model_fields", {}).get("method")
        if method is None or get_origin(method.annotation) is not Literal:
            return {}
        for name in get_args(method.annotation):
            if name in found:
                return {}
            found[name] = member
    return found


def validate(union: type[Any], data: dict[str, Any]) -> Any:
    """Validate as `union.model_validate(data)` does: only the member that has the method of the
    data can accept it."""
    member = members(union).get(data["method"])
    if member is not None:
        try:
            return union.model_construct(root=member.model_validate(data))
        except ValueError:
            pass  # the error of the union has another text
    return union.model_validate(data)


# -- receiving -------------------------------------------------------------------------------------


def receive_loop(stock: Stock) -> Stock:
    """Make a loop that takes messages from the end of the connection."""

    async def _receive_loop(self: Any) -> None:
        end = end_of(self)
        if end is None:
            await stock(self)
            return
        end.take_response = lambda message: take_response(self, message)
        async with self._read_stream, self._write_stream:
            try:
                while True:
                    try:
                        message = await end.receive()
                    except EndOfStream:
                        break
                    await received(self, end, message)
                await last_calls(self)
            except ClosedResourceError:
                logging.debug("Read stream closed by client")
            except Exception as exc:
                logging.exception(f"Unhandled exception in receive loop: {exc}")
            finally:
                end.take_response = None
                await fail_waiting(self)

    return _receive_loop


async def received(self: Any, end: ConnectionEnd, message: Message) -> None:
    """Handle one message as the stock loop does."""
    decoded = decode(message)
    if isinstance(decoded, Exception):
        await self._handle_incoming(decoded)
        return
    kind, data = decoded
    if kind == "request":
        await received_request(self, end, data)
    elif kind == "notification":
        await started(self)
        await received_notification(self, data)
    else:
        await received_response(self, kind, data)


async def received_request(self: Any, end: ConnectionEnd, data: dict[str, Any]) -> None:
    """Handle a request."""
    request_id = data["id"]
    try:
        request = validate(
            self._receive_request_type, {k: v for k, v in data.items() if v is not None}
        )
        params = request.root.params
        responder = RequestResponder(
            request_id=request_id,
            request_meta=params.meta if params else None,
            request=request,
            session=self,
            on_complete=lambda r: self._in_flight.pop(r.request_id, None),
        )
        self._in_flight[request_id] = responder
        await self._received_request(responder)
        if not responder._completed:
            await self._handle_incoming(responder)
    except Exception as exc:
        logging.warning(f"Failed to validate request: {exc}")
        logging.debug(f"Message that failed validation: {data}")
        error = ErrorData(code=INVALID_PARAMS, message="Invalid request parameters", data="")
        await end.reply(error_answer(request_id, error))


async def started(self: Any) -> None:
    """Let the handlers of earlier requests start: a request that is cancelled must have begun."""
    for _ in range(START_TURNS):
        if all(one._entered or one._completed for one in list(self._in_flight.values())):
            return
        await asyncio.sleep(0)


async def received_notification(self: Any, data: dict[str, Any]) -> None:
    """Handle a notification."""
    try:
        notification = validate(
            self._receive_notification_type, {k: v for k, v in data.items() if v is not None}
        )
        root = notification.root
        if isinstance(root, CancelledNotification):
            cancelled = root.params.requestId
            if cancelled in self._in_flight:
                await self._in_flight[cancelled].cancel()
            return
        if isinstance(root, ProgressNotification):
            callback = self._progress_callbacks.get(root.params.progressToken)
            if callback is not None:
                try:
                    await callback(root.params.progress, root.params.total, root.params.message)
                except Exception as exc:
                    logging.error("Progress callback raised an exception: %s", exc)
        await self._received_notification(notification)
        await self._handle_incoming(notification)
    except Exception as exc:
        logging.warning(f"Failed to validate notification: {exc}. Message was: {data}")


async def received_response(self: Any, kind: str, data: dict[str, Any]) -> None:
    """Handle a result or an error that `take_response` left."""
    request_id = self._normalize_request_id(data["id"])
    if not self._response_routers and type(self._response_streams.get(request_id)) is Waiter:
        outcome = data["result"] if kind == "result" else MODELS[kind].model_validate(data)
        self._response_streams.pop(request_id).settle(outcome)
        return
    await self._handle_response(session_message((kind, data)))


def take_response(self: Any, message: Message) -> bool:
    """Settle the request that a response is for. False if the session's loop has to look at it."""
    kind = message.kind
    if (kind != "result" and kind != "error") or self._response_routers:
        return False
    text = message.result if kind == "result" else message.error
    try:
        request_id = message.id
        data: dict[str, Any] = {kind: from_json(bytes(text or b""))}
    except ValueError:
        return False
    if type(self._response_streams.get(request_id)) is not Waiter or not fits(kind, data):
        return False
    outcome = data[kind]
    if kind == "error":
        outcome = JSONRPCError(jsonrpc="2.0", id=request_id, error=outcome)
    self._response_streams.pop(request_id).settle(outcome)
    return True


async def last_calls(self: Any) -> None:
    """Wait a moment for running handlers."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LAST_CALLS
    while self._in_flight and loop.time() < until:
        await asyncio.sleep(0.001)


async def fail_waiting(self: Any) -> None:
    """Fail the requests that have no answer, at the end of the connection."""
    error = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
    for request_id, waiter in list(self._response_streams.items()):
        try:
            await waiter.send(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
            await waiter.aclose()
        except Exception:
            logging.debug("request %r was given up before", request_id)
    self._response_streams.clear()


# -- sending ---------------------------------------------------------------------------------------


def error_answer(request_id: Any, error: Any) -> tuple[bytes, ...]:
    """Return an error as JSON text, in parts."""
    head = b'{"jsonrpc":"2.0","id":' + id_text(request_id) + b',"error":'
    return head, json_of(error), b"}"


def is_plain(model: Any) -> bool:
    """Whether a request or notification has no members beside those of its model."""
    root = getattr(model, "root", model)
    return not root.model_extra


def send_request(stock: Stock) -> Stock:
    """Make a `send_request` that awaits a future."""

    async def send_request(
        self: Any,
        request: Any,
        result_type: Any,
        request_read_timeout_seconds: Any = None,
        metadata: Any = None,
        progress_callback: Any = None,
    ) -> Any:
        end = end_of(self)
        if end is None or not is_plain(request):
            return await stock(
                self,
                request,
                result_type,
                request_read_timeout_seconds,
                metadata,
                progress_callback,
            )
        request_id = self._request_id
        self._request_id = request_id + 1
        head = b'{"jsonrpc":"2.0","id":%d,' % request_id
        if progress_callback is None:
            body = json_of(request)
        else:
            data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
            data.setdefault("params", {}).setdefault("_meta", {})["progressToken"] = request_id
            self._progress_callbacks[request_id] = progress_callback
            body = to_json(data)
        waiter = self._response_streams[request_id] = Waiter(end.loop)
        timer = None
        try:
            await end.send((head, body[1:]))
            timeout = request_read_timeout_seconds
            if timeout is None:
                timeout = self._session_read_timeout_seconds
            if timeout is not None:
                seconds = timeout.total_seconds()
                timer = end.loop.call_later(seconds, waiter.settle, TimeoutError)
            outcome = await waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            self._response_streams.pop(request_id, None)
            self._progress_callbacks.pop(request_id, None)
        if outcome is TimeoutError:
            raise McpError(
                ErrorData(
                    code=httpx.codes.REQUEST_TIMEOUT,
                    message=f"Timed out while waiting for response to "
                    f"{request.__class__.__name__}. Waited {seconds} seconds.",
                )
            )
        if isinstance(outcome, JSONRPCError):
            raise McpError(outcome.error)
        return result_type.model_validate(outcome)

    return send_request


def send_notification(stock: Stock) -> Stock:
    """Make a `send_notification` that writes JSON text."""

    async def send_notification(
        self: Any, notification: Any, related_request_id: Any = None
    ) -> None:
        end = end_of(self)
        if end is None or not is_plain(notification):
            await stock(self, notification, related_request_id)
            return
        await end.send((b'{"jsonrpc":"2.0",', json_of(notification)[1:]))

    return send_notification


def send_response(stock: Stock) -> Stock:
    """Make a `_send_response` that writes JSON text."""

    async def _send_response(self: Any, request_id: Any, response: Any) -> None:
        end = end_of(self)
        if end is None:
            await stock(self, request_id, response)
        elif isinstance(response, ErrorData):
            await end.reply(error_answer(request_id, response))
        else:
            head = b'{"jsonrpc":"2.0","id":' + id_text(request_id) + b',"result":'
            await end.reply((head, json_of(response), b"}"))

    return _send_response
