"""A listener: the sockets that accept, the connections of these, and the end of both."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import logging
import socket
import ssl as ssl_
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed._core.slab import InputBudget
from wirespeed.transport.address import Address, urls_of
from wirespeed.transport.http.options import default_name
from wirespeed.transport.net.activation import LINGER
from wirespeed.transport.net.connections import MemoryReturn, ServedConnection, ServedHttp
from wirespeed.transport.net.keepalive import KeepAlive
from wirespeed.transport.net.sockets import (
    ListeningSockets,
    SocketStream,
    Stream,
    address_name,
    listen,
    make_prompt,
    read_opening,
    start,
)
from wirespeed.transport.options import ListenOptions, OnListening
from wirespeed.transport.rate_limited_log import RateLimitedLog
from wirespeed.transport.service import Alive, Connecting, Peer, Service, has_capability
from wirespeed.transport.signals import Drainable, signals_drain
from wirespeed.transport.taskpool_choice import close_pool, open_pool

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.transport.access_log import ConnectionLog
    from wirespeed.transport.gate import Admission
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.site import HttpSite
    from wirespeed.transport.http.upgrade import Opening
    from wirespeed.transport.net.workers import OtherWorkers

logger = logging.getLogger("wirespeed.server")

ACCEPTS_A_TURN = 64
MAX_REFUSALS = 64  # connections above `max_connections` that receive a refusal
OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Obey = Callable[[asyncio.AbstractEventLoop, Drainable], AbstractContextManager[None]]


class Listener:
    """The accepting sockets and the connections of one `serve`.

    Args:
        listening: The sockets.
        services: The services by path; for a byte stream the only service.
        options: The options of the listener.
        others: The other workers at the port.
        alive: What keeps the services alive.

    Attributes:
        accept_pause: Seconds without accepting when descriptors or memory run out.
    """

    accept_pause = 1.0

    def __init__(
        self,
        listening: ListeningSockets,
        services: Mapping[str, Service],
        options: ListenOptions,
        others: OtherWorkers | None = None,
        alive: Alive | None = None,
    ) -> None:
        self.listening = listening
        self.address = listening.address
        self.services = services
        if self.address.is_http and options.http.name is None:
            http = msgspec.structs.replace(options.http, name=default_name(str(self.address)))
            options = msgspec.structs.replace(options, http=http)
        self.options = options
        self._alive = Alive(()) if alive is None else alive
        self._gone: set[object] = set()  # origins that were replaced
        self._releases: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self.pool = open_pool(self.loop)
        self.draining = False
        self._closing = False  # the port is closed, or will not open
        self._left = False  # another process accepts
        self._delay: asyncio.TimerHandle | None = None  # until then
        self.aborting = False
        self.opening: set[asyncio.Task[None]] = set()
        self._n_full = 0  # of these, connections above the limit
        self._accepting = False
        self._resume: asyncio.TimerHandle | None = None
        self._over = self.loop.create_future()
        self._context = contextvars.copy_context()  # one for all connections
        self._quiet = RateLimitedLog(logger)
        self._log: ConnectionLog | None = None
        if options.access_log is not None:
            from wirespeed.transport.access_log import ConnectionLog

            self._log = ConnectionLog(options.access_log, self.address.scheme)
        limit = options.open_timeout
        self.limits = {"request": limit, "head": limit, "body": limit, "verdict": limit}
        if self.address.is_http:
            self.limits["request"] = options.http.idle_timeout
            self.limits["head"] = options.http.head_timeout
            self.limits["body"] = options.http.body_timeout
        self._keeper = KeepAlive(
            self.loop,
            ping_interval=options.ping_interval,
            ping_timeout=options.ping_timeout,
            slow_reader_timeout=options.slow_reader_timeout,
            close_timeout=options.close_timeout,
            others=tuple(self.limits.values()) if self.address.has_paths else (),
        )
        self._memory = MemoryReturn(self.loop)
        self._others = others
        self._between: HttpSite | None = None  # what they find
        self._site = self._make_site()
        self._budget = (
            InputBudget(options.max_input_bytes) if self._site is None else self._site.budget
        )
        if self._site is not None and others is not None:
            self._site.share(others.worker, others.n, others)
            self._between = others.site(self._site)
            self.loop.add_reader(
                others.socket.fileno(), self._accept, others.socket, self._take_worker
            )

    def _make_site(self) -> HttpSite | None:
        if not self.address.has_paths:
            return None
        from wirespeed.transport.websocket import target

        local = self.listening.local
        if self.address.is_websocket:
            return target.make_site(
                self.services, self.options, self.address, local=local, loop=self.loop
            )
        from wirespeed.transport.http.routes import make_site

        site = make_site(
            self.services, self.options, self.address, local=local, loop=self.loop, pool=self.pool
        )
        known = self.options.http.directory
        if known is not None:
            from wirespeed.transport.http.members import HOSTS_PATH, MembersTarget

            hosts = MembersTarget(known.members, lambda: known.name, known.state)
            site.targets[HOSTS_PATH.encode()] = hosts
        for path, service in self.services.items():
            if not has_capability(service, Connecting):
                continue  # it answers HTTP alone
            site.targets[path.encode()].websocket = target.WebSocketTarget(service, self.options)
        return site

    def _targets(self, services: Mapping[str, Service], stay: set[str]) -> dict[str, HttpTarget]:
        """The targets of other services. ``stay``: the paths whose service is the same."""
        assert self._site is not None
        from wirespeed.transport.http.members import HOSTS_PATH
        from wirespeed.transport.websocket import target

        http = self.options.http
        kept = {*stay, *http.by_path, http.healthz, HOSTS_PATH}
        if len(stay) == len(services) == len(self.services):
            kept.add(http.sse_path)
        paths = {path.decode("latin-1"): one for path, one in self._site.targets.items()}
        known = {path: one for path, one in paths.items() if path in kept}
        if self.address.is_websocket:
            targets = target.service_targets(services, self.options, known)
        else:
            from wirespeed.transport.http.routes import service_targets

            targets = service_targets(services, self.options, known, loop=self.loop, pool=self.pool)
            for path in services.keys() - stay:
                targets[path].websocket = target.WebSocketTarget(services[path], self.options)
        if self._others is not None:
            for path in targets.keys() - known.keys():
                targets[path].share(self._others.worker, self._others.n)
        return targets

    @property
    def n_connections(self) -> int:
        """The connections, with those in their opening handshake."""
        return len(self._keeper) + len(self.opening)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs that clients connect to, one for each service."""
        return urls_of(self.address, self.services)

    # -- accepting -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to accept."""
        self._resume = None
        if not self._accepting and not self._closing and not self._left:
            self._accepting = True
            for sock in self.listening.sockets:
                self.loop.add_reader(sock.fileno(), self._accept, sock, self._take)

    def stop_accepting(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._accepting:
            self._accepting = False
            for sock in self.listening.sockets:
                self.loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket, take: Callable[[socket.socket, str], None]) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, place = listening.accept()
            except BlockingIOError:
                return
            except (OSError, MemoryError) as exc:
                if isinstance(exc, MemoryError) or exc.errno in OUT_OF:
                    self.stop_accepting()
                    self._resume = self.loop.call_later(self.accept_pause, self.start)
                    logger.error("no connections are accepted for %g s: %s", self.accept_pause, exc)
                    return
                continue  # the client has left
            try:
                sock.setblocking(False)
                make_prompt(sock, place)
                take(sock, address_name(place))
            except Exception as exc:
                sock.close()
                self._quiet.log(logging.WARNING, "a connection failed at its start: %s", exc)

    def _take(self, sock: socket.socket, peer: str) -> None:
        full = self.n_connections - self._n_full >= self.options.max_connections
        if full and (not self.address.has_paths or self._n_full >= MAX_REFUSALS):
            sock.close()
            self._log_refusal(peer, "too many connections")
            return
        if self.address.file and not self.address.has_paths:
            (service,) = self.services.values()
            stream = SocketStream(self.loop, sock)
            self._join(stream, service, service, service.stream_framer(), b"", Peer(peer))
        elif self.address.secure:
            self._welcome(self._secure(sock, peer, full), full, sock)
        elif self.address.has_paths:
            self._join_http(SocketStream(self.loop, sock), peer, full, self.loop.time())
        else:
            self._welcome(self._admit(sock, peer), full, sock)

    def _welcome(self, opening: Coroutine[Any, Any, None], full: bool, sock: socket.socket) -> None:
        self._n_full += full
        task = self.loop.create_task(opening)
        self.opening.add(task)
        task.add_done_callback(partial(self._welcomed, full, sock))

    def _welcomed(self, full: bool, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self.opening.discard(task)
        self._n_full -= full
        if task.cancelled():
            sock.close()  # the task may have been cancelled before its first step
        elif (exc := task.exception()) is not None:
            logger.error("internal error in an opening handshake", exc_info=exc)
        self._check_over()

    def _log_refusal(self, peer: str, why: str, level: int = logging.WARNING) -> None:
        self._quiet.log(level, "refused %s: %s", peer, why)

    # -- first bytes of tcp:// -------------------------------------------------------------------

    async def _admit(self, sock: socket.socket, peer: str) -> None:
        """Serve a client of ``tcp://`` whose first character begins a JSON object or array.

        Any web page can have a browser send HTTP to a port of this machine. The lines of an HTTP
        request are not messages, but its body may be one.
        """
        task = cast("asyncio.Task[None]", asyncio.current_task())
        stream = SocketStream(self.loop, sock)
        joined = False
        try:
            data = await read_opening(stream)
            if data[:1] in (b"{", b"["):
                (service,) = self.services.values()
                self._join(stream, service, service, service.stream_framer(), data, Peer(peer))
                joined = True
                self.opening.discard(task)
            elif data:
                self._log_refusal(peer, "its first bytes are not JSON")
        except OSError as exc:
            why = f"the connection broke before its first message ({exc})"
            self._log_refusal(peer, why, logging.INFO)
        finally:
            if not joined:
                stream.close()

    # -- HTTP ------------------------------------------------------------------------------------

    async def _secure(self, sock: socket.socket, peer: str, full: bool) -> None:
        """Serve a client of ``https://`` or ``wss://`` after the handshake of TLS."""
        from wirespeed.transport.net.connect import reason_of
        from wirespeed.transport.net.tls import TlsStream

        assert self.options.ssl is not None
        task = cast("asyncio.Task[None]", asyncio.current_task())
        since = self.loop.time()
        try:
            stream = await TlsStream.accept(
                self.loop, sock, self.options.ssl, peer=peer, timeout=self.options.open_timeout
            )
        except OSError as exc:
            why = reason_of(exc)
            if not isinstance(exc, ssl_.SSLError):
                why = f"no TLS handshake: {why}"
            self._log_refusal(peer, why, logging.INFO)
            return
        self._join_http(stream, peer, full, since)
        self.opening.discard(task)

    def _take_worker(self, sock: socket.socket, peer: str) -> None:
        """Another worker connects, which passes requests on."""
        self._join_http(SocketStream(self.loop, sock), peer, False, self.loop.time(), self._between)

    def _join_http(
        self, stream: Stream, peer: str, full: bool, since: float, site: HttpSite | None = None
    ) -> None:
        from wirespeed.transport.http.connection import HttpConnection

        site = site or self._site
        assert site is not None
        connection = HttpConnection(site, peer, full=full)
        connection.certificate = stream.certificate
        stream.make_link(connection)
        served = ServedHttp(self, connection, stream, since)
        if full:
            self._n_full += 1
            connection.closed.add_done_callback(self._full_one_left)
        self.watch(served, b"")

    def _full_one_left(self, _: object) -> None:
        self._n_full -= 1

    def open(self, stream: Stream, opening: Opening, rest: bytes) -> None:
        """Serve a client that goes on with another protocol."""
        target, service, peer, admitted, framer = opening
        try:
            self._join(stream, target, service, framer, rest, peer, admitted, pings=framer)
        except Exception as exc:
            stream.close()
            if not isinstance(exc, OSError):  # the client has left
                logger.exception("internal error in an opening handshake")

    # -- connections -----------------------------------------------------------------------------

    def _join(
        self,
        stream: Stream,
        origin: object,
        service: Service,
        framer: Framer | None,
        rest: bytes,
        peer: Peer,
        admitted: Admission | None = None,
        *,
        pings: WebSocketFramer | None = None,
    ) -> None:
        connection = service.connect(
            stream.make_link, loop=self.loop, pool=self.pool, framer=framer
        )
        connection.wire.framer.budget = self._budget
        connection.peer = peer
        served = ServedConnection(self, connection, pings, stream)
        served.origin = origin
        if self._log is not None:
            self._log.opened(peer)
            served.since = time.monotonic()
        if admitted is not None:
            connection.principal, served.expires = admitted.principal, admitted.expires
        self.watch(served, rest)

    def watch(self, served: ServedConnection, rest: bytes) -> None:
        """Start a connection, and watch it until its end. ``rest``: bytes that were read of it."""
        connection = served.connection
        self._keeper.watch(served)
        self._memory.came(len(self._keeper))
        connection.closed.add_done_callback(served.gone, context=self._context)
        try:
            if connection.link is not None:
                connection.link.close_timeout = self.options.close_timeout
                start(connection.link, rest)
        except BaseException:
            connection.abort()
            raise
        if self._closing or served.origin in self._gone:
            connection.drain()

    def left(self, served: ServedConnection) -> None:
        """A connection is closed."""
        self._keeper.forget(served)
        self._check_over()
        self._memory.left(len(self._keeper))

    # -- other services --------------------------------------------------------------------------

    async def replace(self, services: Mapping[str, Service]) -> None:
        """Serve these services from now on. Where one stays at its path, so do its sessions and
        connections. Those of others answer what is in flight, then end; then their services are
        released.

        Raises:
            ValueError: The options of the listener do not fit. Nothing has changed.
        """
        before = self.services
        stay = {path for path, one in services.items() if before.get(path) is one}
        targets = {} if self._site is None else self._targets(services, stay)
        for path in services.keys() - stay:
            await self._alive.hold(services[path])
        released = [one for path, one in before.items() if path not in stay]
        self.services = services
        gone: set[HttpTarget] = set()
        if self._site is not None:
            from wirespeed.transport.http.routes import limits_of

            limits = limits_of(services) if self.address.is_http else self._site.limits
            gone = self._site.replace(targets, limits)
        origins: set[object] = {*gone, *(one.websocket for one in gone)} if gone else {*released}
        origins.discard(None)  # that of HTTP connections
        self._gone |= origins
        leaving = [one.connection for one in self.served() if one.origin in origins]
        for connection in leaving:
            connection.drain()
        closed = [connection.closed for connection in leaving]
        task = self.loop.create_task(self._let_go(closed, gone, origins, released))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _let_go(
        self,
        closed: list[asyncio.Future[BaseException | None]],
        gone: set[HttpTarget],
        origins: set[object],
        released: list[Service],
    ) -> None:
        """Wait for the end of what was replaced, and release it."""
        if closed:
            await asyncio.wait(closed)
        for service in released:
            try:
                await self._alive.release(service)
            except Exception:
                logger.exception("a service that was replaced failed at its end")
        if self._site is not None:
            await self._site.forget(gone)
        self._gone -= origins

    def log_end(self, served: ServedConnection) -> None:
        """Log that a connection has ended."""
        connection: Any = served.connection
        if self._log is not None:
            self._log.closed(connection.peer, connection.wire, time.monotonic() - served.since)

    # -- the end ---------------------------------------------------------------------------------

    def drain(self, delay: float = 0.0) -> None:
        """Stop accepting, let each connection finish its running requests, then end. Before that,
        serve for ``delay`` or `HttpOptions.drain_delay` seconds and say that the end is near: each
        response over HTTP is the last one of its connection, so that no client sends a request into
        a connection that is closed."""
        if self.draining:
            return
        self.draining = True
        if self._site is not None:
            delay = max(delay, self.options.http.drain_delay)
        if not delay or self.aborting:
            self._end()
            return
        logger.info("shutting down in %g s", delay)
        if self._site is not None:
            self._site.leave()
            self._site.close_each()
        self._delay = self.loop.call_later(delay, self._close_port)

    def _close_port(self) -> None:
        """Take the last connections. Their clients have a moment to send what they came for."""
        if self._accepting:
            for sock in self.listening.sockets:
                self._accept(sock, self._take)
        self.stop_accepting()
        self.listening.close()
        self._delay = self.loop.call_later(LINGER, self._end)

    def _end(self) -> None:
        """Stop accepting, let each connection finish its running requests, then end."""
        if self._closing:
            return
        self._closing = True
        self._memory.stop()
        if self._delay is not None:
            self._delay.cancel()
        logger.info("shutting down: %d connections are open", self.n_connections)
        self.stop_accepting()
        self.listening.close()
        for task in self.opening:
            task.cancel()
        if self._site is not None:
            self._site.drain()
        for served in self.served():
            served.connection.drain()
        self._check_over()

    def leave(self) -> None:
        """Another process accepts with the sockets of this one. Clients of HTTP come back to it
        after their next response."""
        self.stop_accepting()
        self._left = True
        self.listening.leave()
        if self._site is not None:
            self._site.close_each()

    def abort(self) -> None:
        """End at once."""
        self.aborting = True
        self.drain()
        self._end()
        if self._site is not None:
            self._site.close()
        for served in self.served():
            served.connection.abort()
        self._check_over()

    def served(self) -> list[ServedConnection]:
        return [served for served in self._keeper.all() if isinstance(served, ServedConnection)]

    def _check_over(self) -> None:
        if self._closing and not self.n_connections and not self._over.done():
            self._over.set_result(None)

    async def serve(self, on_listening: OnListening | None) -> None:
        """Serve until drained."""
        try:
            if self._site is not None:
                await self._site.prepare()
            self.start()
            if on_listening is not None:
                on_listening(self.urls)
            await self._over
        finally:
            for served in self.served():  # cancelled: queued answers may still be sent
                if served.connection.link is not None:
                    served.connection.link.flush()
            self.abort()
            if self._others is not None:
                self.loop.remove_reader(self._others.socket.fileno())
                await self._others.close()
            self._keeper.close()
            if self.opening:
                await asyncio.wait(list(self.opening))
            if self._site is not None:
                await self._site.aclose()
            if self._releases:
                await asyncio.wait(list(self._releases))
            await close_pool(self.pool)
            await asyncio.sleep(0)  # `ServedConnection.gone` of the last ones


async def serve_at(
    address: Address,
    found: Sequence[Any],
    services: Mapping[str, Service],
    options: ListenOptions,
    on_listening: OnListening | None,
    *,
    obey: Obey = signals_drain,
    others: OtherWorkers | None = None,
) -> None:
    """Serve with checked and resolved arguments. ``obey``: the source of the signals to end.
    ``others``: the other workers at the port."""
    with listen(address, found, options) as listening:
        # outside of `obey`: a signal ends a start, or an end, that takes too long
        async with Alive(services.values()) as alive:
            listener = Listener(listening, services, options, others, alive)
            with obey(listener.loop, listener):
                await listener.serve(on_listening)
