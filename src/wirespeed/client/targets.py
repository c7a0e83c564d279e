"""The targets of a client: `Http`, `WebSocket` and `Socket`, for servers that run elsewhere, and
whatever else its user may pass."""

import logging
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from wirespeed._exports import set_public_home
from wirespeed.errors import HttpStatusError
from wirespeed.protocol.structs import ExplainedStruct
from wirespeed.transport.address import Address, is_loopback, parse, read_via
from wirespeed.transport.options import HANDSHAKE, Names, User, check_headers, is_token
from wirespeed.transport.schemes import SCHEMES, Speaks, names
from wirespeed.transport.service import Peer, service_of

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed import Server
    from wirespeed.auth.client.session import Authorization
    from wirespeed.transport.child.command import Stdio

__all__ = [
    "RECONNECTS",
    "Http",
    "Socket",
    "Target",
    "WebSocket",
    "as_target",
    "from_file",
    "from_url",
    "python_file",
]

Target: TypeAlias = "Stdio | Http | WebSocket | Socket | Server"

logger = logging.getLogger("wirespeed.client")

# Attempts with restart=True, and by default with a modern server: they take about half a minute,
# in which a server can be started again at its port.
RECONNECTS = 8

# Headers that hold credentials.
_CREDENTIALS = ("authorization", "authentication", "proxy-authorization", "cookie")

# Characters of the shortest secret in a header.
_SECRET = 6

_warned: set[str] = set()
_MAX_WARNED = 1000

# Headers that the client itself writes into each request of Streamable HTTP.
_OURS = (
    "accept",
    "content-type",
    "expect",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
)


