"""Middleware: what every request passes on its way in, and every question on its way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from wirespeed.server.part import Part

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed._core.envelope import Message
    from wirespeed.server.call import Serving
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.observer import Observer
    from wirespeed.server.passage import InboundRequest, Reply
    from wirespeed.server.server import Server

__all__ = ["AskMiddleware", "AskNext", "CallNext", "Middleware", "Middlewares", "ServerRequest"]

CallNext: TypeAlias = "Callable[[InboundRequest], Awaitable[Reply | None]]"
Middleware: TypeAlias = "Callable[[InboundRequest, CallNext], Awaitable[Reply | None]]"


class ServerRequest:
    """A request that the server makes to its client (legacy eras), as middleware sees it.

    Attributes:
        method: ``elicitation/create``, ``sampling/createMessage``, ``roots/list`` …
        params: The JSON text of the params, or None; may be replaced by another.
        connection_id: See `wirespeed.server.passage.InboundRequest`.
    """

    __slots__ = ("_connection", "_timeout", "method", "params")

    def __init__(
        self,
        connection: Serving,
        method: str,
        params: bytes | None,
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self.method = method
        self.params = params

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this process has or had."""
        return self._connection.serial


AskNext: TypeAlias = Callable[[ServerRequest], Awaitable[bytes]]
AskMiddleware: TypeAlias = Callable[[ServerRequest, AskNext], Awaitable[bytes]]


class Middlewares(Part):
    """What a server has for middleware."""

    # What every request passes first: (connection, message); or None.
    _through: Callable[[ServerConnection, Message], None] | None
    # What every question to a client passes first; or None.
    _asks: Callable[[Any, str, bytes | None, float | None], Future[bytes]] | None
    # What counts and traces the requests of every connection made from now on; or None.
    _observer: Observer | None

    def _setup_middleware(self) -> None:
        self._through = None
        self._asks = None
        self._observer = None
        self._links: tuple[Middleware, ...] = ()
        self._ask_links: tuple[AskMiddleware, ...] = ()

    def observe(self, **options: Any) -> Observer:
        """The observer of this server, made at the first call, with the options of
        `wirespeed.server.observer.Observer`. It sees the connections that are made from now on."""
        if self._observer is None:
            from wirespeed.server.observer import Observer

            self._observer = Observer(**options)
        return self._observer

    def add_middleware(self, middleware: Middleware) -> Middleware:
        """Put a coroutine function around every request of every client that connects from now on::

            @server.add_middleware
            async def timed(request, call_next):
                began = time.perf_counter()
                try:
                    return await call_next(request)
                finally:
                    log(request.method, request.name, time.perf_counter() - began)

        What was added first is outermost. A middleware sees the request before anything is decoded
        (`wirespeed.server.passage.InboundRequest`), and the result after it was encoded
        (`wirespeed.server.passage.Reply`). It may answer by itself, with ``Reply.result(…)`` or by
        raising `wirespeed.errors.ProtocolError`; may replace the handler's reply; may call
        ``call_next`` again after it ended. ``call_next`` raises ProtocolError when the answer is an
        error; a tool that fails is none, but a reply with ``is_error``. Any other exception is
        logged, and the client gets -32603 "Internal error".

        It runs in the task of the request, and the handler in the same: context variables that it
        sets are seen there, and a cancellation by the client reaches both; nothing is answered
        then, whatever is returned. subscriptions/listen stays open: ``call_next`` gives None for
        it, and so must the middleware.
        """
        if not callable(middleware):
            raise TypeError(f"a middleware must be callable, not {type(middleware).__name__}")
        self._links = (*self._links, middleware)
        self._chain_changed()
        return middleware

    def _chain_changed(self, *, for_all: bool = False) -> None:
        """There is middleware that was not there, here or at a mounted server. ``for_all``: for
        those who are connected, too."""
        from wirespeed.server.mounted import through_mounts
        from wirespeed.server.passage import Chain

        server = cast("Server", self)
        behind = through_mounts(server)
        links = self._links if behind is None else (*self._links, behind)
        self._through = Chain(links) if links else None
        if for_all:
            for connection in list(self._connections):
                connection.through = self._through
        for mount in self._mounted_on:
            mount.parent._chain_changed(for_all=for_all)

    def add_ask_middleware(self, middleware: AskMiddleware) -> AskMiddleware:
        """Register a middleware for the requests that the server sends to its clients (legacy
        eras): ``async def mw(request, call_next) -> bytes``. It returns the JSON text of the
        client's result. See `ServerRequest`. An error answer of the client is raised as
        `wirespeed.errors.RemoteError`."""
        if not callable(middleware):
            raise TypeError(f"a middleware must be callable, not {type(middleware).__name__}")
        self._ask_links = (*self._ask_links, middleware)
        self._asks = _Asking(self._ask_links)
        return middleware


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
    ) -> Future[bytes]:
        request = ServerRequest(connection, method, params, timeout)
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
    return await request._connection.ask_wire(request.method, request.params, request._timeout)
