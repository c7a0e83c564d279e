"""The life of one server behind the proxy: its connections, one after another.

Servers start a few at a time (`Starting`); their lines of stderr get the names of the servers
(`NamedLines`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from wirespeed.client.connection.channels import channel_for
from wirespeed.client.targets import Http
from wirespeed.errors import TransportError, WirespeedError
from wirespeed.proxy.supervision.checks import Check, CheckTimer, Deadlines, LivenessCheck
from wirespeed.proxy.upstream import Upstream, UpstreamOwner, is_down
from wirespeed.transport.backoff import RESTARTS, SETTLED, Backoff
from wirespeed.transport.child.command import Stdio

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.channels import Channel
    from wirespeed.client.targets import Target
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig

# The start of a server elsewhere is only an attempt to connect.
_CONNECTS = Backoff(0.1, 5.0)
# Seconds after which a server has not ended right after its start.
_MOMENT = 0.5
# Starts in a row, of servers that answered nothing, after which requests are refused until one
# succeeds; also after starts that took `start_timeout` together.
_CRASH_LOOP = 5


State: TypeAlias = Literal["starting", "ready", "restarting", "crash loop", "stopped"]


@dataclass(slots=True)
class Status:
    """The state of a server.

    Attributes:
        state: ``"restarting"``: it has ended, or could not be started, and is started again.
            ``"crash loop"``: the same so often that requests are refused.
        since: When that began, on the clock of the loop.
        restarts: How often it was started again.
        error: Why it ended the last time; "" if it never did.
        pid: Its process, while there is one.
    """

    state: State
    since: float
    restarts: int = 0
    error: str = ""
    pid: int | None = None


class StartAgain(WirespeedError):
    """A server ended where another start may succeed. It is not reported."""


class Unsuitable(WirespeedError):
    """A server cannot be used for what it was started: it is not started again."""


class ServerMeter(Protocol):
    """The numbers of one server: `wirespeed.proxy.operation.meter.Meter`."""

    def replaced(self) -> None:
        """Another server has taken its place."""

    def began(self, supervisor: Supervisor) -> None:
        """A server is kept running from now on."""

    def ended(self, supervisor: Supervisor) -> None:
        """It is not kept running any more."""

    def connected(self, upstream: Upstream) -> None:
        """There is a connection to it."""

    def disconnected(self, upstream: Upstream) -> None:
        """That connection is gone."""


class Supervisor:
    """Keeps a server running.

    Args:
        config: The server.
        owner: What it belongs to.
        limits: The limits of its connections.
        meter: Counts these.
        restarts: Whether it is started again when it has ended.
        target: How it is reached, if the server has several addresses.

    Attributes:
        config: The server.
        owner: What the server belongs to.
        ready: Done when the first start has succeeded or failed.
        restarts: Whether it is started again when it has ended.
        checks: Further checks while it runs, besides its health and its deadlines.
        retired: Whether another server has taken its place.
        leaves: Whether it answers its last requests, because it is retired or not wanted any more.
        upstream: The connection while it can be used.
        status: How the server is.
        meter: Counts its connections.
    """

    def __init__(
        self,
        config: BackendConfig,
        owner: UpstreamOwner,
        limits: Limits,
        meter: ServerMeter,
        *,
        restarts: bool,
        target: Target | None = None,
    ) -> None:
        self.config = config
        self._down = is_down(config.name)
        self._target = config.target if target is None else target
        if isinstance(self._target, Stdio):
            stderr = self._target.stderr
            self._target = msgspec.structs.replace(
                self._target,
                restart=True,  # so that errors do not advise to start it again
                stderr=NamedLines(config.name) if stderr == "inherit" else stderr,
            )
        self.owner = owner
        self._limits = limits
        self.checks: list[Check] = []
        self.retired = self.leaves = False
        self._loop = asyncio.get_running_loop()
        self.restarts = restarts
        self.meter = meter
        self.upstream: Upstream | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.status = Status("starting", self._loop.time())
        self._failed = 0
        self._wasted = 0.0  # seconds of the starts that failed in a row
        self._began = 0.0
        self._answered = False  # whether it said something after its handshake

    def pass_to(self, owner: UpstreamOwner, upstream: Upstream) -> None:
        """Let somebody else own the server, and the connection to it."""
        self.owner = owner
        upstream.pass_to(owner)

    def go_on(self, restarts: bool) -> None:
        """Set whether it is started again when it has ended."""
        self.restarts = restarts

    def retire(self) -> None:
        """Another server has taken the place of this one."""
        self.retired = self.leaves = True

    def leave(self) -> None:
        """It gets no new clients, and is started again for those that it has."""
        self.leaves = True

    async def run(self) -> None:
        """Start the server, and start it again when it has ended, until this is cancelled."""
        self.meter.began(self)
        try:
            await self._run()
        finally:
            self._become("stopped")
            self.meter.ended(self)

    async def _run(self) -> None:
        while True:
            error = await self._live()
            began, now = self._began, self._loop.time()
            if isinstance(error, StartAgain):
                continue
            if isinstance(error, Unsuitable) or self.retired:
                return
            self.status.error = _first_line(error)
            first = not self.ready.done()
            if first:
                self.ready.set_exception(error)
                self.ready.exception()  # for those who do not wait for it
            if not first or not self.restarts:  # else who waits for the start reports it
                logger.warning("%s: %s", self.config.name, error)
            self.owner.failed()
            if not self.restarts:
                self.owner.down(
                    f"{self._down}: {'it could not be started' if first else 'it ended'}"
                )
                return
            if self._answered or (self.status.state == "ready" and now - began >= SETTLED):
                self._failed, self._wasted = 1, 0.0
            else:
                self._failed += 1
                self._wasted += now - began
            if self._failed >= _CRASH_LOOP or self._wasted >= self.config.start_timeout:
                self.owner.down(f"{self._down}; it is started again from time to time")
                self._become("crash loop")
            else:
                self._become("restarting")
            if self._failed > 1:
                backoff = RESTARTS if isinstance(self._target, Stdio) else _CONNECTS
                await asyncio.sleep(backoff.pause(self._failed - 2))
            elif first:  # who waits for the start may end it
                await asyncio.sleep(RESTARTS.first)
            elif self._answered:  # the next request may be its end, too
                await asyncio.sleep(max(0.0, began + RESTARTS.first - self._loop.time()))
            self.status.restarts += 1

    @property
    def is_settled(self) -> bool:
        """Whether the server is ready, and has been so for a moment: some end right after their
        start."""
        status = self.status
        return status.state == "ready" and self._loop.time() - status.since >= _MOMENT

    def _become(self, state: State) -> None:
        self.status.pid = None
        if state != self.status.state:
            self.status.state, self.status.since = state, self._loop.time()

    async def _live(self) -> WirespeedError:
        """Start the server once, and wait for its end. Returns why it ended."""
        upstream: Upstream | None = None
        watch: CheckTimer | None = None

        def join(framer: Framer | None) -> Any:
            nonlocal upstream
            upstream = Upstream(
                self.config.name,
                self.owner,
                self._limits,
                self._loop,
                framer,
                self.config.request_timeout,
            )
            self.meter.connected(upstream)
            return upstream

        channel = channel_for(self._target)
        self._answered = False
        try:
            async with Starting(self.config.delays.start):
                self._began = self._loop.time()
                await channel.open(join, self._limits)
                assert upstream is not None
                child = getattr(channel, "child", None)
                self.status.pid = None if child is None else child.pid
                await self.owner.opened(upstream)
            self.upstream = upstream
            if self.restarts and isinstance(self._target, Http):
                upstream.end_when_unreachable()
            self._become_ready()
            watch = CheckTimer(upstream, self._checks_of_all())
            greeted = upstream.session.messages_in
            lost = await upstream.closed
            self._answered = upstream.session.messages_in > greeted
            error = await self._reason(channel, upstream, lost)
        except (StartAgain, Unsuitable) as exc:
            error = exc
        except TimeoutError:
            error = await channel.failure("its handshake took too long")
        except WirespeedError as exc:
            error = exc
            if upstream is not None:
                ended = upstream.closed.done()
                error = await channel.failure("it ended in its handshake" if ended else str(exc))
        except Exception as exc:  # of this proxy, or a server that says what nobody expects
            logger.exception("internal error of the proxy at the server %s", self.config.name)
            error = TransportError(f"internal error of the proxy: {exc}")
        finally:
            self.upstream = None
            if watch is not None:
                watch.stop()
            if upstream is not None:
                upstream.retry(None)  # no other process of this server will follow
                if upstream.link is not None:
                    channel.hang_up()
                channel.released()
                self.meter.disconnected(upstream)
            await channel.close()
        return error

    def _become_ready(self) -> None:
        pid = self.status.pid
        self._become("ready")
        self.status.pid = pid
        if not self.ready.done():
            self.ready.set_result(None)
        self.owner.down(None)

    def _checks_of_all(self) -> list[Check]:
        """Return what is looked at while the server runs."""
        found = list(self.checks)
        if self.config.request_timeout is not None:
            found.append(Deadlines())
        if self.config.health is not None:
            found.append(LivenessCheck(self.config.health))
        return found

    async def _reason(
        self, channel: Channel, upstream: Upstream, lost: BaseException | None
    ) -> WirespeedError:
        """Why a server that was good has ended."""
        if upstream.ended_for:
            return TransportError(f"it was ended: {upstream.ended_for}")
        text = "it ended" if lost is None else f"the connection was lost: {lost}"
        return await channel.failure(text)


class RunningServer(NamedTuple):
    """A server that runs."""

    supervisor: Supervisor
    task: asyncio.Task[None]

    async def end(self, grace: float) -> None:
        """End a server whose place another one has taken, when its requests have ended."""
        self.supervisor.retire()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        upstream = self.supervisor.upstream
        try:
            if upstream is not None:
                upstream.retire()
                while upstream.link is not None and upstream.n_unfinished():
                    if loop.time() >= until:
                        upstream.end("it was replaced, and its requests took too long")
                        break
                    await asyncio.sleep(0.05)
        finally:
            self.task.cancel()
            await asyncio.wait((self.task,))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


# -- how many start at once ----------------------------------------------------------------------

# Starts at once for each processor.
_FOR_EACH = 2

_gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    weakref.WeakKeyDictionary()
)


class Starting:
    """The start of one server, among those of its event loop. An asynchronous context manager: it
    is entered when the start may begin.

    Args:
        most: Seconds after which it does not hold up others.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        loop = asyncio.get_running_loop()
        if loop not in _gates:
            _gates[loop] = asyncio.Semaphore(_FOR_EACH * _processors())
        self._gate = _gates[loop]
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        self._timer = self._loop.call_later(self._most, self._free)

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._gate.release()


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


