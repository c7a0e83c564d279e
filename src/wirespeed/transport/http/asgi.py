"""ASGI 3: a server as an application below another HTTP server. Loaded by the ``asgi`` of servers.

A request is given to an `HttpConnection` by a link that turns its scope into the head of an
HTTP/1.0 request, and the head of the response back into values. So both doors have one
implementation. The connection is kept for the next request of the same client, unless the response
was a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from wirespeed._exports import set_public_home
from wirespeed.transport.address import Address, quote_path
from wirespeed.transport.gate import check_authorities
from wirespeed.transport.http.connection import HttpConnection, HttpSite
from wirespeed.transport.http.site import make_site
from wirespeed.transport.link import Endpoint, Link
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.service import alive
from wirespeed.transport.taskpool_choice import close_pool, open_pool

if TYPE_CHECKING:
    from wirespeed.transport.service import Service

__all__ = ["AsgiApp"]

logger = logging.getLogger("wirespeed.server")

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

# Fields of a connection, which is the server's: of requests and of responses. Servers write Date.
_OURS = frozenset((b"connection", b"transfer-encoding", b"expect", b"upgrade", b"keep-alive"))
_THEIRS = frozenset((b"connection", b"keep-alive", b"date"))

KEPT = 256  # connections without a request


class AsgiLink(Link):
    """Joins a connection to the calls of one request. The application takes the output itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> None:
        super().__init__(loop, endpoint)
        self.gone = False
        self.complete = False  # the response is
        self._waiter: asyncio.Future[None] | None = None

    def start(self) -> None:
        """The application reads."""

    def update_reading(self) -> None:
        """The application reads."""

    def flush(self) -> None:
        if len(self.wire.outbox):
            self._wake()

    async def changed(self) -> None:
        """Wait for output, or for the end."""
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def half_close(self) -> None:
        """All is said."""
        self.complete = True
        self.close()

    def lose(self, exc: BaseException | None) -> None:
        """Stop now, because of ``exc``; ``on_lost(exc)`` follows at once."""
        if not self.gone:
            self.gone = True
            endpoint = self.endpoint
            self.detach()
            self._wake()
            endpoint.on_lost(exc)

    def close(self) -> None:
        """Stop now, and drop queued bytes. ``on_lost(None)`` follows at once."""
        self.lose(None)


class _Life:
    """What an application has on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, site: HttpSite) -> None:
        self.loop = loop
        self.site = site
        self.links: set[AsgiLink] = set()  # of requests
        self.idle: dict[str, tuple[AsgiLink, HttpConnection]] = {}  # by client
        self.stack = contextlib.AsyncExitStack()


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
        check_authorities([service], options)
        self._service = service
        self._path = quote_path(path)
        self._options = options
        self._life: _Life | None = None
        self._starting = asyncio.Lock()
        # of the last request, because most have the same path
        self._raw, self._quoted = path, self._path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            life = self._life
            if life is None or life.loop is not asyncio.get_running_loop():
                life = await self._start()
            await self._serve(life, scope, receive, send)
        elif kind == "lifespan":
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
            life = _Life(loop, site)

            async def end() -> None:
                site.close()
                for link in [*life.links, *(link for link, _ in life.idle.values())]:
                    link.close()
                life.idle.clear()
                await site.aclose()
                await close_pool(pool)

            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(alive([self._service]))
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

    async def _serve(self, life: _Life, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        peer = "a client" if client is None else _place(*client)
        full = len(life.links) >= self._options.max_connections
        known = None if full else life.idle.pop(peer, None)
        if known is None:
            connection = HttpConnection(life.site, peer, full=full)
            link = AsgiLink(life.loop, connection)
        else:
            link, connection = known
        life.links.add(link)
        watching: asyncio.Task[None] | None = None
        over = False
        try:
            await self._take_in(link, scope, receive)
            started = waited = False
            while not over:
                chunks = link.wire.data_to_send()
                if not link.gone:
                    link.check_drained()
                    link.deliver()  # with all output gone the response may be complete
                over = link.complete or (connection.exchange is None and not len(link.wire.outbox))
                if not chunks and not over and not link.gone:
                    if not waited:
                        # most handlers end in the next turn, and need no one who watches the client
                        waited = True
                        await asyncio.sleep(0)
                        continue
                    if watching is None:
                        watching = life.loop.create_task(_watch(link, receive))
                    await link.changed()
                    continue
                data = b"".join(chunks)
                if data and not started:
                    head, _, data = data.partition(b"\r\n\r\n")
                    await send(_response_start(head))
                    started = True
                over = over and (link.complete or not link.gone)
                if started and (data or over):
                    await send({"type": "http.response.body", "body": data, "more_body": not over})
                if link.gone:
                    break
        except OSError:
            over = False  # the client is gone: ASGI 3, "Disconnected Client"
        finally:
            if watching is not None:
                watching.cancel()
            life.links.discard(link)
            if over and not link.gone and peer not in life.idle:
                life.idle[peer] = link, connection
                if len(life.idle) > KEPT:  # the longest unused one goes
                    life.idle.pop(next(iter(life.idle)))[0].close()
            else:
                link.close()

    async def _take_in(self, link: AsgiLink, scope: Scope, receive: Receive) -> None:
        """Give the request to the connection, until it is whole or refused."""
        head, length = self._request_head(scope)
        wire, limit = link.wire, self._service.limits.max_message
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                link.close()
                return
            body, more = message.get("body", b""), message.get("more_body", False)
            if length is not None:
                wire.receive_data(head + body)
                head = b""
            else:
                # in chunks, or without a body: the length comes first
                pieces.append(body)
                size += len(body)
                if more and size <= limit:
                    continue
                end = b"content-length: %d\r\n\r\n" % size if size else b"\r\n"
                wire.receive_data(head[:-2] + end + b"".join(pieces))
            link.deliver()
            if not more or size > limit or link.gone or len(wire.outbox):
                return

    def _request_head(self, scope: Scope) -> tuple[bytes, bytes | None]:
        """Return the head of a request, and the length of its body if the client names it."""
        path, root = scope["path"], scope.get("root_path", "")
        if root and path.startswith(root):  # else the server has removed it
            path = path[len(root) :] or "/"
        if path != self._raw:
            self._raw, self._quoted = path, quote(path, safe="/%:@!$&'()*+,;=-._~")
        query = scope.get("query_string") or b""
        target = self._quoted.encode() + (b"?" + query if query else b"")
        length = None
        lines = [b"%b %b HTTP/1.0\r\nconnection: keep-alive" % (scope["method"].encode(), target)]
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            if name not in _OURS:
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n", length


async def _watch(link: AsgiLink, receive: Receive) -> None:
    """Wait for the client's leaving."""
    while not link.gone:
        message = await receive()
        if message["type"] == "http.disconnect":
            link.close()


def _response_start(head: bytes) -> Message:
    status, *lines = head.split(b"\r\n")
    fields = []
    for line in lines:
        name, _, value = line.partition(b": ")
        name = name.lower()
        if name not in _THEIRS:
            fields.append((name, value))
    return {
        "type": "http.response.start",
        "status": int(status.split(b" ", 2)[1]),
        "headers": fields,
    }


def _place(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


set_public_home(globals())
