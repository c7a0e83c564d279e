"""Middleware of a server: around requests of clients, and around requests to clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.middleware.chain import Chain
    from wirespeed.server.middleware.functions import AskMiddleware, AskNext, Middleware
    from wirespeed.server.requests.call import Serving
    from wirespeed.server.requests.observer import Observer

Function = TypeVar("Function", bound="Middleware")
AskFunction = TypeVar("AskFunction", bound="AskMiddleware")


class ServerRequest:
    """A request that the server makes to its client (legacy eras), as middleware sees it.

    Attributes:
        method: ``elicitation/create``, ``sampling/createMessage``, ``roots/list`` …
        params: The JSON text of the params, or None; may be replaced by another.
        connection_id: See `wirespeed.types.InboundRequest`.
    """

    __slots__ = ("_about", "_connection", "_timeout", "method", "params")

    def __init__(
        self,
        connection: Serving,
        method: str,
        params: bytes | None,
        timeout: float | None,
        about: int,
    ) -> None:
        self._about = about
        self._connection = connection
        self._timeout = timeout
        self.method = method
        self.params = params

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this process has or had."""
        return self._connection.serial


class MiddlewareStack:
    """The middleware of a server.

    Args:
        connections: The clients of the server, at each moment.
        mounted: Returns a middleware that stands for those of the mounted servers, or None.
        outer: Returns the middleware of the servers on which the server is mounted.

    Attributes:
        links: The middleware of requests, the outermost first.
        chain: What every request passes first; None without middleware.
        asks: What every question to a client passes first; None without middleware.
        observer: What counts and traces the requests of every connection made from now on, or None.
        watch: Sees every notification, both ways; or None.
    """

    chain: Chain | None
    asks: Callable[[Any, str, bytes | None, float | None, int], Future[bytes]] | None
    observer: Observer | None
    watch: Callable[[Serving, bool, str, bytes | None], None] | None

    def __init__(
        self,
        connections: Collection[ServerConnection],
        mounted: Callable[[], Middleware | None],
        outer: Callable[[], Iterable[MiddlewareStack]],
    ) -> None:
        self._connections = connections
        self._mounted = mounted
        self._outer = outer
        self.chain = None
        self.asks = None
        self.observer = None
        self.watch = None
        self.links: tuple[Middleware, ...] = ()
        self._ask_links: tuple[AskMiddleware, ...] = ()

    def observe(self, **options: Any) -> Observer:
        """See `Server.observe`."""
        if self.observer is None:
            from wirespeed.server.requests.observer import Observer

            self.observer = Observer(**options)
        return self.observer

    def add(self, middleware: Function) -> Function:
        """See `Server.add_middleware`."""
        if not callable(middleware):
            raise TypeError(f"a middleware must be callable, not {type(middleware).__name__}")
        self.links = (*self.links, middleware)
        self.chain_changed()
        return middleware

    def add_ask(self, middleware: AskFunction) -> AskFunction:
        """See `Server.add_ask_middleware`."""
        if not callable(middleware):
            raise TypeError(f"a middleware must be callable, not {type(middleware).__name__}")
        self._ask_links = (*self._ask_links, middleware)
        self.asks = _Asking(self._ask_links)
        return middleware

    def chain_changed(self, *, for_all: bool = False) -> None:
        """Middleware was added or removed, here or at a mounted server. ``for_all``: for the
        clients that are connected, too."""
        from wirespeed.server.middleware.chain import Chain

        behind = self._mounted()
        links = self.links if behind is None else (*self.links, behind)
        self.chain = Chain(links) if links else None
        if for_all:
            for connection in list(self._connections):
                connection.through = self.chain
        for stack in self._outer():
            stack.chain_changed(for_all=for_all)


class _Asking:
    """Sends the server's requests through middleware."""

    def __init__(self, links: tuple[AskMiddleware, ...]) -> None:
        self._links = links

    def __call__(
        self,
        connection: Serving,
        method: str,
        params: bytes | None,
        timeout: float | None,
        about: int,
    ) -> Future[bytes]:
        request = ServerRequest(connection, method, params, timeout, about)
        return cast("Future[bytes]", connection.loop.create_task(self._run(request)))

    async def _run(self, request: ServerRequest) -> bytes:
        answer = await self._step(0)(request)
        if not isinstance(answer, bytes):
            raise TypeError(f"a middleware must return bytes, not {type(answer).__name__}")
        return answer

    def _step(self, at: int) -> AskNext:
        if at == len(self._links):
            return _ask

        async def call_next(request: ServerRequest) -> bytes:
            return await self._links[at](request, self._step(at + 1))

        return call_next


async def _ask(request: ServerRequest) -> bytes:
    return await request._connection.ask_client(
        request.method, request.params, request._timeout, request._about
    )


set_public_home(globals())
