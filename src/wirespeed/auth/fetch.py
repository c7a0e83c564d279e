"""HTTP requests to authorization servers, bounded, at URLs that documents name."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl as ssl_
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from wirespeed._core.framing.http.writer import field_lines
from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.transport.address import Address, is_loopback, parse
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.pool import HttpPool
from wirespeed.transport.net.connect import proxy_of

MAX_BYTES = 1 << 18  # of a response's body
MAX_ORIGINS = 8  # with connections, of one Fetcher
MAX_CONNECTIONS = 4  # to one origin
MAX_WAITING = 256  # requests of one Fetcher that are not answered

FORM = ("Content-Type", "application/x-www-form-urlencoded")
JSON = ("Content-Type", "application/json")


class Reach(IntEnum):
    """The depth of an IP address inside a network. The URLs in a document must not lead further
    inside than the server of the document lies."""

    PUBLIC = 0
    PRIVATE = 1
    """RFC 1918, RFC 6598 (behind a provider's NAT) and unique local IPv6 addresses (RFC 4193)."""
    LOOPBACK = 2
    SPECIAL = 3
    """Link-local (metadata services of clouds), multicast, reserved and unspecified addresses."""


_PRIVATE = [
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215; global to older Pythons


def reach_of(address: str) -> Reach:
    """The reach of an IP address as text, IPv6 without brackets. An IPv6 address that holds an IPv4
    address (mapped, 6to4, Teredo, NAT64) reaches as far as the address in it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return Reach.SPECIAL
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found.teredo is not None:
            inner = found.teredo[1]
        elif found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return reach_of(str(inner))
    if found.is_loopback:
        return Reach.LOOPBACK
    if any(found in network for network in _PRIVATE):
        return Reach.PRIVATE
    if isinstance(found, ipaddress.IPv6Address) and (found.is_site_local or found in _LOCAL_NAT64):
        return Reach.SPECIAL
    if found.is_global and not found.is_multicast and not found.is_reserved:
        return Reach.PUBLIC
    return Reach.SPECIAL


async def reach_of_host(host: str) -> Reach:
    """The reach of that address of a host that lies least far inside. A name that cannot be looked
    up here counts as public, because a proxy may know the name."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return Reach.PUBLIC
    return min((reach_of(str(place[0])) for *_, place in found), default=Reach.PUBLIC)


class FetchError(TransportError):
    """A request was not sent, or has no usable response. The text of the error holds no query, no
    header field and no body."""


class Fetched(NamedTuple):
    """A response."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """The body as JSON. FetchError: the body is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise FetchError("the response is not JSON") from None


class Fetcher:
    """Requests of one owner to authorization servers. It belongs to one event loop at a time.

    Args:
        home: The URL that a person named: the MCP server of a client, or the issuer of a server.
            Its own origin may always be reached. Other origins may be reached if their IP addresses
            lie no further inside than the address of ``home`` (`Reach`); without ``home``, if they
            are public.
        allow_private: All addresses may be reached.
        max_bytes: Bytes of a response's body.
        timeout: Seconds of one request, from looking the host up to the last byte.
        ssl: The TLS context; by default it trusts the authorities of the system.
        max_connections: Requests to one origin at once; further ones wait.
    """

    def __init__(
        self,
        home: str | None = None,
        *,
        allow_private: bool = False,
        max_bytes: int = MAX_BYTES,
        timeout: float = 10.0,
        ssl: ssl_.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._home = None if home is None else parse(home)
        self._reach = Reach.SPECIAL if allow_private else None
        self._limits = Limits(max_message=max_bytes)
        self._timeout = timeout
        self._ssl = ssl
        self._max_connections = max_connections
        self._pools: dict[tuple[str, str, int], HttpPool] = {}
        self._n_active: dict[HttpPool, int] = {}
        self._n_waiting = 0
        self._n_closed = 0

    async def get(self, url: str, *, headers: Iterable[tuple[str, str]] = ()) -> Fetched:
        """Send a GET. See `post`."""
        return await self._send("GET", url, headers, None)

    async def post(
        self,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Fetched:
        """Send a POST of a form or of JSON, and return the response, whatever its status.

        FetchError: the URL is neither https nor at this machine, its IP address may not be reached,
        the server was not reached, the response is a redirect, too long, too slow or malformed.
        """
        if form is not None:
            return await self._send("POST", url, [*headers, FORM], urlencode(form).encode())
        return await self._send("POST", url, [*headers, JSON], msgspec.json.encode(json))

    async def close(self) -> None:
        """Close all connections and end all requests. Idempotent; further requests open new
        connections."""
        self._n_closed += 1
        pools, self._pools = list(self._pools.values()), {}
        self._n_active.clear()
        for pool in pools:
            if pool.loop is asyncio.get_running_loop():
                await pool.close()
            else:
                pool.release()

    async def _send(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes | None
    ) -> Fetched:
        address = checked_url(url)
        fields = field_lines([("Accept", "application/json"), *headers])
        if self._n_waiting >= MAX_WAITING:
            raise FetchError(f"more than {MAX_WAITING} requests wait for responses")
        self._n_waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                pool = await self._pool(address)
                receiver = _Receiver(address, pool.address)
                call = pool.request(method, address.target, fields, body, receiver)
                self._n_active[pool] += 1
                try:
                    return await receiver.done
                finally:
                    if pool in self._n_active:
                        self._n_active[pool] -= 1
                    if not receiver.over:
                        call.abort()
        except TimeoutError:
            raise FetchError(f"{address}: no response within {self._timeout:g} s") from None
        finally:
            self._n_waiting -= 1

    async def _pool(self, address: Address) -> HttpPool:
        loop = asyncio.get_running_loop()
        origin = origin_key(address)
        pool = self._pools.pop(origin, None)
        if pool is not None and pool.loop is not loop:
            pool.release()
            del self._n_active[pool]
            pool = None
        if pool is None:
            n_closed = self._n_closed
            reach = await self._reach_for(address)
            if n_closed != self._n_closed:
                raise FetchError(f"the connection to {address} was closed")
            # two requests may have come here at once
            pool = self._pools.pop(origin, None) or self._open(address, reach)
        self._pools[origin] = pool  # the last one was used last
        return pool

    def _open(self, address: Address, reach: Reach) -> HttpPool:
        if len(self._pools) >= MAX_ORIGINS:
            idle = [o for o, old in self._pools.items() if not self._n_active[old]]
            if not idle:
                raise FetchError(f"more than {MAX_ORIGINS} hosts are asked at once")
            del self._n_active[self._pools.pop(idle[0])]  # it closes its connections when idle
        try:
            proxy = proxy_of(address)
        except ValueError as exc:
            raise FetchError(str(exc)) from None
        pool = HttpPool(
            address,
            loop=asyncio.get_running_loop(),
            ssl=self._ssl,
            proxy=proxy,
            limits=self._limits,
            max_connections=self._max_connections,
            connect_timeout=self._timeout,
            max_redirects=0,
            may_reach=lambda found: reach_of(found) <= reach,
        )
        self._n_active[pool] = 0
        return pool

    async def _reach_for(self, address: Address) -> Reach:
        """The reach that the addresses of a host may have."""
        if self._home is None:
            return Reach.PUBLIC if self._reach is None else self._reach
        if self._reach is None:  # looked up once, so that a name cannot become private later
            self._reach = await reach_of_host(self._home.host)
        return Reach.SPECIAL if origin_key(address) == origin_key(self._home) else self._reach


def checked_url(url: str) -> Address:
    """The address of a URL that a document names. FetchError: the URL is not an ``https:`` URL, nor
    an ``http:`` URL of this machine (RFC 9728 section 2, RFC 8414 section 2)."""
    try:
        address = parse(url)
    except (ValueError, TypeError) as exc:
        raise FetchError(str(exc)) from None
    if not address.is_http or address.file:
        raise FetchError(f"{address} is not an https URL")
    if not address.secure and not is_loopback(address.host):
        raise FetchError(f"{address} is not secure: https is needed, but for this machine itself")
    return address


def named_url(url: str) -> str:
    """The URL that a person named for a request. ValueError: as `checked_url`."""
    try:
        checked_url(url)
    except FetchError as exc:
        raise ValueError(str(exc)) from None
    return url


def origin_key(address: Address) -> tuple[str, str, int]:
    """Return what two URLs of one server have in common (RFC 6454)."""
    return address.scheme, address.host, address.port


class _Receiver:
    """Receives the response of one request.

    Args:
        address: The address of the request.
        named: The address that errors of the connections name.
    """

    def __init__(self, address: Address, named: Address) -> None:
        self.address = address
        self._named = str(named)
        self.done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self.over = False
        self.status = 0
        self.headers = Headers()
        self.body = b""

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        if streaming and not self.done.done():  # the request is aborted
            text = f"{self.address} answered with a stream of events"
            self.done.set_exception(FetchError(text))
        self.status, self.headers = status, headers

    def on_body(self, data: Any) -> None:
        self.body = bytes(data)

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        """Streams are refused before their first event."""

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        self.over = True
        if self.done.done():
            return
        if exc is None:
            self.done.set_result(Fetched(self.status, self.headers, self.body))
        elif isinstance(exc, TransportError) and not isinstance(exc, FetchError):
            text = str(exc).replace(self._named, str(self.address), 1)
            self.done.set_exception(FetchError(text))
        else:
            self.done.set_exception(exc)
