"""Clients of the SDK on every target of wirespeed: `connect` and `Client`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp
from mcp.client.stdio import StdioServerParameters
from mcp.server import MCPServer
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
)

import wirespeed.adapters.mcp.sdk  # noqa: F401  (it gives the dispatcher what it needs)
from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
from wirespeed.client.connection.channels import channel_for
from wirespeed.client.http.answers import Challenged
from wirespeed.client.targets import RECONNECTS, Http, Target, as_target
from wirespeed.errors import HttpStatusError, RemoteError, WirespeedError
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.transport.backoff import RESTARTS
from wirespeed.transport.taskpool_choice import close_pool, open_pool

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest

    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.channels import Channel
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.adapters")

HANDSHAKE = 60.0  # seconds for the handshake of a new link


def sdk_error(exc: WirespeedError) -> MCPError:
    """The SDK's error that says the same."""
    if isinstance(exc, RemoteError):
        return MCPError(code=exc.code, message=exc.message, data=exc.data)
    code = CONNECTION_CLOSED
    if isinstance(exc, HttpStatusError):
        code = {404: METHOD_NOT_FOUND, 400: INVALID_REQUEST}.get(exc.status, INTERNAL_ERROR)
    failed = MCPError(code=code, message=str(exc))
    failed.__cause__ = exc
    return failed


class TargetConnection(SdkDispatcher):
    """One link to a target."""

    exit_note = ""  # set by the channel of a child process
    resends = True
    probing = 0
    answerer = None

    def probe(self) -> None:
        """No message shows whether a child that has exited still answers."""
        return None

    def fail_request(self, number: int, exc: WirespeedError) -> None:
        """The server did not answer a request, over HTTP."""
        self.fail_sent(number, exc if isinstance(exc, Challenged) else sdk_error(exc))


