"""Channels to servers elsewhere: HTTP, WebSocket and stream sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from wirespeed._core.framing.rfc6455 import CloseCode, describe
from wirespeed.client.http.answers import CHALLENGES
from wirespeed.client.http.authorization import MAX_CHALLENGES, described
from wirespeed.client.timeouts import DELAYS, Delays
from wirespeed.errors import (
    ConnectionClosed,
    ConnectionLost,
    TransportError,
    UpgradeRefused,
    WirespeedError,
)
from wirespeed.transport.address import as_http
from wirespeed.transport.headers import Headers

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed._core.framing.websocket import WebSocketFramer
    from wirespeed.auth.client.session import AuthorizationSession
    from wirespeed.client.connection.channels import Join
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.http.link import HttpLink
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.limits import Limits
    from wirespeed.transport.http.pool import HttpPool
    from wirespeed.transport.link import Link
    from wirespeed.transport.net.connect import Connected, ConnectedWebSocket

T = TypeVar("T")

SUBPROTOCOL = "mcp"

# Seconds until a second check for the answer to a ping. A busy loop runs its due timers before it
# reads the bytes that arrived meanwhile.
_SECOND_LOOK = 0.05
# Seconds of grace for a link to end by itself after its own deadlines.
_GRACE = 1.0


class _Reached(Protocol):
    """The address of a connection's target."""

    @property
    def where(self) -> str: ...


class _Remote:
    """A channel over a connection that this process made."""

    probe_was_read = True

    def __init__(self, target: _Reached) -> None:
        self._where = target.where
        self._connection: ClientConnection | None = None
        self._connected: Connected | None = None
        self._released: asyncio.Future[None] | None = None

    def _begin(self, connection: ClientConnection, connected: Connected) -> None:
        """Join the connection to the socket. TransportError: the socket is closed already."""
        self._connection, self._connected = connection, connected
        self._released = connection.loop.create_future()
        try:
            connected.attach(connection)
        except BaseException as exc:
            self.released()
            if isinstance(exc, OSError):
                raise ConnectionLost(f"{self._where}: the connection broke ({exc})") from exc
            raise

    @property
    def _link(self) -> Link | None:
        return None if self._connection is None else self._connection.link

    def released(self) -> None:
        """The link is gone, or will never be: the socket is closed."""
        connected, self._connected = self._connected, None
        if connected is not None:
            with contextlib.suppress(RuntimeError):  # of a loop that is closed
                connected.close()
        if self._released is not None and not self._released.done():
            with contextlib.suppress(RuntimeError):
                self._released.set_result(None)

    async def _until_released(self, seconds: float) -> None:
        """Wait until the link ends by itself. After the given seconds the link is ended."""
        if self._released is None:
            return
        await asyncio.wait((self._released,), timeout=seconds)
        if (link := self._link) is not None:
            link.close()


class SocketChannel(_Remote):
    """A server behind a UNIX or TCP socket, one message a line."""

    def __init__(self, target: Socket) -> None:
        super().__init__(target)
        self.target = target

    async def open(self, join: Join, limits: Limits) -> None:
        """Connect. TransportError: the connection failed."""
        from wirespeed.transport.net.connect import connect_stream

        target = self.target
        connected = await connect_stream(target.address, open_timeout=target.open_timeout)
        self._begin(join(None), connected)

    def hang_up(self) -> None:
        """Send what can be sent without waiting, and close."""
        if (link := self._link) is not None:
            link.flush()
        if (link := self._link) is not None:
            link.close()

    async def failure(self, reason: str, *, patient: bool = True) -> ConnectionLost:
        """Return the error that tells how the stream ended."""
        return ConnectionLost(f"{self._where}: {reason}")

    async def close(self, *, hurry: bool = False) -> None:
        """Everything is released."""
        await self._until_released(0.0)


