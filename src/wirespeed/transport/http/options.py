"""Options of HTTP: sessions, streams, limits of a request, what stands beside the endpoint."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.structs import ExplainedStruct

if TYPE_CHECKING:
    from wirespeed.transport.http.routes import HttpResponse
    from wirespeed.transport.options import HttpRequest, NotPassed

RouteHandler: TypeAlias = "Callable[[HttpRequest], Awaitable[HttpResponse]]"

# Seconds, and counts, that have to be above 0. Those that may be None have no limit then.
_SECONDS = ("retry", "session_ttl", "sse_keepalive", "head_timeout", "body_timeout", "idle_timeout")
_COUNTS = (
    "max_sessions",
    "max_sessions_per_principal",
    "max_head",
    "max_target",
    "max_fields",
    "max_requests",
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_METHOD = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def check_name(name: str) -> None:
    """ValueError: it cannot be the name of a server in session ids."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"name is at most 64 letters, digits, - and _, not {name!r}")


def check_host_url(url: str) -> None:
    """ValueError: it cannot be the URL of a host for the others."""
    from wirespeed.transport.address import parse

    address = parse(url)
    if not address.is_http or address.path != "/" or address.query:
        raise ValueError(
            f"the URL of a host is http://host:port or https://host:port, without a path, not {url}"
        )


def default_name(place: str) -> str:
    """Return a short name of what serves at a place of this host. It is the same after a restart,
    and says neither the place nor the name of the host."""
    import hashlib
    import socket

    return hashlib.sha256(f"{socket.gethostname()} {place}".encode()).hexdigest()[:8]


class EventStore(Protocol):
    """Keeps the events of streams, for clients that reconnect. Each method may be a coroutine
    function.

    A stream has a name, which no other stream has. The events of a stream are numbered 1, 2, 3 and
    so on. A server calls the methods of one stream one after the other, each after the end of the
    last call. An exception is logged, and the stream cannot be resumed afterwards.
    """

    def append(self, stream: str, n: int, data: bytes) -> Awaitable[None] | None:
        """Keep event number ``n``, the JSON text of a message. Older events may be dropped."""

    def after(
        self, stream: str, n: int
    ) -> Awaitable[Sequence[tuple[int, bytes]] | None] | Sequence[tuple[int, bytes]] | None:
        """The events with greater numbers than ``n``, in order, each as its number and text. None:
        the store does not know the stream, or has dropped one of these events."""

    def forget(self, stream: str) -> Awaitable[None] | None:
        """Drop a stream. Without effect for an unknown stream."""

    def close(self) -> Awaitable[None] | None:
        """Release files and threads, at the end of a server. The store may be used again."""


class OwnSessions(Protocol):
    """The sessions of one process, for a `SessionDirectory`: `wirespeed.cluster.records.OwnRecords`
    is one; its methods say what they do."""

    def opened(self) -> None: ...

    def changed(self, endpoint: Any, session: Any) -> None: ...

    async def save(self, endpoint: Any, session: Any) -> None: ...

    def ended(self, session_id: str, *, for_good: bool) -> None: ...

    def has_ended(self, session_id: str) -> bool: ...

    def dropped(self, session_id: str) -> None: ...

    def draining(self, endpoint: Any) -> None: ...


