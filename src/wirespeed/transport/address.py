"""Addresses at which a server listens or a client connects: URLs as plain values."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from wirespeed.transport.schemes import SCHEMES, Scheme, forms, http_scheme, public, quoted

_OVER_FILE = "+unix"  # the end of a scheme whose URLs name a file and a path


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
        via: The IP address and the port that connections go to, where they are not those of the
            URL: ``10.0.0.5:8000``, ``[::1]:8000``. TLS and HTTP name ``host`` all the same.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    query: str = ""
    shown: str = ""
    socket: str = ""
    via: str = ""

    @property
    def row(self) -> Scheme:
        """The row of its scheme."""
        return SCHEMES[self.scheme + _OVER_FILE if self.socket else self.scheme]

    @property
    def file(self) -> str:
        """The file of the UNIX socket; empty where there is none."""
        return self.socket or (self.path if self.row.sockets == "unix" else "")

    @property
    def is_websocket(self) -> bool:
        """Whether WebSocket is spoken there (else messages lie in the bare stream)."""
        return self.row.speaks == "websocket"

    @property
    def is_http(self) -> bool:
        """Whether messages are the bodies of HTTP there."""
        return self.row.speaks == "http"

    @property
    def has_paths(self) -> bool:
        """Whether a request names a path there, so that several servers fit."""
        return self.row.speaks != "lines"

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken there."""
        return self.row.secure

    @property
    def target(self) -> str:
        """The target of a request: path and query (RFC 9112 section 3.2.1; the "resource name" of
        RFC 6455 section 3)."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def destination(self) -> tuple[str, int]:
        """The host and the port that connections go to."""
        if not self.via:
            return self.host, self.port
        host, _, port = self.via.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def authority(self) -> str:
        """Host and port as a URL has them; the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == self.row.port else f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.shown:
            return public(self.shown)
        if self.socket:
            return f"{self.scheme}{_OVER_FILE}://{quote(self.socket, safe='')}{self.path}"
        if self.file:
            return f"{self.scheme}:{self.file}"
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
    scheme, colon, _ = url.partition(":")
    row = SCHEMES.get(scheme.lower())
    if row is None or not colon:
        name = public(shown or url)
        raise ValueError(f"{name!r} is not a URL to listen at or connect to: use {forms()}")
    fields = row.read(row, url, shown)
    return Address(row.name.removesuffix(_OVER_FILE), shown=shown, **fields)


def read_via(text: str) -> str:
    """Return an IP address and a port as `Address.via` has them. ValueError: the text is not one of
    these."""
    host, _, port = text.rpartition(":")
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        found = None
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if found is None or not is_port or (found.version == 6) is not host.startswith("["):
        raise ValueError(f"{text!r} is not an IP address and a port, such as 10.0.0.5:8000")
    return f"{host}:{int(port)}"


def as_http(url: str) -> str:
    """The URL of the request that opens a WebSocket (RFC 6455 section 3): ``ws:`` is ``http:``,
    ``wss:`` is ``https:``. Other URLs stay."""
    scheme, colon, rest = url.partition(":")
    return http_scheme(scheme) + colon + rest


def quote_path(path: str) -> str:
    """Return a path as a request has it: other characters are percent-encoded. ValueError for a
    text that is not the path of a URL."""
    bad = not isinstance(path, str) or any(c <= " " or c in "?#\x7f" for c in path)
    if bad or not path.startswith("/"):
        raise ValueError(
            f"{path!r} is not the path of a URL: a path begins with a slash and has neither query "
            "nor fragment nor spaces"
        )
    return quoted(path)


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


def host_of(address: str) -> str:
    """Return an address without its port."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


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
