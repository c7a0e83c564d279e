"""Connections to a server at a URL: a stream socket, or a WebSocket after its opening handshake."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl as ssl_
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.errors import TransportError, UpgradeRefused
from wirespeed.transport.address import Address
from wirespeed.transport.net.stream import SocketStream, Stream, address_name, make_prompt, start
from wirespeed.transport.net.tls import TlsStream

if TYPE_CHECKING:
    from wirespeed.transport.link import Endpoint, Link
    from wirespeed.transport.options import Headers
    from wirespeed.transport.websocket.deflate import MessageDeflate
    from wirespeed.transport.websocket.upgrade import Answer, ClientHandshake

T = TypeVar("T")

TLS_ALERT = 0x15  # the first byte of a TLS server's answer to plain text (RFC 8446 section 5.1)


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
        return Connected(SocketStream(loop, await _connect_socket(loop, address, open_timeout)))

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
    address: Address, *, ssl: ssl_.SSLContext | None = None, open_timeout: float = 10.0
) -> Connected:
    """Connect to ``http://`` or ``https://``, for requests of HTTP/1.1.

    Args:
        address: The address of the server.
        ssl: The TLS context; by default it trusts the authorities of the system.
        open_timeout: The time limit of the whole call in seconds.

    TransportError: the connection failed.
    """

    async def connect() -> Connected:
        return Connected(await _open_stream(address, ssl, open_timeout, 0.0))

    return await _explained(connect, address, open_timeout)


async def _open_stream(
    address: Address, ssl: ssl_.SSLContext | None, open_timeout: float, close_timeout: float
) -> Stream:
    """Return a stream to the host of a URL, with TLS where the URL says so."""
    loop = asyncio.get_running_loop()
    sock = await _connect_socket(loop, address, open_timeout)
    if not address.secure:
        return SocketStream(loop, sock)
    try:
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
    from wirespeed.transport.websocket.upgrade import (
        END,
        MAX_BODY,
        MAX_HEAD,
        BadAnswer,
        opens,
        refusal_of,
    )

    await stream.write(handshake.request)
    head, rest = bytearray(), b""
    while True:
        data = await stream.read()
        if not data:
            hint = "" if address.secure or head else "; if it speaks TLS, use wss://"
            raise _Failure(f"the server closed the connection during the opening handshake{hint}")
        if data[0] == TLS_ALERT and not (address.secure or head):
            raise _Failure("the server speaks TLS: use wss://")
        searched = max(0, len(head) - len(END))
        head += data
        end = head.find(END, searched)
        if end >= 0:
            rest = bytes(head[end + len(END) :])
            del head[end + len(END) :]
            break
        if len(head) > MAX_HEAD:
            raise _Failure("the answer is not an opening handshake")
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
    refusal = refusal_of(bytes(head)) if answer is None else (answer.status, answer.reason)
    if refusal is None:
        raise _Failure(f"the server does not speak WebSocket{fault}")
    status, reason = refusal
    text = f"{address} refused the WebSocket: {status} {reason}".rstrip()
    if 300 <= status < 400:
        text += " (redirects are not followed)"
    else:
        text += _REMEDIES.get(status, "")
    raise UpgradeRefused(text, status, reason)


# -- sockets -------------------------------------------------------------------------------------


class _Failure(Exception):
    """The connection failed. The text is the reason."""


async def _connect_socket(
    loop: asyncio.AbstractEventLoop, address: Address, open_timeout: float
) -> socket.socket:
    """Return a connected non-blocking socket, to the first address of the host that accepts it."""
    if address.scheme == "unix":
        return await _try(loop, socket.AF_UNIX, 0, address.path)
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    until = loop.time() + open_timeout
    failure: Exception = _Failure("the host has no address")
    for i, (family, _, proto, _, place) in enumerate(found):
        # an address that does not answer must leave time for the others
        share = (until - loop.time()) / (len(found) - i)
        try:
            async with asyncio.timeout(share):
                return await _try(loop, family, proto, place)
        except TimeoutError as exc:
            failure = exc
        except OSError as exc:
            failure = exc
    raise failure


async def _try(
    loop: asyncio.AbstractEventLoop, family: int, proto: int, place: Any
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.setblocking(False)
        make_prompt(sock)
        await loop.sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


async def _explained(
    connect: Callable[[], Coroutine[Any, Any, T]], address: Address, open_timeout: float
) -> T:
    """Run work within the time limit. A failure becomes a TransportError with a reason."""
    try:
        async with asyncio.timeout(open_timeout):
            return await connect()
    except TransportError:
        raise
    except TimeoutError as exc:
        # also the system's own time limit
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else ""
        text = reason.lower() or f"no answer within {open_timeout:g} s"
        raise TransportError(f"cannot connect to {address}: {text}") from None
    except _Failure as exc:
        raise TransportError(f"cannot connect to {address}: {exc}") from None
    except OSError as exc:
        text = f"cannot connect to {address}: {reason_of(exc)}"
        if isinstance(exc, ssl_.SSLCertVerificationError):
            text += "; WebSocket(ssl=…) takes a context that trusts its authority"
        elif isinstance(exc, ConnectionRefusedError | FileNotFoundError):
            text += "; start a server there, or correct the URL"
        raise TransportError(text) from exc
    except UnicodeError:
        raise TransportError(f"cannot connect to {address}: its host is not a host name") from None


def reason_of(exc: OSError) -> str:
    """Return the reason of a failed system call, DNS query or TLS handshake as text."""
    if isinstance(exc, ssl_.SSLCertVerificationError):
        return f"its certificate is not accepted: {exc.verify_message}"
    if isinstance(exc, ssl_.SSLError):
        text = f"TLS failed: {(exc.reason or str(exc)).replace('_', ' ').lower()}"
        return f"{text}; a server without TLS is reached at ws://" if _is_plain(exc) else text
    if exc.errno is not None and exc.errno > 0 and not isinstance(exc, socket.gaierror):
        return os.strerror(exc.errno).lower()
    text = exc.strerror or str(exc) or type(exc).__name__
    return text[:1].lower() + text[1:]


def _is_plain(exc: ssl_.SSLError) -> bool:
    """Whether the other end's answer is not TLS."""
    return exc.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
