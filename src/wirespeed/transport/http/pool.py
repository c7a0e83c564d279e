"""Requests to one origin over HTTP/1.1, on connections that are kept for the next request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as ssl_
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urljoin

import wirespeed
from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.transport.address import Address, parse, public
from wirespeed.transport.http.client_connection import HttpCall, HttpClientConnection
from wirespeed.transport.net.connect import HttpProxy, connect_http, reason_of
from wirespeed.transport.options import Headers

CLOSED = "the server closed the connection"
MAX_HEAD = 65535  # bytes
MAX_REDIRECTS = 5  # of one request


class Receiver(Protocol):
    """The receiver of a response. Every method is called on the loop, and never inside
    `HttpPool.request`. A method that raises ends the call: `on_end` gets the exception."""

    def on_response(self, status: int, headers: Headers, streaming: bool) -> None:
        """The head has arrived. ``streaming``: events follow (``text/event-stream`` and a status
        of success); else `on_body` does."""

    def on_body(self, data: Any) -> None:
        """The whole body of a response that is not a stream, without a byte order mark before it:
        a `Lease`, which may be empty."""

    def on_event(self, event: str, data: Any, id: str | None, retry: int | None) -> None:
        """An event of a stream: its name ("message" where it has none), its data (a `Lease` or
        bytes; empty where an event has only an id or a time), its own id, and milliseconds before
        the next attempt to connect."""

    def on_end(self, exc: BaseException | None, sent: bool) -> None:
        """The last call. ``exc`` is None after a whole response, else mostly a TransportError.
        ``sent``: bytes of the request may have reached the server."""


class HttpPool:
    """Connections to one origin.

    Args:
        address: The URL of the origin: ``http:`` or ``https:``. Requests name their targets.
        loop: The event loop, on which every method is called.
        ssl: The TLS context; by default it trusts the authorities of the system.
        proxy: The proxy of the origin; `proxy_of` finds it in the environment.
        limits: `Limits.max_message` bounds a body and the data of an event.
        max_connections: Connections at once. Further requests wait for one.
        max_head: Bytes of the head of a response.
        connect_timeout: Seconds for connecting, TLS and the proxy's answer together.
        idle_timeout: Seconds that a connection is kept without a request. Many servers close it
            after five, and a request that meets the closing may be lost.
        max_redirects: Redirects of one request that are followed, at the same origin.
        may_reach: As of `connect_http`.
    """

    def __init__(
        self,
        address: Address,
        *,
        loop: asyncio.AbstractEventLoop,
        ssl: ssl_.SSLContext | None = None,
        proxy: HttpProxy | None = None,
        limits: Limits | None = None,
        max_connections: int = 100,
        max_head: int = MAX_HEAD,
        connect_timeout: float = 10.0,
        idle_timeout: float = 4.0,
        max_redirects: int = MAX_REDIRECTS,
        may_reach: Callable[[str], bool] | None = None,
    ) -> None:
        if not address.is_http:
            raise ValueError(f"HTTP is not spoken at {address}")
        self.address = address
        self.loop = loop
        self.prefix = ""
        """The text before the target of each request: a proxy is asked for a whole URL."""
        self._ssl = ssl
        self._proxy = proxy
        self._limits = Limits() if limits is None else limits
        self._max_connections = max_connections
        self._max_head = max_head
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._max_redirects = max_redirects
        self._may_reach = may_reach
        self._fields = (
            f"Host: {address.authority}\r\nUser-Agent: wirespeed/{wirespeed.__version__}\r\n"
            "Accept-Encoding: identity\r\n"
        ).encode()
        if proxy is not None and not address.secure:
            self.prefix = f"http://{address.authority}"
            self._fields += proxy.fields
        self._idle: list[HttpClientConnection] = []
        self._connections: set[HttpClientConnection] = set()
        self._waiting: deque[HttpCall] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def request(
        self, method: str, target: str, fields: bytes, body: Any, receiver: Receiver
    ) -> HttpCall:
        """Send a request; what comes back is told to the receiver.

        ``target`` is path and query, ``fields`` are whole lines (`field_lines` makes them) without
        Host and Content-Length, and ``body`` is bytes-like, not changed until the end, or None.
        A request that a kept connection failed is sent again, once, on a fresh connection: one of
        an idempotent method if no byte of a response came, another one if no byte of it was sent.
        RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError("the HTTP pool is closed")
        call = HttpCall(self, method, target, self._fields + fields, body, receiver)
        self._start(call)
        return call

    async def close(self) -> None:
        """End all calls and close all connections. Idempotent."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.end(self._is_closed())
        for connection in list(self._connections):
            if connection.link is not None:
                connection.link.close()
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)

    def release(self) -> None:
        """Close all sockets of a loop that is closed. No receiver is called."""
        self._closed = True
        for connection in self._connections:
            with contextlib.suppress(RuntimeError):  # of the loop
                connection.release()

    def _is_closed(self) -> TransportError:
        return TransportError(f"the connection to {self.address} was closed")

    # -- choosing a connection ---------------------------------------------------------------------

    def _start(self, call: HttpCall, *, fresh: bool = False) -> None:
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.begin(call):
                return
            if connection.link is not None:
                connection.link.close()
        self._waiting.append(call)
        self._connect()

    def _connect(self) -> None:
        """Open connections for the calls that wait."""
        room = self._max_connections - len(self._connections) - len(self._opening)
        for _ in range(min(room, len(self._waiting) - len(self._opening))):
            task = self.loop.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opened)

    async def _open(self) -> None:
        if self._ssl is None and self.address.secure:
            self._ssl = ssl_.create_default_context()
            self._ssl.set_alpn_protocols(["http/1.1"])
        connected = await connect_http(
            self.address,
            ssl=self._ssl,
            proxy=self._proxy,
            open_timeout=self._connect_timeout,
            may_reach=self._may_reach,
        )
        connection = HttpClientConnection(
            self,
            connected,
            limits=self._limits,
            max_body=self._limits.max_message,
            max_head=self._max_head,
        )
        self._connections.add(connection)  # first: a link may be lost while it is attached
        try:
            connected.attach(connection)
        except BaseException:
            self._connections.discard(connection)
            connected.close()
            raise
        self._released(connection)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None and self._waiting:
            if isinstance(exc, OSError):
                exc = TransportError(f"cannot connect to {self.address}: {reason_of(exc)}")
            self._waiting.popleft().end(exc)
        if not self._closed:
            self._connect()

    # -- called by connections and calls -----------------------------------------------------------

    def _released(self, connection: HttpClientConnection) -> None:
        """The connection takes another request."""
        if self._waiting:
            call = self._waiting.popleft()
            if connection.begin(call):
                return
            if connection.kept:
                self._waiting.appendleft(call)
            if connection.link is not None:
                connection.link.close()  # which opens others for the calls that wait
            if not connection.kept:
                self._broken(call, ConnectionResetError(CLOSED), False, False)
            return
        connection.idle_since = self.loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = self.loop.call_later(self._idle_timeout, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that were idle for too long."""
        self._timer = None
        now = self.loop.time()
        while self._idle and now - self._idle[0].idle_since >= self._idle_timeout:
            link = self._idle.pop(0).link
            if link is not None:
                link.close()
        if self._idle:
            rest = self._idle[0].idle_since + self._idle_timeout - now
            self._timer = self.loop.call_later(rest, self._sweep)

    def _lost(self, connection: HttpClientConnection) -> None:
        """The connection is closed."""
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._waiting and not self._closed:
            self._connect()

    def _broken(
        self, call: HttpCall, exc: BaseException | None, kept: bool, answered: bool
    ) -> None:
        """The connection of a call is lost."""
        again = kept and not answered and not call.retried and not self._closed
        if again and (call.idempotent or not call.sent):
            call.try_again()
            self._start(call, fresh=True)
        elif exc is None:
            call.end(self._is_closed())
        else:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
            call.end(TransportError(f"the connection to {self.address} broke: {reason}"))

    def _ended(self, call: HttpCall, exc: BaseException) -> None:
        """The response of a call is of no use."""
        call.end(exc)

    def _gave_up(self, call: HttpCall) -> None:
        """A call that waits is aborted."""
        if call in self._waiting:
            self._waiting.remove(call)

    def _redirected(self, call: HttpCall, status: int, location: str) -> None:
        """The response is a redirect: followed at the same origin, where it keeps the method and
        the body (RFC 9110 sections 15.4.8 and 15.4.9)."""
        place = f"{self.address} answered {status}, a redirect to {public(location)}"
        try:
            found = parse(
                urljoin(f"{self.address.scheme}://{self.address.authority}{call.target}", location)
            )
        except ValueError:
            found = None
        why = ""
        if self._max_redirects == 0:
            why = "redirects are not followed"
        elif found is None:
            why = "the redirect names no URL"
        elif (found.scheme, found.host, found.port) != self._origin:
            why = "redirects to another origin are not followed"
        elif status not in (307, 308):
            why = "only 307 and 308 are followed, which keep the method"
        elif call.n_redirects == self._max_redirects:
            why = f"more than {self._max_redirects} redirects are not followed"
        if found is None or why:
            call.end(TransportError(f"{place}: {why}"))
        else:
            call.redirected(found.target)
            self._start(call)

    @property
    def _origin(self) -> tuple[str, str, int]:
        return self.address.scheme, self.address.host, self.address.port
