"""The kinds of sockets: how each is bound, and how it is connected. `SOCKETS` has those of all
schemes. Listening sockets are bound without harm to other servers, and cleaned up afterwards.

The opening handshake reads and writes a `Stream`. `make_link` then returns the link that moves all
further bytes (for ``wss://`` see `wirespeed.transport.net.tls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol, Self

import msgspec

from wirespeed.errors import TransportError, uncapitalized
from wirespeed.transport.address import Address
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Endpoint, Link
from wirespeed.transport.net import activation
from wirespeed.transport.options import ListenOptions

Place = tuple[int, int, Any]  # family, protocol, address

PORT_TRIES = 10
PROBE_TIMEOUT = 1.0  # seconds that a server at a socket's file has to take a connection
ATTEMPT_DELAY = 0.25  # seconds before the next address is tried, too (RFC 8305 section 8)

OUT_OF_REACH = "its IP address is one that this request may not reach"


class ConnectFailure(Exception):
    """The connection failed. The text is the reason."""


class Sockets(Protocol):
    """A kind of sockets. Errors are OSError or UnicodeError, of which the caller makes a
    `TransportError`, or have a text of their own: a `TransportError`, a `ConnectFailure`."""

    def resolve(self, address: Address) -> list[Any]:
        """Look up an address to listen at. Blocks on DNS. Returns rows as of
        `socket.getaddrinfo`, or none where there is nothing to look up."""

    def listen(
        self, address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool
    ) -> list[socket.socket]:
        """Return non-blocking sockets that listen at all results of `resolve`, at one port.
        ``reserve``: bind them only."""

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        may_reach: Callable[[str], bool] | None = None,
    ) -> socket.socket:
        """Return a connected non-blocking socket. ``may_reach``: whether to connect to an IP
        address."""


def sockets_of(address: Address) -> Sockets:
    """The sockets of an address."""
    return SOCKETS[address.row.sockets]


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


# -- TCP -------------------------------------------------------------------------------------------


class TcpSockets:
    """The sockets of TCP, over IPv4 and IPv6."""

    def resolve(self, address: Address) -> list[Any]:
        # CPython encodes a str with the codec "idna", whose tables take 1 MiB.
        return socket.getaddrinfo(
            address.host.encode("ascii"),
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )

    def listen(
        self, address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool
    ) -> list[socket.socket]:
        for _ in range(PORT_TRIES):
            sockets: list[socket.socket] = []
            port = address.port
            try:
                for place in dict.fromkeys((info[0], info[2], info[4]) for info in found):
                    sock = _bound(*place, port, options)
                    if sock is None:
                        continue
                    sockets.append(sock)
                    port = sock.getsockname()[1]  # the others take this port
                    if not reserve:
                        sock.listen(options.backlog)
                if not sockets:
                    raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
            except OSError as exc:
                for sock in sockets:
                    sock.close()
                if exc.errno == errno.EADDRINUSE and address.port == 0 and sockets:
                    continue  # free on one address, taken on another
                raise
            return sockets
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        may_reach: Callable[[str], bool] | None = None,
    ) -> socket.socket:
        return await connect_host(loop, *address.destination, may_reach)


def _bound(
    family: int, proto: int, place: tuple[Any, ...], port: int, options: ListenOptions
) -> socket.socket | None:
    """Return a bound socket; None if this machine does not support the address family."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM, proto)
    except OSError as exc:
        if exc.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((place[0], port, *place[2:]))
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
            return None  # "localhost" is ::1 too, also where IPv6 is switched off
        raise
    return sock


async def connect_host(
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
        raise ConnectFailure("the host has no address")
    if may_reach is not None:
        waiting = [one for one in waiting if may_reach(one[2][0])]
        if not waiting:
            raise ConnectFailure(OUT_OF_REACH)
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


# -- UNIX ------------------------------------------------------------------------------------------


class UnixSockets:
    """The sockets of files."""

    def resolve(self, address: Address) -> list[Any]:
        return []

    def listen(
        self, address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool
    ) -> list[socket.socket]:
        path = address.file
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            _make_way(path, address)
            sock.bind(path)
            try:
                # no client can connect before listen()
                os.chmod(path, options.socket_mode)
                sock.listen(options.backlog)
            except BaseException:
                os.unlink(path)
                raise
        except BaseException:
            sock.close()
            raise
        return [sock]

    async def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        may_reach: Callable[[str], bool] | None = None,
    ) -> socket.socket:
        return await _try(loop, socket.AF_UNIX, 0, address.file)


