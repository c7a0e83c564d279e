"""Addresses at which a server listens or a client connects: URLs as plain values."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote, urlsplit

import msgspec

DEFAULT_PORTS = {"ws": 80, "wss": 443, "http": 80, "https": 443}
SCHEMES = (*DEFAULT_PORTS, "tcp", "unix")
HTTP_UNIX = "http+unix"
FORMS = (
    "http[s]://host:port/path, ws[s]://host:port/path, tcp://host:port, unix:/path or "
    "http+unix://%2Fpath/path"
)


class Address(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A parsed URL. Neither ``str`` nor ``repr`` shows the query: it may carry a secret.

    Attributes:
        scheme: ``http``, ``https``, ``ws``, ``wss``, ``tcp`` or ``unix``; ``http`` for
            ``http+unix``, too.
        host: A name in ASCII or an address, IPv6 without brackets; empty for ``unix``.
        port: 0 when a server may take any; also 0 for ``unix``.
        path: The URL's path, ``/`` when it has none; the file for ``unix``; empty for ``tcp``.
        query: What follows the question mark of an HTTP or WebSocket URL.
        shown: The URL as people see it, where the real one holds a secret; else empty.
        socket: The file of the socket over which HTTP is spoken, for ``http+unix``; else empty.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    query: str = ""
    shown: str = ""
    socket: str = ""

    @property
    def file(self) -> str:
        """The file of the UNIX socket; empty where there is none."""
        return self.path if self.scheme == "unix" else self.socket

    @property
    def is_websocket(self) -> bool:
        """Whether WebSocket is spoken there (else messages lie in the bare stream)."""
        return self.scheme in ("ws", "wss")

    @property
    def is_http(self) -> bool:
        """Whether messages are the bodies of HTTP there."""
        return self.scheme in ("http", "https")

    @property
    def has_paths(self) -> bool:
        """Whether a request names a path there, so that several servers fit."""
        return self.is_http or self.is_websocket

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken there."""
        return self.scheme in ("wss", "https")

    @property
    def target(self) -> str:
        """The target of a request: path and query (RFC 9112 section 3.2.1; the "resource name" of
        RFC 6455 section 3)."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def authority(self) -> str:
        """Host and port as a URL has them; the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.shown:
            return public(self.shown)
        if self.scheme == "unix":
            return f"unix:{self.path}"
        if self.socket:
            return f"{HTTP_UNIX}://{quote(self.socket, safe='')}{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:  # msgspec's own shows every field
        return [("url", str(self))]


