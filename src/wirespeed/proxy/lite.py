"""Clients of LiteMCP in front of the proxy: each tool of a server is at a path of its own
(`LiteFronts`).

A client of LiteMCP is a client of the server's service, as every other one: what it may use, its
rate and its turns are those of its principal and its address. It has one connection there for all
tools, which stays open for a minute after its last request.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.framing.rfc6455 import CloseCode
from wirespeed.client.client import Client
from wirespeed.errors import WirespeedError
from wirespeed.litemcp.bridge import as_lite_server
from wirespeed.litemcp.endpoint import LiteEndpoint, refuse
from wirespeed.litemcp.server import LiteServer
from wirespeed.proxy.downstream import Downstream, DownstreamService
from wirespeed.transport.address import host_of
from wirespeed.transport.gate import Admission, Refused
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.options import Refusal
from wirespeed.transport.rate_limited_log import RateLimitedLog
from wirespeed.transport.service import Peer
from wirespeed.transport.taskpool_choice import LAST_WAIT

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.requests.middleware import OutboundRequest
    from wirespeed.client.results.features import ToolInfo
    from wirespeed.limits import Limits
    from wirespeed.litemcp.connection import LiteConnection
    from wirespeed.proxy.access.principals import ProxyAuthority
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.link import Link
    from wirespeed.transport.options import HttpRequest, User
    from wirespeed.transport.taskpool import TaskPool


logger = logging.getLogger("wirespeed.proxy")

MAX_SESSIONS = 1000  # of a server
SETTLED = 0.1  # seconds without a request after which a session makes room for another

Who = tuple[bytes | None, str]


class LiteService(DownstreamService, Protocol):
    """The service of the server that has the tools."""

    @property
    def auth(self) -> ProxyAuthority | None:
        """The access check of clients; None: that of the listener."""

    async def hold(self) -> None:
        """Hold the server. TransportError: it cannot be started."""

    async def release(self, held: None) -> None:
        """Let go of it."""

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
        searches: bool = True,
    ) -> Downstream:
        """Serve one more client."""


class LiteFronts:
    """The tools of one server that clients of LiteMCP use, and these clients.

    Args:
        service: The server's.
    """

    def __init__(self, service: LiteService) -> None:
        self.service = service
        self.sessions: dict[Who, LiteSession] = {}
        self.quiet = RateLimitedLog(logger)
        self._fronts: dict[str, LiteFront] = {}
        self._holders = 0
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, tool: str) -> LiteFront:
        """Return what is served for a tool: the same each time."""
        if tool not in self._fronts:
            self._fronts[tool] = LiteFront(self, tool)
        return self._fronts[tool]

    async def hold(self) -> None:
        """Hold the server. TransportError: it cannot be started."""
        await self.service.hold()
        self._holders += 1

    async def release(self) -> None:
        """Close the connections of all sessions, after the last listener, and release the server.
        Calls over HTTP are answered first."""
        self._holders -= 1
        if self._holders == 0:
            for session in list(self.sessions.values()):
                self.dismiss(session)
            if self._closing:
                await asyncio.wait(self._closing)
        await self.service.release(None)

    def session(self, principal: bytes | None, peer: Peer, tool: str) -> LiteSession:
        """Return what stands for a client. Refused: it may not use the tool, or there are too many
        clients."""
        self.check(principal, tool)
        who = principal, host_of(peer.address)
        session = self.sessions.get(who)
        if session is None:
            if len(self.sessions) >= MAX_SESSIONS and not self._dismiss_one():
                raise Refused(Refusal(503, "there are too many clients"))
            session = self.sessions[who] = LiteSession(self, who, peer.user)
        session.touch()
        return session

    def _dismiss_one(self) -> bool:
        """Make room for one more, and return whether there is any now."""
        idle = next((one for one in self.sessions.values() if one.idle_for >= SETTLED), None)
        if idle is not None:
            self.dismiss(idle)
        return idle is not None

    def check(self, principal: bytes | None, tool: str) -> None:
        """Refused: a client may not use a tool now."""
        access = self.service.access
        if access is not None:
            grant = access.of(principal)
            if grant is None or not grant.shows(tool):
                raise Refused(Refusal(403, "this client may not use this tool"))

    def review(self) -> None:
        """Principals may do other things now: end the connections to what is not allowed."""
        for session in self.sessions.values():
            for tool in list(session.tools):
                try:
                    self.check(session.who[0], tool)
                except Refused as exc:
                    session.drop(tool, exc.refusal.reason)

    def dismiss(self, session: LiteSession) -> None:
        """Close the connection of a session."""
        del self.sessions[session.who]
        task = asyncio.ensure_future(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class LiteFront:
    """A `wirespeed.transport.service.Service`: one tool."""

    subprotocol: str | None = None
    auth_headers = LiteServer.auth_headers
    refusal_status = 403

    def __init__(self, fronts: LiteFronts, tool: str) -> None:
        self.fronts = fronts
        self.tool = tool
        self._beginning: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The name that people read."""
        return f"{self.tool} of {self.fronts.service.name} (LiteMCP)"

    @property
    def limits(self) -> Limits:
        """The limits of a connection of a client."""
        return self.fronts.service.limits

    @property
    def shutdown_grace(self) -> float:
        """Seconds that running calls have at the end."""
        return self.fronts.service.shutdown_grace

    @property
    def auth(self) -> LiteAuthority | None:
        """The access check of clients; None: that of the listener."""
        authority = self.fronts.service.auth
        return None if authority is None else LiteAuthority(authority, self)

    async def hold(self) -> None:
        """Hold the server. TransportError: it cannot be started."""
        await self.fronts.hold()

    async def release(self, held: None) -> None:
        """Let go of it."""
        await self.fronts.release()

    def stream_framer(self) -> None:
        """It is not served on byte streams."""

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> LiteConnection:
        """Serve one more client, whose messages wait until the tool is known."""
        unknown = LiteServer(self.tool, limits=self.limits, shutdown_grace=self.shutdown_grace)
        unknown.tool_raw([], _no_call)
        connection = unknown.connect(make_link, loop=loop, pool=pool, framer=framer)
        connection.stream.paused = True
        task = loop.create_task(self._begin(connection))  # the listener says first who it is
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        connection.closed.add_done_callback(lambda _: task.cancel())
        return connection

    async def _begin(self, connection: LiteConnection) -> None:
        assert connection.peer is not None
        try:
            session = self.fronts.session(connection.principal, connection.peer, self.tool)
            with session:
                session_tool = await session.tool(self.tool)
                session_tool.connections.add(connection)
                try:
                    session_tool.server.adopt(connection)
                    await asyncio.wait((connection.closed,))
                finally:  # the task is cancelled when the connection is closed
                    session_tool.connections.discard(connection)
        except Refused as exc:
            connection.refuse(CloseCode.GOING_AWAY, exc.refusal.reason)

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> LiteTarget:
        """Return what answers HTTP requests."""
        return LiteTarget(self, options, loop, pool)


