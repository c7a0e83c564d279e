"""Servers and clients of `mcp` 1.x at URLs: WebSocket, ``unix:`` and ``tcp://``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Unpack, cast

from mcp.client.stdio import StdioServerParameters

from wirespeed.adapters.mcp1.envelopes import error_text
from wirespeed.adapters.mcp1.stdio import Streams, child_streams, serve_stdio_streams
from wirespeed.adapters.mcp1.streams import ConnectionEnd
from wirespeed.client.connection.network_channels import SocketChannel, WebSocketChannel
from wirespeed.client.targets import Socket, WebSocket, from_url
from wirespeed.limits import Limits
from wirespeed.transport.net import serve as listening

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.transport.link import Link
    from wirespeed.transport.options import ListenFields
    from wirespeed.transport.service import Peer
    from wirespeed.transport.taskpool import TaskPool

log = logging.getLogger("wirespeed.adapters")

# What the SDK's own name for a closed connection has as its code.
CLOSING = (-32000, "the server is shutting down")


@contextlib.asynccontextmanager
async def connect(
    target: str | StdioServerParameters | WebSocket | Socket, *, limits: Limits | None = None
) -> AsyncIterator[Streams]:
    """Connect to a server: the streams for a `ClientSession`.

    Args:
        target: ``ws://…``, ``wss://…``, ``unix:…`` or ``tcp://…``; or a `wirespeed.WebSocket`
            or `wirespeed.Socket`, which may have headers, tokens and logins; or the
            `StdioServerParameters` of a program.
        limits: The limits of the connection.

    ValueError: the URL is wrong, or of HTTP, which stays the SDK's own. TransportError: the
    connection failed.
    """

    def join(framer: Framer | None) -> ConnectionEnd:
        return ConnectionEnd("client", framer=framer, limits=limits)

    if isinstance(target, StdioServerParameters):
        import sys

        async with child_streams(target, sys.stderr, lambda role: join(None)) as streams:
            yield streams
        return
    value = from_url(target) if isinstance(target, str) else target
    channel: WebSocketChannel | SocketChannel
    if isinstance(value, WebSocket):
        channel = WebSocketChannel(value)
    elif isinstance(value, Socket):
        channel = SocketChannel(value)
    else:
        raise ValueError(
            f"{target} is for streamablehttp_client() of mcp: this adapter has WebSocket, unix: "
            "and tcp://"
        )
    ends: list[ConnectionEnd] = []

    def joined(framer: Framer | None) -> ClientConnection:
        end = join(framer)
        end.lost.add_done_callback(lambda _: channel.released())
        ends.append(end)
        return cast("ClientConnection", end)

    try:
        await channel.open(joined, Limits() if limits is None else limits)
        yield ends[0].streams()
    finally:
        channel.hang_up()
        await asyncio.shield(asyncio.ensure_future(channel.close()))


class ServedEnd(ConnectionEnd):
    """The connection of one client of a listener: a `wirespeed.transport.Connection`."""

    principal: bytes | None = None
    peer: Peer | None = None

    def __init__(self, framer: Framer | None, limits: Limits) -> None:
        super().__init__("server", framer=framer, limits=limits)
        self.draining = False
        self.closed: asyncio.Future[BaseException | None] = self.loop.create_future()

    def pop(self) -> Message:
        while True:
            message = super().pop()
            if not (self.draining and message.kind == "request"):
                return message
            self.answer(error_text(message.raw_id or b"null", *CLOSING))

    def drain(self) -> None:
        self.draining = True
        self._end_if_idle()

    def answer(self, data: bytes | tuple[bytes, ...]) -> None:
        super().answer(data)
        if self.draining:
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self.n_open and self.link is not None:
            self.link.flush()
            if self.link is not None:
                self.link.end()

    def abort(self) -> None:
        if self.link is not None:
            self.link.close()


class SessionService:
    """A `wirespeed.transport.Service`: a server of `mcp` 1.x with a session for each client.

    Args:
        server: A low-level `Server` or a `FastMCP` of the SDK.
        limits: The limits of one connection.
        raise_exceptions: As of `Server.run`.

    ValueError: the server verifies tokens, which only the SDK's own HTTP does.
    """

    auth_headers = ("authorization",)
    refusal_status = 401
    subprotocol = "mcp"

    def __init__(
        self, server: Any, *, limits: Limits | None = None, raise_exceptions: bool = False
    ) -> None:
        self.server = getattr(server, "_mcp_server", server)
        if getattr(getattr(server, "settings", None), "auth", None) is not None:
            raise ValueError(
                f"the tokens of {self.server.name!r} are verified by the SDK's own HTTP alone: use "
                "server.run('streamable-http'), or serve it without auth and with authenticate=…"
            )
        self.limits = Limits() if limits is None else limits
        self.raise_exceptions = raise_exceptions

    async def hold(self) -> None:
        """Begin: each session has a lifespan of its own."""

    async def release(self, held: None, /) -> None:
        """End."""

    def stream_framer(self) -> Framer | None:
        return None

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> ServedEnd:
        end = ServedEnd(framer, self.limits)
        make_link(end)
        task = loop.create_task(self._serve(end))
        task.add_done_callback(lambda task: self._served(end, task))
        return end

    async def _serve(self, end: ServedEnd) -> None:
        await self.server.run(
            *end.streams(),
            self.server.create_initialization_options(),
            raise_exceptions=self.raise_exceptions,
        )

    def _served(self, end: ServedEnd, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            log.error("a session of %s failed", self.server.name, exc_info=failure)
        end.abort()
        if not end.closed.done():
            end.closed.set_result(failure)


async def serve(
    server: Any,
    url: str | None = None,
    *,
    limits: Limits | None = None,
    raise_exceptions: bool = False,
    **options: Unpack[ListenFields],
) -> None:
    """Serve a `FastMCP` or a low-level `Server` of `mcp` 1.x, until the client or a signal ends it.

    Args:
        server: The server.
        url: ``ws://…``, ``wss://…``, ``unix:…`` or ``tcp://…``; None for stdio.
        limits: The limits of one connection.
        raise_exceptions: As of `Server.run`.
        options: Those of `wirespeed.serve`.

    ValueError: the URL or an option is wrong, the URL is of HTTP, which stays the SDK's own, or the
    server verifies tokens, which only that does.
    """
    if url is not None:
        service = SessionService(server, limits=limits, raise_exceptions=raise_exceptions)
        await listening.serve(url, service, **options)
        return
    lowlevel = getattr(server, "_mcp_server", server)

    def make_end(role: str) -> ConnectionEnd:
        return ConnectionEnd(role, limits=limits)

    async with serve_stdio_streams(make_end) as (read, write):
        await lowlevel.run(
            read,
            write,
            lowlevel.create_initialization_options(),
            raise_exceptions=raise_exceptions,
        )
