"""Servers that run elsewhere, as plain descriptions: WebSocket and stream sockets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wirespeed.transport.address import Address, is_loopback, parse
from wirespeed.transport.options import check_headers, is_token

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["RECONNECTS", "Socket", "WebSocket", "from_url"]

# What restart=True stands for, and the default with a modern server: about half a minute of
# attempts, time for a server to be started again behind its port.
RECONNECTS = 8

_WEBSOCKET = ("ws", "wss")
_STREAM = ("unix", "tcp")

# Those that say who the caller is.
_CREDENTIALS = ("authorization", "authentication", "proxy-authorization", "cookie")


@dataclass(frozen=True, repr=False, init=False)
class WebSocket:
    """A server that is spoken to over WebSocket (RFC 6455): ``ws://`` or, with TLS, ``wss://``.

    Args:
        url: ``ws://host[:port][/path][?query]``, or the same with ``wss:``.
        headers: Further headers of the upgrade request. Any but those that the handshake is made
            of: Host, Connection, Upgrade, Sec-WebSocket-…, Content-Length, Transfer-Encoding.
            Origin is allowed: a program has none of its own.
        token: Sent as ``Authorization: Bearer …`` (RFC 6750). Over ``ws://`` to another machine
            anybody on the way can read it; that is logged as a warning.
        ssl: How a ``wss://`` server is verified; None for ``ssl.create_default_context()``.
        compression: Whether permessage-deflate (RFC 7692) is offered.
        restart: How many times in a row a lost connection is made again: 0 never, True for 8. By
            default 8 with a modern server (2026-07-28), whose connections have no state, and 0
            with a legacy one, for which a new connection is a new session. The attempts come
            with growing, jittered pauses, about half a minute in all; when they are used up,
            each further call makes one more. Calls that wait for an answer when the connection
            is lost fail at once, and are never sent again by themselves.
        open_timeout: Seconds for connecting, TLS and the upgrade together.
        ping_interval: Seconds between two pings; None for none.
        ping_timeout: Seconds that the server has to answer one, before it is taken for gone.
        close_timeout: Seconds that the server has to answer the closing frame.
        shown: The URL as errors, logs and ``repr`` show it, where its host or path holds a secret.

    Raises TypeError or ValueError for an argument of the wrong type or value. Values of headers,
    the token and the query of the URL never appear in ``repr`` or errors.
    """

    url: str
    headers: Mapping[str, str] = field(hash=False, kw_only=True)
    token: str | None = field(kw_only=True)
    ssl: SSLContext | None = field(kw_only=True)
    compression: bool = field(kw_only=True)
    restart: int | None = field(kw_only=True)
    open_timeout: float = field(kw_only=True)
    ping_interval: float | None = field(kw_only=True)
    ping_timeout: float = field(kw_only=True)
    close_timeout: float = field(kw_only=True)
    address: Address = field(compare=False, kw_only=True)
    """The URL, taken apart."""

    # Written by hand so that what is not possible is refused here, and True taken for restart.
    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        ssl: SSLContext | None = None,
        compression: bool = False,
        restart: int | bool | None = None,
        open_timeout: float = 10.0,
        ping_interval: float | None = 20.0,
        ping_timeout: float = 20.0,
        close_timeout: float = 5.0,
        shown: str = "",
    ) -> None:
        set_ = object.__setattr__
        address = _address("WebSocket", url, _WEBSOCKET, shown)
        set_(self, "url", url)
        set_(self, "address", address)
        set_(self, "headers", check_headers({} if headers is None else headers))
        set_(self, "token", _token(token))
        if token is not None and "authorization" in (name.lower() for name in self.headers):
            raise ValueError("token and the header Authorization say the same; leave one out")
        if ssl is not None:
            _check_ssl(ssl, address)
        set_(self, "ssl", ssl)
        if not isinstance(compression, bool):
            raise TypeError(f"compression must be True or False, not {compression!r}")
        set_(self, "compression", compression)
        set_(self, "restart", _restart(restart))
        set_(self, "open_timeout", _seconds("open_timeout", open_timeout))
        if ping_interval is not None:
            ping_interval = _seconds("ping_interval", ping_interval)
        set_(self, "ping_interval", ping_interval)
        set_(self, "ping_timeout", _seconds("ping_timeout", ping_timeout))
        set_(self, "close_timeout", _seconds("close_timeout", close_timeout, zero=True))

    @property
    def where(self) -> str:
        """The URL for people to read: without its query, which may hold a secret."""
        return str(self.address)

    @property
    def exposed(self) -> bool:
        """Whether credentials would cross a network in the clear."""
        named = any(name.lower() in _CREDENTIALS for name in self.headers)
        if self.address.scheme == "wss" or not (named or self.token is not None):
            return False
        return not is_loopback(self.address.host)

    def request_headers(self) -> dict[str, str]:
        """The headers of the upgrade request besides those of the handshake, the token's too."""
        headers = dict(self.headers)
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def __repr__(self) -> str:
        parts = [repr(f"{self.address}{'?…' if self.address.query else ''}")]
        if self.headers:
            parts.append(f"headers=<{', '.join(self.headers)}>")
        if self.token is not None:
            parts.append("token=<…>")
        if self.ssl is not None:
            parts.append("ssl=<…>")
        parts += [
            f"{name}={getattr(self, name)!r}"
            for name, default in _DEFAULTS.items()
            if getattr(self, name) != default
        ]
        return f"WebSocket({', '.join(parts)})"