class WebSocketChannel(_Remote):
    """A server behind a WebSocket."""

    subprotocols: tuple[str, ...] = (SUBPROTOCOL,)

    def __init__(self, target: WebSocket, delays: Delays = DELAYS) -> None:
        super().__init__(target)
        self.target = target
        self._delays = delays
        self._framer: WebSocketFramer | None = None
        self._pulse: Pulse | None = None
        self._silent = False

    async def open(self, join: Join, limits: Limits) -> None:
        """Connect and upgrade. UpgradeRefused: the server answered with another HTTP status.
        AuthorizationError: it demands a token, and there is none. TransportError: the connection
        failed otherwise."""
        from wirespeed._core.framing.websocket import WebSocketFramer

        target = self.target
        target.warn_if_exposed()
        if target.auth is None:
            connected = await self._upgrade(target.request_headers())
        else:
            connected = await open_authorized(target, self._upgrade)
        framer = self._framer = WebSocketFramer(
            "client", max_message=limits.max_message, deflate=connected.extension
        )
        connection = join(framer)
        self._begin(connection, connected)
        if connection.link is not None:
            allowance = self._delays.control
            self._pulse = Pulse(connection.link, framer, target, self._on_silence, allowance)

    async def _upgrade(self, headers: Mapping[str, str]) -> ConnectedWebSocket:
        from wirespeed.transport.net.connect import connect_websocket

        target = self.target
        return await connect_websocket(
            target.address,
            subprotocols=self.subprotocols,
            headers=headers,
            ssl=target.ssl,
            compression=target.compression,
            open_timeout=target.open_timeout,
            close_timeout=target.close_timeout,
        )

    def _on_silence(self) -> None:
        self._silent = True
        if (link := self._link) is not None:
            link.close()

    def released(self) -> None:
        """The link is gone: release everything it held."""
        if self._pulse is not None:
            self._pulse.stop()
        super().released()

    def hang_up(self) -> None:
        """Queue a closing frame behind the queued data, and wait for the server's."""
        if (link := self._link) is not None:
            link.end(CloseCode.NORMAL, "", self.target.close_timeout)

    async def failure(self, reason: str, *, patient: bool = True) -> ConnectionLost:
        """Return the error that tells which side closed the connection, the code and the reason."""
        code: int | None = None
        said = ""
        framer = self._framer
        if self._silent:
            seconds = self.target.ping_timeout
            reason = f"the server answered no ping within {seconds:g} s"
            code = CloseCode.VANISHED.value
        elif framer is not None and framer.failure is not None:
            code, why = framer.failure
            reason = f"this side closed the connection: {describe(code)} ({why})"
        elif framer is not None and framer.close_code is not None:
            code = framer.close_code
            said = framer.close_reason
            reason = "the server closed the connection without a closing frame"
            if code != CloseCode.VANISHED:
                reason = f"the server closed the connection: {describe(code)}"
                reason += f" ({said!r})" if said else ""
        elif self._link is None:
            reason, code = f"{reason} without a closing frame", CloseCode.VANISHED.value
        return ConnectionLost(f"{self._where}: {reason}", code, said)

    async def close(self, *, hurry: bool = False) -> None:
        """Wait for the server's closing frame, for the target's time limit; then release
        everything."""
        await self._until_released(self.target.close_timeout + _GRACE)


class Pulse:
    """Keep-alive (RFC 6455 section 5.5.2): pings, and a deadline for any sign of life after each.

    All received bytes count as a sign of life: a pong may have to wait behind a large message.
    While the client does not read because the server does not, sent bytes count instead.
    """

    def __init__(
        self,
        link: Link,
        framer: WebSocketFramer,
        target: WebSocket,
        on_silence: Callable[[], None],
        allowance: float,
    ) -> None:
        self._link = link
        self._wire = link.endpoint.wire
        self._framer = framer
        self._interval = target.ping_interval
        self._timeout = target.ping_timeout
        self._on_silence = on_silence
        self._allowance = allowance
        self._seen = (0, 0)
        self._wait(allowance if self._interval is None else self._interval, self._beat)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._timer = self._link.loop.call_later(seconds, then)

    def stop(self) -> None:
        """No more pings."""
        self._timer.cancel()

    def _beat(self) -> None:
        self._framer.allow_control()
        if self._interval is None:
            self._wait(self._allowance, self._beat)
            return
        self._seen = (self._wire.bytes_in, self._wire.bytes_out)
        self._framer.ping()
        self._wait(self._timeout, self._look)
        self._link.wrote()

    def _look(self) -> None:
        if self._alive():
            self._go_on()
        else:
            self._wait(_SECOND_LOOK, self._look_again)

    def _look_again(self) -> None:
        if self._alive():
            self._go_on()
        else:
            self._on_silence()

    def _alive(self) -> bool:
        bytes_in, bytes_out = self._seen
        if self._wire.bytes_in != bytes_in:
            return True
        return not self._wire.want_read and self._wire.bytes_out != bytes_out

    def _go_on(self) -> None:
        assert self._interval is not None
        self._wait(max(0.0, self._interval - self._timeout), self._beat)


