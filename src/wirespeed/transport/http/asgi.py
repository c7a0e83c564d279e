"""ASGI 3: a server as an application below another HTTP server. Loaded by the ``asgi`` of servers.

A request is given to an `HttpConnection` by an `AsgiLink`, which turns its scope into the head of
an HTTP/1.0 request. So both doors have one implementation. The connection is kept for the next
request, of any client, unless the response was a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed._exports import set_public_home
from wirespeed.transport.address import Address, quote_path
from wirespeed.transport.gate import check_authorities
from wirespeed.transport.http.asgi_link import AsgiLink
from wirespeed.transport.http.routes import make_site
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.service import Alive
from wirespeed.transport.taskpool_choice import close_pool, open_pool

if TYPE_CHECKING:
    from wirespeed.transport.service import Service
    from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.server")

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

KEPT = 256  # connections without a request


class _Life:
    """The part of an application that belongs to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, site: HttpSite, pool: TaskPool) -> None:
        self.loop = loop
        self.site = site
        self.pool = pool
        self.links: set[AsgiLink] = set()  # of requests
        self.idle: list[AsgiLink] = []
        self.stack = contextlib.AsyncExitStack()

    def take(self, max_links: int) -> AsgiLink:
        """A link for one request."""
        full = len(self.links) >= max_links
        link = (
            AsgiLink(self.site, self.pool, full=full) if full or not self.idle else self.idle.pop()
        )
        self.links.add(link)
        return link

    def give_back(self, link: AsgiLink, kept: bool) -> None:
        """The request is over. ``kept``: its response was sent whole."""
        self.links.discard(link)
        if kept and link.lasts and len(self.idle) < KEPT:
            self.idle.append(link)
        else:
            link.close()


class AsgiApp:
    """An ASGI 3 application: what `wirespeed.Server.asgi` and `wirespeed.litemcp.LiteServer.asgi`
    return.

    Servers that speak the lifespan protocol start and end it with themselves. With
    others it starts at the first request. An application that mounts this one has the lifespan::

        mcp = server.asgi()
        app = FastAPI(lifespan=mcp.lifespan)
        app.mount("/tools", mcp)
    """

    def __init__(self, service: Service, path: str, options: ListenOptions) -> None:
        if path in (*options.http.by_path, options.http.healthz):
            raise ValueError(f"{path} is the path of a route, too")
        if options.http.host_url is not None or options.http.directory is not None:
            raise ValueError("host_url and directory are for a server that listens itself")
        check_authorities([service], options)
        self._service = service
        self._path = quote_path(path)
        self._options = options
        self._life: _Life | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._serve_other(scope["type"], receive, send)
        life = self._life
        if life is None or life.loop is not asyncio.get_running_loop():
            life = await self._start()
        link = life.take(self._options.max_connections)
        kept = False
        try:
            if await self._take_in(link, scope, receive):
                start, data, over = link.take()
                if over and start is not None:  # most handlers do not wait
                    await send(start)
                    await send({"type": "http.response.body", "body": data})
                    kept = True
                else:
                    kept = await _respond(link, start, data, receive, send)
        except OSError:
            pass  # the client is gone: ASGI 3, "Disconnected Client"
        finally:
            life.give_back(link, kept)

    async def _serve_other(self, kind: str, receive: Receive, send: Send) -> None:
        if kind == "lifespan":
            await self._follow(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
        else:
            raise ValueError(f"this application serves no scope of the type {kind!r}")

    # -- life ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Start the server, and end it: for applications that mount this one."""
        await self._start()
        try:
            yield
        finally:
            await self._end()

    async def _follow(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol of ASGI."""
        await receive()
        try:
            await self._start()
        except Exception as exc:
            logger.exception("the server cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            await self._end()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> _Life:
        """Start the server on the running loop, unless it has been started there."""
        async with self._starting:
            loop = asyncio.get_running_loop()
            if self._life is not None and self._life.loop is loop:
                return self._life
            pool = open_pool(loop)
            site = make_site(
                {self._path: self._service},
                self._options,
                Address("http", "asgi"),
                # Who can reach the server is not known: behind a proxy of this machine, everyone.
                local=False,
                loop=loop,
                pool=pool,
            )
            life = _Life(loop, site, pool)

            async def end() -> None:
                site.close()
                for link in [*life.links, *life.idle]:
                    link.close()
                life.idle.clear()
                await site.aclose()
                await close_pool(pool)

            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(Alive([self._service]))
                stack.push_async_callback(end)
                life.stack = stack.pop_all()
            self._life = life
            return life

    async def _end(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.site.drain()
            await life.stack.aclose()

    # -- requests --------------------------------------------------------------------------------

    async def _take_in(self, link: AsgiLink, scope: Scope, receive: Receive) -> bool:
        """Give the request to the connection, until it is whole or refused. False: the client left
        before."""
        message = await receive()
        if message["type"] != "http.request":
            return False
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        link.begin(scope, body, more)
        while more and link.wants_body:
            await link.room()
            if not link.wants_body:
                break
            message = await receive()
            if message["type"] != "http.request":
                return False
            link.feed(message.get("body", b""))
            more = message.get("more_body", False)
        if not more:
            await link.room()
            link.finish()
        return True


async def _respond(
    link: AsgiLink, start: Message | None, data: bytes, receive: Receive, send: Send
) -> bool:
    """Send a response that is not complete yet, as it comes. Returns whether all was sent."""
    watching: asyncio.Task[None] | None = None
    started = over = False
    try:
        while not link.gone:
            if start is not None:
                await send(start)
                started = True
            if started and (data or over):
                await send({"type": "http.response.body", "body": data, "more_body": not over})
            if over:
                return True
            link.go_on()
            if not link.has_output and not link.over:
                if watching is None:
                    watching = link.loop.create_task(_watch(link, receive))
                await link.changed()
            start, data, over = link.take()
        return False
    finally:
        if watching is not None:
            watching.cancel()


async def _watch(link: AsgiLink, receive: Receive) -> None:
    """Wait for the client's leaving."""
    while (await receive())["type"] != "http.disconnect":
        pass
    link.close()


set_public_home(globals())
