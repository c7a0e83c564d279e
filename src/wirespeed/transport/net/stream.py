"""A connected socket while it is read and written by hand: before a link takes it over.

The opening handshake is done over a `Stream`, whatever carries it; then `make_link` gives the link
that moves the bytes from there on (for `wss://` see `wirespeed.transport.net.tls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol

from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link

READ_SIZE = 16384
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, and probes


class Stream(Protocol):
    """What the opening handshake needs of a connection."""

    @property
    def peer(self) -> str:
        """The other end, for people to read."""

    async def read(self) -> bytes:
        """Some bytes; none at the end of input. OSError when the connection breaks."""

    async def write(self, data: bytes) -> None:
        """Send all of it. OSError when the connection breaks."""

    def say(self, data: bytes) -> None:
        """Send what goes without waiting, then nothing more: last words before `close`."""

    def end_output(self) -> None:
        """Tell the peer that nothing more will come, as far as that is possible."""

    def make_link(self, endpoint: Endpoint) -> Link:
        """The link that moves the bytes from now on; it is not started."""

    def close(self) -> None:
        """Release the connection, at once; harmless when that was done before."""


class SocketStream:
    """A plain socket. Its link works on the descriptor, so the stream must be kept and closed
    after the link is lost."""

    __slots__ = ("_loop", "_socket")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._socket = sock

    @property
    def peer(self) -> str:
        return peer_name(self._socket)

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self._socket, READ_SIZE)

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    def say(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(data)
        self.end_output()

    def end_output(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def make_link(self, endpoint: Endpoint) -> Link:
        fd = self._socket.fileno()
        return FdLink(self._loop, endpoint, fd, fd)

    def close(self) -> None:
        self._socket.close()


def start(link: Link, rest: bytes) -> None:
    """Begin, with what was read behind the handshake."""
    endpoint = link.endpoint
    if rest:
        endpoint.wire.receive_data(rest)  # first: a link may hold what came behind it
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


def make_prompt(sock: socket.socket) -> None:
    """Small answers leave at once, and a peer whose machine is gone is found out in two minutes,
    also where no pings are sent."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # where the system lets it be chosen
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
