"""A connected socket during the opening handshake, before a link takes it over.

The opening handshake reads and writes a `Stream`. `make_link` then returns the link that moves all
further bytes (for `wss://` see `wirespeed.transport.net.tls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Protocol

from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link

READ_SIZE = 16384
BLANKS = b" \t\r\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, and probes


class Stream(Protocol):
    """The methods of a connection for the opening handshake."""

    @property
    def peer(self) -> str:
        """The other end, for people to read."""

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the other end (DER); None without TLS, or without one."""

    async def read(self) -> bytes:
        """Return some bytes; b"" at the end of input. OSError: the connection broke."""

    async def write(self, data: bytes) -> None:
        """Send all bytes. OSError: the connection broke."""

    def make_link(self, endpoint: Endpoint) -> Link:
        """Return the link that moves all further bytes. The link is not started."""

    def take_back(self, link: Link) -> None:
        """Close the link alone: the connection goes on, for another protocol."""

    def close(self) -> None:
        """Release the connection at once. Idempotent."""


class SocketStream:
    """A plain socket. Its link works on the descriptor, so the stream must be kept and closed
    after the link is lost."""

    __slots__ = ("_loop", "certificate", "socket")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, certificate: bytes | None = None
    ) -> None:
        self._loop = loop
        self.socket = sock
        self.certificate = certificate  # another process ended the client's TLS

    @property
    def peer(self) -> str:
        return peer_name(self.socket)

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self.socket, READ_SIZE)

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    def make_link(self, endpoint: Endpoint) -> Link:
        fd = self.socket.fileno()
        return FdLink(self._loop, endpoint, fd, fd)

    def take_back(self, link: Link) -> None:
        link.close()

    def close(self) -> None:
        self.socket.close()


async def read_opening(stream: Stream) -> bytes:
    """Return the input from its first character on, without a byte order mark and blanks. Returns
    nothing at the end of the input.
    """
    data, mark = b"", BYTE_ORDER_MARK
    while more := await stream.read():
        data = (data + more).lstrip(BLANKS)
        if mark and data.startswith(mark):
            data, mark = data[len(mark) :].lstrip(BLANKS), b""
        if data and not mark.startswith(data):
            break
    return data


def start(link: Link, rest: bytes) -> None:
    """Begin, with the bytes that were read behind the handshake."""
    endpoint = link.endpoint
    if rest:
        endpoint.wire.receive_data(rest)  # first: a link may hold bytes that arrived after these
    link.start()
    if rest and endpoint.link is link:
        link.deliver()


def peer_name(sock: socket.socket) -> str:
    """The other end of a socket, for people to read."""
    try:
        name = sock.getpeername()
    except OSError:
        return "a peer that is gone"
    return address_name(name)


def address_name(name: object) -> str:
    """A socket's address, for people to read."""
    if isinstance(name, tuple):
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "a local socket"


def make_prompt(sock: socket.socket, place: Any) -> None:
    """Set TCP options: small answers leave at once, and a peer whose machine is gone is detected
    within two minutes, also without pings. To a peer on this machine, bytes leave as fast as it
    reads: RFC 5681 in place of a congestion control that paces them for a network, as BBR does.

    ``place``: The address of the peer, as of the module ``socket``.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # where the system supports it
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    is_local = place[0].startswith(("127.", "::ffff:127.")) or place[0] == "::1"
    if is_local and hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):  # it is faster with it, and right without it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