async def open_authorized(
    target: WebSocket, upgrade: Callable[[Mapping[str, str]], Awaitable[T]]
) -> T:
    """Return what ``upgrade`` returns, which is called with the header fields of a request. A user
    may log in meanwhile: the time limit of a request does not run.

    UpgradeRefused: the server refused for another reason than the token. AuthorizationError: there
    is no token that the server accepts.
    """
    assert target.auth is not None
    url = as_http(target.url)
    session = target.auth.session(url, ssl=target.ssl)
    try:
        n = 0
        while True:
            fields = {**target.request_headers(), **await _fields(session, url)}
            n_tokens = session.n_tokens
            try:
                return await upgrade(fields)
            except UpgradeRefused as exc:
                if exc.status not in CHALLENGES or n == MAX_CHALLENGES:
                    raise
                headers = Headers(exc.headers)
                if not await _described(session.challenged(exc.status, headers, n_tokens, n)):
                    raise
            n += 1
    finally:
        await session.close()


async def _fields(session: AuthorizationSession, url: str) -> dict[str, str]:
    """The header fields of a token. A connection lasts, so the token must not end soon."""
    await _described(session.prepare())
    while (lines := session.fields("GET", url, long=True)) is None:
        await _described(session.prepare())
    return dict(line.split(": ", 1) for line in lines.decode("ascii").splitlines())


async def _described(work: Awaitable[T]) -> T:
    """Wait for work of a session. A storage or a handler of the user may raise anything."""
    try:
        return await work
    except WirespeedError:
        raise
    except Exception as exc:
        raise described(exc) from exc


class HttpChannel:
    """A server of Streamable HTTP. Nothing is sent before the first message."""

    # An error of the probe is no verdict about the era: another connection would fail as well.
    probe_was_read = False

    def __init__(self, target: Http) -> None:
        self.target = target
        self._link: HttpLink | None = None

    async def open(self, join: Callable[[Framer | None], ClientConnection], limits: Limits) -> None:
        """Make the link, and load its token. The first message connects."""
        from wirespeed.client.http.link import HttpLink

        make_pool = pools_to(self.target, asyncio.get_running_loop(), limits)
        self._link = HttpLink(join(None), self.target, make_pool)
        if self._link.auth is not None:
            await self._link.auth.session.prepare()

    def hang_up(self) -> None:
        """Send what is queued, and end all requests."""
        link = self._link
        if link is not None and not link.lost:
            link.flush()
            link.close()

    def released(self) -> None:
        """The link is gone. Its connections are closed by `close`, or here if the loop is closed,
        which closes none."""
        link = self._link
        if link is not None and link.loop.is_closed():
            link.abandon()

    async def failure(
        self, reason: str, *, patient: bool = True
    ) -> TransportError | ConnectionClosed:
        """Return the error that tells why the link ended."""
        link = self._link
        if link is not None and link.failure is not None:
            return link.failure
        return ConnectionLost(f"{self.target.where}: {reason}")

    async def close(self, *, hurry: bool = False) -> None:
        """End the session, within the target's time limit, and close all connections."""
        link, self._link = self._link, None
        if link is None:
            return
        try:
            async with asyncio.timeout(self.target.close_timeout):
                await link.finish()
        except TimeoutError:
            pass
        finally:
            await link.release()


def pools_to(
    target: Http, loop: asyncio.AbstractEventLoop, limits: Limits
) -> Callable[[int], HttpPool]:
    """Return a function of n that makes a pool of at most n connections to a target.
    TransportError: the proxy that the environment names is not valid."""
    from wirespeed.transport.http.pool import HttpPool
    from wirespeed.transport.net.connect import proxy_of

    try:
        proxy = proxy_of(target.address)
    except ValueError as exc:
        raise TransportError(f"cannot connect to {target.where}: {exc}") from None
    target.warn_if_exposed()

    def make_pool(max_connections: int) -> HttpPool:
        return HttpPool(
            target.address,
            loop=loop,
            ssl=target.ssl,
            proxy=proxy,
            limits=limits,
            max_connections=max_connections,
            connect_timeout=target.open_timeout,
        )

    return make_pool
