"""The life of one server behind the proxy: its connections, one after another."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.connection.channels import channel_for
from wirespeed.errors import WirespeedError
from wirespeed.proxy.backend import Backend, Owner
from wirespeed.transport.child.command import Stdio

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.client.connection.channels import Channel
    from wirespeed.limits import Limits
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.operation.meter import Meter

logger = logging.getLogger("wirespeed.proxy")

# Seconds before the second start in a row, doubled for each further start, and their maximum.
_DELAY = 0.1
_MAX_DELAY = 30.0
# Seconds after which a connection counts as good, whether or not it has answered.
_SETTLED = 60.0
# Starts in a row, of servers that answered nothing, after which requests are refused until one
# succeeds.
_CRASH_LOOP = 5


class StartAgain(WirespeedError):
    """A server ended where another start may succeed. It is not reported."""


class Unsuitable(WirespeedError):
    """A server cannot be used for what it was started: it is not started again."""


class Upstream:
    """Keeps a server running.

    Attributes:
        owner: What the server belongs to.
        ready: Done when the first start has succeeded or failed.
        restarts: Whether it is started again.
        starts: How often the server was started.
        meter: What counts its connections.
        backend: The connection that is there now, in its handshake too; or None.
        error: Why the last one ended, in one line; None: it has not ended, or nobody knows.
        state: ``"starting"``, also after a loss; ``"up"``: its handshake is done; ``"down"``: start
            after start has failed.
        since: When the state began, by the clock of the loop.
    """

    def __init__(
        self,
        config: BackendConfig,
        owner: Owner,
        limits: Limits,
        meter: Meter,
        *,
        restarts: bool,
    ) -> None:
        self._config = config
        self._target = config.target
        if isinstance(self._target, Stdio):  # so that errors do not advise to start it again
            self._target = msgspec.structs.replace(self._target, restart=True)
        self.owner = owner
        self._limits = limits
        self.restarts = restarts
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.starts = 0
        self.meter = meter
        self.backend: Backend | None = None
        self.error: str | None = None
        self.state = "starting"
        self.since = asyncio.get_running_loop().time()
        self._channel: Channel | None = None
        self._failed = 0
        self._answered = False  # whether it said something after its handshake

    @property
    def pid(self) -> int | None:
        """The process of the server; None: it has none that is known here."""
        child = getattr(self._channel, "child", None)
        return None if child is None or child.returncode is not None else child.group.pid

    async def run(self) -> None:
        """Start the server, and start it again when it has ended, until this is cancelled."""
        self.meter.began(self)
        try:
            await self._keep()
        finally:
            self.meter.ended(self)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            error = await self._live()
            if isinstance(error, StartAgain):
                continue
            if isinstance(error, Unsuitable):
                return
            self.error = _first_line(error)
            self._be("starting")
            first = not self.ready.done()
            if first:
                self.ready.set_exception(error)
                self.ready.exception()  # for those who do not wait for it
            if not first or not self.restarts:  # else who waits for the start reports it
                logger.warning("%s: %s", self._config.name, error)
            if not self.restarts:
                self._be("down")
                self.owner.down(self.error)
                return
            good = self._answered or loop.time() - began >= _SETTLED
            self._failed = 1 if good else self._failed + 1
            if self._failed >= _CRASH_LOOP:
                self._be("down")
                self.owner.down(self.error)
            if self._failed > 1:
                await asyncio.sleep(min(_DELAY * 2 ** (self._failed - 2), _MAX_DELAY))
            elif self._answered:  # the next request may be its end, too
                await asyncio.sleep(max(0.0, began + _DELAY - loop.time()))

    def _be(self, state: str) -> None:
        self.state, self.since = state, asyncio.get_running_loop().time()

    async def _live(self) -> WirespeedError:
        """Start the server once, and wait for its end. Returns why it ended."""
        backend: Backend | None = None
        loop = asyncio.get_running_loop()

        def join(framer: Framer | None) -> Any:
            nonlocal backend
            backend = Backend(self._config.name, self.owner, self._limits, loop, framer)
            self.backend = backend
            self.meter.connected(backend)
            return backend

        channel = self._channel = channel_for(self._target)
        self.starts += 1
        self._answered = False
        try:
            await channel.open(join, self._limits)
            assert backend is not None
            await self.owner.opened(backend)
            if not self.ready.done():
                self.ready.set_result(None)
            self._be("up")
            self.owner.down(None)
            greeted = backend.session.messages_in
            lost = await backend.lost
            self._answered = backend.session.messages_in > greeted
            text = "it ended" if lost is None else f"the connection was lost: {lost}"
            error: WirespeedError = await channel.failure(text)
        except (StartAgain, Unsuitable) as exc:
            error = exc
        except TimeoutError:
            error = await channel.failure("its handshake took too long")
        except WirespeedError as exc:
            error = exc
            if backend is not None:
                ended = backend.lost.done()
                error = await channel.failure("it ended in its handshake" if ended else str(exc))
        finally:
            if backend is not None:
                if backend.link is not None:
                    channel.hang_up()
                channel.released()
                self.meter.disconnected(backend)
            self.backend = None
            await channel.close()
        return error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
