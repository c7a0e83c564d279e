"""A run: connections are opened, the calls of a load are made over them, and what became of them is
measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wirespeed.bench.driver import Budget, Driver, Pacer, Work
from wirespeed.bench.load import Load, Result, Startup, ToolCost, Traffic
from wirespeed.bench.machine import Others, ProcessCost, machine, versions
from wirespeed.bench.recorder import OF_CALLS, Recorder
from wirespeed.bench.series import Series, Watch, encoded, latency_of
from wirespeed.client.connection.handshake import Era, Identity
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.errors import WirespeedError
from wirespeed.limits import Limits
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.connection.connection import ClientConnection
    from wirespeed.client.connection.handshake import Agreement
    from wirespeed.client.targets import Target

# Connections that are opened at once.
_OPENED_AT_ONCE = 32
# Seconds after the last answer in which a second one may follow.
_LINGER = 0.05
# A connection that was lost is opened again, so often in a row.
_AGAIN = Backoff(0.05, 1.0)
_ATTEMPTS = 10
# Many calls may wait for one that stalls.
_LIMITS = Limits(max_outstanding=2**20 - 1, output_high=16 * 1024 * 1024)


class Run:
    """A load on one target.

    Args:
        target: The server.
        work: What each call asks.
        load: How the calls are made.
        era: As of `wirespeed.Client`.
        handshake_timeout: Seconds for each handshake.
        pids: Processes of the server whose cost is measured; None: the children of this process.
        watch: Called about once a second with the seconds since the begin and what was counted
            since the last time.

    Attributes:
        busy: The share of a processor that this process used.
        unsent: Calls of an open loop that were due at its end, and that no connection had room for.
        failure: Why a connection that was lost could not be opened again.

    The errors of `wirespeed.Client.open` are raised before the first call.
    """

    def __init__(
        self,
        target: Target,
        work: Work,
        load: Load,
        *,
        era: Era = "auto",
        handshake_timeout: float = 60.0,
        pids: Iterable[int] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._target = target
        self._work = work
        self._load = load
        self._era = era
        self._handshake_timeout = handshake_timeout
        self._pids = None if pids is None else list(pids)
        self._watch = watch
        self._users: list[_User] = []
        self._budget = Budget()
        self._recorder = Recorder()
        self._pacer: Pacer | None = None
        self._stopped = False
        self.unsent = 0
        self.busy = 0.0
        self.failure: WirespeedError | None = None
        self._traffic = 0, 0  # of connections that are gone

    async def measure(self) -> Result:
        """Make the calls, and return what became of them."""
        self._users = [_User(self) for _ in range(self._load.connections)]
        try:
            return await self._measured(await self._warmed_up())
        finally:
            for user in self._users:
                if user.driver is not None:
                    user.driver.close()
            await _all(user.life.close() for user in self._users)

    def stop(self) -> None:
        """Let no more calls begin. `measure` returns when those that wait are answered."""
        self._stopped = True
        if self._pacer is not None:
            self.unsent = self._pacer.unsent
        self._budget.close()
        for user in self._users:
            if user.driver is not None:
                user.driver.settle()

    async def _warmed_up(self) -> Startup | None:
        """Open the connections, and make the calls before the load. The first one and the last one
        of these are made alone."""
        users, calls, began = self._users, self._load.warmup, time.monotonic()
        cold = None
        if calls >= 2:
            self._users = users[:1]
            await self._open(users[:1])
            cold = await self._first_answer(began)
            self._users, users, calls = users, users[1:], calls - 2
        await self._open(users)
        if calls:
            await self._phase(Budget(calls), Recorder(), None, Series(None))
        if cold is None:
            return None
        warm = await self._first_answer(time.monotonic())
        return None if warm is None else Startup(cold, warm)

    async def _first_answer(self, since: float) -> float | None:
        """Make one call. Returns the microseconds since a time; None: its answer was not right."""
        recorder = Recorder()
        await self._phase(Budget(1), recorder, None, Series(None))
        return (recorder.last / 1e9 - since) * 1e6 if recorder.latency.total else None

    async def _open(self, users: list[_User]) -> None:
        room = asyncio.Semaphore(_OPENED_AT_ONCE)

        async def one(user: _User) -> None:
            async with room:
                await user.open()

        await _all(one(user) for user in users)

    async def _measured(self, startup: Startup | None) -> Result:
        load = self._load
        pids = [os.getpid()] if self._pids is None else self._pids
        cost = ProcessCost(pids, themselves=self._pids is not None)
        others = Others()
        recorder, budget = Recorder(load.rate is not None), Budget(load.calls)
        sent, received = self._bytes()
        cpu, series = time.process_time(), Series(self._watch)
        timer = None
        if load.duration is not None:
            timer = asyncio.get_running_loop().call_later(load.duration, self.stop)
        try:
            began, ended = await self._phase(budget, recorder, load.rate, series)
        finally:
            if timer is not None:
                timer.cancel()
        cpu = time.process_time() - cpu
        self.busy = cpu / max(ended - began, 1e-9)
        spent, described = cost.cost(), machine()
        if spent.cpu_seconds is not None:
            described["others"] = others.share(cpu + spent.cpu_seconds)
        counts = recorder.counts()
        now_sent, now_received = self._bytes()
        last = recorder.last / 1e9
        seconds = max(last or ended, began + (load.duration or 0.0)) - began
        agreement = self._users[0].life.agreement
        info = (agreement.server_info if agreement is not None else None) or {}
        return Result(
            target=_name(self._target),
            era=self._users[0].era,
            transport=_transport(self._target),
            load=load,
            seconds=seconds,
            calls=sum(counts[name] for name in OF_CALLS),
            rate=counts["ok"] / seconds if seconds else 0.0,
            counts=counts,
            latency_us=latency_of(recorder.latency),
            service_time_us=latency_of(recorder.service),
            bytes=Traffic(now_sent - sent, now_received - received),
            server=spent,
            tool=ToolCost(cpu, recorder.late_starts),
            machine=described,
            versions=versions(info),
            series=series.windows(),
            latency_histogram=encoded(recorder.latency),
            startup=startup,
        )

    async def _phase(
        self, budget: Budget, recorder: Recorder, rate: float | None, series: Series
    ) -> tuple[float, float]:
        """Make the calls of a budget. Returns the times of the begin and of the end."""
        loop = asyncio.get_running_loop()
        self._budget, self._recorder = budget, recorder
        if self._stopped:
            budget.close()
        drivers = [user.driver for user in self._users if user.driver is not None]
        load = self._load
        self._pacer = None if rate is None else Pacer(drivers, rate, load.poisson, load.seed)
        began = time.monotonic()
        ticking = asyncio.ensure_future(series.run(recorder, began))
        for user in self._users:
            assert user.driver is not None
            user.driver.begin(recorder, budget, self._pacer)
        work = [asyncio.ensure_future(user.work()) for user in self._users]
        try:
            if self._pacer is not None:
                self._pacer.begin(loop, recorder, budget)
            await asyncio.gather(*work)
            await self._last_answers(loop.time() + load.timeout)
        finally:
            if self._pacer is not None:
                self._pacer.end()
            for task in (ticking, *work):
                task.cancel()
            await asyncio.wait((ticking, *work))
        series.take(recorder, time.monotonic() - began)
        return began, time.monotonic()

    async def _last_answers(self, until: float) -> None:
        """Wait for answers to calls that are over: second ones, and late ones."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_LINGER)
        if _transport(self._target) == "http":
            return  # there the answer of a call that is over cannot come
        while loop.time() < until and any(
            user.driver is not None and user.driver.connection.usable and user.driver.given_up
            for user in self._users
        ):
            await asyncio.sleep(_LINGER)

    # -- for the users ---------------------------------------------------------------------------

    def lifecycle(self, user: _User) -> Lifecycle:
        """Return the links of a user."""
        from wirespeed import __version__

        return Lifecycle(
            self._target,
            self._era,
            Identity({"name": "wirespeed-bench", "version": __version__}, {}),
            _LIMITS,
            user,
            handshake_timeout=self._handshake_timeout,
            probe_timeout=min(10.0, self._handshake_timeout),
        )

    def driver(self, connection: ClientConnection) -> Driver:
        """Return the calls over a connection."""
        load = self._load
        return Driver(
            connection, self._work, self._recorder, load.in_flight, load.timeout, load.think
        )

    def go_on(self, driver: Driver, before: Driver) -> None:
        """Go on with the phase on a connection, in place of one that was lost."""
        if self._pacer is not None:
            self._pacer.replace(before, driver)
        driver.begin(self._recorder, self._budget, self._pacer)

    @property
    def over(self) -> bool:
        """Whether no more calls begin."""
        return self._stopped or self._budget.over

    def lost(self) -> None:
        """A connection was lost."""
        self._recorder.count("connection_losses")

    def replaced(self, driver: Driver) -> None:
        """A connection was opened in place of that of a driver."""
        session = driver.connection.session
        sent, received = self._traffic
        self._traffic = sent + session.bytes_out, received + session.bytes_in
        driver.close()

    def _bytes(self) -> tuple[int, int]:
        sent, received = self._traffic
        for user in self._users:
            if user.driver is not None:
                session = user.driver.connection.session
                sent += session.bytes_out
                received += session.bytes_in
        return sent, received