class _Remote(msgspec.Struct, metaclass=ExplainedStruct, frozen=True, dict=True):
    url: str

    SCHEMES: ClassVar[tuple[str, ...]]

    @cached_property
    def address(self) -> Address:
        """The URL, taken apart."""
        if not isinstance(self.url, str):
            raise TypeError(f"url must be a string, not {type(self.url).__name__}")
        address = parse(self.url, getattr(self, "shown", ""))
        other = TARGETS[address.row.speaks]
        if not isinstance(self, other):
            raise ValueError(
                f"{type(self).__name__} takes {' and '.join(f'{s}:' for s in self.SCHEMES)} URLs; "
                f"{address.scheme}: is for {other.__name__}"
            )
        if not (address.port or address.file):
            raise ValueError(f"{str(address)!r} has no port to connect to")
        via = getattr(self, "connect_to", "")
        if not via:
            return address
        if address.file:
            raise ValueError(f"connect_to means nothing to {address.row.name}:")
        return msgspec.structs.replace(address, via=read_via(via))

    @property
    def where(self) -> str:
        """The URL for people to read: without its query, which may hold a secret."""
        address = self.address
        return f"{address} at {address.via}" if address.via else str(address)

    def _convert(self, **values: object) -> None:
        for name, value in values.items():
            force_setattr(self, name, value)

    def __hash__(self) -> int:
        return hash(self.url)

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        url = f"{self.address}{'?…' if self.address.query else ''}"
        parts: list[tuple[str, Any]] = [("", url)]
        for name, default in zip(self.__struct_fields__[1:], self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if name == "headers":
                value = Names(value)
            elif name in ("token", "ssl", "auth") and value is not None:
                value = Names("…")
            if value not in (default, ()) and name != "shown":
                parts.append((name, value))
        return parts

    def __repr__(self) -> str:
        parts = [f"{key}={value!r}" if key else repr(value) for key, value in self.__rich_repr__()]
        return f"{type(self).__name__}({', '.join(parts)})"


class _WithCredentials(_Remote, frozen=True, kw_only=True):
    """A server that is reached by a request with headers."""

    headers: Mapping[str, str] | None = None
    token: str | None = None
    ssl: "SSLContext | None" = None
    auth: "Authorization | None" = None

    RESERVED: ClassVar[tuple[str, ...]] = HANDSHAKE

    def __post_init__(self) -> None:
        address = self.address
        headers = check_headers({} if self.headers is None else self.headers, self.RESERVED)
        _check_token(self.token)
        if self.token is not None and "authorization" in (name.lower() for name in headers):
            raise ValueError("token and the header Authorization say the same; leave one out")
        if self.ssl is not None:
            _check_ssl(self.ssl, address, self.SCHEMES[1])
        if self.auth is not None:
            _check_auth(self.auth, self.token, headers)
        self._convert(headers=headers)

    @property
    def exposed(self) -> bool:
        """Whether credentials would cross a network in the clear."""
        named = any(name.lower() in _CREDENTIALS for name in self.headers or ())
        if self.address.secure or not (named or self.token is not None):
            return False
        return not is_loopback(self.address.host)

    def warn_if_exposed(self) -> None:
        """Log a warning if credentials are exposed, once for each server."""
        if self.exposed and self.where not in _warned and len(_warned) < _MAX_WARNED:
            _warned.add(self.where)
            logger.warning(
                "%s: credentials are sent without encryption; anybody on the path can read them "
                "(use %s://)",
                self.where,
                self.SCHEMES[1],
            )

    def secrets(self) -> list[str]:
        """The values that no text may show: the token, and values of headers, unless these are too
        short to be secrets."""
        values = [text for text in (self.headers or {}).values() if len(text) >= _SECRET]
        return values if self.token is None else [self.token, *values]

    def request_headers(self) -> dict[str, str]:
        """The headers of a request besides those that the client writes itself, the token's too."""
        headers = dict(self.headers or {})
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


class Http(_WithCredentials, frozen=True, kw_only=True):
    """A server of Streamable HTTP, or of LiteMCP over HTTP: ``http://`` or, with TLS, ``https://``.

    Attributes:
        url: ``http://host[:port][/path][?query]``, or the same with ``https:``.
        headers: Further headers of each request, except the headers that the client writes itself:
            Host, Connection, Content-Length, Content-Type, Transfer-Encoding, Accept, Expect,
            Last-Event-ID, Upgrade, Mcp-Method, Mcp-Name, Mcp-Param-…, Mcp-Session-Id,
            MCP-Protocol-Version. The client sends no Origin of its own.
        token: Sent as ``Authorization: Bearer …`` (RFC 6750). Over ``http://`` to another machine
            it crosses the network in clear text, which is logged as a warning.
        ssl: The context that verifies an ``https://`` server; None for
            ``ssl.create_default_context()``.
        auth: Gets the token, in place of ``token``: `OAuth` logs a user in, and
            `wirespeed.auth` has further values.
        sse: Whether HTTP+SSE of 2024-11-05 is tried where the server refuses Streamable HTTP.
        restart: The number of consecutive attempts to open a new session after the server ended a
            legacy session, or to subscribe again after the stream of a modern subscription broke: 0
            for none, True for 8. Calls that wait when a session ends fail at once. A call that
            the server refused because its session had ended is sent again, once.
        open_timeout: Seconds for connecting and TLS.
        close_timeout: Seconds that closing waits for the end of a legacy session.
        max_connections: The most connections at once. Each call that waits and each stream has one;
            further calls wait for a connection.
        shown: The URL in errors, logs and ``repr``, where its host or path holds a secret.
        connect_to: The IP address and the port that connections go to, such as ``10.0.0.5:8000``,
            also where the environment names a proxy. The host of the URL is not looked up; the Host
            header and TLS name it. Empty for those of the URL.

    Raises TypeError or ValueError for an argument of the wrong type or value. Values of headers,
    the token and the query of the URL never appear in ``repr`` or errors.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = names("http")
    RESERVED: ClassVar[tuple[str, ...]] = (*HANDSHAKE, *_OURS)

    sse: bool = True
    restart: int = RECONNECTS
    open_timeout: float = 10.0
    close_timeout: float = 2.0
    max_connections: int = 256
    shown: str = ""
    connect_to: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.headers or ():
            if name.lower().startswith("mcp-param-"):
                raise ValueError(f"the client itself writes the header {name}")
        if not isinstance(self.sse, bool):
            raise TypeError(f"sse must be True or False, not {self.sse!r}")
        count = self.max_connections
        if not isinstance(count, int) or isinstance(count, bool) or count < 2:
            raise ValueError(f"max_connections must be a count of at least 2, not {count!r}")
        self._convert(
            restart=_restart(self.restart) or 0,
            open_timeout=_seconds("open_timeout", self.open_timeout),
            close_timeout=_seconds("close_timeout", self.close_timeout, zero=True),
        )


class WebSocket(_WithCredentials, frozen=True, kw_only=True):
    """A server at a WebSocket (RFC 6455): ``ws://`` or, with TLS, ``wss://``.

    Attributes:
        url: ``ws://host[:port][/path][?query]``, or the same with ``wss:``.
        headers: Further headers of the upgrade request, except the headers of the handshake: Host,
            Connection, Upgrade, Sec-WebSocket-…, Content-Length, Transfer-Encoding. The client
            sends no Origin of its own.
        token: Sent as ``Authorization: Bearer …`` (RFC 6750). Over ``ws://`` to another machine it
            crosses the network in clear text, which is logged as a warning.
        ssl: The context that verifies a ``wss://`` server; None for
            ``ssl.create_default_context()``.
        auth: Gets the token, as for `Http`, when the server refuses the upgrade for want of one.
            The server is known to it by the URL of the upgrade request: ``https:`` for ``wss:``,
            ``http:`` for ``ws:``.
        compression: Whether to offer permessage-deflate (RFC 7692).
        restart: The number of consecutive attempts to connect again after a loss: 0 for none, True
            for 8. The default is 8 with a modern server (2026-07-28), whose connections have no
            state, and 0 with a legacy server, where a new connection is a new session. The pauses
            between attempts grow and are random; 8 attempts take about half a minute. After the
            last attempt each call makes one more. Calls that wait when the connection is lost fail
            at once, and are never sent again by the client.
        open_timeout: Seconds for connecting, TLS and the upgrade together.
        ping_interval: Seconds between two pings; None for no pings.
        ping_timeout: Seconds for the server's pong; then the connection counts as lost.
        close_timeout: Seconds for the server's closing frame.
        shown: The URL in errors, logs and ``repr``, where its host or path holds a secret.
        connect_to: As of `Http`.

    Raises TypeError or ValueError for an argument of the wrong type or value. Values of headers,
    the token and the query of the URL never appear in ``repr`` or errors.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = names("websocket")

    compression: bool = False
    restart: int | None = None
    open_timeout: float = 10.0
    ping_interval: float | None = 20.0
    ping_timeout: float = 20.0
    close_timeout: float = 5.0
    shown: str = ""
    connect_to: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.compression, bool):
            raise TypeError(f"compression must be True or False, not {self.compression!r}")
        interval = self.ping_interval
        self._convert(
            restart=_restart(self.restart),
            open_timeout=_seconds("open_timeout", self.open_timeout),
            ping_interval=None if interval is None else _seconds("ping_interval", interval),
            ping_timeout=_seconds("ping_timeout", self.ping_timeout),
            close_timeout=_seconds("close_timeout", self.close_timeout, zero=True),
        )


