"""Requests to one origin over HTTP/1.1, on connections that are kept for the next request."""

cimport cython
from cpython.time cimport monotonic
from libc.stdint cimport uint8_t

import asyncio
import contextlib
import ssl as ssl_
from collections import deque
from urllib.parse import urljoin

from wirespeed._core.framing.http.head cimport HttpHead
from wirespeed._core.outbox cimport payload_of
from wirespeed._core.slab cimport Lease, Slab
from wirespeed.transport.http.client_connection cimport (
    CallOwner, HttpCall, HttpClientConnection, ResponseReceiver,
)

import wirespeed
from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.transport.address import parse
from wirespeed.transport.http.client_connection import ResponseHeaders
from wirespeed.transport.net.connect import connect_http, reason_of
from wirespeed.transport.schemes import public

CLOSED = "the server closed the connection"
MAX_HEAD = 65535  # bytes
MAX_REDIRECTS = 5  # of one request


class Receiver:
    """The receiver of a response: any object with these methods.

    Every method is called on the loop, and never inside `HttpPool.request`. A method that raises
    ends the call: `on_end` gets the exception.
    """

    def on_response(self, status, headers, streaming):
        """The head has arrived. ``streaming``: events follow (``text/event-stream`` and a status
        of success); else `on_body` does."""

    def on_body(self, data):
        """The whole body of a response that is not a stream, without a byte order mark before it:
        a `Lease`, which may be empty."""

    def on_event(self, event, data, id, retry):
        """An event of a stream: its name ("message" where it has none), its data (a `Lease` or
        bytes; empty where an event has only an id or a time), its own id, and milliseconds before
        the next attempt to connect."""

    def on_end(self, exc, sent):
        """The last call. ``exc`` is None after a whole response, else mostly a TransportError.
        ``sent``: bytes of the request may have reached the server."""


@cython.final
cdef class PythonReceiver(ResponseReceiver):
    """Tells a `Receiver`."""

    cdef object receiver

    cdef int response_c(self, HttpHead head, bint streaming) except -1:
        self.receiver.on_response(
            head.status, ResponseHeaders(head.raw, head.max_head), streaming
        )
        return 0

    cdef int body_c(self, Slab slab, const uint8_t *p, size_t n) except -1:
        self.receiver.on_body(Lease.of(slab, p, n))
        return 0

    cdef int event_c(self, str event, object data, str id, object retry) except -1:
        self.receiver.on_event(event, data, id, retry)
        return 0

    cdef int end_c(self, object exc, bint sent) except -1:
        self.receiver.on_end(exc, sent)
        return 0


