"""Connections to a server at a URL: a stream socket, or a WebSocket after its opening handshake.
They may lead through an HTTP proxy, which the environment names for the URL."""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import os
import socket
import ssl as ssl_
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

import wirespeed
from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.streams import FrameStream
from wirespeed.errors import TransportError, UpgradeRefused, uncapitalized
from wirespeed.transport.address import Address, is_loopback, is_name
from wirespeed.transport.net.sockets import (
    OUT_OF_REACH,
    ConnectFailure,
    SocketStream,
    Stream,
    address_name,
    connect_host,
    sockets_of,
    start,
    watch_peer,
)
from wirespeed.transport.net.tls import TlsStream
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.transport.headers import Headers
    from wirespeed.transport.link import Endpoint, Link
    from wirespeed.transport.websocket.upgrade import Answer, ClientHandshake, MessageDeflate

T = TypeVar("T")

CLOSE_TIMEOUT = 1.0  # seconds for the closing alert of TLS, of which HTTP needs none

TLS_ALERT = 0x15  # the first byte of a TLS server's answer to plain text (RFC 8446 section 5.1)

DEFAULT_PROXY_PORT = 1080  # curl's, too
MAX_REFUSAL = 65536  # bytes of an answer that refuses a tunnel
READ_SIZE = 4096
END = b"\r\n\r\n"  # of a head


class Connected:
    """An open connection: `attach` an endpoint to it, and `close` it after the link is lost."""

    def __init__(self, stream: Stream, rest: bytes = b"") -> None:
        self._stream = stream
        self._rest = rest

    @property
    def peer(self) -> str:
        """The other end, for people to read."""
        return self._stream.peer

    def attach(self, endpoint: Endpoint) -> Link:
        """Join an endpoint to the connection by a started link. The endpoint receives the bytes
        behind the handshake before this returns. May be called once. OSError: the connection
        broke."""
        link = self._stream.make_link(endpoint)
        rest, self._rest = self._rest, b""
        start(link, rest)
        return link

    def close(self) -> None:
        """Release the socket. Close the link first. Idempotent."""
        self._stream.close()


class ConnectedWebSocket(Connected):
    """A WebSocket after its opening handshake. Its endpoint needs a `WebSocketFramer` of the
    client's role, with ``deflate=extension``."""

    def __init__(self, stream: Stream, rest: bytes, answer: Answer) -> None:
        super().__init__(stream, rest)
        self.response_headers: Headers = answer.headers
        """The header fields of the server's answer."""
        self.subprotocol: str | None = answer.subprotocol
        """The subprotocol that the server chose, or None."""
        self.extension: MessageDeflate | None = answer.extension
        """permessage-deflate as agreed, or None."""


async def connect_stream(address: Address, *, open_timeout: float = 10.0) -> Connected:
    """Connect to ``unix:`` or ``tcp://``. TransportError: the connection failed."""
    loop = asyncio.get_running_loop()

    async def connect() -> Connected:
        return Connected(SocketStream(loop, await sockets_of(address).connect(loop, address)))

    return await _explained(connect, address, open_timeout)


async def connect_websocket(
    address: Address,
    *,
    subprotocols: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    ssl: ssl_.SSLContext | None = None,
    compression: bool = False,
    open_timeout: float = 10.0,
    close_timeout: float = 5.0,
) -> ConnectedWebSocket:
    """Connect to ``ws://`` or ``wss://`` and open a WebSocket. Redirects are not followed.

    Args:
        address: The address of the server.
        subprotocols: The offered subprotocols, the best first.
        headers: Further header fields of the request, such as ``Authorization``.
        ssl: The TLS context; by default it trusts the authorities of the system.
        compression: Offer permessage-deflate.
        open_timeout: The time limit of the whole call in seconds.
        close_timeout: The time limit of TLS's closing alert in seconds.

    Raises:
        UpgradeRefused: The server answered with an HTTP status instead.
        TransportError: The server was not reached, or the server does not speak WebSocket. No
            error holds a header's value or the URL's query.
    """
    from wirespeed.transport.websocket.upgrade import ClientHandshake

    handshake = ClientHandshake(
        address, subprotocols=subprotocols, headers=headers, compression=compression
    )

    async def connect() -> ConnectedWebSocket:
        stream = await _open_stream(address, ssl, open_timeout, close_timeout)
        try:
            return await _open(stream, handshake, address)
        except BaseException:
            stream.close()
            raise

    return await _explained(connect, address, open_timeout)


