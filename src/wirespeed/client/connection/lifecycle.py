"""The life of a client's link: the opening, a loss and its reason, the reopening, the closing.

A client has one `Lifecycle`, which runs on the loop's thread only. Work that must outlive a
cancelled caller (ending a child, starting a server again for several callers) runs in its own task.
Callers wait for that task with `asyncio.wait`, which neither cancels the task nor raises its
exception.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wirespeed.client.connection import handshake
from wirespeed.client.connection.channels import Channel, channel_for
from wirespeed.client.connection.connection import ClientConnection
from wirespeed.client.http.answers import Challenged
from wirespeed.client.targets import RECONNECTS, Http
from wirespeed.client.timeouts import DELAYS, Delays, shown
from wirespeed.errors import (
    AuthorizationError,
    ConnectionClosed,
    HttpStatusError,
    InvalidResponse,
    UpgradeRefused,
    WirespeedError,
)
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.handshake import Agreement, Era, Identity
    from wirespeed.client.targets import Target
    from wirespeed.limits import Limits

T = TypeVar("T")

logger = logging.getLogger("wirespeed.client")

NOT_OPEN = 'the client is not open: use "async with Client(…) as client:", or await client.open()'

# HTTP statuses of a refusal after which the client tries again: request timeout, too early, and too
# many requests.
_TRY_LATER = (408, 425, 429)
# Lines that were skipped in a handshake, and are logged after it.
_HELD_LINES = 10
# Seconds that `close` waits for cancelled callbacks of the user.
_PATIENCE = 1.0


class Host(Protocol):
    """The part of a client that its lifecycle calls."""

    @property
    def listens(self) -> bool:
        """Whether the client wants notifications even while no request is under way."""

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done. ``again``: the client had a link before this one."""

    def notified(self, message: Message) -> None:
        """The server sent a notification that does not belong to a call."""

    def parted(self, exc: BaseException) -> None:
        """The link is lost. Only the next request makes a new link."""