logger = logging.getLogger("wirespeed.proxy")


# -- their stderr ----------------------------------------------------------------------------------

MAX_LINES = 200  # in a second, of one server
MAX_BYTES = 65536  # in a second, of one server
_MAX_BYTES = 4096  # of a line; so much can be written at once to a pipe that has room

# Control characters, line ends of other systems, and marks that change the direction of text: they
# would speak to the terminal of a reader of the log, or forge lines of it.
_ESCAPED = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029,
        *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A),
    )
}  # fmt: skip


class NamedLines:
    """A function of a line, for `Stdio.stderr`: writes it to our stderr, with control characters
    escaped.

    Lines are dropped and counted when there are too many, and when nobody reads our stderr: the
    proxy does not wait.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._second = 0
        self._n = 0
        self._n_bytes = 0
        self.dropped = 0
        self._told = 0

    def __call__(self, line: str) -> None:
        """Write a line."""
        now = int(time.monotonic())
        if now != self._second:
            self._second, self._n, self._n_bytes = now, 0, 0
            if self.dropped > self._told and _write(
                f"{self._name}: {self.dropped - self._told} lines of stderr were dropped"
            ):
                self._told = self.dropped
        shown = f"{self._name}: {line[:_MAX_BYTES].translate(_ESCAPED)}"
        self._n += 1
        self._n_bytes += len(shown)
        if self._n > MAX_LINES or self._n_bytes > MAX_BYTES or not _write(shown):
            self.dropped += 1


def _write(line: str) -> bool:
    """Write a line to stderr if that does not block."""
    data = line.encode(errors="replace")[: _MAX_BYTES - 1] + b"\n"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        fd = sys.stderr.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if not poll.poll(0):
            return False
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        return True
    return False