class LiteTarget(HttpTarget):
    """The HTTP requests for one tool at one listener."""

    methods = LiteEndpoint.methods

    def __init__(
        self,
        front: LiteFront,
        options: HttpOptions,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
    ) -> None:
        self.auth_headers = front.auth_headers
        self.refusal_status = front.refusal_status
        self._front = front
        self._options = options
        self._loop = loop
        self._pool = pool
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.TimerHandle | None = None

    def take(self, exchange: Exchange, body: bytes) -> None:
        """Answer a request as soon as the tool is known."""
        _ = exchange.headers  # keeps them
        try:
            peer = Peer(exchange.address, exchange.user)
            session = self._front.fronts.session(exchange.principal, peer, self._front.tool)
        except Refused as exc:
            refuse(exchange, exc.refusal.status, exc.refusal.reason)
            return
        session_tool = session.tools.get(self._front.tool)
        if session_tool is not None:
            self._endpoint(session_tool).take(exchange, body)
            return
        task = self._loop.create_task(self._take(session, exchange, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_gone = task.cancel

    async def _take(self, session: LiteSession, exchange: Exchange, body: bytes) -> None:
        try:
            with session:
                session_tool = await session.tool(self._front.tool)
        except Refused as exc:
            refuse(exchange, exc.refusal.status, exc.refusal.reason)
        except asyncio.CancelledError:
            if not exchange.gone:
                refuse(exchange, 503, "the server is shutting down")
            raise
        else:
            exchange.on_gone = None
            self._endpoint(session_tool).take(exchange, body)

    def _endpoint(self, session_tool: SessionTool) -> LiteEndpoint:
        endpoint = session_tool.endpoints.get(self)
        if endpoint is None:
            endpoint = session_tool.server.http_target(
                self._options, loop=self._loop, pool=self._pool
            )
            session_tool.endpoints[self] = endpoint
            if self._ending is not None:
                endpoint.drain()
        return endpoint

    def _endpoints(self) -> list[LiteEndpoint]:
        return [
            session_tool.endpoints[self]
            for session in self._front.fronts.sessions.values()
            for session_tool in (*session.tools.values(), *session.former)
            if self in session_tool.endpoints
        ]

    def drain(self) -> None:
        """Running calls have the grace time of the proxy."""
        if self._ending is None:
            self._ending = self._loop.call_later(self._front.shutdown_grace, self._give_up)
            for endpoint in self._endpoints():
                endpoint.drain()

    def _give_up(self) -> None:
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """End everything now."""
        if self._ending is not None:
            self._ending.cancel()
        self._give_up()
        for endpoint in self._endpoints():
            endpoint.close()


class SessionTool:
    """A tool as one session has it.

    Attributes:
        info: What the server says of it.
        server: The tool as one of LiteMCP.
        connections: Those of the client that use it.
        endpoints: What answers its requests, by the target of a listener.
    """

    def __init__(self, info: ToolInfo, server: LiteServer) -> None:
        self.info = info
        self.server = server
        self.connections: set[LiteConnection] = set()
        self.endpoints: dict[LiteTarget, LiteEndpoint] = {}


class LiteSession:
    """A client of LiteMCP, as a client of the server. ``with`` keeps it.

    Attributes:
        who: Its principal and its address.
        n_uses: The connections and requests that need it now.
        tools: The tools that it knows.
        former: Those that it knew last, whose calls may still run.
    """

    def __init__(self, fronts: LiteFronts, who: Who, user: User | None) -> None:
        self.who = who
        self.n_uses = 0
        self.tools: dict[str, SessionTool] = {}
        self.former: deque[SessionTool] = deque(maxlen=8)
        self._fronts = fronts
        self._lock = asyncio.Lock()
        self._unused = asyncio.Event()
        self._unused.set()
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        service = fronts.service
        config = service.config
        assert config is not None
        self._idle = config.delays.lite
        self._timer = self._loop.call_later(self._idle, self._check)
        place: Any = _Place(service, who[0], Peer(who[1], user))
        self._client = Client(
            place,
            era=config.era,
            timeout=None,  # those of the proxy hold
            handshake_timeout=config.start_timeout,
            on_tools_changed=self._changed,
            middleware=(self._count,),
            limits=service.limits,
        )

    def __enter__(self) -> None:
        self.n_uses += 1
        self._unused.clear()

    def __exit__(self, *_: object) -> None:
        self.n_uses -= 1
        if self.n_uses == 0:
            self._unused.set()
        self.touch()

    async def _count(self, request: OutboundRequest, call_next: Callable[..., Any]) -> Any:
        with self:
            return await call_next(request)

    @property
    def idle_for(self) -> float:
        """Seconds since its last use."""
        return 0.0 if self.n_uses else self._loop.time() - self._last

    def touch(self) -> None:
        """It is used now."""
        self._last = self._loop.time()

    def _check(self) -> None:
        left = self._idle - self.idle_for
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        elif self._fronts.sessions.get(self.who) is self:
            self._fronts.dismiss(self)

    async def tool(self, tool: str) -> SessionTool:
        """Return a tool. Refused: the server has none of this name, or cannot be asked."""
        async with self._lock:
            if tool not in self.tools:
                self.tools[tool] = await self._ask(tool)
            return self.tools[tool]

    async def _ask(self, tool: str) -> SessionTool:
        fronts = self._fronts
        service = fronts.service
        try:
            await self._client.open()
            infos = await self._client.list_tools()
            info = next((one for one in infos if one.name == tool), None)
            if info is None:
                raise Refused(Refusal(404, f"the server {service.name} has no tool {tool}"))
            server = await as_lite_server(
                self._client,
                tool,
                info=info,
                limits=service.limits,
                shutdown_grace=service.shutdown_grace,
            )
        except WirespeedError as exc:
            why = str(exc).partition("\n")[0]
            fronts.quiet.log(logging.WARNING, "%s: the tool %s: %s", service.name, tool, why)
            raise Refused(Refusal(503, why)) from None
        except Exception as exc:
            if not isinstance(exc, Refused):
                logger.exception("%s: the tool %s cannot be served", service.name, tool)
                exc = Refused(Refusal(503, "the tool cannot be served"))
            raise exc from None
        return SessionTool(info, server)

    def _changed(self, infos: list[ToolInfo]) -> None:
        """The server has other tools: clients connect again to those that are others."""
        now = {one.name: one for one in infos}
        for name, session_tool in list(self.tools.items()):
            if now.get(name) != session_tool.info:
                self.drop(name, f"the tool {name} has changed")

    def drop(self, tool: str, reason: str) -> None:
        """Forget a tool, and end the connections that use it. Running calls are answered."""
        session_tool = self.tools.pop(tool)
        self.former.append(session_tool)
        for connection in session_tool.connections:
            _part(connection, reason)

    async def close(self) -> None:
        """Close its connection when its calls are answered: targets give up those that take longer
        than the grace time."""
        self._timer.cancel()
        patience = self._fronts.service.shutdown_grace + 2 * LAST_WAIT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._unused.wait()
        await self._client.close()


class _Place:
    """The service of a server for the connection of one session: a target of `Client`."""

    subprotocol = "mcp"

    def __init__(self, service: LiteService, principal: bytes | None, peer: Peer) -> None:
        self.name = service.name
        self.shutdown_grace = service.shutdown_grace
        self._service = service
        self._principal = principal
        self._peer = peer

    def connect(self, make_link: Callable[[Any], Link], **options: Any) -> Downstream:
        """Serve the session."""
        downstream = self._service.connect(make_link, searches=False, **options)
        downstream.principal, downstream.peer = self._principal, self._peer
        return downstream


class LiteAuthority:
    """A `wirespeed.transport.gate.Authority` of one tool: that of the server, with the statuses and
    header fields of LiteMCP."""

    def __init__(self, authority: ProxyAuthority, front: LiteFront) -> None:
        self._authority = authority
        self._front = front

    def check(self, request: HttpRequest) -> Admission | Awaitable[Admission]:
        """Return the admission of a client. Refused: it may not use the tool."""
        try:
            found = self._authority.check(_with_one_field(request))
        except Refused as exc:
            raise _lite(exc) from None
        return self._wait(found) if inspect.isawaitable(found) else self._admitted(found)

    async def _wait(self, found: Awaitable[Admission]) -> Admission:
        try:
            return self._admitted(await found)
        except Refused as exc:
            raise _lite(exc) from None

    def _admitted(self, admission: Admission) -> Admission:
        self._front.fronts.check(admission.principal, self._front.tool)
        return admission


def _with_one_field(request: HttpRequest) -> HttpRequest:
    """Return a request with its token in ``Authorization``. Refused: it has two."""
    headers = request.headers
    other = headers.get("authentication")
    if other is None:
        return request
    if headers.get("authorization", other) != other:
        raise Refused(Refusal(403, "Authorization and Authentication differ"))
    return msgspec.structs.replace(request, headers=Headers({**headers, "authorization": other}))


def _lite(exc: Refused) -> Refused:
    refusal = exc.refusal
    return Refused(Refusal(403, refusal.reason)) if refusal.status == 401 else exc


def _part(connection: LiteConnection, reason: str) -> None:
    """End a connection: LiteMCP has no other answer to a question for a tool."""
    if connection.link is not None:
        connection.link.farewell = (CloseCode.GOING_AWAY, reason)
        connection.drain()


async def _no_call(arguments: list[str]) -> None:
    """Nothing is called before the tool is known."""
