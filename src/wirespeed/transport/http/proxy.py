"""HTTP proxies: which one the environment names for a URL, and tunnels through one."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

import wirespeed
from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.streams import FrameStream
from wirespeed.errors import TransportError
from wirespeed.transport.address import Address, is_loopback, public

DEFAULT_PORT = 1080  # curl's, too
MAX_REFUSAL = 65536  # bytes of an answer that refuses a tunnel
READ_SIZE = 4096


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy. Neither ``str`` nor ``repr`` shows its credentials.

    Attributes:
        host: A name or an address, IPv6 without brackets.
        port: The port.
        fields: The header fields for the proxy, whole lines: its credentials, or none.
    """

    host: str
    port: int
    fields: bytes = b""

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Proxy({str(self)!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:  # msgspec's own shows every field
        return [("url", str(self))]


def parse_proxy(url: str) -> Proxy:
    """The proxy that a URL names: ``http://[user:password@]host[:port]``, or the same without
    ``http://``. ValueError names the fault, and never a password."""
    name = public(url)
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("http:")
    if parts.scheme.lower() != "http":
        raise ValueError(f"{name!r}: only proxies at http:// URLs are supported")
    if not host or any(c <= " " or c == "\x7f" for c in host):
        raise ValueError(f"{name!r} is not the URL of a proxy: use http://host:port")
    fields = b""
    if parts.username is not None or parts.password is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        fields = b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(pair.encode())
    return Proxy(host, DEFAULT_PORT if port is None else port, fields)


def proxy_of(address: Address, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy for a URL, as curl reads the environment: ``http_proxy`` (in small letters alone:
    in a CGI program HTTP_PROXY is a header of the client), ``https_proxy``, ``all_proxy``, and
    ``no_proxy``; the names in capitals count where those in small letters are absent or empty.
    ``localhost`` and loopback addresses never have one, which is not so in curl.

    ValueError names the variable whose value is wrong.
    """
    names = ["https_proxy", "HTTPS_PROXY"] if address.secure else ["http_proxy"]
    for name in (*names, "all_proxy", "ALL_PROXY"):
        if url := environ.get(name):
            break
    else:
        return None
    if is_loopback(address.host):
        return None
    if _is_excepted(address.host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    try:
        return parse_proxy(url)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None


def _is_excepted(host: str, exceptions: str) -> bool:
    """Whether the value of ``no_proxy`` names a host: ``*``; a name, which stands for the names
    under it, too; an address; a network (``10.0.0.0/8``)."""
    if exceptions.strip() == "*":
        return True
    host = host.lower().removesuffix(".")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        found = None
    for entry in exceptions.lower().replace(",", " ").split():
        if found is None:
            name = entry.strip(".")
            if name and (host == name or host.endswith(f".{name}")):
                return True
            continue
        try:
            if found in ipaddress.ip_network(entry.replace("[", "").replace("]", ""), strict=False):
                return True
        except ValueError:
            continue  # a name
    return False


async def open_tunnel(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Address, proxy: Proxy
) -> None:
    """Ask a proxy, to which the socket is connected, for a tunnel to a server (RFC 9110 section
    9.3.6). TransportError: the proxy refuses."""
    place = f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    lines = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n"
    lines += f"User-Agent: wirespeed/{wirespeed.__version__}\r\n"
    await loop.sock_sendall(sock, lines.encode() + proxy.fields + b"\r\n")
    framer = HttpFramer("client", max_body=MAX_REFUSAL)
    framer.expect("CONNECT")
    stream = FrameStream(framer)
    while next(stream, None) is None and not framer.has_head:
        data = b"" if framer.failure else await loop.sock_recv(sock, READ_SIZE)
        if not data:
            why = framer.failure[1] if framer.failure else "it closed the connection"
            raise TransportError(f"cannot connect to {address}: the proxy {proxy} failed: {why}")
        stream.receive_data(data)
    status = framer.head.status
    if not 200 <= status < 300:
        hint = "; its URL takes user:password@" if status == 407 else ""
        raise TransportError(
            f"cannot connect to {address}: the proxy {proxy} refused the tunnel: {status}{hint}"
        )
    if framer.take_rest():
        raise TransportError(
            f"cannot connect to {address}: the proxy {proxy} sent bytes of its own"
        )
