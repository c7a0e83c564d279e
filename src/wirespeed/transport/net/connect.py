"""Connections to a server at a URL: a stream socket, or a WebSocket after its opening handshake."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl as ssl_
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.errors import TransportError, UpgradeRefused
from wirespeed.transport.address import Address, is_name
from wirespeed.transport.net.stream import SocketStream, Stream, address_name, make_prompt, start
from wirespeed.transport.net.tls import TlsStream

if TYPE_CHECKING:
    from wirespeed.transport.http.proxy import Proxy
    from wirespeed.transport.link import Endpoint, Link
    from wirespeed.transport.options import Headers
    from wirespeed.transport.websocket.deflate import MessageDeflate
    from wirespeed.transport.websocket.upgrade import Answer, ClientHandshake

T = TypeVar("T")
Place = tuple[int, int, Any]  # family, protocol, address

CLOSE_TIMEOUT = 1.0  # seconds for the closing alert of TLS, of which HTTP needs none
ATTEMPT_DELAY = 0.25  # seconds before the next address is tried, too (RFC 8305 section 8)

OUT_OF_REACH = "its IP address is one that this request may not reach"

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
        if address.scheme == "unix":
            sock = await _try(loop, socket.AF_UNIX, 0, address.path)
        else:
            sock = await _connect_socket(loop, address.host, address.port)
        return Connected(SocketStream(loop, sock))

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
    proxy: Proxy | None = None,
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


async def _open_stream(
    address: Address,
    ssl: ssl_.SSLContext | None,
    open_timeout: float,
    close_timeout: float,
    proxy: Proxy | None = None,
    may_reach: Callable[[str], bool] | None = None,
) -> Stream:
    """Return a stream to the host of a URL, with TLS where the URL says so."""
    loop = asyncio.get_running_loop()
    if address.socket:
        sock = await _try(loop, socket.AF_UNIX, 0, address.socket)
    elif proxy is None:
        sock = await _connect_socket(loop, address.host, address.port, may_reach)
    else:
        if may_reach is not None and not (is_name(address.host) or may_reach(address.host)):
            raise _Failure(OUT_OF_REACH)
        sock = await _connect_socket(loop, proxy.host, proxy.port)
    if not address.secure:
        return SocketStream(loop, sock)
    try:
        if proxy is not None:
            from wirespeed.transport.http.proxy import open_tunnel

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
    from wirespeed.transport.websocket.upgrade import (
        END,
        MAX_BODY,
        MAX_HEAD,
        BadAnswer,
        opens,
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
    found = (answer.status, answer.reason) if answer is not None else None
    refusal = found or handshake.refusal_of(bytes(head))
    if refusal is None:
        raise _Failure(f"the server does not speak WebSocket{fault}")
    status, reason = refusal
    text = f"{address} refused the WebSocket: {status} {reason}".rstrip()
    if 300 <= status < 400:
        text += " (redirects are not followed)"
    else:
        text += _REMEDIES.get(status, "")
    raise UpgradeRefused(text, status, reason, None if answer is None else answer.headers)


# -- sockets -------------------------------------------------------------------------------------


class _Failure(Exception):
    """The connection failed. The text is the reason."""


async def _connect_socket(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    may_reach: Callable[[str], bool] | None = None,
) -> socket.socket:
    """Return a connected non-blocking socket, to the address of the host that accepts it first.

    RFC 8305 section 5: the next address is tried when one fails, or has not answered for a while.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    waiting = _alternating([(family, proto, place) for family, _, proto, _, place in found])
    if not waiting:
        raise _Failure("the host has no address")
    if may_reach is not None:
        waiting = [one for one in waiting if may_reach(one[2][0])]
        if not waiting:
            raise _Failure(OUT_OF_REACH)
    if len(waiting) == 1:
        return await _try(loop, *waiting[0])
    failure: BaseException | None = None
    attempts: set[asyncio.Task[socket.socket]] = set()
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(loop.create_task(_try(loop, *waiting.pop(0))))
            done, _ = await asyncio.wait(
                attempts,
                timeout=ATTEMPT_DELAY if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                if task.exception() is None:
                    attempts.discard(task)
                    return task.result()
                failure = task.exception()
            attempts -= done
    finally:
        for task in attempts:
            task.cancel()
        for sock in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(sock, socket.socket):
                sock.close()  # two were accepted
    assert failure is not None
    raise failure


def _alternating(places: list[Place]) -> list[Place]:
    """The addresses with their families in turn, each family in its own order (RFC 8305 section
    4)."""
    first = [place for place in places if place[0] == places[0][0]]
    others = [place for place in places if place[0] != places[0][0]]
    return [place for pair in zip_longest(first, others) for place in pair if place is not None]


async def _try(
    loop: asyncio.AbstractEventLoop, family: int, proto: int, place: Any
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.setblocking(False)
        make_prompt(sock, place)
        await loop.sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


async def _explained(
    connect: Callable[[], Coroutine[Any, Any, T]],
    address: Address,
    open_timeout: float,
    proxy: Proxy | None = None,
) -> T:
    """Run work within the time limit. A failure becomes a TransportError with a reason."""
    place = f"{address} by the proxy {proxy}" if proxy is not None else str(address)
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
    except _Failure as exc:
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
    return text[:1].lower() + text[1:]


def _is_plain(exc: ssl_.SSLError) -> bool:
    """Whether the other end's answer is not TLS."""
    return exc.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
