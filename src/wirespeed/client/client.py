"""The client that people use: one target, many concurrent calls."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from wirespeed.client import handshake
from wirespeed.client.channels import Channel, channel_for
from wirespeed.client.connection import ClientConnection
from wirespeed.client.handshake import Agreement, Identity
from wirespeed.client.results import (
    CallToolResult,
    ListToolsResult,
    LogMessage,
    ToolInfo,
    complete,
)
from wirespeed.errors import (
    ChildExited,
    ConnectionClosed,
    InvalidResponse,
    TransportError,
    WirespeedError,
)
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import LOG_LEVELS, MODERN_VERSIONS

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed._core.envelope import Message
    from wirespeed.client.connection import Waiter
    from wirespeed.client.target import Stdio
    from wirespeed.server import Server

logger = logging.getLogger("wirespeed.client")

Era = Literal["auto", "legacy", "modern"]
OnProgress = Callable[[float, float | None, str | None], object]

MAX_PAGES = 10_000

encode = msgspec.json.Encoder().encode
_list = msgspec.json.Decoder(ListToolsResult).decode
_log = msgspec.json.Decoder(LogMessage).decode
_any = msgspec.json.Decoder(dict[str, Any]).decode


def _list_result(data: Any) -> ListToolsResult:
    result = _list(data)
    complete(result.result_type)
    return result


class Client:
    """An MCP client, to be used as an async context manager (or with `open` and `close`, which may
    run in different tasks).

    Args:
        target: ``Stdio(command, args)``, or a `Server` in this process.
        era: ``"auto"`` finds out whether the server is modern (2026-07-28) by asking
            ``server/discover`` first; ``"legacy"`` starts with ``initialize`` at once; ``"modern"``
            never falls back.
        timeout: Seconds that a request may take unless a call says otherwise; None for no limit.
            The server is told to cancel, and the call fails with `CallTimeout`.
        handshake_timeout: Seconds that the server may take to be ready.
        probe_timeout: Seconds after which a silent server is taken for a legacy one.
        name, version: What the client says it is.
        on_log: Called with each `LogMessage` of the server.
        on_tools_changed: Called with the new list of tools when the server says that it changed;
            may be a coroutine function.
        limits: What the connection may take.
    """

    def __init__(
        self,
        target: Stdio | Server | str,
        *,
        era: Era = "auto",
        timeout: float | None = 60.0,
        handshake_timeout: float = 60.0,
        probe_timeout: float = 10.0,
        name: str = "wirespeed",
        version: str | None = None,
        log_level: str | None = None,
        on_log: Callable[[LogMessage], object] | None = None,
        on_tools_changed: Callable[[list[ToolInfo]], object] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if era not in ("auto", "legacy", "modern"):
            raise ValueError('era must be "auto", "legacy" or "modern"')
        if log_level is not None and log_level not in LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
        from wirespeed import __version__

        channel_for(target)  # what is no target is said now
        self.target = target
        self.era = era
        self.timeout = timeout
        self.handshake_timeout = handshake_timeout
        self.probe_timeout = probe_timeout
        self._identity = Identity({"name": name, "version": version or __version__}, {}, log_level)
        self._on_log = on_log
        self._on_tools_changed = on_tools_changed
        self._limits = Limits() if limits is None else limits
        self._known_era: Era = era
        self._channel: Channel | None = None
        self._connection: ClientConnection | None = None
        self._agreement: Agreement | None = None
        self._opening: asyncio.Lock | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Event | None = None
        self._closing = False
        self._crashes = 0
        self._bad_line: bytes | None = None

    def __repr__(self) -> str:
        state = "closed" if self._agreement is None else self._agreement.revision.version
        return f"<Client of {self.target!r}: {state}>"

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
        """Launch or connect, and agree on a revision.

        LaunchError, ChildExited: the server cannot be started, or ended at once; the text has the
        command, the directory, the exit status and the end of its stderr. VersionMismatch: no
        revision in common. CallTimeout: it did not answer in time.
        """
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._connection is not None and self._connection.link is not None:
                return
            self._closing = False
            try:
                await self._start()
            except BaseException:
                await self._stop()
                raise

    async def close(self) -> None:
        """End it: calls that still wait fail with ConnectionClosed, a child process is ended and
        reaped. Safe to call twice, and from another task than `open`."""
        self._closing = True
        await self._stop()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def restart(self) -> None:
        """End the server, if it still runs, and start it anew."""
        await self.close()
        await self.open()

    async def _start(self) -> None:
        era = self._known_era
        if era == "legacy":
            await self._connect()
            agreement = await self._negotiate(self._legacy())
        elif era == "modern":
            await self._connect()
            agreement = await self._negotiate(self._modern(fall_back=False))
        else:
            agreement = await self._find_out()
        self._agreement = agreement
        # the era is the server's: it is not asked again when it restarts
        self._known_era = "modern" if agreement.revision.modern else "legacy"
        if agreement.revision.modern and self._on_tools_changed is not None:
            self._spawn(self._listen())
        elif not agreement.revision.modern and self._identity.log_level is not None:
            await self.set_log_level(self._identity.log_level)

    async def _find_out(self) -> Agreement:
        await self._connect()
        try:
            return await self._negotiate(self._modern(fall_back=True))
        except handshake.FallBack:
            pass
        except ChildExited:
            # no verdict: some legacy servers die of a first message they do not know
            await self._stop()
            await self._connect()
        try:
            return await self._negotiate(self._legacy())
        except handshake.VersionMismatch as exc:
            if not set(exc.supported) & set(MODERN_VERSIONS):
                raise
            # that is what a modern server says to initialize: it was only slow before
            return await self._negotiate(self._modern(fall_back=False))

    async def _modern(self, *, fall_back: bool) -> Agreement:
        assert self._connection is not None
        timeout = self.probe_timeout if fall_back else self.handshake_timeout
        return await handshake.modern(
            self._connection, self._identity, timeout, fall_back=fall_back
        )

    async def _legacy(self) -> Agreement:
        assert self._connection is not None
        return await handshake.legacy(self._connection, self._identity, self.handshake_timeout)

    async def _negotiate(self, negotiation: Any) -> Agreement:
        try:
            agreement: Agreement = await negotiation
        except (TimeoutError, InvalidResponse) as exc:
            if self._channel is None:
                raise
            reason = f"no handshake: {exc}"
            if self._bad_line is not None:
                reason += f"; it printed what is no message: {self._bad_line[:200]!r}"
            described = await self._channel.failure(reason)
            raise type(exc)(str(described)) from exc
        return agreement

    async def _connect(self) -> None:
        channel = channel_for(self.target)
        connection = ClientConnection(asyncio.get_running_loop(), self._limits, _Owner(self))
        self._channel, self._connection = channel, connection
        self._bad_line = None
        await channel.open(connection)

    async def _stop(self) -> None:
        connection, channel = self._connection, self._channel
        self._connection = self._channel = None
        self._agreement = None
        if connection is not None:
            connection.fail(ConnectionClosed("the client was closed"))
            if connection.link is not None:
                connection.link.flush()
                connection.link.close()
        if channel is not None:
            await channel.close()

    # -- what the link tells ---------------------------------------------------------------------

    def _link_gone(self, connection: ClientConnection, reason: str) -> None:
        """The server ended, or its stdout is closed: everything that waits fails."""
        if connection is not self._connection or connection.lost_error is not None:
            return
        self._spawn(self._explain(connection, reason))

    async def _explain(self, connection: ClientConnection, reason: str) -> None:
        channel = self._channel
        if channel is None or connection is not self._connection:
            return
        if self._bad_line is not None and connection.session.messages_in == 0:
            reason += f" (it printed what is no message: {self._bad_line[:200]!r})"
        error = await channel.failure(reason)
        connection.fail(error)
        if connection.link is not None:
            connection.link.close()
        if connection is self._connection and self._restarts_left() and self._agreement is not None:
            self._crashes += 1
            logger.warning("%s", error)
            if self._listens():
                self._spawn(self._come_back(connection))

    def _restarts_left(self) -> bool:
        return not self._closing and getattr(self.target, "restart", 0) > self._crashes

    def _listens(self) -> bool:
        agreement = self._agreement
        return (
            agreement is not None
            and agreement.revision.modern
            and self._on_tools_changed is not None
        )

    async def _come_back(self, lost: ClientConnection) -> None:
        """Start a crashed server again, waiting longer each time it crashes in a row."""
        assert self._opening is not None
        if self._crashes > 1:
            await asyncio.sleep(min(30.0, 0.1 * 2 ** (self._crashes - 2)))
        async with self._opening:
            if self._connection is not lost or self._closing:
                return
            await self._stop()
            try:
                await self._start()
            except BaseException:
                await self._stop()
                raise

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s", task.exception())

    def _notified(self, message: Message) -> None:
        method = message.method
        if method == "notifications/message" and self._on_log is not None:
            params = message.params
            try:
                entry = _log(b"" if params is None else params)
            except msgspec.DecodeError as exc:
                logger.warning("a log message of the server is not valid: %s", exc)
                return
            self._run_callback(self._on_log, entry)
        elif (
            method == "notifications/tools/list_changed"
            and self._on_tools_changed is not None
            and self._agreement is not None
        ):
            self._spawn(self._refetch())

    def _run_callback(self, callback: Callable[[Any], object], value: Any) -> None:
        try:
            outcome = callback(value)
        except Exception:
            logger.exception("a callback of the client failed")
            return
        if inspect.isawaitable(outcome):
            self._spawn(outcome)

    async def _refetch(self) -> None:
        tools = await self.list_tools()
        if self._on_tools_changed is not None:
            self._run_callback(self._on_tools_changed, tools)

    async def _listen(self) -> None:
        """Keep a subscriptions/listen open (2026-07-28 basic/patterns/subscriptions)."""
        connection = self._connection
        if connection is None:
            return
        waiter = connection.request(
            "subscriptions/listen", b'{"notifications":{"toolsListChanged":true}}', _any
        )
        try:
            await waiter.future
        except asyncio.CancelledError:
            if connection.link is not None:
                connection.abandon(waiter)
            raise
        except (ConnectionClosed, TransportError):
            pass  # listened to again after a restart
        except WirespeedError as exc:
            logger.warning("the server does not tell when its tools change: %s", exc)

    # -- what the server is ----------------------------------------------------------------------

    @property
    def _agreed(self) -> Agreement:
        if self._agreement is None:
            raise ConnectionClosed("the client is not open")
        return self._agreement

    @property
    def protocol_version(self) -> str:
        """The revision agreed on."""
        return self._agreed.revision.version

    @property
    def server_info(self) -> dict[str, Any] | None:
        """What the server says it is (``name``, ``version`` …)."""
        return self._agreed.server_info

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        return self._agreed.capabilities

    @property
    def instructions(self) -> str | None:
        """How a model is to use the server."""
        return self._agreed.instructions

    @property
    def counters(self) -> dict[str, int]:
        """What went over the link so far: see `wirespeed.core.Session.counters`."""
        return {} if self._connection is None else self._connection.session.counters

    # -- calls -----------------------------------------------------------------------------------

    async def _ready(self) -> ClientConnection:
        """The connection, when it is open and has room; a crashed child is started again here."""
        connection = self._connection
        if connection is None:
            raise ConnectionClosed("the client is not open")
        if connection.link is None and self._restarts_left_for(connection):
            await self._come_back(connection)
            connection = self._connection
            if connection is None:
                raise ConnectionClosed("the client is not open")
        while connection.full:
            await connection.wait_for_room()
        return connection

    def _restarts_left_for(self, connection: ClientConnection) -> bool:
        restart = getattr(self.target, "restart", 0)
        return connection.lost_error is not None and 0 < self._crashes <= restart

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        timeout: float | None = -1.0,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """Call a tool (server/tools). Cancelling the task cancels the call on the server.

        Args:
            name: The tool.
            arguments: A mapping or a msgspec struct, or JSON text as bytes.
            timeout: Seconds; None for no limit; by default the client's.
            on_progress: Called with progress, total and message of each progress notification.

        Raises:
            CallTimeout: No answer in time; said by this side, never by the server.
            RemoteError: The server answered with an error (a tool that fails is no error, but a
                result with ``is_error``).
            InvalidResponse: The answer is not valid.
            ConnectionClosed, ChildExited: The link is gone.
        """
        connection = self._connection
        if connection is None or connection.link is None or connection.full:
            connection = await self._ready()
        if timeout is None:
            timeout = math.inf
        elif timeout < 0:
            timeout = math.inf if self.timeout is None else self.timeout
        waiter = connection.call_tool(name, arguments, timeout, on_progress)
        try:
            result: CallToolResult = await waiter.future
        except asyncio.CancelledError:
            self._abandon(connection, waiter)
            raise
        self._crashes = 0
        return result

    def _abandon(self, connection: ClientConnection, waiter: Waiter) -> None:
        if waiter.future.cancelled():
            connection.abandon(waiter)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = -1.0,
        on_progress: OnProgress | None = None,
        decode: Callable[[Any], Any] = _any,
    ) -> Any:
        """Send any request. ``params`` is without ``_meta``, which the client adds; ``decode``
        makes something of the result's JSON text. Errors as of `call_tool`."""
        connection = await self._ready()
        if timeout is None:
            timeout = math.inf
        elif timeout < 0:
            timeout = math.inf if self.timeout is None else self.timeout
        waiter = connection.request(
            method,
            None if params is None else encode(params),
            decode,
            timeout=timeout,
            on_progress=on_progress,
        )
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._abandon(connection, waiter)
            raise

    async def list_tools(self, *, timeout: float | None = -1.0) -> list[ToolInfo]:
        """All tools, from all pages."""
        return [tool async for tool in self.iter_tools(timeout=timeout)]

    async def iter_tools(self, *, timeout: float | None = -1.0) -> AsyncIterator[ToolInfo]:
        """The tools, page by page as they are asked for. InvalidResponse for a server whose pages
        never end."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await self.list_tools_page(cursor, timeout=timeout)
            for tool in page.tools:
                yield tool
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise InvalidResponse("the pages of tools/list go in a circle")
            seen.add(cursor)
        raise InvalidResponse(f"tools/list has more than {MAX_PAGES} pages")

    async def list_tools_page(
        self, cursor: str | None = None, *, timeout: float | None = -1.0
    ) -> ListToolsResult:
        """One page of tools/list; ``next_cursor`` is None on the last."""
        params = {} if cursor is None else {"cursor": cursor}
        result: ListToolsResult = await self.request(
            "tools/list", params, timeout=timeout, decode=_list_result
        )
        return result

    async def ping(self, *, timeout: float | None = -1.0) -> None:
        """Ask whether the server is there; a modern one, which has no ping, for its discovery."""
        method = "server/discover" if self._agreed.revision.modern else "ping"
        await self.request(method, timeout=timeout)

    async def set_log_level(self, level: str) -> None:
        """The least severe level of log messages to get. In 2026-07-28 each request says it."""
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        self._identity.log_level = level
        agreed = self._agreed
        if not agreed.revision.modern:
            await self.request("logging/setLevel", {"level": level})
        elif self._connection is not None:
            version = agreed.revision.version
            self._connection.use(agreed.revision, self._identity.meta(version))


class _Owner:
    """What a connection tells its client; the client itself stays out of the reference cycle."""

    __slots__ = ("_client", "connection")

    def __init__(self, client: Client) -> None:
        self._client = client

    def on_notification(self, message: Message) -> None:
        self._client._notified(message)

    def on_bad_line(self, message: Message) -> None:
        if self._client._bad_line is None:
            raw = message.raw
            self._client._bad_line = b"" if raw is None else raw.copy()[:500]

    def on_link_eof(self) -> None:
        connection = self._client._connection
        if connection is not None:
            self._client._link_gone(connection, "the server closed its output")

    def on_link_lost(self, exc: BaseException | None) -> None:
        connection = self._client._connection
        if connection is not None and exc is not None:
            self._client._link_gone(connection, f"the link to the server broke ({exc})")
