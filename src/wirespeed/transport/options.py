"""Options of listening: who may come in, how many, and how long each may keep a server waiting."""

import enum
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.structs import ExplainedStruct
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.options import HttpOptions

if TYPE_CHECKING:
    from ssl import SSLContext

OnListening: TypeAlias = Callable[[tuple[str, ...]], object]
"""Called with the URLs of a server, with their bound ports, as soon as clients can connect."""


class Names(tuple[str, ...]):
    """Names whose values may be secrets, as a ``repr`` shows them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


class HttpRequest(msgspec.Struct, frozen=True):
    """An HTTP request: what `authenticate` judges, before its client is let in.

    Attributes:
        path: Without the query.
        query: What follows the question mark, as it came.
        headers: The header fields of the request.
        peer: The address of the client, as text for people.
        token: The bearer token of the request, or None.
        method: ``GET`` for a WebSocket.
        body: Empty for ``authenticate``, which decides before a body is read.
        certificate: The client's certificate of the TLS connection (DER); None without one.
    """

    path: str
    query: str
    headers: Headers
    peer: str
    token: str | None = None
    method: str = "GET"
    body: bytes = b""
    certificate: bytes | None = None

    def __repr__(self) -> str:  # the other fields may hold secrets
        return f"<HttpRequest {self.method} {self.path!r} from {self.peer}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("method", self.method), ("path", self.path), ("peer", self.peer)]


class User(str):
    """The name of a user whom ``authenticate`` let in, and what the user may do::

        return User("anne", scopes=["notes:read"])

    It is a string, so ``ctx.user == "anne"`` holds.

    Attributes:
        scopes: What the user may do, in your words.
        data: Anything else that handlers need to know of the user.
    """

    __slots__ = ("data", "scopes")

    scopes: frozenset[str]
    data: Any

    def __new__(cls, name: str, scopes: Iterable[str] = (), data: Any = None) -> Self:
        user = super().__new__(cls, name)
        user.scopes = frozenset(scopes)
        user.data = data
        return user


# The `User.data` of a request that another process has passed on: that of the session's user.
OF_SESSION = object()


class NotPassed(enum.Enum):
    """Why another process does not answer a request that was to be passed on to it."""

    NOT_HERE = enum.auto()  # it does not have the session
    NOT_SENT = enum.auto()  # it was not reached, or takes no more
    LOST = enum.auto()  # it was lost before its answer: the request may have run
    FULL = enum.auto()  # too much waits for it


class Refusal(msgspec.Struct, frozen=True):
    """The refusal of a client: the answer to its opening handshake.

    Attributes:
        status: The HTTP status, 400 to 599.
        reason: One line of text.
        headers: More header fields of the answer. A 401 gets ``WWW-Authenticate: Bearer`` if it is
            not here (RFC 9110 section 15.5.2).
    """

    status: int
    reason: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError("the status of a refusal is 400 to 599")
        if not self.reason.isprintable():
            raise ValueError("the reason of a refusal is one line of printable text")
        check_headers(self.headers, LENGTH)


Verdict: TypeAlias = "bool | str | Refusal"
OnRefused: TypeAlias = Callable[[HttpRequest, Refusal], object]
"""Called with each request whose client was not let in, and its refusal."""

Authenticate: TypeAlias = Callable[[HttpRequest], "Verdict | Awaitable[Verdict]"]


class ListenOptions(msgspec.Struct, metaclass=ExplainedStruct, frozen=True, kw_only=True):
    """Options of listening. Times are seconds. ``tcp://`` and ``unix:`` have no handshake, so
    `serve` refuses the options of the handshake for them.

    Attributes:
        ssl: The certificate and its key, for ``wss://``.
        token: The bearer token that clients must send (RFC 6750), or several of which each is
            accepted.
        authenticate: A function that decides instead of ``token``. It is called with an
            `HttpRequest` and returns True, False, a `Refusal`, or the name of the user as a
            string or a `User`: tasks and ``requestState`` are bound to the name, and handlers see
            the user as `Context.user`. It runs on the event loop and may be a coroutine function.
        on_refused: A function that is called for each client that was not let in, because of its
            Host, its Origin or its token, with the `HttpRequest` and the `Refusal`.
        origins: Web pages that may connect, as ``https://app.example``; ``http://localhost:*`` for
            any port, ``*`` for all. By default pages of the server's own address, and on loopback
            all pages of this machine. Programs other than browsers send no Origin and are not
            affected.
        hosts: Names of the server, as ``example.com`` or ``example.com:8443``; ``*`` for all. By
            default all names, and on loopback the names of this machine (against DNS rebinding).
        require_subprotocol: Refuse clients that do not offer the service's subprotocol.
        headers: More header fields of the answer that accepts a client.
        max_connections: Connections at once; further clients get 503.
        max_input_bytes: Bytes that all connections together may keep of requests and messages that
            are not complete, and of long ones that wait until the server has room. 16 KiB of each
            connection are not counted. Beyond it a request gets 503, a WebSocket is closed with
            1013, and another connection is closed. A connection that is alone may always complete
            one request.
        open_timeout: Seconds for TLS and the opening handshake together. Over HTTP: for TLS, and
            for the verdict of ``authenticate`` on one request.
        ping_interval: Seconds of silence after which the peer is pinged; None for never.
        ping_timeout: Further seconds of silence after which the connection is closed.
        close_timeout: Seconds for the peer's close frame.
        slow_reader_timeout: Seconds that a peer may leave `Limits.output_high` bytes unread.
        compression: Offer permessage-deflate (RFC 7692). About 40 KiB a connection that uses it.
        reuse_port: Let several processes listen at one port (SO_REUSEPORT).
        backlog: Connections that the system keeps until they are accepted.
        socket_mode: Permissions of the file of a ``unix:`` or ``http+unix:`` socket.
        access_log: Log a line when a connection is opened and one when it has ended, as text or
            JSON, to the logger ``wirespeed.access`` at the level INFO; None logs none. Over HTTP,
            `HttpOptions.access_log` logs requests instead.
        http: What is for ``http://`` and ``https://`` alone.
    """

    ssl: "SSLContext | None" = None
    token: str | Sequence[str] | None = None
    authenticate: Authenticate | None = None
    on_refused: OnRefused | None = None
    origins: Sequence[str] | None = None
    hosts: Sequence[str] | None = None
    require_subprotocol: bool = False
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_connections: int = 10_000
    max_input_bytes: int = 268_435_456
    open_timeout: float = 10.0
    ping_interval: float | None = 20.0
    ping_timeout: float = 20.0
    close_timeout: float = 5.0
    slow_reader_timeout: float = 30.0
    compression: bool = False
    reuse_port: bool = False
    backlog: int = 1024
    socket_mode: int = 0o600
    access_log: Literal["text", "json"] | None = None
    http: HttpOptions = msgspec.field(default_factory=HttpOptions)

    def __post_init__(self) -> None:
        if self.token is not None and self.authenticate is not None:
            raise ValueError("give either token or authenticate, not both")
        if self.token is not None and (not self.tokens or not all(map(is_token, self.tokens))):
            raise ValueError("a token is one or more printable ASCII characters without spaces")
        if self.authenticate is not None and not callable(self.authenticate):
            raise TypeError("authenticate must be a function")
        if self.on_refused is not None and not callable(self.on_refused):
            raise TypeError("on_refused must be a function")
        for name in ("origins", "hosts"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} is a sequence of strings, not one string")
        for name in ("max_connections", "max_input_bytes", "backlog"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in (
            "open_timeout",
            "ping_interval",
            "ping_timeout",
            "close_timeout",
            "slow_reader_timeout",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be seconds above 0")
        if self.access_log not in (None, "text", "json"):
            raise ValueError('access_log must be "text", "json" or None')
        if not isinstance(self.http, HttpOptions):
            raise TypeError(f"http is an HttpOptions, not {type(self.http).__name__}")
        check_headers(self.headers)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that are good."""
        if self.token is None:
            return ()
        return (self.token,) if isinstance(self.token, str) else tuple(self.token)

    @property
    def is_guarded(self) -> bool:
        """Whether clients need a token, or are judged by a function."""
        return self.token is not None or self.authenticate is not None

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        defaults = ListenOptions()
        return [
            (name, _SECRET if name in ("token", "headers") else getattr(self, name))
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(defaults, name)
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"ListenOptions({shown})"


class AsgiOptions(TypedDict, total=False):
    """The fields of a `ListenOptions` that a server's ``asgi`` takes."""

    token: str | Sequence[str] | None
    authenticate: Authenticate | None
    origins: Sequence[str] | None
    hosts: Sequence[str] | None
    max_connections: int
    max_input_bytes: int
    http: HttpOptions


class ListenFields(AsgiOptions, total=False):
    """The fields of a `ListenOptions` as keyword arguments; `ListenOptions` describes them."""

    on_refused: OnRefused | None
    ssl: "SSLContext | None"
    require_subprotocol: bool
    headers: Mapping[str, str]
    open_timeout: float
    ping_interval: float | None
    ping_timeout: float
    close_timeout: float
    slow_reader_timeout: float
    compression: bool
    reuse_port: bool
    backlog: int
    socket_mode: int
    access_log: Literal["text", "json"] | None


class ServeOptions(ListenFields, total=False):
    """The options of a server's ``serve``.

    Attributes:
        on_listening: Called with the URLs and their bound ports as soon as clients can connect.
        options: A `ListenOptions`, instead of its fields or besides them.
    """

    on_listening: OnListening | None
    options: ListenOptions | None


class RunOptions(ServeOptions, total=False):
    """The options of a server's ``run``.

    Attributes:
        workers: The number of processes that share the port: see `wirespeed.run`.
    """

    workers: int


# Arguments of other libraries that are parts of a URL here, and their words for what a URL says.
_OF_URL = ("transport", "host", "port", "path")
_SCHEMES_BY_NAME = {"ws": "ws", "websocket": "ws"}
_TRANSPORTS = ("stdio", "http", "sse", "streamable-http", *_SCHEMES_BY_NAME)


def checked_url(
    url: str | None,
    options: Mapping[str, object],
    transport: str | None = None,
    *,
    name: str = "mcp",
) -> str | None:
    """Return where a server is to serve, as its user says; None: on stdio. TypeError: an option is
    a part of the URL. ValueError: there are options without a URL.

    ``name``: Of what is served: the path of the URL that the text of a TypeError advises.
    """
    if url in _TRANSPORTS and transport is None:
        url, transport = None, url
    if transport is not None and (transport != "stdio" or url is not None):
        options = {**options, "transport": transport}
    parts = [name for name in _OF_URL if name in options]
    if parts:
        if url is None and options.get("transport") == "stdio":
            hint = "run() without arguments serves on stdio"
        else:
            from urllib.parse import quote

            scheme = _SCHEMES_BY_NAME.get(str(options.get("transport")), "http")
            host, port = str(options.get("host", "127.0.0.1")), options.get("port", 8000)
            host = f"[{host}]" if ":" in host else host
            path = str(options.get("path", quote(name))).lstrip("/")
            place = f"{scheme}://{host}:{port}/{path}"
            hint = f"write a URL instead: run({place!r})"
        raise TypeError(f"{', '.join(parts)}: {hint}")
    if url is None and options:
        raise ValueError(f"{', '.join(options)}: options go with a URL, not with stdio")
    return url


class _Secret:
    def __repr__(self) -> str:
        return "…"


_SECRET = _Secret()


_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # RFC 9110 section 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*\Z")  # section 5.5, without the obsolete forms
# What can stand behind "Bearer " and is no blank: wider than RFC 6750's b64token, because LiteMCP
# says nothing of the form.
_TOKEN = re.compile(r"[!-~]+\Z")
# Fields that would change where a message ends, and those that the opening handshake writes.
LENGTH = ("content-length", "transfer-encoding")
HANDSHAKE = ("host", "connection", "upgrade", *LENGTH)


def is_token(token: object) -> bool:
    """Whether it can be sent as a bearer token."""
    return isinstance(token, str) and _TOKEN.match(token) is not None


def check_headers(headers: object, reserved: Sequence[str] = HANDSHAKE) -> dict[str, str]:
    """The header fields (RFC 9110 section 5), without blanks around their values. TypeError or
    ValueError for a field that is not valid or is ``reserved``; no text holds a value."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of strings, not {type(headers).__name__}")
    seen: set[str] = set()
    for name, value in headers.items():
        if not isinstance(name, str):
            raise TypeError(f"headers has a name that is not a string but {type(name).__name__}")
        if not _NAME.match(name):
            raise ValueError(f"headers has a bad name {name!r}")
        low = name.lower()
        if low in reserved or (low.startswith("sec-websocket-") and "upgrade" in reserved):
            raise ValueError(f"the handshake itself writes the header {name}")
        if low in seen:
            raise ValueError(f"headers has {name} twice, in different letters")
        seen.add(low)
        if not isinstance(value, str):
            raise TypeError(f"headers[{name!r}] must be a string, not {type(value).__name__}")
        if not _VALUE.match(value):
            raise ValueError(
                f"headers[{name!r}] has a line break or another character that is not allowed "
                "(printable ASCII is)"
            )
    return {name: value.strip(" \t") for name, value in headers.items()}


# RFC 6749 section 3.3, scope-token
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes that something needs, each once. TypeError, ValueError: one cannot be a scope."""
    if isinstance(scopes, str):
        raise TypeError("scopes is a sequence of strings, not one string")
    found = tuple(dict.fromkeys(scopes))
    for scope in found:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError(f"{scope!r} is not a scope: printable ASCII without blanks and quotes")
        if scope == "offline_access":
            # MCP 2026-07-28 basic/authorization: it asks for a refresh token, at the issuer alone
            raise ValueError("offline_access is not a scope of a server")
    return found


set_public_home(globals())