class SessionDirectory(Protocol):
    """Finds the sessions of several hosts that serve the same servers, and adopts those whose host
    is gone. `wirespeed.cluster.SessionHosts` is one; its methods say what they do."""

    @property
    def members(self) -> Any: ...

    @property
    def name(self) -> str: ...

    @property
    def lease(self) -> Any: ...

    @property
    def own(self) -> OwnSessions: ...

    @property
    def patience(self) -> float: ...

    def state(self, question: bytes) -> bytes | int: ...

    def join(self, endpoint: Any, name: str) -> None: ...

    def share(self, worker: int, n: int) -> None: ...

    async def announced(self) -> None: ...

    async def leave(self, endpoint: Any) -> None: ...

    def host_of(self, session_id: str, named: int | None) -> str | int | None: ...

    def owner_of(self, session_id: str, host: str | int) -> tuple[str, int]: ...

    def has(self, session_id: str) -> bool: ...

    def may_serve(self, session_id: str) -> bool: ...

    async def find(
        self,
        session_id: str,
        principal: bytes | None,
        lost_by: tuple[str, int] | None = None,
        unreached: str | None = None,
    ) -> Any: ...

    async def renewed(self) -> bool: ...

    async def decided(self, host: str) -> bool: ...

    def pass_on(
        self,
        exchange: Any,
        session_id: str,
        url: str,
        body: bytes,
        otherwise: "Callable[[NotPassed], object]",
    ) -> None: ...