class _User:
    """One connection after another: the host of a `Lifecycle`."""

    listens = False

    def __init__(self, run: Run) -> None:
        self.life = run.lifecycle(self)
        self.driver: Driver | None = None
        self.era = "legacy"
        self._run = run

    async def open(self) -> None:
        """Open a connection."""
        await self.life.open()
        live, agreement = self.life.live, self.life.agreement
        assert live is not None and agreement is not None
        if self.driver is not None:
            self._run.replaced(self.driver)
        self.driver = self._run.driver(live)
        self.era = "modern" if agreement.revision.modern else "legacy"

    async def work(self) -> None:
        """Make calls until the phase is over. A connection that is lost is opened again."""
        while True:
            driver = self.driver
            assert driver is not None
            await driver.idle
            if self._run.over or not await self._reopened():
                return
            assert self.driver is not None
            self._run.go_on(self.driver, driver)

    async def _reopened(self) -> bool:
        for n in range(_ATTEMPTS):
            await asyncio.sleep(_AGAIN.pause(n))
            if self._run.over:
                return False
            try:
                await self.open()
                return True
            except WirespeedError as exc:
                reason = exc
        self._run.failure = reason
        return False

    # -- for the lifecycle -----------------------------------------------------------------------

    async def started(
        self, connection: ClientConnection, agreement: Agreement, again: bool
    ) -> None:
        """The handshake is done."""

    def notified(self, message: Message) -> None:
        """Notifications that belong to no call are not counted."""

    def parted(self, exc: BaseException) -> None:
        """The link is lost."""
        self._run.lost()
        if self.driver is not None:
            self.driver.settle()


async def _all(work: Iterable[Any]) -> None:
    """Wait for all; the first exception cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as exc:
        raise exc.exceptions[0] from None


def _name(target: Target) -> str:
    """The server as people read it."""
    shown = getattr(target, "where", None) or getattr(target, "command_line", None)
    return repr(target) if shown is None else str(shown)


def _transport(target: Target) -> str:
    address = getattr(target, "address", None)
    return "stdio" if address is None else str(address.row.speaks)