async def connect_http(
    address: Address,
    *,
    ssl: ssl_.SSLContext | None = None,
    proxy: HttpProxy | None = None,
    open_timeout: float = 10.0,
    may_reach: Callable[[str], bool] | None = None,
) -> Connected:
    """Connect to ``http://`` or ``https://``, for requests of HTTP/1.1.

    Args:
        address: The address of the server.
        ssl: The TLS context; by default it trusts the authorities of the system.
        proxy: The proxy. It opens a tunnel to an ``https://`` server; requests to an ``http://``
            server are the proxy's to forward.
        open_timeout: The time limit of the whole call in seconds.
        may_reach: Called with each IP address of the host; only those for which it returns True are
            connected to. A proxy looks names up itself, and only a host that is an IP address is
            judged.

    TransportError: the connection failed.
    """

    async def connect() -> Connected:
        return Connected(
            await _open_stream(address, ssl, open_timeout, CLOSE_TIMEOUT, proxy, may_reach)
        )

    return await _explained(connect, address, open_timeout, proxy)


async def connect_upgraded(
    address: Address,
    request: bytes,
    answered: Callable[[bytes], bytes],
    *,
    ssl: ssl_.SSLContext | None = None,
    open_timeout: float = 10.0,
) -> Connected:
    """Connect to ``http://`` or ``https://``, and change to another protocol. A server that is gone
    is detected within seconds, also while nothing is sent.

    Args:
        address: The address of the server.
        request: The request for the change.
        answered: Called with the head of the answer, without its end. Returns the first bytes of
            the other protocol. ValueError: the server does not change to it.
        ssl, open_timeout: As of `connect_http`.

    TransportError: the connection failed.
    """

    async def connect() -> Connected:
        stream = await _open_stream(address, ssl, open_timeout, CLOSE_TIMEOUT, is_watched=True)
        try:
            await stream.write(request)
            data = b""
            while END not in data:
                more = await stream.read()
                if not more or len(data) > MAX_REFUSAL:
                    raise ConnectFailure("the server does not answer with HTTP")
                data += more
            head, _, rest = data.partition(END)
            try:
                first = answered(head)
            except ValueError as exc:
                raise ConnectFailure(str(exc)) from None
            await stream.write(first)
        except BaseException:
            stream.close()
            raise
        return Connected(stream, rest)

    return await _explained(connect, address, open_timeout)


async def _open_stream(
    address: Address,
    ssl: ssl_.SSLContext | None,
    open_timeout: float,
    close_timeout: float,
    proxy: HttpProxy | None = None,
    may_reach: Callable[[str], bool] | None = None,
    *,
    is_watched: bool = False,
) -> Stream:
    """Return a stream to the host of a URL, with TLS where the URL says so. ``is_watched``: As of
    `watch_peer`."""
    loop = asyncio.get_running_loop()
    if proxy is None or address.file:
        sock = await sockets_of(address).connect(loop, address, may_reach)
    else:
        if may_reach is not None and not (is_name(address.host) or may_reach(address.host)):
            raise ConnectFailure(OUT_OF_REACH)
        sock = await connect_host(loop, proxy.host, proxy.port)
    if is_watched:
        watch_peer(sock)
    if not address.secure:
        return SocketStream(loop, sock)
    try:
        if proxy is not None:
            await open_tunnel(loop, sock, address, proxy)
        context = ssl_.create_default_context() if ssl is None else ssl
    except BaseException:
        sock.close()
        raise
    return await TlsStream.connect(
        loop,
        sock,
        context,
        address.host,
        peer=address_name((address.host, address.port)),
        timeout=open_timeout,
        close_timeout=close_timeout,
    )


# What to do about a status of HTTP.
_REMEDIES = {
    401: "; WebSocket(token=…) takes the server's token",
    404: "; correct the path of the URL",
}


async def _open(stream: Stream, handshake: ClientHandshake, address: Address) -> ConnectedWebSocket:
    from wirespeed.transport.websocket.upgrade import END, MAX_BODY, MAX_HEAD, BadAnswer, opens

    await stream.write(handshake.request)
    head, rest = bytearray(), b""
    while True:
        data = await stream.read()
        if not data:
            hint = "" if address.secure or head else "; if it speaks TLS, use wss://"
            raise ConnectFailure(
                f"the server closed the connection during the opening handshake{hint}"
            )
        if data[0] == TLS_ALERT and not (address.secure or head):
            raise ConnectFailure("the server speaks TLS: use wss://")
        searched = max(0, len(head) - len(END))
        head += data
        end = head.find(END, searched)
        if end >= 0:
            rest = bytes(head[end + len(END) :])
            del head[end + len(END) :]
            break
        if len(head) > MAX_HEAD:
            raise ConnectFailure("the answer is not an opening handshake")
    answer: Answer | None = None
    try:
        answer = handshake.receive(bytes(head))
        if answer is None and not opens(bytes(head)):
            answer = handshake.receive(rest) if rest else None
            taken = len(rest)
            while answer is None and taken <= MAX_BODY:
                data = await stream.read()
                answer = handshake.receive(data) if data else handshake.receive_eof()
                taken += len(data)
                if not data:
                    break
    except BadAnswer as exc:
        fault = f": {exc}"
    else:
        fault = ""
    if answer is not None and answer.status == 101:
        return ConnectedWebSocket(stream, rest, answer)
    # the first line counts even if the body is too long or malformed
    found = (answer.status, answer.reason) if answer is not None else None
    refusal = found or handshake.refusal_of(bytes(head))
    if refusal is None:
        raise ConnectFailure(f"the server does not speak WebSocket{fault}")
    status, reason = refusal
    text = f"{address} refused the WebSocket: {status} {reason}".rstrip()
    if 300 <= status < 400:
        text += " (redirects are not followed)"
    else:
        text += _REMEDIES.get(status, "")
    raise UpgradeRefused(text, status, reason, None if answer is None else answer.headers)