class Lifecycle:
    """The links to one target: one after another, at most one at a time."""

    def __init__(
        self,
        target: Target,
        era: Era,
        identity: Identity,
        limits: Limits,
        host: Host,
        *,
        handshake_timeout: float,
        probe_timeout: float,
        delays: Delays = DELAYS,
    ) -> None:
        self.target = target
        self.identity = identity
        self.live: ClientConnection | None = None  # after the handshake; its link may be lost
        self.agreement: Agreement | None = None
        self.crashes = 0  # in a row, without a successful call
        # sees each notification, of every link
        self.watch: Callable[[bool, str, bytes | None], None] | None = None
        self._elsewhere = hasattr(target, "address")  # the client did not start the server
        self._live_since = self._lost_at = 0.0  # the loop's time
        self._era = era
        self._limits = limits
        self._host = host
        self._handshake_timeout = handshake_timeout
        self._probe_timeout = probe_timeout
        self._delays = delays
        self._until = 0.0  # the loop's time at which the handshake's time is over
        # The era belongs to the server: a restart needs no second probe.
        self._found: Era | None = None
        self._started_before = False
        self._connection: ClientConnection | None = None
        self._channel: Channel | None = None
        self._gone: ClientConnection | None = None  # the last connection that was lost
        self._bad_line: str | None = None
        self._held_lines: list[tuple[str, str]] = []  # skipped in the handshake, not logged yet
        self._quiet = RateLimitedLog(logger)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock: asyncio.Lock | None = None
        self._starting: asyncio.Future[None] | None = None
        self._explaining: asyncio.Future[None] | None = None
        self._reviving: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._endings: set[asyncio.Future[None]] = set()
        self._closers: set[asyncio.Future[Any] | None] = set()  # tasks that run `close`

    # -- for the client --------------------------------------------------------------------------

    async def open(self) -> None:
        """Open a link and agree on a revision, unless the client is open."""
        loop = asyncio.get_running_loop()
        self.leave_other_loop()
        if self._loop is None:
            self._loop = loop
            self._lock = asyncio.Lock()
        assert self._lock is not None
        async with self._lock:
            if self.live is not None and self.live.usable:
                return
            self.live = None
            await self._drop("the client was opened anew")
            self.crashes = 0
            task = self._starting = asyncio.ensure_future(self._start())
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait((task,))
                if not task.cancelled() and task.exception() is None:
                    await self.close()
                raise
            finally:
                self._starting = None
            if task.cancelled():
                raise ConnectionClosed("the client was closed while it was being opened")
            task.result()

    def leave_other_loop(self) -> bool:
        """Drop the tasks and the link of a loop that was closed before this client. RuntimeError:
        the client is open on another loop, which is still open."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return False
        if not self._loop.is_closed():
            raise RuntimeError("the client is open on another event loop: use and close it there")
        if self._channel is not None:
            self._channel.released()
        self._loop = None
        self.live = self.agreement = self._connection = self._channel = None
        self._tasks, self._endings = set(), set()
        return True

    async def close(self, why: str = "the client was closed") -> None:
        """Close the link, and wait until everything is released."""
        me = asyncio.current_task()
        self._closers.add(me)
        try:
            # a callback may close its own client, but does not wait for itself
            tasks = self._tasks - self._closers
            if self._starting is not None:
                tasks.add(self._starting)
            self.live = self.agreement = None
            for task in tasks:
                task.cancel()
            await self._drop(why)
            if tasks:
                await asyncio.wait(tasks, timeout=_PATIENCE)
        finally:
            self._closers.discard(me)

    async def ready(self) -> ClientConnection:
        """Return the connection when it is open and has room.

        A crashed server is started again, if its target allows a restart. A lost connection is
        opened again, even if the automatic attempts have ended. Raises the error of a call that
        cannot be sent.
        """
        if self.leave_other_loop():
            raise ConnectionClosed(
                "the event loop that the client was opened on is closed: open the client again"
            )
        tried = False
        while True:
            live = self.live
            if live is None:
                raise ConnectionClosed(NOT_OPEN)
            if live.usable:
                if not live.full:
                    return live
                await live.wait_for_room()
            elif self._explaining is not None and not self._explaining.done():
                await asyncio.wait((self._explaining,))
            elif self._may_revive() or (self._elsewhere and self.restarts and not tried):
                tried = True
                await asyncio.wait((self._revive_soon(live, asked=True),))
            else:
                raise live.error()

    def spawn(self, work: Awaitable[T]) -> asyncio.Future[T]:
        """Run work in a task. `close` cancels the task, and its exception is logged."""
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        self._endings.discard(task)
        if task.cancelled():
            return
        exc = task.exception()
        if isinstance(exc, WirespeedError):
            logger.warning("%s", exc)
        elif exc is not None:
            logger.error("a task of the client failed", exc_info=exc)

    # -- starting --------------------------------------------------------------------------------

    async def _start(self) -> None:
        try:
            agreement = await self._agree()
            connection = self.connection
            await self._host.started(connection, agreement, self._started_before)
            if connection.lost_error is not None:
                raise connection.error()
        except BaseException:
            await self._drop("the client could not be opened", patience=self.left)
            raise
        self.live, self.agreement = connection, agreement
        for what, line in self._held_lines:
            self._quiet.log(logging.WARNING, "skipped %s: %s", what, line)
        self._held_lines = []
        self._found = "modern" if agreement.revision.modern else "legacy"
        self._live_since = connection.loop.time()
        self._started_before = True

    async def _agree(self) -> Agreement:
        """Connect and agree. A server of HTTP may demand a token first."""
        await self._connect()
        loop = asyncio.get_running_loop()
        for n in itertools.count():
            self._until = loop.time() + self._handshake_timeout
            try:
                return await handshake.agree(self, self._era, self._found, self._probe_timeout)
            except Challenged as exc:
                if not await exc.answer(n):
                    raise
        raise AssertionError

    # -- for the handshake (`handshake.Opening`) ---------------------------------------------------

    @property
    def connection(self) -> ClientConnection:
        """The connection that is being opened."""
        assert self._connection is not None  # resetting it cancels the task that opens it
        return self._connection

    @property
    def channel(self) -> Channel:
        """The channel of the connection."""
        assert self._channel is not None
        return self._channel

    @property
    def left(self) -> float:
        """The seconds of the handshake's time that are left."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    @property
    def over_http(self) -> bool:
        """Whether the server answers each request, at least with a status."""
        return isinstance(self.target, Http)

    async def start_again(self) -> None:
        """Open another link to the server, for another handshake."""
        await self._drop("the server is started again", revive=True)
        await self._connect()

    async def _connect(self) -> None:
        channel = channel_for(self.target, self._delays)

        def join(framer: Framer | None) -> ClientConnection:
            loop = asyncio.get_running_loop()
            made = ClientConnection(loop, self._limits, self, framer, channel.released)
            made.watch = self.watch
            self._connection = made
            return made

        self._channel, self._connection = channel, None
        self._bad_line, self._held_lines = None, []
        await channel.open(join, self._limits)

    async def negotiate(self, negotiation: Coroutine[Any, Any, T]) -> T:
        """Run a step of the handshake. Its error says why the link was lost, and what the server
        wrote instead of messages."""
        connection = self._connection
        try:
            return await negotiation
        except ConnectionClosed:
            # the link was lost between two requests, and `_explain` may still seek the reason
            if connection is None or connection is not self._gone or self._explaining is None:
                raise
            await asyncio.wait((self._explaining,))
            raise connection.error() from None
        except (TimeoutError, InvalidResponse) as exc:
            if self._channel is None:
                raise
            text = self._with_bad_line(f"no handshake: {exc}")
            patient = not isinstance(exc, TimeoutError)  # else its time is over
            described = await self._channel.failure(text, patient=patient)
            raise type(exc)(str(described)) from exc

    def _with_noise(self, connection: ClientConnection, reason: str) -> str:
        """Return the reason. If no valid message arrived, add a line that is not a message."""
        counters = connection.session.counters
        noise = counters["messages_in"] == counters["faults"]
        return self._with_bad_line(reason) if noise else reason

    def _with_bad_line(self, reason: str) -> str:
        if self._bad_line is None:
            return reason
        if self._elsewhere and "HTTP/" in self._bad_line[:7]:
            return f"{reason}; the server speaks HTTP: use http:// or ws://"
        return f"{reason} (it wrote a line that is not a JSON-RPC message: {self._bad_line})"

    # -- losing ----------------------------------------------------------------------------------

    def lost(self, connection: ClientConnection, reason: str) -> None:
        """The server ended or closed its output: all waiting calls will fail."""
        if connection is not self._connection or connection is self._gone:
            return
        self._gone = connection
        connection.leave()
        if connection.link is not None and not connection.wire.over:
            connection.link.close()  # the output is still open: send the close
        self._explaining = self.spawn(self._explain(connection, reason))

    async def _explain(self, connection: ClientConnection, reason: str) -> None:
        channel = self._channel
        if channel is None or connection is not self._connection:
            return
        try:
            error = await channel.failure(self._with_noise(connection, reason))
            connection.fail(error)
        finally:
            connection.fail(ConnectionClosed(reason))
        if connection is self.live:
            self._lost_at = connection.loop.time()
            if self._elsewhere and self._lost_at - self._live_since >= self._delays.settled:
                self.crashes = 0
            self.crashes += 1
            logger.warning("%s", error)
            if self._host.listens and self._may_revive():
                self._revive_soon(connection)
            else:
                self._host.parted(error)
        self._end(channel)

    @property
    def restarts(self) -> int:
        """The number of consecutive restarts that the target allows."""
        restart: int | None = getattr(self.target, "restart", 0)
        if restart is not None:
            return restart
        if self._found != "modern":
            return 0  # a legacy session ends with its connection
        return RECONNECTS

    def _may_revive(self) -> bool:
        return 0 < self.restarts >= self.crashes

    def _revive_soon(self, lost: ClientConnection, asked: bool = False) -> asyncio.Future[None]:
        if self._reviving is None or self._reviving.done():
            self._reviving = self.spawn(self._revive(lost, asked))
        return self._reviving

    async def _revive(self, lost: ClientConnection, asked: bool) -> None:
        """Start a crashed server again, or connect again. The pause grows with each consecutive
        failure. ``asked``: a caller waits for the link, so there is at least one attempt."""
        assert self._lock is not None
        async with self._lock:
            pause = self._pause(lost.loop.time()) if self._may_revive() else 0.0
            while self.live is lost and (asked or self._may_revive()):
                if self._may_revive() and pause > 0:
                    await asyncio.sleep(pause)
                asked = False
                await self._drop("the server is started again", revive=True)
                try:
                    await self._start()
                except WirespeedError as exc:
                    self.crashes += 1
                    if _is_final(exc):
                        self.crashes = max(self.crashes, self.restarts + 1)
                    self._lost_at = lost.loop.time()
                    lost.lost_error = exc
                    what = "reconnecting" if self._elsewhere else "starting the server again"
                    then = "giving up"
                    if self._may_revive():
                        pause = self._pause(self._lost_at)
                        then = f"next try in {shown(pause)}"
                    logger.warning("%s failed: %s; %s", what, exc, then)
                    if not self._may_revive():
                        self._host.parted(exc)

    def _pause(self, now: float) -> float:
        """Seconds to wait before the next start."""
        again, delays = self.crashes - 2, self._delays
        if not self._elsewhere:
            return delays.restarts.pause(again)
        if again >= 0:
            pause = delays.reconnects.pause(again)
        else:
            pause = random.uniform(0.0, delays.first_reconnect)
        return pause - (now - self._lost_at)  # time since the loss counts

    # -- ending ----------------------------------------------------------------------------------

    async def _drop(self, why: str, *, revive: bool = False, patience: float | None = None) -> None:
        """End the present link, and wait until all earlier links are released. ``revive``: a new
        link follows. It does not wait for the end of a link to a server elsewhere. ``patience``: Of
        a server that could not be used: after these seconds it ends in the background."""
        connection, channel = self._connection, self._channel
        self._connection = self._channel = None
        if connection is not None:
            connection.fail(ConnectionClosed(why))
        if channel is not None:
            channel.hang_up()
            self._end(channel, hurry=patience is not None)
        if self._endings and not (revive and self._elsewhere):
            await asyncio.wait(tuple(self._endings), timeout=patience)

    def _end(self, channel: Channel, hurry: bool = False) -> None:
        # in a task, which a cancelled caller does not stop
        task = asyncio.ensure_future(channel.close(hurry=hurry))
        self._endings.add(task)
        task.add_done_callback(self._ended)

    # -- what the server says ----------------------------------------------------------------------

    def notified(self, connection: ClientConnection, message: Message) -> None:
        """The server sent a notification that does not belong to a call. Those of an earlier
        connection are dropped."""
        if connection is self._connection:
            self._host.notified(message)

    def skipped(self, message: Message) -> None:
        """The server wrote a line that is not a JSON-RPC message."""
        raw = message.raw
        text = b"" if raw is None else bytes(memoryview(raw)[:200])
        line = f"{text!r} ({message.reason})" if text else f"{message.reason}"
        what = "a line that is not a JSON-RPC message"
        what = what if message.kind == "invalid" else "an answer"
        if self.live is None and self._elsewhere:
            # the handshake's error says what it is if all is wrong
            self._held_lines = [*self._held_lines[: _HELD_LINES - 1], (what, line)]
        else:
            self._quiet.log(logging.WARNING, "skipped %s: %s", what, line)
        if self._bad_line is None:
            self._bad_line = line


def _is_final(exc: BaseException) -> bool:
    """Whether a second attempt cannot help: the server refused the handshake, or its certificate is
    not valid, or there is no token."""
    if isinstance(exc, AuthorizationError):
        return True
    if isinstance(exc, UpgradeRefused | HttpStatusError):
        return 400 <= exc.status < 500 and exc.status not in _TRY_LATER
    # by name, so that ssl is not imported
    return type(exc.__cause__).__name__ == "SSLCertVerificationError"
