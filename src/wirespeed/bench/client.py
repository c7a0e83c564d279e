"""The clients of a load: each has connections to the target, one after another, and the calls over
the last one. A visitor has one connection for one user."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.bench.session_driver import SessionDriver
from wirespeed.client.connection.handshake import Identity
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.errors import WirespeedError
from wirespeed.limits import Limits
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.bench.driver import Driver
    from wirespeed.bench.load import Load
    from wirespeed.bench.recorder import Recorder
    from wirespeed.bench.script import Scripts, Walk
    from wirespeed.bench.work import Work
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.connection.handshake import Agreement, Era
    from wirespeed.client.targets import Target

# A connection that was lost is opened again, so often in a row.
_AGAIN = Backoff(0.05, 1.0)
_ATTEMPTS = 10
# Many calls may wait for one that stalls.
LIMITS = Limits(max_outstanding=2**20 - 1, output_high=16 * 1024 * 1024)


class _Progress(msgspec.Struct, rename="camel"):
    progress_token: int | None = None


_progress = msgspec.json.Decoder(_Progress).decode


class Owner(Protocol):
    """The part of a run that its clients use."""

    target: Target
    wanted_era: Era
    handshake_timeout: float
    load: Load
    recorder: Recorder

    @property
    def over(self) -> bool:
        """Whether no more calls begin."""

    def went(self, driver: Driver) -> None:
        """The connection of a driver is gone, or will be closed."""

    def go_on(self, driver: Driver, before: Driver) -> None:
        """Go on with the phase on a connection, in place of one that was lost."""

    def gave_up(self, exc: WirespeedError) -> None:
        """A connection that was lost could not be opened again."""


class BenchClient:
    """One connection of MCP after another: the host of a `Lifecycle`.

    Args:
        owner: The run.
        work: What the calls ask; None for a visitor.

    Attributes:
        life: The links.
        driver: The calls over the last connection; None before the first one.
    """

    listens = False

    def __init__(self, owner: Owner, work: Work | Scripts | None) -> None:
        self.owner = owner
        self.work = work
        self.life = self.new_life()
        self.driver: Driver | None = None

    # -- of the protocol -------------------------------------------------------------------------

    def new_life(self) -> Lifecycle:
        """Return the links to the target."""
        from wirespeed import __version__

        owner = self.owner
        return Lifecycle(
            owner.target,
            owner.wanted_era,
            Identity({"name": "wirespeed-bench", "version": __version__}, {}),
            LIMITS,
            self,
            handshake_timeout=owner.handshake_timeout,
            probe_timeout=min(10.0, owner.handshake_timeout),
        )

    def new_driver(self, *args: Any) -> Driver:
        """Return the calls over the connection that was opened."""
        live = self.life.live
        assert live is not None
        return SessionDriver(live, *args)

    @property
    def era(self) -> str:
        """The era of the server."""
        agreement = self.life.agreement
        modern = agreement is not None and agreement.revision.modern
        return "modern" if modern else "legacy"

    @property
    def server_info(self) -> dict[str, Any]:
        """The name and the version of the server, as far as they are known."""
        agreement = self.life.agreement
        return (None if agreement is None else agreement.server_info) or {}

    # -- connections -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Open a connection."""
        await self.life.open()
        owner = self.owner
        if self.driver is not None:
            self._part(self.driver)
        load = owner.load
        self.driver = self.new_driver(
            self.work, owner.recorder, load.in_flight, load.timeout, load.think
        )

    async def close(self) -> None:
        """Close the connection."""
        if self.driver is not None:
            self._part(self.driver)
            self.driver = None
        await self.life.close()

    def _part(self, driver: Driver) -> None:
        self.owner.went(driver)
        driver.close()

    async def work_on(self) -> None:
        """Make calls until the phase is over. A connection that is lost is opened again."""
        while True:
            driver = self.driver
            assert driver is not None
            await driver.idle
            if self.owner.over or not await self._reopened():
                return
            assert self.driver is not None
            self.owner.go_on(self.driver, driver)

    async def _reopened(self) -> bool:
        reason: WirespeedError | None = None
        for n in range(_ATTEMPTS):
            await asyncio.sleep(_AGAIN.pause(n))
            if self.owner.over:
                break
            try:
                await self.open()
                return True
            except WirespeedError as exc:
                reason = exc
        if reason is not None:
            self.owner.gave_up(reason)
        return False

    async def visit(self, host: Driver, walk: Walk, number: int, intended: int) -> None:
        """Connect, go through the steps of one user, and leave.

        host: The driver with the place in flight that the user has.
        """
        failure: WirespeedError | TimeoutError | None = None
        try:
            try:
                async with asyncio.timeout(self.owner.load.timeout):
                    await self.open()
            except (WirespeedError, TimeoutError) as exc:
                failure = exc
            else:
                assert self.driver is not None
                self.driver.begin_visit(host.recorder, host.budget, walk, number, intended)
                await self.driver.idle
        finally:
            try:
                await self.close()
            finally:
                host.left(walk, failure)

    # -- for the lifecycle -----------------------------------------------------------------------

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done."""

    def notified(self, message: Message) -> None:
        """A notification that belongs to no call. One of progress belongs to a call: to one that is
        over, perhaps, as progress may be under way when a call is given up."""
        if message.method != "notifications/progress" or self.driver is None:
            return
        try:
            token = _progress(message.params or b"{}").progress_token
        except msgspec.MsgspecError:
            token = None
        if token is None or not self.driver.awaited(token):
            self.owner.recorder.count("unexpected")

    def parted(self, exc: BaseException) -> None:
        """The link is lost."""
        self.owner.recorder.count("connection_losses")
        if self.driver is not None:
            self.driver.settle()
