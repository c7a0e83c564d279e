"""Middleware of a server: around requests of clients, around requests to clients, and that of the
mounted servers that a request is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.messages import CompleteParams, PromptReference

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.server.middleware.chain import Chain
    from wirespeed.server.middleware.functions import AskMiddleware, AskNext, CallNext, Middleware
    from wirespeed.server.middleware.inbound import InboundRequest, Reply
    from wirespeed.server.requests.observer import Observer
    from wirespeed.server.requests.serving import Serving
    from wirespeed.server.service import McpService

__all__ = ["MiddlewareStack", "ServerRequest"]

Function = TypeVar("Function", bound="Middleware")
AskFunction = TypeVar("AskFunction", bound="AskMiddleware")

# Methods whose ``params.name`` or ``params.uri`` say what they are for.
_LISTS = {
    "tools/call": "tools",
    "prompts/get": "prompts",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
}

_completed = msgspec.json.Decoder(CompleteParams)


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

    Attributes:
        links: The middleware of requests, the outermost first.
        chain: What every request passes first; None without middleware.
        asks: What every question to a client passes first; None without middleware.
        observer: What counts and traces the requests of every connection made from now on, or None.
    """

    chain: Chain | None
    asks: Callable[[Any, str, bytes | None, float | None, int], Future[bytes]] | None
    observer: Observer | None

    def __init__(self, service: McpService) -> None:
        self._service = service
        self.chain = None
        self.asks = None
        self.observer = None
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

        behind = through_mounts(self._service)
        links = self.links if behind is None else (*self.links, behind)
        self.chain = Chain(links) if links else None
        if for_all:
            for connection in list(self._service.connections):
                connection.through = self.chain
        for mount in self._service.mounts.elsewhere:
            mount.outer.middleware.chain_changed(for_all=for_all)


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
    return await request._connection.questions.send(
        request.method, request.params, request._timeout, request._about
    )


# -- the middleware of mounted servers ------------------------------------------------------------


def has_middleware(service: McpService) -> bool:
    """Whether a server, or one that is mounted on it, has middleware."""
    return bool(service.middleware.links) or any(map(has_middleware, service.mounts.servers()))


def through_mounts(service: McpService) -> Middleware | None:
    """A middleware that stands for those of the mounted servers; None if they have none."""
    if not any(map(has_middleware, service.mounts.servers())):
        return None

    async def pass_on(request: InboundRequest, call_next: CallNext) -> Reply | None:
        return await _step(_links_of(service, request), 0, call_next)(request)

    return pass_on


def _step(links: list[Middleware], at: int, call_next: CallNext) -> CallNext:
    if at == len(links):
        return call_next

    async def step(request: InboundRequest) -> Reply | None:
        return await links[at](request, _step(links, at + 1, call_next))

    return step


def _links_of(service: McpService, request: InboundRequest) -> list[Middleware]:
    """The middleware of the mounted servers that a request is for, outermost first."""
    name, key = _item(service, request)
    return [] if name is None or key is None else list(_links_behind(service, name, key))


def _links_behind(service: McpService, name: str, key: str) -> Iterator[Middleware]:
    for mount in service.mounts.here:
        inner = mount.inner_key(name, key)
        if inner is not None:
            yield from mount.inner.middleware.links
            yield from _links_behind(mount.inner, name, inner)


def _item(service: McpService, request: InboundRequest) -> tuple[str | None, str | None]:
    """The list and the key that a request targets."""
    name, key = _LISTS.get(request.method), request.name
    if request.method == "completion/complete":
        return _completable(service, request)
    if name == "resources" and key is not None and key not in service.resources.fixed:
        return _template(service, key)
    return name, key


def _template(service: McpService, uri: str) -> tuple[str | None, str | None]:
    resources = service.resources
    template = resources.templates.get(uri) or resources.template_of(uri)
    return "templates", None if template is None else template.key


def _completable(service: McpService, request: InboundRequest) -> tuple[str | None, str | None]:
    try:
        ref = _completed.decode(request.params or b"{}").ref
    except msgspec.DecodeError:
        return None, None  # which the handler will say
    if isinstance(ref, PromptReference):
        return "prompts", ref.name
    return _template(service, ref.uri)


set_public_home(globals())
