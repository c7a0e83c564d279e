"""Services and their connections, as transports see them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from wirespeed._exports import set_public_home
from wirespeed.transport.headers import Headers

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits
    from wirespeed.transport.link import Link
    from wirespeed.transport.options import User
    from wirespeed.transport.taskpool import TaskPool

T = TypeVar("T")


class Peer:
    """A client, as the transport knows it.

    Attributes:
        address: Its address, as text for people.
        user: The user that ``authenticate`` returned; None without one.
    """

    __slots__ = ("_headers", "_read_headers", "address", "user")

    def __init__(
        self,
        address: str,
        user: User | None = None,
        read_headers: Callable[[], Headers] | None = None,
    ) -> None:
        self.address = address
        self.user = user
        self._read_headers = read_headers
        self._headers: Headers | None = None

    def __repr__(self) -> str:  # the other fields may hold secrets
        return f"<Peer {self.address}>"

    @property
    def headers(self) -> Headers:
        """The header fields of its HTTP request, read at the first access; empty without one."""
        if self._headers is None:
            self._headers = Headers() if self._read_headers is None else self._read_headers()
            self._read_headers = None
        return self._headers


class Connection(Protocol):
    """A client of a service, as a transport sees it: an Endpoint that can be drained.

    The transport sets the attributes.

    Attributes:
        principal: A digest of the client's credentials; None without any.
        peer: What the transport knows of the client; None on stdio and in memory.
    """

    principal: bytes | None
    peer: Peer | None

    @property
    def closed(self) -> asyncio.Future[BaseException | None]:
        """Done when the connection is closed. The result is the reason of a loss, or None."""

    @property
    def link(self) -> Link | None:
        """The link that moves its bytes; None after its end."""

    @property
    def draining(self) -> bool:
        """Whether it was told to end."""

    def drain(self) -> None:
        """Take no more requests, answer those there are, then close."""

    def abort(self) -> None:
        """Close now."""


class Service(Protocol):
    """The server's side of a listener: what `wirespeed.serve` serves at a URL, such as the
    ``service`` of a `wirespeed.Server`.

    A type checker finds members that are missing. `wirespeed.peer.HttpService` is a base that has
    all but ``connect``, for services that HTTP can serve, too. Further protocols say what a service
    can besides: `Forked`, `DrainsLast`, `HasSessions`, `ReadsHeaders`, `Graceful`, `HasAuthority`,
    and over HTTP `OverHttp`, `OverSse` and `WellKnown`.
    """

    @property
    def limits(self) -> Limits:
        """The limits of one connection."""

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol that it speaks; None for any."""

    @property
    def auth_headers(self) -> Sequence[str]:
        """The header fields, in lower case, that may bring a bearer token."""

    @property
    def refusal_status(self) -> int:
        """The HTTP status for a missing or wrong token."""

    def stream_framer(self) -> Framer | None:
        """Return the framing on a byte stream; None for the service's own choice."""

    async def hold(self) -> Any:
        """Begin: called before the first connection, once for each listener. Returns the argument
        of `release`. An exception ends the start of the listener."""

    async def release(self, held: Any, /) -> None:
        """End, after the last connection of a listener. Where the proxy has replaced the service
        while it serves, this waits for the connections that HTTP made."""

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> Any:
        """Serve one more connection: make a `Connection` that is an `Endpoint`, too, call
        ``make_link`` with it, and return it. ``framer``: how messages lie in the stream; None for
        the service's own choice. The listener starts the link."""


class Connecting(Protocol):
    """A service that serves connections; one without ``connect`` answers HTTP alone."""

    @property
    def connect(self) -> Callable[..., Any]: ...


class KeptAlive(Protocol):
    """A service that has to be kept alive while it is served, as each `Service`; see `Alive`."""

    async def hold(self) -> Any:
        """Begin. Returns the argument of `release`."""

    async def release(self, held: Any, /) -> None:
        """End."""


class Forked(Protocol):
    """A service that is told of the worker processes."""

    def before_fork(self, n: int) -> None:
        """The process will fork ``n`` workers."""

    def after_fork(self, worker: int) -> None:
        """This is one of the workers."""


class DrainsLast(Protocol):
    """A service whose listener serves until the other listeners of its process have drained, if
    ``drains_last`` is true."""

    @property
    def drains_last(self) -> bool: ...


class HasSessions(Protocol):
    """A service that has sessions over HTTP, each in one worker, if ``has_sessions`` is true."""

    @property
    def has_sessions(self) -> bool: ...


class ReadsHeaders(Protocol):
    """A service that looks at the header fields of its clients' opening handshakes; where
    ``reads_headers`` is false they are not kept."""

    @property
    def reads_headers(self) -> bool: ...


class Graceful(Protocol):
    """A service whose running requests have ``shutdown_grace`` seconds at the end."""

    @property
    def shutdown_grace(self) -> float: ...


class Servable(Protocol):
    """An object of a user that has a `Service`, such as a `wirespeed.Server`."""

    @property
    def service(self) -> Any: ...


def has_capability(service: object, capability: type[T]) -> TypeIs[T]:
    """Whether a service has what a protocol asks for. A wrapper may have it by ``__getattr__``,
    where `isinstance` does not look since Python 3.12."""
    names = {*vars(capability), *capability.__annotations__}
    return all(hasattr(service, name) for name in names if not name.startswith("_"))


def service_of(server: Any) -> Any:
    """Return the `Service` of a user's server: its ``service``, or the object itself."""
    return getattr(server, "service", server)


class Alive:
    """Keeps services alive while they are served: an asynchronous context manager.

    An exception at a start is raised after the lifespans that had started were ended.

    Args:
        services: Those that are served from the start.
    """

    def __init__(self, services: Iterable[Service]) -> None:
        self._first = list(services)
        self._held: list[tuple[Any, Any]] = []

    async def __aenter__(self) -> Self:
        try:
            for service in self._first:
                await self.hold(service)
        except BaseException as exc:
            await self.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for service, held in self._held:
                stack.push_async_callback(service.release, held)
            self._held.clear()

    async def hold(self, service: Any) -> None:
        """Keep one more alive, or one once more."""
        if has_capability(service, KeptAlive):
            self._held.append((service, await service.hold()))

    async def release(self, service: Any) -> None:
        """End what one `hold` began."""
        for i, (one, held) in enumerate(self._held):
            if one is service:
                del self._held[i]
                await service.release(held)
                return


set_public_home(globals())