def parse(url: str, shown: str = "") -> Address:
    """The address that a URL names. ``shown``: as of `Address`; errors show it, too.

    ``unix:/path`` or ``unix:relative/path``; ``http+unix://%2Fpath[/path][?query]``, whose host is
    the file of a socket, percent-encoded; ``tcp://host:port``; ``http://host[:port][/path]
    [?query]``, and the same with ``https:``, ``ws:`` and ``wss:``. ValueError names the fault; its
    text never holds a password or a query.
    """
    if not isinstance(url, str):
        raise TypeError(f"a URL is a string, not {type(url).__name__}")
    name = public(shown or url)
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if scheme == HTTP_UNIX:
        return _http_unix(rest, shown or url, shown)
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"{name!r} is not a URL to listen at or connect to: use {FORMS}")
    if scheme == "unix":
        return _unix(rest, shown)
    if any(c <= " " or c == "\x7f" for c in url):
        raise ValueError(f"{name!r} has a space or a control character in it")
    if not rest.startswith("//"):
        raise ValueError(f"{name!r} has no host: use {FORMS}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ValueError(f"{name!r} is not a good URL: {_reason(exc)}") from None
    if "@" in parts.netloc:
        raise ValueError("a URL must not hold a user or password: use a token or headers")
    if "#" in url:
        raise ValueError(f"{name!r}: a fragment has no meaning here")
    if not host:
        raise ValueError(
            f"{name!r} has no host: 127.0.0.1 is this machine alone, "
            "0.0.0.0 or [::] is every network"
        )
    host = _host(host, bracketed="[" in parts.netloc, name=name)
    if scheme == "tcp":
        if port is None:
            raise ValueError(f"{name!r} has no port: use tcp://host:port")
        if parts.path not in ("", "/") or "?" in url:
            raise ValueError(f"{name!r}: tcp:// has neither path nor query")
        return Address(scheme, host, port, shown=shown)
    return Address(
        scheme,
        host,
        DEFAULT_PORTS[scheme] if port is None else port,
        _quoted(parts.path) or "/",
        quote(parts.query, safe="/?%:@!$&'()*+,;=-._~"),
        shown,
    )


def as_http(url: str) -> str:
    """The URL of the request that opens a WebSocket (RFC 6455 section 3): ``ws:`` is ``http:``,
    ``wss:`` is ``https:``. Other URLs stay."""
    scheme, colon, rest = url.partition(":")
    return {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme) + colon + rest


def quote_path(path: str) -> str:
    """Return a path as a request has it: other characters are percent-encoded. ValueError for a
    text that is not the path of a URL."""
    bad = not isinstance(path, str) or any(c <= " " or c in "?#\x7f" for c in path)
    if bad or not path.startswith("/"):
        raise ValueError(
            f"{path!r} is not the path of a URL: a path begins with a slash and has neither query "
            "nor fragment nor spaces"
        )
    return _quoted(path)


def _quoted(path: str) -> str:
    return quote(path, safe="/%:@!$&'()*+,;=-._~")


def _unix(rest: str, shown: str) -> Address:
    path = rest
    name = shown or f"unix:{rest}"
    if rest.startswith("//"):
        # unix:///path is written often; a text between // and / would be a host
        path = rest[2:]
        if not path.startswith("/"):
            raise ValueError(f"{name!r} names a host: use unix:/path or unix:relative/path")
    if not path or path.endswith("/"):
        raise ValueError(f"{name!r} names no file: use unix:/path")
    if "\0" in path:
        raise ValueError("a socket's path contains a null character")
    return Address("unix", path=path, shown=shown)


def _http_unix(rest: str, name: str, shown: str) -> Address:
    name = public(name)
    quoted, slash, target = rest.removeprefix("//").partition("/")
    file = unquote(quoted, errors="surrogateescape")
    if not rest.startswith("//") or not file or file.endswith("/") or set(quoted) & set("?#@:"):
        raise ValueError(f"{name!r} names no file: use {HTTP_UNIX}://%2Fpath/path")
    if "\0" in file:
        raise ValueError("a socket's path contains a null character")
    address = parse(f"http://localhost{slash}{target}", shown)
    return msgspec.structs.replace(address, socket=file)


def _host(host: str, *, bracketed: bool, name: str) -> str:
    if bracketed:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{name!r}: its host is not an IPv6 address") from None
        return host
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{name!r}: its host is not a host name") from None


def public(url: str) -> str:
    """A URL as people may see it: without query, user and password."""
    url = url.partition("?")[0].partition("#")[0]
    before, slashes, rest = url.partition("//")
    authority, slash, path = rest.partition("/")
    return before + slashes + authority.rpartition("@")[2] + slash + path


def _reason(exc: ValueError) -> str:
    text = str(exc)
    if "ort" in text:  # "Port out of range 0-65535", "Port could not be cast to integer …"
        return "the port must be a number from 0 to 65535"
    return "its host cannot be read"


def is_loopback(host: str) -> bool:
    """Whether a host, as a URL or a Host header names it, is this machine's own: ``localhost`` and
    names under it (RFC 6761 section 6.3), 127.0.0.0/8, ::1."""
    host = host.lower().removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def networks(places: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The networks of ``trusted_proxies``; an address is a network of its own. ValueError: an entry
    is neither."""
    if isinstance(places, str):
        raise TypeError("trusted_proxies is a sequence of strings, not one string")
    try:
        return [ipaddress.ip_network(place) for place in places]
    except ValueError as exc:
        raise ValueError(f"trusted_proxies: {exc}") from None


def is_name(host: str) -> bool:
    """Whether a host has to be looked up: it is there, and no IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != ""
    return False


def urls_of(address: Address, paths: Iterable[str]) -> tuple[str, ...]:
    """The URLs that clients connect to, one for each path; of an address without paths its own."""
    if not address.has_paths:
        return (str(address),)
    return tuple(str(msgspec.structs.replace(address, path=path)) for path in paths)
