"""What a tool may know of its request, and say about it while it runs."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed._core.envelope import Message
    from wirespeed.server.connection import Call

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Ready:
    """An awaitable that is done."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_READY = _Ready()


class Context:
    """The request a tool works on. A parameter annotated with this class gets it::

        @server.tool
        async def crawl(url: str, ctx: Context) -> int:
            await ctx.progress(0, total=3)

    `progress` and `log` queue at once and may be called from a worker thread too; what they give
    may be awaited, and then waits while the client is slow to read. After the tool has ended they
    do nothing.
    """

    __slots__ = (
        "_call",
        "_client_capabilities",
        "_client_info",
        "_log_from",
        "_progress",
        "_raw_id",
        "_token",
    )

    def __init__(self, call: Call, message: Message) -> None:
        self._call = call
        self._raw_id = message.raw_id
        token = message.lease("params._meta.progressToken")
        self._token: bytes | None = None if token is None else token.copy()
        if self._token is not None and self._token[0] not in b'"-0123456789':
            self._token = None  # neither string nor number
        self._progress: float | None = None
        if call.revision.modern:
            level = message.text("params._meta.io.modelcontextprotocol/logLevel")
            self._log_from: int | None = None if level is None else LOG_LEVELS.index(level)
            self._client_info = _copy(message, "clientInfo")
            self._client_capabilities = _copy(message, "clientCapabilities")
        else:
            self._log_from = None
            self._client_info = self._client_capabilities = None

    @property
    def request_id(self) -> int | str:
        """The id that the client gave the request."""
        decoded: int | str = msgspec.json.decode(self._raw_id or b"null", type=int | str)
        return decoded

    @property
    def protocol_version(self) -> str:
        """The revision of MCP that this request is served by."""
        version: str = self._call.revision.version
        return version

    @property
    def client_info(self) -> dict[str, Any] | None:
        """What the client says it is (``name``, ``version`` …); self-reported, so for display
        only. None where it says nothing."""
        if self._call.revision.modern:
            return _decode(self._client_info)
        info: dict[str, Any] | None = self._call.connection.state.client_info
        return info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client says it can do, for this request."""
        if self._call.revision.modern:
            return _decode(self._client_capabilities) or {}
        capabilities: dict[str, Any] = self._call.connection.state.capabilities
        return capabilities

    @property
    def cancelled(self) -> bool:
        """Whether the client wants no answer any more. A tool in a thread looks here; one on the
        loop is cancelled."""
        return self._call.ended

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> _Ready | Future[None]:
        """Tell how far the work is (basic/utilities/progress).

        Only sent where the client asked for it, and only while the value rises. ``message`` is
        left out for clients of 2024-11-05.
        """
        if self._token is None or (self._progress is not None and progress <= self._progress):
            return _READY
        if not math.isfinite(progress) or not (total is None or math.isfinite(total)):
            raise ValueError("progress and total must be finite numbers")
        params = b'{"progressToken":%b,"progress":%b' % (self._token, _encode(progress))
        if total is not None:
            params += b',"total":%b' % _encode(total)
        if message is not None and self._call.revision.progress_message:
            params += b',"message":%b' % _encode(message)
        return self._on_loop(self._send_progress, progress, params + b"}")

    def _send_progress(self, progress: float, params: bytes) -> None:
        # looked at here again: threads of the same call may have overtaken each other
        if self._progress is None or progress > self._progress:
            self._progress = progress
            self._call.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> _Ready | Future[None]:
        """Send a log message to the client (server/utilities/logging).

        ``level`` is one of debug, info, notice, warning, error, critical, alert, emergency;
        ``data`` any JSON-encodable value. Sent when it reaches the level that the client set, in
        2026-07-28 only where this request asked for logs.
        """
        try:
            severity = LOG_LEVELS.index(level)
        except ValueError:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}") from None
        if self._call.revision.modern:
            if self._log_from is None or severity < self._log_from:
                return _READY
        elif severity < self._call.connection.state.log_level:
            return _READY
        params = b'{"level":%b' % _encode(level)
        if logger is not None:
            params += b',"logger":%b' % _encode(logger)
        params += b',"data":%b}' % _encode(data)
        return self._on_loop(self._call.notify, "notifications/message", params)

    def debug(self, data: Any) -> _Ready | Future[None]:
        """`log` at level debug."""
        return self.log("debug", data)

    def info(self, data: Any) -> _Ready | Future[None]:
        """`log` at level info."""
        return self.log("info", data)

    def warning(self, data: Any) -> _Ready | Future[None]:
        """`log` at level warning."""
        return self.log("warning", data)

    def error(self, data: Any) -> _Ready | Future[None]:
        """`log` at level error."""
        return self.log("error", data)

    def _on_loop(self, send: Callable[..., None], *args: Any) -> _Ready | Future[None]:
        connection = self._call.connection
        if threading.get_ident() != connection.thread:
            try:
                connection.loop.call_soon_threadsafe(send, *args)
            except RuntimeError:
                logger.debug("a tool's thread outlived its server's loop")
            return _READY
        send(*args)
        waiter: Future[None] | None = connection.wait_for_room()
        return _READY if waiter is None else waiter


def _copy(message: Message, name: str) -> bytes | None:
    lease = message.lease(f"params._meta.io.modelcontextprotocol/{name}")
    return None if lease is None else lease.copy()


def _decode(data: bytes | None) -> dict[str, Any] | None:
    return None if data is None else msgspec.json.decode(data, type=dict[str, Any])