class HttpOptions(msgspec.Struct, metaclass=ExplainedStruct, frozen=True, kw_only=True):
    """Options of a server over HTTP: the ``http`` of `ListenOptions`. Times are seconds.

    What is said of sessions, streams and events concerns clients of 2025-11-25 and older. Newer
    clients have no sessions.

    Attributes:
        name: The name with which session ids begin, so that a load balancer can send each session
            to the server that has it: at most 64 letters, digits, ``-`` and ``_``. None makes a
            name of the host's name and the address of the listener, which says neither.
        stateless: Serve without sessions: each request stands for itself, as behind a load
            balancer. Handlers cannot ask the client, and there is no stream of the server's own.
        response: ``json`` answers with one JSON text; what a handler says before its result goes on
            the GET stream of a session, and is dropped without one. ``sse`` answers with a stream
            of events. ``auto`` does the former until the handler says something, or is silent for
            ``sse_keepalive`` seconds.
        event_store: An `EventStore`: keeps events so that a client can resume a stream. None:
            nothing is kept.
        host_url: Where other hosts of a server with ``cluster`` reach this listener:
            ``http://host:port`` or ``https://host:port``. Any host answers requests of any session
            then. Not for ``asgi()``.
        directory: A `SessionDirectory`, as `wirespeed.cluster.SessionHosts`: any host answers
            requests of any session. None makes one of ``host_url``, and without that each host
            knows its own sessions alone.
        retry: The seconds after which clients are told to come back to a stream that was closed;
            None for the client's own choice.
        session_ttl: Seconds without a request or an open stream after which a session ends.
        max_sessions: Sessions at once; a further client gets 503.
        max_sessions_per_principal: Of these, sessions of one user or token.
        sse_keepalive: Seconds of silence after which a stream gets a comment; None for never. A
            call that has not said anything becomes a stream by it, unless the client takes JSON
            only. Its status is 200 then.
        sse_path: The path of HTTP+SSE (2024-11-05); None does not serve it.
        max_head: Bytes of the head of a request; 431 above.
        max_target: Bytes of its target; 414 above.
        max_fields: Its header fields; 431 above.
        head_timeout: Seconds from the first byte of a head to its last; 408 after that.
        body_timeout: Seconds that a body may pause; 408 after that.
        idle_timeout: Seconds that a connection is kept without a request.
        max_requests: Requests of one connection, which is closed after the last one; None for no
            limit.
        trusted_proxies: Addresses and networks, as ``127.0.0.1`` or ``10.0.0.0/8``, of proxies
            whose ``X-Forwarded-For`` or ``Forwarded`` names the client. Each proxy must write the
            field itself.
        access_log: Log one line a request, as text or JSON, to the logger ``wirespeed.access`` at
            the level INFO; None logs none.
        access_log_sample: The share of requests that is logged, above 0 and at most 1. Answers
            with a status from 500 on are always logged.
        routes: Further paths, and the functions that answer there, as ``{"/version": version,
            "POST /hook": hook}``. A key without a method answers GET and HEAD. A function is
            called with an `HttpRequest` and is a coroutine function that returns an
            `HttpResponse`. Host and Origin are checked before it; its token is not.
        healthz: The path that answers 200 to everyone, for probes, and 503 during ``drain_delay``;
            None for no such path.
        card: Experimental. The URL of this listener without the paths of its servers, as clients
            reach it: each server then has a card at ``/server-card`` below its path, and
            ``/.well-known/ai-catalog.json`` lists the cards (SEP-2127, a draft). They say who a
            server is and how to connect, and are shown to everyone. None: there are no cards.
        drain_delay: Seconds that a listener goes on to serve when it is told to shut down, so that
            a load balancer sees the 503 of ``healthz`` before the port is closed. Each response is
            the last one of its connection then.
    """

    name: str | None = None
    stateless: bool = False
    response: Literal["auto", "json", "sse"] = "auto"
    event_store: "EventStore | None" = None
    host_url: str | None = None
    directory: "SessionDirectory | None" = None
    retry: float | None = None
    session_ttl: float = 1800.0
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 1_000
    sse_keepalive: float | None = 20.0
    sse_path: str | None = None
    max_head: int = 16_384
    max_target: int = 8_192
    max_fields: int = 100
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0
    max_requests: int | None = None
    trusted_proxies: Sequence[str] = ()
    access_log: Literal["text", "json"] | None = None
    access_log_sample: float = 1.0
    routes: Mapping[str, RouteHandler] = msgspec.field(default_factory=dict)
    healthz: str | None = "/healthz"
    card: str | None = None
    drain_delay: float = 0.0

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        for name in _SECONDS:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be seconds above 0")
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1")
        if not 0 <= self.drain_delay < math.inf:
            raise ValueError("drain_delay must be seconds, 0 or more")
        if self.host_url is not None:
            check_host_url(self.host_url)
            if self.stateless:
                raise ValueError("host_url is for sessions, which stateless has not")
        if self.response not in ("auto", "json", "sse"):
            raise ValueError('response must be "auto", "json" or "sse"')
        if self.access_log not in (None, "text", "json"):
            raise ValueError('access_log must be "text", "json" or None')
        if not 0 < self.access_log_sample <= 1:
            raise ValueError("access_log_sample must be above 0 and at most 1")
        if self.card is not None:
            from wirespeed.transport.http.server_card import card_host

            card_host(self.card)
        if self.trusted_proxies:
            from wirespeed.transport.address import networks

            networks(self.trusted_proxies)
        for name in ("healthz", "sse_path"):
            own = getattr(self, name)
            if own is not None and not own.startswith("/"):
                raise ValueError(f"{name} is a path: it begins with a slash")
        _ = self.by_path

    @property
    def by_path(self) -> dict[str, dict[str, RouteHandler]]:
        """The functions of ``routes`` by path and method. TypeError, ValueError: an entry is not
        possible."""
        if not isinstance(self.routes, Mapping):
            raise TypeError("routes is a mapping of paths to functions")
        found: dict[str, dict[str, RouteHandler]] = {}
        if not self.routes:
            return found
        from wirespeed.transport.address import quote_path

        for place, handler in self.routes.items():
            method, _, path = place.rpartition(" ")
            if not callable(handler):
                raise TypeError(f"routes[{place!r}] must be a coroutine function")
            if not _METHOD.issuperset(method):
                raise ValueError(f"routes: {method!r} is not a method of HTTP")
            methods = found.setdefault(quote_path(path), {})
            for one in [method] if method else ["GET", "HEAD"]:
                if one in methods:
                    raise ValueError(f"routes has {one} {path} twice")
                methods[one] = handler
        for name in ("healthz", "sse_path"):
            own = getattr(self, name)
            if own in found:
                raise ValueError(f"{own} is the path of {name} and of a route")
        return found

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        defaults = HttpOptions()
        return [
            (name, getattr(self, name))
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(defaults, name)
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"HttpOptions({shown})"


set_public_home(globals())