class TargetDispatcher:
    """The SDK's dispatcher to a target: its links, one after another.

    A link that is lost is made again for the next request, as often as the target allows. To a
    server with a handshake it begins with that again, and what the server has kept is lost.

    Args:
        target: The target.
        limits: The limits of each link.
    """

    def __init__(self, target: Target, limits: Limits | None = None) -> None:
        self.target = target
        self.limits = Limits() if limits is None else limits
        self.on_stream_exception: Any = None
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._live: TargetConnection | None = None
        self._pool: TaskPool | None = None
        self._handlers: tuple[OnRequest[Any], OnNotify[Any], OnNotifyIntercept | None] | None = None
        self._context: contextvars.Context | None = None
        self._greeting: Mapping[str, Any] | None = None  # of `initialize`
        self._modern = False
        self._losses = 0  # in a row
        self._ended = False
        self._lock = asyncio.Lock()
        self._over = self._loop.create_future()

    # -- links -----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make the first link. TransportError: it cannot be made."""
        await self._open()

    async def _open(self) -> TargetConnection:
        if self._pool is None:
            self._pool = open_pool(self._loop)
        channel = channel_for(self.target)
        made: list[TargetConnection] = []

        def join(framer: Framer | None) -> ClientConnection:
            connection = TargetConnection(
                self, self._loop, role="client", framer=framer, pool=self._pool
            )
            connection.names_requests = not isinstance(self.target, Http)
            connection.on_stream_exception = self._observe
            connection.on_ended = lambda: self._lost(channel, connection)
            made.append(connection)
            if self._handlers is not None:
                self._serve(connection)
            return cast("ClientConnection", connection)

        try:
            await channel.open(join, self.limits)
        except BaseException:
            await channel.close(hurry=True)
            raise
        self._channel, self._live = channel, made[0]
        return made[0]

    @property
    def shutdown_grace(self) -> float:
        """Seconds that handlers have at the end."""
        return 0.0

    async def _observe(self, exc: Exception) -> None:
        if self.on_stream_exception is not None:
            await self.on_stream_exception(exc)

    def _serve(self, connection: TargetConnection) -> None:
        assert self._handlers is not None
        on_request, on_notify, intercept = self._handlers
        connection.serve(on_request, on_notify, intercept=intercept, context=self._context)

    def _lost(self, channel: Channel, connection: TargetConnection) -> None:
        channel.released()
        if connection is not self._live or self._over.done():
            return
        self._losses += 1
        if not self._may_revive:
            self._over.set_result(None)

    @property
    def _may_revive(self) -> bool:
        allowed = getattr(self.target, "restart", 0)
        if allowed is None:
            allowed = RECONNECTS if self._modern else 0
        return bool(self._losses <= allowed)

    async def _usable(self) -> TargetConnection:
        """The link for a request. MCPError: it is lost, and is not made again."""
        live = self._live
        if live is not None and live.link is not None:
            return live
        async with self._lock:
            live = self._live
            while live is None or live.link is None:
                if self._over.done() or not self._may_revive:
                    raise await self._explained(MCPError(CONNECTION_CLOSED, "Connection closed"))
                await asyncio.sleep(RESTARTS.pause(self._losses - 2))
                channel = self._channel
                if channel is not None:
                    reason = await channel.failure("the connection was lost")
                    logger.warning("%s; the connection is made again", reason)
                    await channel.close()
                    self._channel = None
                if self._over.done():
                    continue
                try:
                    live = await self._renewed()
                except WirespeedError as exc:
                    self._losses += 1
                    live = None
                    if not self._may_revive:
                        raise sdk_error(exc) from exc
            return live

    async def _renewed(self) -> TargetConnection:
        """Return a new link, ready for requests. A link whose handshake fails is closed. MCPError:
        the server refuses."""
        live = await self._open()
        try:
            await self._greet(live)
            if self._over.done():  # while it was made
                raise MCPError(CONNECTION_CLOSED, "Connection closed")
        except BaseException as exc:
            if isinstance(exc, MCPError) and live.link is not None:  # else its loss was counted
                self._losses += 1
            self._live = None
            live.stop()
            with anyio.CancelScope(shield=True):
                await self._hang_up()
            raise
        return live

    async def _greet(self, live: TargetConnection) -> None:
        """Begin a session with a server of the era of handshakes again."""
        if self._modern or self._greeting is None:
            return
        options = {"cancel_on_abandon": False, "timeout": HANDSHAKE}
        result = await live.ask("initialize", self._greeting, options, 0)
        with contextlib.suppress(KeyError, TypeError):
            live.agree(result["protocolVersion"])
        await live.tell("notifications/initialized", None, 0)

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.hang_up()
            await channel.close()

    async def close(self) -> None:
        """Close the link, and wait until everything is released."""
        self._ended = True
        if not self._over.done():
            self._over.set_result(None)
        if self._live is not None:
            self._live.stop()
        if self._pool is not None:
            await close_pool(self._pool)
        await self._hang_up()

    # -- mcp.shared.dispatcher.Dispatcher --------------------------------------------------------

    async def run(
        self,
        on_request: OnRequest[Any],
        on_notify: OnNotify[Any],
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve what the server says until the connection ends for good."""
        self._handlers = on_request, on_notify, on_notify_intercept
        self._context = contextvars.copy_context()
        if self._live is not None:
            self._serve(self._live)
        task_status.started()
        try:
            await asyncio.shield(self._over)
        finally:
            if not self._over.done():
                self._over.set_result(None)
            if self._live is not None:
                self._live.stop()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the result. MCPError: the server answered with an error, or
        not at all."""
        live = self._live
        if live is None or live.link is None:
            live = await self._usable()
        if live.revision is None:
            self._note_era(live, params)
        probe = method == "server/discover"
        for n in itertools.count():
            live.probing += probe  # a challenge ends it: its time must not run while a user logs in
            try:
                result = await live.ask(method, params, opts, 0)
                break
            except Challenged as exc:
                if not await exc.answer(n):
                    raise sdk_error(exc) from exc
            except MCPError as exc:
                if exc.code != CONNECTION_CLOSED or live.link is not None or self._ended:
                    raise
                raise await self._explained(exc) from None
            finally:
                live.probing -= probe
        self._losses = 0
        if method == "initialize":
            self._greeting = dict(params or {})
            with contextlib.suppress(KeyError, TypeError):
                live.agree(result["protocolVersion"])
        return result

    async def _explained(self, exc: MCPError) -> MCPError:
        """The error of a request whose link was lost, with the reason."""
        channel = self._channel
        if channel is None or self._ended:
            return exc
        reason = await channel.failure("the connection was lost")
        return MCPError(code=exc.code, message=f"{exc.message}: {reason}")

    def _note_era(self, live: TargetConnection, params: Mapping[str, Any] | None) -> None:
        meta = (params or {}).get("_meta")
        version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
        if version in REVISIONS:
            self._modern = True
            if isinstance(self.target, Http):
                live.agree(version)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification, unless the connection has ended."""
        if self._live is not None:
            await self._live.tell(method, params, 0)


def sdk_target(target: Any) -> Target | None:
    """The target of an argument of a user; None for what the SDK itself connects to: a server in
    this process, or a transport. ValueError, TypeError: it is none of these."""
    if isinstance(target, Server | MCPServer) or hasattr(target, "__aenter__"):
        return None
    if isinstance(target, StdioServerParameters):
        from wirespeed.transport.child.command import Stdio

        return Stdio(target.command, target.args, env=target.env, cwd=target.cwd)
    return as_target(target)


@contextlib.asynccontextmanager
async def connect(target: Any, *, limits: Limits | None = None) -> AsyncIterator[TargetDispatcher]:
    """Connect to a server: the dispatcher for a `mcp.ClientSession`.

    >>> async with connect("ws://127.0.0.1:8765/mcp") as dispatcher:
    ...     async with mcp.ClientSession(dispatcher=dispatcher) as session:
    ...         await session.initialize()

    Args:
        target: Whatever a `wirespeed.Client` takes: a URL, `wirespeed.Stdio`, `wirespeed.Http`,
            `wirespeed.WebSocket` or `wirespeed.Socket` with their restarts and logins, a file; or
            the SDK's `StdioServerParameters`.
        limits: The limits of the connection.

    TransportError: the connection failed.
    """
    found = sdk_target(target)
    if found is None:
        raise TypeError(f"{type(target).__name__} is for mcp.Client, which connects to it itself")
    dispatcher = TargetDispatcher(found, limits)
    try:
        await dispatcher.open()
        yield dispatcher
    finally:
        with anyio.CancelScope(shield=True):
            await dispatcher.close()


@dataclass
class Client(mcp.Client):  # type: ignore[misc]  # without the SDK
    """`mcp.Client` on every target of wirespeed: see `connect`.

    Servers of this process and transports are connected to by the SDK itself.
    """

    server: Any

    def __post_init__(self) -> None:
        target = sdk_target(self.server)
        if target is None:
            super().__post_init__()
            return
        given, self.server = self.server, _PLACE
        try:
            super().__post_init__()
        finally:
            self.server = given

        async def connector(stack: AsyncExitStack, mode: str, raises: bool) -> Any:
            return await stack.enter_async_context(connect(target))

        self._connect = connector


class _Place:
    """Stands for a target while the SDK's own `Client` is set up: a transport that is not used."""

    async def __aenter__(self) -> Any:
        raise AssertionError

    async def __aexit__(self, *exc: object) -> None:
        pass


_PLACE = _Place()