class Socket(_Remote, frozen=True, kw_only=True):
    """A server at a stream socket: one message a line, as over stdio.

    Attributes:
        url: ``unix:/path``, ``unix:relative/path`` or ``tcp://host:port``. There is neither
            encryption nor authentication: for this machine or a trusted network only.
        restart: As of `WebSocket`.
        open_timeout: Seconds for connecting.
        shown: As of `WebSocket`.
        connect_to: As of `Http`, for ``tcp://``.

    Raises TypeError or ValueError for an argument of the wrong type or value.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = names("lines")

    restart: int | None = None
    open_timeout: float = 10.0
    shown: str = ""
    connect_to: str = ""

    def __post_init__(self) -> None:
        _ = self.address
        self._convert(
            restart=_restart(self.restart),
            open_timeout=_seconds("open_timeout", self.open_timeout),
        )


# The kinds of targets that have URLs, by what their schemes speak.
TARGETS: dict[Speaks, type[Http | WebSocket | Socket]] = {
    "http": Http,
    "websocket": WebSocket,
    "lines": Socket,
}


def from_url(
    url: str,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    auth: "Authorization | None" = None,
) -> Http | WebSocket | Socket:
    """The target of a URL. ValueError: this version does not support the scheme. TypeError: the
    scheme has neither headers nor tokens."""
    scheme, _, rest = url.partition(":")
    row = SCHEMES.get(scheme.lower())
    if row is None:
        # the rest of the URL may hold a secret
        shown = f"{scheme}://…" if rest.startswith("//") else repr(url)
        known = [
            f"{one.name}://…" if "//" in one.form else f"{one.name}:…" for one in SCHEMES.values()
        ]
        raise ValueError(
            f"cannot connect to {shown}: a target is a URL ({', '.join(known)}), "
            "Stdio(command, args) or a Server"
        )
    kind = TARGETS[row.speaks]
    if issubclass(kind, _WithCredentials):
        return kind(url, headers=headers, token=token, auth=auth)
    if headers is not None or token is not None or auth is not None:
        raise TypeError(f"{scheme}: has neither headers nor tokens")
    return kind(url)


def _check_token(token: str | None) -> None:
    if token is None:
        return
    if not isinstance(token, str):
        raise TypeError(f"token must be a string, not {type(token).__name__}")
    if not token:
        raise ValueError("token is empty; leave it out for none")
    if not is_token(token):
        raise ValueError(
            "token has a space, a line break or another character that is not allowed "
            "(printable ASCII is)"
        )


def _check_auth(auth: object, token: str | None, headers: Iterable[str]) -> None:
    if not callable(getattr(auth, "session", None)) or isinstance(auth, type):
        raise TypeError(
            f"auth is a value of wirespeed.auth such as OAuth(), not {type(auth).__name__}"
        )
    if token is not None or "authorization" in (name.lower() for name in headers):
        raise ValueError("auth gets the token: leave token and the header Authorization out")


def _check_ssl(context: object, address: Address, scheme: str) -> None:
    from ssl import SSLContext

    if not isinstance(context, SSLContext):
        raise TypeError(f"ssl must be an ssl.SSLContext, not {type(context).__name__}")
    if not address.secure:
        raise ValueError(f"ssl is for {scheme}:// URLs; this one is {address.scheme}://")


def _restart(restart: int | bool | None) -> int | None:
    if restart is None:
        return None
    if restart is True:
        return RECONNECTS
    if not isinstance(restart, int) or restart < 0:
        raise ValueError(f"restart must be True, False or a count, not {restart!r}")
    return int(restart)


def _seconds(what: str, value: float, *, zero: bool = False) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not (0 <= value < math.inf) or (value == 0 and not zero):
        raise ValueError(f"{what} must be seconds {'>=' if zero else '>'} 0, not {value!r}")
    return float(value)


def as_target(
    target: Any,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    auth: "Authorization | None" = None,
    user: str | None = None,
) -> Target:
    """Return the target of a client from the arguments of its user. Nothing is launched or looked
    up. TypeError, ValueError: the argument is not a target, or not one with headers or a user."""
    from wirespeed.transport.child.command import Stdio

    if isinstance(target, (str, os.PathLike)):
        word = os.fspath(target)
        found = from_file(word)
        if found is None and user is None:
            return from_url(word, headers, token, auth)
        target = found
    if user is not None:
        service = service_of(target)
        if getattr(service, "subprotocol", None) != "mcp":
            raise TypeError(
                "user is for a client of a Server in this process: "
                "elsewhere the server finds out who its client is"
            )
        target = ServedAs(service, user)
    if headers is not None or token is not None or auth is not None:
        raise TypeError(
            "headers, token and auth are for a client of a URL: Http and WebSocket have their own"
        )
    if isinstance(target, (Stdio, Http, WebSocket, Socket)):
        return target
    if getattr(service_of(target), "subprotocol", None) == "mcp":
        server: Server = target
        return server
    raise TypeError(
        "a target is Stdio(command, args), Http(url), WebSocket(url), Socket(url), a URL, a "
        f"FILE.py or a Server, not {type(target).__name__}"
    )


class ServedAs:
    """A server in this process, for a client that is one of its users, as a listener would have
    found out: scopes are checked, and handlers see the user.

    Args:
        service: The service of the server.
        user: The user.
    """

    def __init__(self, service: Any, user: str) -> None:
        if not isinstance(user, str) or not user:
            raise TypeError(f"user is a User or the name of one, not {user!r}")
        self._service = service
        self.user = user if isinstance(user, User) else User(user)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def __repr__(self) -> str:
        return f"{self._service!r} as {str(self.user)!r}"

    def connect(self, make_link: Any, **options: Any) -> Any:
        """Serve the user. HttpStatusError: the user lacks a scope that every request needs."""
        from wirespeed.transport.gate import digest

        needed = getattr(getattr(self._service, "auth", None), "scopes", ())
        if not self.user.scopes.issuperset(needed):
            text = f"{self.name} needs the scopes {' '.join(needed)}"
            raise HttpStatusError(f"{text}, which {self.user} lacks", 403, "Forbidden")
        connection = self._service.connect(make_link, **options)
        connection.peer = Peer("memory", self.user)
        connection.principal = digest("user", self.user)
        return connection


_URL = re.compile(r"unix:|[\w+]+://")
_NAMED = re.compile(r"(.+\.py)(?::([A-Za-z_][\w.]*))?\Z", re.DOTALL)


def python_file(word: str) -> tuple[str, str | None] | None:
    """``FILE.py[:NAME]`` as (file, name); None for any other word."""
    match = None if word.endswith(".py") and os.path.exists(word) else _NAMED.match(word)
    if match is not None:
        return match[1], match[2]
    return (word, None) if word.endswith(".py") else None


def from_file(word: str) -> "Stdio | None":
    """The command that serves ``FILE.py[:NAME]``; None for any other word. ValueError if the file
    does not exist."""
    found = None if _URL.match(word) else python_file(word)
    if found is None:
        return None
    if not os.path.isfile(found[0]):
        raise ValueError(f"there is no file {found[0]}")
    from wirespeed.transport.child.command import Stdio

    return Stdio(sys.executable, ["-m", "wirespeed", "serve", word])


set_public_home(globals())
