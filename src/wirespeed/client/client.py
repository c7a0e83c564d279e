"""The client that people use: one target, many concurrent calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from wirespeed.client.channels import as_target
from wirespeed.client.connection import ClientConnection
from wirespeed.client.handshake import Agreement, Identity
from wirespeed.client.lifecycle import Era, Lifecycle
from wirespeed.client.results import (
    CallToolResult,
    ListToolsResult,
    LogMessage,
    ToolInfo,
    complete,
)
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    RemoteError,
    TransportError,
)
from wirespeed.limits import Limits
from wirespeed.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from types import TracebackType

    from wirespeed._core.envelope import Message
    from wirespeed.client.remote import Socket, WebSocket
    from wirespeed.client.target import Stdio
    from wirespeed.server import Server

__all__ = ["Client", "Era", "OnProgress"]

logger = logging.getLogger("wirespeed.client")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]

MAX_PAGES = 10_000

encode = msgspec.json.Encoder().encode
_list = msgspec.json.Decoder(ListToolsResult).decode
_log = msgspec.json.Decoder(LogMessage).decode
_any = msgspec.json.Decoder(dict[str, Any]).decode


class _Acknowledged(msgspec.Struct):
    notifications: dict[str, Any] = {}


_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


def _list_result(data: Any) -> ListToolsResult:
    result = _list(data)
    complete(result.result_type)
    return result


class Client:
    """An MCP client, to be used as an async context manager (or with `open` and `close`, which may
    run in different tasks).

    Args:
        target: ``Stdio(command, args)``, ``WebSocket(url)``, ``Socket(url)``, a URL (``ws://…``,
            ``wss://…``, ``unix:…``, ``tcp://…``) for the latter two, or a `Server` in this process.
        era: ``"auto"`` finds out whether the server is modern (2026-07-28) by asking
            ``server/discover`` first; ``"legacy"`` starts with ``initialize`` at once; ``"modern"``
            never falls back. What was found out is kept for restarts.
        timeout: Seconds that a request may take unless a call says otherwise, waiting until it can
            be sent included; None for no limit. The server is told to cancel, and the call fails
            with `CallTimeout`.
        handshake_timeout: Seconds that the server may take to be ready.
        probe_timeout: Seconds after which a silent server is taken for a legacy one.
        name, version: What the client says it is.
        log_level: The least severe level of log messages to get, as of `set_log_level`.
        on_log: Called with each `LogMessage` of the server.
        on_tools_changed: Called with the new list of tools when the server says that it changed,
            and after a restart. A server that may be restarted (``Stdio(restart=…)``), or connected
            to again (``WebSocket(restart=…)``), then is so as soon as it was lost; otherwise at the
            next call.
        limits: What the connection may take.
        auto_start: False leaves the start to the first request inside ``async with`` (`open` still
            starts at once).

    Callbacks run on the loop's thread, and may be coroutine functions: those run in tasks. What
    they raise is logged.
    """

    def __init__(
        self,
        target: Stdio | WebSocket | Socket | Server | str,
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
        auto_start: bool = True,
    ) -> None:
        if era not in ("auto", "legacy", "modern"):
            raise ValueError('era must be "auto", "legacy" or "modern"')
        if log_level is not None and log_level not in LOG_LEVELS:
            raise ValueError(f"log_level must be one of {', '.join(LOG_LEVELS)}")
        for what, seconds in (
            ("timeout", timeout),
            ("handshake_timeout", handshake_timeout),
            ("probe_timeout", probe_timeout),
        ):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{what} must be seconds above 0, not {seconds!r}")
        from wirespeed import __version__

        self.target = as_target(target)
        self.era = era
        self.timeout = timeout
        self.handshake_timeout = handshake_timeout
        self.probe_timeout = probe_timeout
        self._identity = Identity({"name": name, "version": version or __version__}, {}, log_level)
        self._on_log = on_log
        self._on_tools_changed = on_tools_changed
        self._auto_start = auto_start
        self._start_at_use = False
        self._fetching: asyncio.Future[None] | None = None
        self._stale = False
        self._life = Lifecycle(
            self.target,
            era,
            self._identity,
            Limits() if limits is None else limits,
            self,
            handshake_timeout=handshake_timeout,
            probe_timeout=probe_timeout,
        )

    def __repr__(self) -> str:
        agreement = self._life.agreement
        state = "closed" if agreement is None else agreement.revision.version
        return f"<Client of {self.target!r}: {state}>"

    # -- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._auto_start:
            await self.open()
        else:
            self._start_at_use = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Launch or connect, and agree on a revision. Nothing happens if that is so already.

        LaunchError, ChildExited: the server cannot be started, or ended at once; the text has the
        command, the directory, the exit status and the end of its stderr. TransportError: a server
        elsewhere cannot be reached; UpgradeRefused: it answered with an HTTP status, which says
        nothing of eras. VersionMismatch: no revision in common. CallTimeout: it did not answer in
        time. ConnectionClosed: `close` was called meanwhile.
        """
        await self._life.open()

    async def close(self) -> None:
        """End it: calls that still wait fail with ConnectionClosed, a child process is ended and
        reaped. Safe to call twice, and from another task than `open`."""
        self._start_at_use = False
        await self._life.close()

    async def restart(self) -> None:
        """End the server, if it still runs, and start it anew."""
        await self._life.close("the client was restarted")
        await self._life.open()

    # -- for the lifecycle -----------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether news of the server are wanted even while nothing is called."""
        return self._on_tools_changed is not None

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done; called by the lifecycle."""
        level = self._identity.log_level
        if agreement.revision.modern:
            if self._on_tools_changed is not None:
                self._listen(connection)
        elif level is not None and "logging" not in agreement.capabilities:
            logger.warning("the server has no logging, so log_level does nothing")
        elif level is not None:
            waiter = connection.request(
                "logging/setLevel",
                encode({"level": level}),
                _any,
                timeout=self.handshake_timeout,
            )
            try:
                await waiter.future
            except RemoteError as exc:
                logger.warning("the server refuses the log level %s: %s", level, exc)
        if again and self._on_tools_changed is not None:
            self._fetch_soon()  # nobody told what changed meanwhile

    def notified(self, message: Message) -> None:
        """A notification that is not about a call; called by the lifecycle."""
        method = message.method
        if method == "notifications/message" and self._on_log is not None:
            params = message.params
            try:
                entry = _log(b"" if params is None else params)
            except msgspec.DecodeError as exc:
                logger.warning("a log message of the server is not valid: %s", exc)
                return
            self._run_callback(self._on_log, entry)
        elif method == "notifications/tools/list_changed":
            if self._on_tools_changed is not None and self._life.agreement is not None:
                self._fetch_soon()
        elif method == "notifications/subscriptions/acknowledged":
            params = message.params
            try:
                honoured = _acknowledged(b"" if params is None else params).notifications
            except msgspec.DecodeError:
                honoured = {}
            if honoured.get("toolsListChanged") is not True:
                logger.warning("the server does not tell when its tools change")

    # -- callbacks -------------------------------------------------------------------------------

    def _run_callback(self, callback: Callable[[Any], object], value: Any) -> None:
        try:
            outcome = callback(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            logger.exception("a callback of the client failed")
        else:
            self._life.spawn_outcome(outcome)

    def _fetch_soon(self) -> None:
        """Get the new list for `on_tools_changed`: one request at a time, so that lists come in
        order, and once for changes in a row."""
        self._stale = True
        if self._fetching is None or self._fetching.done():
            self._fetching = self._life.spawn(self._fetch())

    async def _fetch(self) -> None:
        while self._stale and self._on_tools_changed is not None:
            self._stale = False
            crashes = self._life.crashes
            tools = await self.list_tools()
            self._life.crashes = crashes  # only what the user asks for proves the server well
            self._run_callback(self._on_tools_changed, tools)

    def _listen(self, connection: ClientConnection) -> None:
        """Keep a subscriptions/listen open (2026-07-28 basic/patterns/subscriptions)."""
        waiter = connection.request(
            "subscriptions/listen", b'{"notifications":{"toolsListChanged":true}}', _any
        )
        waiter.future.add_done_callback(_listen_ended)

    # -- what the server is ----------------------------------------------------------------------

    @property
    def _agreed(self) -> Agreement:
        agreement = self._life.agreement
        if agreement is None:
            raise ConnectionClosed("the client is not open")
        return agreement

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
        live = self._life.live
        return {} if live is None else live.session.counters

    # -- calls -----------------------------------------------------------------------------------

    async def _ready(self, method: str, timeout: float) -> tuple[ClientConnection, float]:
        """The connection, when a request can be sent, and the seconds that are left for it."""
        if self._start_at_use and self._life.live is None:
            await self.open()
        if timeout == math.inf:
            return await self._life.ready(), timeout
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            async with asyncio.timeout_at(until):
                connection = await self._life.ready()
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout):  # why the server could not be started again
                raise
            raise CallTimeout(f"{method} could not be sent within its time limit") from None
        return connection, max(0.0, until - loop.time())

    def _seconds(self, timeout: float | None) -> float:
        if timeout is not None and timeout < 0:
            timeout = self.timeout
        return math.inf if timeout is None else timeout

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
            arguments: A mapping or a msgspec struct, or the JSON text of an object as bytes (which
                is checked).
            timeout: Seconds; None for no limit; by default (or below 0) the client's.
            on_progress: Called with progress, total and message of each progress notification.

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
        limit = self._seconds(timeout)
        connection = self._life.live
        if connection is None or not connection.ready:
            connection, limit = await self._ready("tools/call", limit)
        waiter = connection.call_tool(name, arguments, limit, on_progress)
        try:
            result: CallToolResult = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():  # otherwise its answer came in this very moment
                connection.abandon(waiter)
            raise
        self._life.crashes = 0
        return result

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
        makes something of the result's JSON text (bytes-like, to be kept only as a copy). Errors as
        of `call_tool`."""
        body = None
        if params is not None:
            if not isinstance(params, Mapping):
                raise TypeError(f"params must be a mapping, not {type(params).__name__}")
            if "_meta" in params:
                raise ValueError("params._meta is what the client writes")
            body = encode(dict(params))
        connection, limit = await self._ready(method, self._seconds(timeout))
        waiter = connection.request(method, body, decode, timeout=limit, on_progress=on_progress)
        try:
            result = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            raise
        self._life.crashes = 0
        return result

    async def list_tools(self, *, timeout: float | None = -1.0) -> list[ToolInfo]:
        """All tools, from all pages."""
        return [tool async for tool in self.iter_tools(timeout=timeout)]

    async def iter_tools(self, *, timeout: float | None = -1.0) -> AsyncGenerator[ToolInfo, None]:
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
        agreed = self._agreed
        self._identity.log_level = level
        if not agreed.revision.modern:
            await self.request("logging/setLevel", {"level": level})
        elif self._life.live is not None:
            self._life.live.use(agreed.revision, self._identity.meta(agreed.revision.version))


def _listen_ended(future: asyncio.Future[Any]) -> None:
    """A graceful end needs no word, and after a crash the next link listens anew."""
    if future.cancelled():
        return
    exc = future.exception()
    if exc is not None and not isinstance(exc, ConnectionClosed | TransportError):
        logger.warning("the server does not tell when its tools change: %s", exc)