_DEFAULTS = {
    "compression": False,
    "restart": None,
    "open_timeout": 10.0,
    "ping_interval": 20.0,
    "ping_timeout": 20.0,
    "close_timeout": 5.0,
}


@dataclass(frozen=True, repr=False, init=False)
class Socket:
    """A server that is spoken to over a stream socket, one message a line, as over stdio.

    Args:
        url: ``unix:/path``, ``unix:relative/path`` or ``tcp://host:port``. There is neither
            encryption nor authentication: for this machine or a trusted network only.
        restart: As of `WebSocket`.
        open_timeout: Seconds for connecting.
        shown: As of `WebSocket`.

    Raises TypeError or ValueError for an argument of the wrong type or value.
    """

    url: str
    restart: int | None = field(kw_only=True)
    open_timeout: float = field(kw_only=True)
    address: Address = field(compare=False, kw_only=True)
    """The URL, taken apart."""

    def __init__(
        self,
        url: str,
        *,
        restart: int | bool | None = None,
        open_timeout: float = 10.0,
        shown: str = "",
    ) -> None:
        set_ = object.__setattr__
        set_(self, "address", _address("Socket", url, _STREAM, shown))
        set_(self, "url", url)
        set_(self, "restart", _restart(restart))
        set_(self, "open_timeout", _seconds("open_timeout", open_timeout))

    @property
    def where(self) -> str:
        """The URL for people to read."""
        return str(self.address)

    def __repr__(self) -> str:
        parts = [repr(self.address.shown or self.url)]
        parts += [
            f"{name}={getattr(self, name)!r}"
            for name in ("restart", "open_timeout")
            if getattr(self, name) != _DEFAULTS[name]
        ]
        return f"Socket({', '.join(parts)})"


def from_url(url: str) -> WebSocket | Socket:
    """The target that a URL names. ValueError for one that this version does not speak."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() in _STREAM:
        return Socket(url)
    if scheme.lower() in _WEBSOCKET:
        return WebSocket(url)
    if scheme.lower() in ("http", "https"):
        raise ValueError(f"this version does not speak HTTP, so it cannot connect to {scheme}://…")
    # what is after the scheme of a URL may be a secret
    shown = f"{scheme}://…" if rest.startswith("//") else repr(url)
    raise ValueError(
        f"cannot connect to {shown}: a target is a URL (ws://…, wss://…, unix:…, tcp://…), "
        "Stdio(command, args) or a Server"
    )


def _address(what: str, url: str, schemes: tuple[str, ...], shown: str) -> Address:
    if not isinstance(url, str):
        raise TypeError(f"url must be a string, not {type(url).__name__}")
    address = parse(url, shown)
    if address.scheme not in schemes:
        other = "Socket" if what == "WebSocket" else "WebSocket"
        raise ValueError(
            f"{what} takes {' and '.join(f'{s}:' for s in schemes)} URLs; "
            f"{address.scheme}: is for {other}"
        )
    if address.scheme != "unix" and not address.port:
        raise ValueError(f"{str(address)!r} has no port to connect to")
    return address


def _token(token: str | None) -> str | None:
    if token is None:
        return None
    if not isinstance(token, str):
        raise TypeError(f"token must be a string, not {type(token).__name__}")
    if not token:
        raise ValueError("token is empty; leave it out for none")
    if not is_token(token):
        raise ValueError(
            "token has a space, a line break or another character that is not allowed "
            "(printable ASCII is)"
        )
    return token


def _check_ssl(context: object, address: Address) -> None:
    from ssl import SSLContext

    if not isinstance(context, SSLContext):
        raise TypeError(f"ssl must be an ssl.SSLContext, not {type(context).__name__}")
    if address.scheme != "wss":
        raise ValueError(f"ssl is for wss:// URLs; this one is {address.scheme}://")


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