@cython.final
cdef class HttpPool(CallOwner):
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
        self, address, *, loop, ssl=None, proxy=None, limits=None, Py_ssize_t max_connections=100,
        size_t max_head=MAX_HEAD, double connect_timeout=10.0, double idle_timeout=4.0,
        int max_redirects=MAX_REDIRECTS, may_reach=None,
    ):
        if not address.is_http:
            raise ValueError(f"HTTP is not spoken at {address}")
        self.address = address
        self.loop = loop
        self.prefix = ""
        self.ssl = ssl
        self.proxy = proxy
        self.limits = Limits() if limits is None else limits
        self.max_connections = max_connections
        self.max_head = max_head
        self.connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self.max_redirects = max_redirects
        self.may_reach = may_reach
        self.fields = (
            f"Host: {address.authority}\r\nUser-Agent: wirespeed/{wirespeed.__version__}\r\n"
            "Accept-Encoding: identity\r\n"
        ).encode()
        if proxy is not None and not address.secure:
            self.prefix = f"http://{address.authority}"
            self.fields += proxy.fields
        self.idle = []
        self.connections = set()
        self.waiting = deque()
        self.opening = set()

    def request(
        self, str method not None, str target not None, bytes fields not None, body,
        receiver,
    ):
        """Send a request; what comes back is told to the receiver.

        ``target`` is path and query, ``fields`` are whole lines (`field_lines` makes them) without
        Host and Content-Length, and ``body`` is bytes-like, not changed until the end, or None.
        A request that a kept connection failed is sent again, once, on a fresh connection: one of
        an idempotent method if no byte of a response came, another one if no byte of it was sent.
        RuntimeError: the pool is closed.
        """
        cdef PythonReceiver told = PythonReceiver.__new__(PythonReceiver)
        told.receiver = receiver
        return self.request_c(method, target, self.fields + fields, body, told)

    cdef HttpCall request_c(
        self, str method, str target, bytes fields, object body, ResponseReceiver receiver
    ):
        cdef HttpCall call
        if self.closed:
            raise RuntimeError("the HTTP pool is closed")
        call = HttpCall.__new__(HttpCall)
        call.pool = self
        call.line = self.line_c(method, target)
        call.fields = fields
        if body is not None:
            call.body = payload_of(body)
        call.receiver = receiver
        self.start_c(call)
        return call

    async def close(self):
        """End all calls and close all connections. Idempotent."""
        cdef HttpCall call
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
        waiting, self.waiting = self.waiting, deque()
        for call in waiting:
            call.end_c(self._is_closed())
        for connection in list(self.connections):
            if connection.link is not None:
                connection.link.close()
        opening = list(self.opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)

    def release(self):
        """Close all sockets of a loop that is closed. No receiver is called."""
        self.closed = True
        for connection in self.connections:
            with contextlib.suppress(RuntimeError):  # of the loop
                connection.release()

    def _is_closed(self):
        return TransportError(f"the connection to {self.address} was closed")

    # -- choosing a connection ---------------------------------------------------------------------

    cdef int start_c(self, HttpCall call, bint fresh=False) except -1:
        cdef HttpClientConnection connection
        while self.idle and not fresh:
            connection = <HttpClientConnection> self.idle.pop()
            if connection.begin_c(call):
                return 0
            if connection.link is not None:
                connection.link.close()
        self.waiting.append(call)
        self.connect_c()

    cdef int connect_c(self) except -1:
        """Open connections for the calls that wait."""
        room = self.max_connections - len(self.connections) - len(self.opening)
        for _ in range(min(room, len(self.waiting) - len(self.opening))):
            task = self.loop.create_task(self._open())
            self.opening.add(task)
            task.add_done_callback(self._opened)

    async def _open(self):
        if self.ssl is None and self.address.secure:
            self.ssl = ssl_.create_default_context()
            self.ssl.set_alpn_protocols(["http/1.1"])
        connected = await connect_http(
            self.address,
            ssl=self.ssl,
            proxy=self.proxy,
            open_timeout=self.connect_timeout,
            may_reach=self.may_reach,
        )
        connection = HttpClientConnection(
            self,
            connected,
            limits=self.limits,
            max_body=self.limits.max_message,
            max_head=self.max_head,
        )
        self.connections.add(connection)  # first: a link may be lost while it is attached
        try:
            connected.attach(connection)
        except BaseException:
            self.connections.discard(connection)
            connected.close()
            raise
        self.released_c(connection)

    def _opened(self, task):
        self.opening.discard(task)
        cdef HttpCall call
        exc = None if task.cancelled() else task.exception()
        if exc is not None and self.waiting:
            if isinstance(exc, OSError):
                exc = TransportError(f"cannot connect to {self.address}: {reason_of(exc)}")
            call = self.waiting.popleft()
            call.end_c(exc)
        if not self.closed:
            self.connect_c()

    # -- called by connections and calls -----------------------------------------------------------

    cdef int released_c(self, HttpClientConnection connection) except -1:
        cdef HttpCall call
        if self.waiting:
            call = self.waiting.popleft()
            if connection.begin_c(call):
                return 0
            if connection.kept:
                self.waiting.appendleft(call)
            if connection.link is not None:
                connection.link.close()  # which opens others for the calls that wait
            if not connection.kept:
                self._broken(call, ConnectionResetError(CLOSED), False, False)
            return 0
        connection.idle_since = monotonic()
        self.idle.append(connection)
        if self.timer is None:
            self.timer = self.loop.call_later(self.idle_timeout, self._sweep)
        return 0

    def _sweep(self):
        """Close the connections that were idle for too long."""
        cdef HttpClientConnection first
        cdef double rest
        self.timer = None
        while self.idle:
            first = self.idle[0]
            rest = first.idle_since + self.idle_timeout - monotonic()
            if rest > 0:
                self.timer = self.loop.call_later(max(0.001, rest), self._sweep)
                return
            del self.idle[0]
            if first.link is not None:
                first.link.close()

    def _lost(self, connection):
        """The connection is closed."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        if self.waiting and not self.closed:
            self.connect_c()

    def _broken(self, HttpCall call not None, exc, bint kept, bint answered):
        """The connection of a call is lost."""
        again = kept and not answered and not call.retried and not self.closed
        if again and (call.idempotent or not call.sent):
            call.try_again()
            self.start_c(call, True)
        elif exc is None:
            call.end_c(self._is_closed())
        else:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
            call.end_c(TransportError(f"the connection to {self.address} broke: {reason}"))

    def _ended(self, HttpCall call not None, exc):
        """The response of a call is of no use."""
        call.end_c(exc)

    def _gave_up(self, call):
        """A call that waits is aborted."""
        if call in self.waiting:
            self.waiting.remove(call)

    def _redirected(self, HttpCall call not None, status, location):
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
        if self.max_redirects == 0:
            why = "redirects are not followed"
        elif found is None:
            why = "the redirect names no URL"
        elif (found.scheme, found.host, found.port) != self._origin:
            why = "redirects to another origin are not followed"
        elif status not in (307, 308):
            why = "only 307 and 308 are followed, which keep the method"
        elif call.n_redirects == self.max_redirects:
            why = f"more than {self.max_redirects} redirects are not followed"
        if found is None or why:
            call.end_c(TransportError(f"{place}: {why}"))
        else:
            call.redirected(found.target)
            self.start_c(call)

    @property
    def _origin(self):
        return self.address.scheme, self.address.host, self.address.port