async def _explained(
    connect: Callable[[], Coroutine[Any, Any, T]],
    address: Address,
    open_timeout: float,
    proxy: HttpProxy | None = None,
) -> T:
    """Run work within the time limit. A failure becomes a TransportError with a reason."""
    place = f"{address} at {address.via}" if address.via else str(address)
    if proxy is not None:
        place += f" by the proxy {proxy}"
    try:
        async with asyncio.timeout(open_timeout):
            return await connect()
    except TransportError:
        raise
    except TimeoutError as exc:
        # also the system's own time limit
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else ""
        text = reason.lower() or f"no answer within {open_timeout:g} s"
        raise TransportError(f"cannot connect to {place}: {text}") from None
    except ConnectFailure as exc:
        raise TransportError(f"cannot connect to {place}: {exc}") from None
    except OSError as exc:
        text = f"cannot connect to {place}: {reason_of(exc)}"
        if isinstance(exc, ssl_.SSLCertVerificationError):
            text += "; ssl=… takes a context that trusts its authority"
        elif isinstance(exc, ConnectionRefusedError | FileNotFoundError):
            text += "; start a server there, or correct the URL"
        raise TransportError(text) from exc
    except UnicodeError:
        raise TransportError(f"cannot connect to {place}: its host is not a host name") from None


def reason_of(exc: OSError) -> str:
    """Return the reason of a failed system call, DNS query or TLS handshake as text."""
    if isinstance(exc, ssl_.SSLCertVerificationError):
        return f"its certificate is not accepted: {exc.verify_message}"
    if isinstance(exc, ssl_.SSLError):
        text = f"TLS failed: {(exc.reason or str(exc)).replace('_', ' ').lower()}"
        plain = "; a server without TLS is reached at http:// or ws://"
        return text + plain if _is_plain(exc) else text
    if exc.errno is not None and exc.errno > 0 and not isinstance(exc, socket.gaierror):
        return os.strerror(exc.errno).lower()
    text = exc.strerror or str(exc)
    if not text and isinstance(exc, ConnectionResetError):
        text = os.strerror(errno.ECONNRESET)  # asyncio's own has no text
    text = text or type(exc).__name__
    return uncapitalized(text)


def _is_plain(exc: ssl_.SSLError) -> bool:
    """Whether the other end's answer is not TLS."""
    return exc.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


# -- HTTP proxies ----------------------------------------------------------------------------------


class HttpProxy(msgspec.Struct, frozen=True):
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
        return f"HttpProxy({str(self)!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:  # msgspec's own shows every field
        return [("url", str(self))]


def parse_proxy(url: str) -> HttpProxy:
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
    return HttpProxy(host, DEFAULT_PROXY_PORT if port is None else port, fields)


def proxy_of(address: Address, environ: Mapping[str, str] = os.environ) -> HttpProxy | None:
    """The proxy for a URL, as curl reads the environment: ``http_proxy`` (in small letters alone:
    in a CGI program HTTP_PROXY is a header of the client), ``https_proxy``, ``all_proxy``, and
    ``no_proxy``; the names in capitals count where those in small letters are absent or empty.
    ``localhost`` and loopback addresses never have one, which is not so in curl; nor has a URL
    whose connections go elsewhere (`Address.via`).

    ValueError names the variable whose value is wrong.
    """
    names = ["https_proxy", "HTTPS_PROXY"] if address.secure else ["http_proxy"]
    for name in (*names, "all_proxy", "ALL_PROXY"):
        if url := environ.get(name):
            break
    else:
        return None
    if address.via or is_loopback(address.host):
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
    loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Address, proxy: HttpProxy
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
