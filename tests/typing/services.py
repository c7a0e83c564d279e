"""Services of other SDKs: read by type checkers, never run. What is wrong here must be found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_type

from wirespeed import HttpOptions, HttpRequest, Limits, Refusal, Server, User, serve
from wirespeed.core import FrameStream, LineFramer, Message, Session
from wirespeed.litemcp import LiteServer
from wirespeed.peer import (
    DrainingConnection,
    HttpService,
    McpExchange,
    SessionConnection,
    SseEndpoint,
    StreamableHttp,
)
from wirespeed.transport import (
    Admission,
    Alive,
    Authority,
    Connection,
    DrainsLast,
    Exchange,
    Forked,
    Graceful,
    HasAuthority,
    HasSessions,
    HttpTarget,
    KeptAlive,
    Link,
    OverHttp,
    OverSse,
    Peer,
    ReadsHeaders,
    Refused,
    Running,
    Service,
    TaskPool,
    WellKnown,
)

logger = logging.getLogger("typed")


class Typed(SessionConnection):
    def __init__(self, service: TypedService, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(Session(limits=service.limits), service, loop, logger)

    def take(self, message: Message) -> None:
        route = self.route_of(message)
        if isinstance(route, McpExchange):
            assert_type(route.pause(1.0), bool)
            assert_type(route.address, str)
        assert_type(self.session_id, str | None)
        self.agree("2025-11-25")

    def start(self, message: Message, pool: TaskPool) -> None:
        async def answer() -> bytes:
            return b"{}"

        running = self.run(message, answer(), pool)
        assert_type(running, Running | None)
        if running is not None:
            self.cancel_handler(running)
            self.handler_ended(running)


class OnlyTokens:
    def check(self, request: HttpRequest) -> Admission:
        if not request.token:
            raise Refused(Refusal(401, "no token"))
        return Admission(User("ada"), b"ada")


class Hello(HttpTarget):
    methods = ("GET",)

    def take(self, exchange: Exchange, body: bytes) -> None:
        exchange.respond(200, b"hello", [("Content-Type", "text/plain")])


class TypedService(HttpService):
    limits = Limits(max_message=1 << 20)
    drains_last = False
    reads_headers = True

    def __init__(self) -> None:
        self.auth: Authority | None = OnlyTokens()

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Any = None,
        lane: bool = False,
    ) -> Typed:
        connection = Typed(self, loop)
        make_link(connection)
        return connection

    def before_fork(self, n: int) -> None: ...

    def after_fork(self, worker: int) -> None: ...

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        return {"/.well-known/hello": Hello()}


class Lines(DrainingConnection):
    """An end without a session."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(service, loop, None)
        self.wire = FrameStream(LineFramer(2**20))

    def answered_all(self) -> bool:
        return True

    def on_grace_over(self) -> None:
        self.abort()


async def served(pool: TaskPool) -> None:
    loop = asyncio.get_running_loop()
    found = TypedService()
    service: Service = found
    kept: KeptAlive = found
    graceful: Graceful = found
    over: tuple[OverHttp, OverSse, WellKnown] = (found, found, found)
    sessions: HasSessions = found
    others: tuple[ReadsHeaders, Forked, DrainsLast, HasAuthority] = (found, found, found, found)
    assert_type(others[0].reads_headers, bool)
    assert_type(graceful.shutdown_grace, float)
    assert_type(over[0].http_target(HttpOptions(), loop=loop, pool=pool), HttpTarget)
    assert_type(sessions.has_sessions, bool)
    assert_type(found.legacy_versions, Sequence[str])
    StreamableHttp(found, HttpOptions(), loop, pool)
    SseEndpoint(found, HttpOptions(), loop, pool)
    connection: Connection = Lines(service, loop)
    assert_type(connection.peer, Peer | None)
    async with Alive([service]) as alive:
        await alive.hold(Server("one").service)
    await kept.release(await kept.hold())
    await serve("http://127.0.0.1:0", {"/a": found, "/b": service, "/c": LiteServer("c")})


class Complete:
    """All members of a `Service`."""

    limits = Limits()
    subprotocol = None
    auth_headers = ("authorization",)
    refusal_status = 401

    async def hold(self) -> None: ...

    async def release(self, held: None, /) -> None: ...

    def stream_framer(self) -> None: ...

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Any = None,
    ) -> Lines:
        raise NotImplementedError


class WithoutRelease:
    """All members but one."""

    limits = Limits()
    subprotocol = None
    auth_headers = ("authorization",)
    refusal_status = 401

    async def hold(self) -> None: ...

    def stream_framer(self) -> None: ...

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Any = None,
    ) -> Lines:
        raise NotImplementedError


class WithoutConnect(HttpService):
    """All members but one."""


async def wrong() -> None:
    complete: Service = Complete()
    lacking: Service = WithoutRelease()  # type: ignore[assignment]
    await serve("unix:/s", WithoutRelease())  # type: ignore[arg-type]
    WithoutConnect()  # type: ignore[abstract]
    assert complete is not lacking
