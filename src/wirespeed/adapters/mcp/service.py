"""The SDK's servers as services: every transport of wirespeed serves them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel.server import Server
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

import wirespeed.adapters.mcp.sdk  # noqa: F401  (it gives the dispatcher what it needs)
from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
from wirespeed.adapters.mcp.eras import ServedConnection
from wirespeed.limits import Limits
from wirespeed.peer.service import HttpService

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.adapters")


def lowlevel(server: Any) -> Server[Any]:
    """The low-level server of an `MCPServer`, of a FastMCP server, or the server itself.

    TypeError: it is none of these.
    """
    for name in ("_lowlevel_server", "_mcp_server"):
        inner = getattr(server, name, None)
        if isinstance(inner, Server):
            return inner
    if not isinstance(server, Server):
        raise TypeError(f"a server of mcp is an MCPServer or a Server, not {server!r:.100}")
    return server


def verifies_tokens(server: Any) -> bool:
    """Whether an `MCPServer` or a FastMCP server demands a token. Only the SDK's own HTTP checks
    it."""
    settings = getattr(server, "settings", None)
    return any(getattr(owner, "auth", None) is not None for owner in (settings, server))


class _Life:
    """A lifespan of a server, entered and left in one task, as its scopes may demand."""

    def __init__(self, server: Server[Any]) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.state: Any = None
        self.context = contextvars.copy_context()
        self._over = asyncio.Event()
        self._task = loop.create_task(self._live(server))

    async def _live(self, server: Server[Any]) -> None:
        try:
            async with server.lifespan(server) as self.state:
                self.context = contextvars.copy_context()
                if not self.begun.done():
                    self.begun.set_result(None)
                await self._over.wait()
        except BaseException as exc:
            if self.begun.done():
                if not self._over.is_set():
                    logger.error("the lifespan of %s has ended", server.name, exc_info=exc)
                raise
            self.begun.set_exception(exc)

    async def abandon(self) -> None:
        """Leave the lifespan, also one that was entered only in part."""
        self._over.set()
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def end(self) -> None:
        """Leave the lifespan. Raises what it raises."""
        self._over.set()
        await asyncio.shield(self._task)


class SdkService(HttpService):
    """A server of the SDK for the listeners of wirespeed, as `wirespeed.serve` takes it.

    Args:
        server: An `MCPServer`, or a low-level `Server`.
        limits: The limits of each connection.
        shutdown_grace: Seconds that running requests have at the end.
        json_response: Whether clients of older revisions get no streams of events, so that handlers
            cannot ask them.
        raise_exceptions: Whether an exception of a handler ends its connection.
        over_stdio: Whether it serves stdio, which has no tokens.

    ValueError: the server verifies tokens, which only the SDK's own HTTP does.
    """

    legacy_versions = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
    modern_versions = tuple(MODERN_PROTOCOL_VERSIONS)

    def __init__(
        self,
        server: Any,
        *,
        limits: Limits | None = None,
        shutdown_grace: float = 5.0,
        json_response: bool = False,
        raise_exceptions: bool = False,
        over_stdio: bool = False,
    ) -> None:
        self.server = lowlevel(server)
        if not over_stdio and verifies_tokens(server):
            raise ValueError(
                f"the tokens of {self.server.name!r} are verified by the SDK's own HTTP alone: use "
                "server.run('streamable-http'), or serve it without auth and with authenticate=…"
            )
        self.name = self.server.name
        self.limits = Limits() if limits is None else limits
        self.shutdown_grace = shutdown_grace
        self._json_response = json_response
        self._raises = raise_exceptions
        self._held = 0
        self._life: _Life | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"SdkService({self.name!r})"

    async def hold(self) -> None:
        """Enter the lifespan, unless somebody has: see `wirespeed.transport.service.KeptAlive`."""
        self._held += 1
        if self._life is None:
            self._life = _Life(self.server)
        try:
            await asyncio.shield(self._life.begun)
        except BaseException:
            self._held -= 1
            if not self._held:
                life, self._life = self._life, None
                await life.abandon()
            raise

    async def release(self, held: None, /) -> None:
        """End a `hold`; the last one leaves the lifespan."""
        self._held -= 1
        if self._held or self._life is None:
            return
        life, self._life = self._life, None
        if self._tasks:
            await asyncio.wait(self._tasks)
        await life.end()

    def connect(
        self,
        make_link: Callable[[SdkDispatcher], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
        lane: bool = False,
    ) -> SdkDispatcher:
        """Serve one more client. ``lane``: its requests come from different clients."""
        if self._life is None or not self._life.begun.done():
            raise RuntimeError(f"{self!r} is not alive: hold() it first")
        connection = SdkDispatcher(self, loop, framer=framer, pool=pool)
        connection.shared = lane
        connection.drains_at_eof = True
        link = make_link(connection)
        kind = ServedConnection
        over_http = is_over_http(link)
        if over_http:
            from wirespeed.adapters.mcp.http import HttpServedConnection

            kind = HttpServedConnection
            connection.asks = not self._json_response
        served = self._life.context.run(
            kind, self.server, connection, self._life.state, raise_exceptions=self._raises
        )
        if over_http:
            connection.describe = served.describe  # type: ignore[attr-defined]
            if not lane:
                connection.agreed = lambda: served.version
        connection.on_ended = lambda: self._end(served)
        return connection

    def _end(self, served: ServedConnection) -> None:
        if served.ends:
            task = asyncio.get_running_loop().create_task(served.aclose())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def is_over_http(link: object) -> bool:
    """Whether a link has no stream of its own: its messages are bodies of HTTP."""
    module = sys.modules.get("wirespeed.peer.http.sessions")
    return module is not None and isinstance(link, module.SessionLink)
