"""The registry of schemes: a row for each kind of URL at which a server listens and to which a
client connects."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlsplit

Speaks: TypeAlias = Literal["http", "websocket", "lines"]
Fields: TypeAlias = dict[str, Any]  # of an `Address`


class Scheme(NamedTuple):
    """The row of a scheme.

    Attributes:
        name: The scheme in small letters.
        speaks: The protocol: ``lines`` is one message a line in the bare stream. It decides which
            target a client has (`wirespeed.client.targets.TARGETS`), which options hold, and how a
            listener serves.
        sockets: The kind of the sockets, a key of `wirespeed.transport.net.sockets.SOCKETS`.
        read: Returns the fields of the `Address` of a URL. Arguments: the row, the URL, and the
            URL as people see it (empty: the same). ValueError names the fault.
        form: The form of the URLs, for errors.
        port: The port of a URL that names none; None: a URL must name one.
        secure: Whether TLS is spoken.
    """

    name: str
    speaks: Speaks
    sockets: str
    read: Callable[[Scheme, str, str], Fields]
    form: str
    port: int | None = None
    secure: bool = False


def public(url: str) -> str:
    """A URL as people may see it: without query, user and password."""
    url = url.partition("?")[0].partition("#")[0]
    before, slashes, rest = url.partition("//")
    authority, slash, path = rest.partition("/")
    return before + slashes + authority.rpartition("@")[2] + slash + path


def quoted(path: str) -> str:
    """A path with its other characters percent-encoded."""
    return quote(path, safe="/%:@!$&'()*+,;=-._~")


# -- readers of URLs -------------------------------------------------------------------------------


def read_url(row: Scheme, url: str, shown: str) -> Fields:
    """``//host[:port][/path][?query]``."""
    fields, path, query = _authority(url, shown)
    if fields["port"] is None:
        fields["port"] = row.port
    fields["path"] = quoted(path) or "/"
    fields["query"] = quote(query, safe="/?%:@!$&'()*+,;=-._~")
    return fields


def read_port(row: Scheme, url: str, shown: str) -> Fields:
    """``//host:port``."""
    fields, path, _ = _authority(url, shown)
    name = public(shown or url)
    if fields["port"] is None:
        raise ValueError(f"{name!r} has no port: use {row.form}")
    if path not in ("", "/") or "?" in url:
        raise ValueError(f"{name!r}: {row.name}:// has neither path nor query")
    return fields


def read_file(row: Scheme, url: str, shown: str) -> Fields:
    """``/path`` or ``relative/path`` of a file."""
    path = url.partition(":")[2]
    name = shown or f"{row.name}:{path}"
    if path.startswith("//"):
        # unix:///path is written often; a text between // and / would be a host
        path = path[2:]
        if not path.startswith("/"):
            raise ValueError(f"{name!r} names a host: use {row.form} or {row.name}:relative/path")
    if not path or path.endswith("/"):
        raise ValueError(f"{name!r} names no file: use {row.form}")
    _check_file(path)
    return {"path": path}


def read_file_and_url(row: Scheme, url: str, shown: str) -> Fields:
    """``//%2Fpath[/path][?query]``: the host is the file of a socket, percent-encoded."""
    name = public(shown or url)
    rest = url.partition(":")[2]
    host, slash, target = rest.removeprefix("//").partition("/")
    file = unquote(host, errors="surrogateescape")
    if not rest.startswith("//") or not file or file.endswith("/") or set(host) & set("?#@:"):
        raise ValueError(f"{name!r} names no file: use {row.form}")
    _check_file(file)
    return {**read_url(row, f"http://localhost{slash}{target}", shown), "socket": file}


def _check_file(path: str) -> None:
    if "\0" in path:
        raise ValueError("a socket's path contains a null character")


def _authority(url: str, shown: str) -> tuple[Fields, str, str]:
    """The host and the port of a URL, its path and its query."""
    name = public(shown or url)
    if any(c <= " " or c == "\x7f" for c in url):
        raise ValueError(f"{name!r} has a space or a control character in it")
    if not url.partition(":")[2].startswith("//"):
        raise ValueError(f"{name!r} has no host: use {forms()}")
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
    return {"host": host, "port": port}, parts.path, parts.query


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


def _reason(exc: ValueError) -> str:
    text = str(exc)
    if "ort" in text:  # "Port out of range 0-65535", "Port could not be cast to integer …"
        return "the port must be a number from 0 to 65535"
    return "its host cannot be read"


# -- the rows --------------------------------------------------------------------------------------

_HTTP, _WS = "http[s]://host:port/path", "ws[s]://host:port/path"

SCHEMES: dict[str, Scheme] = {
    row.name: row
    for row in (
        Scheme("http", "http", "tcp", read_url, _HTTP, 80),
        Scheme("https", "http", "tcp", read_url, _HTTP, 443, secure=True),
        Scheme("ws", "websocket", "tcp", read_url, _WS, 80),
        Scheme("wss", "websocket", "tcp", read_url, _WS, 443, secure=True),
        Scheme("unix", "lines", "unix", read_file, "unix:/path"),
        Scheme("http+unix", "http", "unix", read_file_and_url, "http+unix://%2Fpath/path", 80),
        Scheme("tcp", "lines", "tcp", read_port, "tcp://host:port"),
    )
}


def names(*speaks: Speaks) -> tuple[str, ...]:
    """The schemes that speak one of the protocols, in the order of these."""
    return tuple(row.name for one in speaks for row in SCHEMES.values() if row.speaks == one)


def forms() -> str:
    """The forms of all URLs, for errors: those with a file come last."""
    rows = sorted(SCHEMES.values(), key=lambda row: row.sockets == "unix")
    *others, last = dict.fromkeys(row.form for row in rows)
    return f"{', '.join(others)} or {last}"


def http_scheme(scheme: str) -> str:
    """The scheme of the request that opens a WebSocket (RFC 6455 section 3): ``http`` for ``ws``,
    ``https`` for ``wss``. Other schemes stay."""
    row = SCHEMES.get(scheme.lower())
    if row is None or row.speaks != "websocket":
        return scheme
    return "https" if row.secure else "http"