def _make_way(path: str, address: Address) -> None:
    """Remove the file of a socket without a server. TransportError: a server listens there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise TransportError(f"cannot listen at {address}: the file there is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            pass
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.ETIMEDOUT) and not isinstance(
                exc, TimeoutError
            ):
                raise
            raise TransportError(f"cannot listen at {address}: another server does") from None
        else:
            raise TransportError(f"cannot listen at {address}: another server does")
    if identity(path) == (found.st_dev, found.st_ino):  # unless a server has started meanwhile
        os.unlink(path)


def identity(path: str) -> tuple[int, int] | None:
    """The device and the inode of a file; None: there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


SOCKETS: dict[str, Sockets] = {"tcp": TcpSockets(), "unix": UnixSockets()}


# -- listening ------------------------------------------------------------------------------------


class ListeningSockets:
    """Sockets that listen at an address; a context manager that closes them.

    ``passed``: They belong to a service manager, which removes a socket's file.

    Attributes:
        address: The address, with the port that was bound.
        sockets: Non-blocking, one for each address of the host.
        local: Whether only this machine can reach them.
    """

    def __init__(
        self, address: Address, sockets: list[socket.socket], *, passed: bool = False
    ) -> None:
        self.address = address
        self.sockets = sockets
        self.local = all(_is_local(sock) for sock in sockets)
        self._name = activation.MANAGER if passed else activation.OWN
        self._file: tuple[int, int] | None = None
        if address.file and not passed:
            self._file = identity(address.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def passable(self) -> list[activation.Passed]:
        """The sockets for another process, with their names: whose they are."""
        return [activation.Passed(sock, self._name) for sock in self.sockets]

    def leave(self) -> None:
        """Another process listens with the sockets: their file stays."""
        self._file = None

    def close(self) -> None:
        """Stop listening. A socket's file is removed if it is still ours."""
        if self._file is not None:
            if identity(self.address.file) == self._file:
                with contextlib.suppress(OSError):
                    os.unlink(self.address.file)
            self._file = None
        for sock in self.sockets:
            sock.close()


def resolve(address: Address) -> list[Any]:
    """Resolve an address to listen at. Blocks on DNS. TransportError: the resolution failed."""
    try:
        return sockets_of(address).resolve(address)
    except (OSError, UnicodeError) as exc:
        raise _cannot(address, exc) from exc


def listen(
    address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool = False
) -> ListeningSockets:
    """Listen at all results of `resolve`, or with the sockets that a service manager has passed.

    ``reserve``: Bind the port only, for processes that will listen there with ``reuse_port``.
    TransportError: the server cannot listen there.
    """
    sockets, own = activation.listening_at(address, found, shared=reserve)
    if sockets:
        return ListeningSockets(address, sockets, passed=not own)
    if address.file:  # the working directory may change
        field = "socket" if address.socket else "path"
        address = msgspec.structs.replace(address, **{field: os.path.abspath(address.file)})
    try:
        sockets = sockets_of(address).listen(address, found, options, reserve=reserve)
    except OSError as exc:
        raise _cannot(address, exc) from exc
    bound = sockets[0].getsockname()
    if isinstance(bound, tuple):
        address = msgspec.structs.replace(address, port=bound[1])
    return ListeningSockets(address, sockets)


def _is_local(sock: socket.socket) -> bool:
    if sock.family == socket.AF_UNIX:
        return True
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False  # other kinds have their own rules: who may connect is not known here
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def _cannot(address: Address, exc: Exception) -> TransportError:
    reason = getattr(exc, "strerror", None) or str(exc)
    if isinstance(exc, UnicodeError):
        reason = "its host is not a host name"
    elif getattr(exc, "errno", None) == errno.EADDRINUSE:
        reason = f"{os.strerror(errno.EADDRINUSE)}; choose another port, or 0 for any that is free"
    # CPython adds its own text to some errors: "[Errno 98] error while attempting to bind …"
    return TransportError(f"cannot listen at {address}: {uncapitalized(reason)}")


# -- connected, during the opening handshake -------------------------------------------------------

READ_SIZE = 16384
BLANKS = b" \t\r\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, and probes
_WATCHED = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}


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
        host, port = map(str, name[:2])
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
    _set_tcp(sock, _KEEPALIVE)
    is_local = place[0].startswith(("127.", "::ffff:127.")) or place[0] == "::1"
    if is_local and hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):  # it is faster with it, and right without it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def watch_peer(sock: socket.socket) -> None:
    """Set TCP options: a peer that is gone, or does not know the connection any more, is detected
    within five seconds, also while nothing is sent (RFC 9293 section 3.8.4, RFC 5482)."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        _set_tcp(sock, _WATCHED)


def _set_tcp(sock: socket.socket, options: Mapping[str, int]) -> None:
    for name, value in options.items():
        if hasattr(socket, name):  # where the system supports it
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
