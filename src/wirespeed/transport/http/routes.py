"""The routes of one HTTP listener: MCP endpoints, custom routes, health."""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._core.slab import InputBudget
from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.transport.address import Address
from wirespeed.transport.gate import NOBODY, Admission, Gate, authority_of, bearer
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.http.options import HttpOptions, RouteHandler
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.options import (
    LENGTH,
    HttpRequest,
    ListenOptions,
    check_headers,
)
from wirespeed.transport.service import has_capability
from wirespeed.transport.taskpool import TaskPool
from wirespeed.transport.taskpool_choice import LAST_WAIT

if TYPE_CHECKING:
    from wirespeed.transport.http.server_card import Document, ServerIdentity

logger = logging.getLogger("wirespeed.server")


class HttpResponse(msgspec.Struct, frozen=True):
    """The answer of a function in `HttpOptions.routes`.

    Attributes:
        status: The HTTP status, 200 to 599.
        body: Text is encoded as UTF-8.
        headers: Header fields. The length and the connection's own fields are written by the
            server.
        media_type: The ``Content-Type``, unless ``headers`` has one.
    """

    status: int = 200
    body: bytes | str = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    media_type: str = "text/plain; charset=utf-8"

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError("the status of a response is 200 to 599")
        if not isinstance(self.body, (bytes, str)):
            raise TypeError(f"the body is bytes or text, not {type(self.body).__name__}")
        check_headers(self.headers, (*LENGTH, "connection"))
        check_headers({"Content-Type": self.media_type})

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        return self.body.encode() if isinstance(self.body, str) else self.body

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The header fields, with Content-Type where there is a body."""
        found = list(self.headers.items())
        if self.body and not any(name.lower() == "content-type" for name in self.headers):
            found.insert(0, ("Content-Type", self.media_type))
        return found


GRACE = 5.0  # seconds that a route has for its answer when the server shuts down
INTERNAL_ERROR = HttpResponse(500, "internal error\n")
SHUTTING_DOWN = HttpResponse(503, "the server is shutting down\n")
ALIVE = HttpResponse(200, "ok\n")


class CustomRoute(HttpTarget):
    """The functions of one path, by method.

    Args:
        handlers: The functions.
        loop: The event loop.
    """

    def __init__(
        self, handlers: Mapping[str, RouteHandler], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.methods = tuple(handlers)
        self._handlers = handlers
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._grace: asyncio.TimerHandle | None = None

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Check Host and Origin. The token is the function's own."""
        gate.check_host(request)
        gate.check_origin(request)
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        handler = self._handlers.get(exchange.method)
        if handler is None:
            text = f"this path takes {' and '.join(self.methods)}\n"
            allow = {"Allow": ", ".join((*self.methods, "OPTIONS"))}
            send(exchange, HttpResponse(405, text, allow))
            return
        headers = exchange.headers
        request = HttpRequest(
            exchange.path,
            exchange.query,
            headers,
            exchange.address,
            bearer(headers.get("authorization", "")),
            exchange.method,
            body,
        )
        task = self._loop.create_task(self._answer(handler, request, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_gone = task.cancel

    @staticmethod
    async def _answer(handler: RouteHandler, request: HttpRequest, exchange: Exchange) -> None:
        response = SHUTTING_DOWN
        try:
            response = await handler(request)
            if not isinstance(response, HttpResponse):
                raise TypeError(f"a route returns an HttpResponse, not {response!r:.50}")
        except Exception:
            logger.exception("the route %s %s failed", request.method, request.path)
            response = INTERNAL_ERROR
        finally:
            send(exchange, response)

    def drain(self) -> None:
        if self._grace is None:
            self._grace = self._loop.call_later(GRACE, self.close)

    def close(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        if self._tasks:
            _, stubborn = await asyncio.wait(self._tasks, timeout=LAST_WAIT)
            if stubborn:
                logger.warning("a route ignores its cancellation and is abandoned")


class HealthTarget(HttpTarget):
    """Answers whether the server is there and will stay, to everyone: a probe knows no name and no
    token."""

    methods = ("GET", "HEAD")
    _state = ALIVE

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Let everyone in."""
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        if exchange.method not in self.methods:
            send(exchange, HttpResponse(405, "", {"Allow": "GET, HEAD, OPTIONS"}))
            return
        if self._state is not ALIVE:
            exchange.close_after()
        send(exchange, self._state)

    def leave(self) -> None:
        self._state = SHUTTING_DOWN


class DocumentTarget(HttpTarget):
    """Answers with a document, to everyone, web pages too."""

    methods = ("GET", "HEAD")

    def __init__(self, document: "Document") -> None:
        self._text = document.text
        self._tag = f'"{hashlib.sha256(self._text).hexdigest()[:32]}"'
        self._fields = {
            "Cache-Control": "public, max-age=3600",
            "ETag": self._tag,
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Expose-Headers": "ETag",
        }
        self._type = document.media_type
        self.for_pages = True

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Let everyone in."""
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        tags = [tag.strip() for tag in exchange.headers.get("if-none-match", "").split(",")]
        if exchange.method not in self.methods:
            answer = HttpResponse(405, "", {"Allow": "GET, HEAD, OPTIONS"})
        elif not {"*", self._tag, f"W/{self._tag}"}.isdisjoint(tags):
            answer = HttpResponse(304, "", self._fields)
        else:
            answer = HttpResponse(200, self._text, self._fields, self._type)
        send(exchange, answer)


def send(exchange: Exchange, response: HttpResponse) -> None:
    """Answer a request."""
    exchange.respond(response.status, response.content, response.fields)


# -- endpoints -----------------------------------------------------------------------------------


class OverHttp(Protocol):
    """A service that can be served over HTTP."""

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """The target of the paths of one listener."""


class OverSse(Protocol):
    """A service that can be served over HTTP+SSE."""

    def sse_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """The target of ``sse_path``."""


class WellKnown(Protocol):
    """A service that has further paths."""

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """The targets of further paths, where the service is served at ``path``."""


def well_known_paths(service: object, path: str) -> Mapping[str, HttpTarget]:
    """The targets of the further paths of a service at a path; none for most services."""
    return service.well_known(path) if has_capability(service, WellKnown) else {}


def sse_service(services: Iterable[object]) -> OverSse:
    """Return the one service that HTTP+SSE serves; it may have several paths. ValueError: there is
    none, or there are several."""
    found = {id(one): one for one in services if has_capability(one, OverSse)}
    if len(found) != 1:
        raise ValueError("sse_path needs one server of MCP at the address")
    return next(iter(found.values()))


def make_site(
    services: Mapping[str, Any],
    options: ListenOptions,
    address: Address,
    *,
    local: bool,
    loop: asyncio.AbstractEventLoop,
    pool: TaskPool,
) -> HttpSite:
    """Return what is served at the paths of an address.

    Args:
        services: The services by path.
        options: The options of the door.
        address: The address of the URL.
        local: Whether only this machine can reach it.
        loop: The event loop.
        pool: Runs handlers.
    """
    http = options.http
    targets: dict[str, HttpTarget] = {
        path: CustomRoute(handlers, loop) for path, handlers in http.by_path.items()
    }
    if http.healthz is not None:
        targets[http.healthz] = HealthTarget()
    targets |= service_targets(services, options, {}, loop=loop, pool=pool)
    return HttpSite(
        targets,
        options=http,
        limits=limits_of(services),
        gate=Gate(options, address, local=local),
        budget=InputBudget(options.max_input_bytes),
        loop=loop,
    )


def service_targets(
    services: Mapping[str, Any],
    options: ListenOptions,
    known: Mapping[str, HttpTarget],
    *,
    loop: asyncio.AbstractEventLoop,
    pool: TaskPool,
) -> dict[str, HttpTarget]:
    """Return the targets of services by path. ``known``: those that there are already.
    ValueError: the options do not fit the services."""
    targets = dict(known)
    http = options.http
    for path, service in services.items():
        if path not in known:
            targets[path] = service.http_target(http, loop=loop, pool=pool)
            targets[path].authority = authority_of(service)
        for place, target in well_known_paths(service, path).items():
            targets.setdefault(place, target)
    if http.sse_path is not None and http.sse_path not in known:
        served = sse_service(services.values())
        targets[http.sse_path] = served.sse_target(http, loop=loop, pool=pool)
        targets[http.sse_path].authority = authority_of(served)
    if http.card is not None:
        from wirespeed.transport.http.server_card import documents

        for document in documents(_identities(services, options.is_guarded), http.card):
            targets.setdefault(document.path, DocumentTarget(document))
    return targets


def _identities(
    services: Mapping[str, Any], guarded: bool
) -> "Iterator[tuple[str, ServerIdentity, bool]]":
    """The services that have a card, each once: its path, the server, and whether clients need a
    token."""
    from wirespeed.transport.http.server_card import HasIdentity

    seen: set[int] = set()
    for path, service in services.items():
        if id(service) in seen:
            continue
        seen.add(id(service))
        needs = guarded or authority_of(service) is not None
        server = service.identity(needs) if has_capability(service, HasIdentity) else None
        if server is not None:
            yield path, server, needs


def limits_of(services: Mapping[str, Any]) -> Limits:
    """The limits of a connection to services."""
    limits: list[Limits] = [service.limits for service in services.values()]
    # a connection tells every service when its client has read
    return max(limits, key=lambda one: one.max_message).replace(
        output_high=min(one.output_high for one in limits),
        output_low=min(one.output_low for one in limits),
    )


set_public_home(globals())
