"""A run: connections are opened, the calls of a load are made over them, and what became of them is
measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.bench.client import BenchClient
from wirespeed.bench.command_line import command_shown
from wirespeed.bench.driver import Budget, Driver, Pacer
from wirespeed.bench.load import Load, Result, Startup, ToolCost, Traffic, UsersResult
from wirespeed.bench.machine import Others, ProcessCost, machine, versions
from wirespeed.bench.recorder import OF_CALLS, Recorder
from wirespeed.bench.script import Scripts
from wirespeed.bench.series import Series, Watch, encoded, latency_of

if TYPE_CHECKING:
    from wirespeed.bench.script import Walk
    from wirespeed.bench.work import Work
    from wirespeed.client.connection.handshake import Era
    from wirespeed.client.targets import Target
    from wirespeed.errors import WirespeedError

# Connections that are opened at once.
OPENED_AT_ONCE = 32
# Seconds after the last answer in which a second one may follow.
LINGER = 0.05
# Seconds in which the calls of a run that is stopped may still be answered.
PATIENCE = 1.0


class Run:
    """A load on one target.

    Args:
        target: The server.
        work: What each call asks, or what users do.
        load: How the calls are made.
        era: As of `wirespeed.Client`.
        handshake_timeout: Seconds for each handshake.
        pids: Processes of the server whose cost is measured; None: the children of this process.
        lite: Whether the server speaks LiteMCP.
        watch: Called about once a second with the seconds since the begin and what was counted
            since the last time.
        ready: Awaited before the first call that is measured.

    Attributes:
        busy: The share of a processor that this process used.
        unsent: Calls of an open loop that were due at its end, and that no connection had room for.
        failure: Why a connection that was lost could not be opened again.
        series: The measured part of the run, over its time.
        service_histogram: The times from the sending of each call, encoded.

    The errors of `wirespeed.Client.open` are raised before the first call.
    """

    def __init__(
        self,
        target: Target,
        work: Work | Scripts,
        load: Load,
        *,
        era: Era = "auto",
        handshake_timeout: float = 60.0,
        pids: Iterable[int] | None = None,
        lite: bool = False,
        watch: Watch | None = None,
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.target = target
        self.load = load
        self.wanted_era = era
        self.handshake_timeout = handshake_timeout
        self.recorder = Recorder()  # of the phase
        self._work = work
        self._lite = lite
        self._pids = None if pids is None else list(pids)
        self._watch = watch
        self._ready = ready
        self.series = Series(None)
        self.service_histogram = ""
        self._clients: list[BenchClient] = []
        self._visitors: dict[asyncio.Future[None], BenchClient] = {}
        self._budget = Budget()
        self._pacer: Pacer | None = None
        self._stopped = False
        self._interrupted = asyncio.Event()
        self._interrupted_at = 0.0
        self.unsent = 0
        self.busy = 0.0
        self.failure: WirespeedError | None = None
        self._traffic = 0, 0  # of connections that are gone

    async def measure(self) -> Result:
        """Make the calls, and return what became of them."""
        self._clients = [self._new_client(self._work) for _ in range(self.load.connections)]
        try:
            startup = await self._warmed_up()
            if self._ready is not None:
                await self._ready()
            return await self._measured(startup)
        finally:
            for visit in self._visitors:
                visit.cancel()
            if self._visitors:
                await asyncio.wait(self._visitors)
            await await_all(client.close() for client in self._clients)

    def stop(self) -> None:
        """End the run: no more calls begin, and those that are not answered within a second are
        given up."""
        self._end()
        self._interrupted.set()
        self._interrupted_at = time.monotonic()

    def _end(self) -> None:
        """Let no more calls begin."""
        self._stopped = True
        if self._pacer is not None:
            self.unsent = self._pacer.unsent
        self._budget.close()
        for client in (*self._clients, *self._visitors.values()):
            if client.driver is not None:
                client.driver.settle()

    async def _warmed_up(self) -> Startup | None:
        """Open the connections, and make the calls before the load. The first one and the last one
        of these are made alone."""
        clients, calls, began = self._clients, self.load.warmup, time.monotonic()
        cold = None
        if calls >= 2:
            self._clients = clients[:1]
            await self._open(clients[:1])
            cold = await self._first_answer(began)
            self._clients, clients, calls = clients, clients[1:], calls - 2
        await self._open(clients)
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

    async def _open(self, clients: list[BenchClient]) -> None:
        room = asyncio.Semaphore(OPENED_AT_ONCE)

        async def one(client: BenchClient) -> None:
            async with room:
                await client.open()

        await await_all(one(client) for client in clients)

    async def _measured(self, startup: Startup | None) -> Result:
        load = self.load
        era, server_info = self._clients[0].era, self._clients[0].server_info
        pids = [os.getpid()] if self._pids is None else self._pids
        cost = ProcessCost(pids, themselves=self._pids is not None)
        others = Others()
        recorder, budget = Recorder(load.rate is not None), Budget(load.calls)
        sent, received = self._bytes()
        series = Series(self._watch, load.duration)
        self.series = series
        timer = None
        if load.duration is not None:
            timer = asyncio.get_running_loop().call_later(load.duration, self._end)
        try:
            began, ended, cpu = await self._phase(budget, recorder, load.rate, series)
        finally:
            if timer is not None:
                timer.cancel()
        self.busy = cpu / max(ended - began, 1e-9)
        spent, described = cost.cost(), machine()
        known = spent.cpu_seconds
        described["others"] = None if known is None else others.share(cpu + known)
        counts = recorder.counts()
        now_sent, now_received = self._bytes()
        last = recorder.last / 1e9
        if load.duration is not None:
            # a run that was stopped, or whose server was lost, is shorter
            over = began + load.duration if self._stopped else ended
            last = max(last, self._interrupted_at or over)
        seconds = max((last or ended) - began, 0.0)
        self.service_histogram = encoded(recorder.service)
        return Result(
            target=name_of(self.target),
            era=era,
            transport=transport_of(self.target),
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
            versions=versions(server_info),
            series=series.windows(),
            latency_histogram=encoded(recorder.latency),
            startup=startup,
            users=self._by_kind(),
            held_up=recorder.held_starts,
        )

    def _by_kind(self) -> list[UsersResult]:
        found = []
        for script in self._work.scripts if isinstance(self._work, Scripts) else ():
            recorder = script.recorder
            counts = {name: recorder.counts()[name] for name in OF_CALLS}
            found.append(
                UsersResult(
                    script.name,
                    sum(counts.values()),
                    counts,
                    latency_of(recorder.latency),
                    recorder.progress,
                    encoded(recorder.latency),
                )
            )
        return found

    async def _phase(
        self, budget: Budget, recorder: Recorder, rate: float | None, series: Series
    ) -> tuple[float, float, float]:
        """Make the calls of a budget. Returns the times of the begin and of the last outcome, and
        the processor seconds between them."""
        loop = asyncio.get_running_loop()
        self._budget, self.recorder = budget, recorder
        if self._stopped:
            budget.close()
        drivers = [client.driver for client in self._clients if client.driver is not None]
        load = self.load
        if isinstance(self._work, Scripts):
            self._work.begin(rate is not None)
        self._pacer = None if rate is None else Pacer(drivers, rate, load.poisson, load.seed)
        began, cpu = time.monotonic(), time.process_time()
        ticking = asyncio.ensure_future(series.run(recorder, began))
        for driver in drivers:
            self._begin(driver)
        work = [asyncio.ensure_future(client.work_on()) for client in self._clients]
        try:
            if self._pacer is not None:
                self._pacer.begin(loop, recorder, budget)
            await self._outcomes(work)
            ended, cpu = time.monotonic(), time.process_time() - cpu
            await self._last_answers(loop.time() + load.timeout)
        finally:
            if self._pacer is not None:
                self._pacer.end()
            for task in (ticking, *work):
                task.cancel()
            await asyncio.wait((ticking, *work))
        series.take(recorder, time.monotonic() - began)
        return began, ended, cpu

    async def _outcomes(self, work: Sequence[asyncio.Future[None]]) -> None:
        """Wait until each call of a phase has its outcome. Those that a run which is stopped still
        waits for have little time: their connections are closed."""
        every = asyncio.gather(*work)
        # if this is cancelled, nobody else asks for it
        every.add_done_callback(lambda done: done.cancelled() or done.exception())
        stopped = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((every, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not every.done() and not (await asyncio.wait((every,), timeout=PATIENCE))[0]:
                clients = (*self._clients, *self._visitors.values())
                await await_all(client.life.close() for client in clients)
            await every
        finally:
            stopped.cancel()

    async def _last_answers(self, until: float) -> None:
        """Wait for answers to calls that are over: second ones, and late ones."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(LINGER)
        while (
            not self._interrupted.is_set()
            and loop.time() < until
            and any(client.driver is not None and client.driver.expects for client in self._clients)
        ):
            await asyncio.sleep(LINGER)

    # -- for the clients -------------------------------------------------------------------------

    def _new_client(self, work: Work | Scripts | None) -> BenchClient:
        if self._lite:
            from wirespeed.bench.lite import LiteBenchClient

            return LiteBenchClient(self, work)
        return BenchClient(self, work)

    def go_on(self, driver: Driver, before: Driver) -> None:
        """Go on with the phase on a connection, in place of one that was lost."""
        if self._pacer is not None:
            self._pacer.replace(before, driver)
        self._begin(driver)

    def _begin(self, driver: Driver) -> None:
        driver.visit = self._visit
        driver.begin(self.recorder, self._budget, self._pacer)

    def _visit(self, host: Driver, walk: Walk, number: int, intended: int) -> None:
        visitor = self._new_client(None)
        visit = asyncio.ensure_future(visitor.visit(host, walk, number, intended))
        self._visitors[visit] = visitor
        visit.add_done_callback(self._visitors.pop)

    @property
    def over(self) -> bool:
        """Whether no more calls begin."""
        return self._stopped or self._budget.over

    def went(self, driver: Driver) -> None:
        """The connection of a driver is gone, or will be closed."""
        self._traffic = _added(self._traffic, driver.traffic)

    def gave_up(self, exc: WirespeedError) -> None:
        """A connection that was lost could not be opened again."""
        self.failure = exc

    def _bytes(self) -> tuple[int, int]:
        total = self._traffic
        for client in self._clients:
            if client.driver is not None:
                total = _added(total, client.driver.traffic)
        return total


def _added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


async def await_all(work: Iterable[Any]) -> None:
    """Wait for all; the first exception cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as exc:
        raise exc.exceptions[0] from None


def name_of(target: Target) -> str:
    """Return the server as people read it, without secrets."""
    where = getattr(target, "where", None)
    if where is not None:
        return str(where)
    argv = getattr(target, "shown", None) or getattr(target, "argv", None)
    return repr(target) if argv is None else command_shown(argv)


def transport_of(target: Target) -> str:
    """Return what a server speaks: ``stdio``, ``http``, ``websocket`` or ``lines``."""
    address = getattr(target, "address", None)
    return "stdio" if address is None else str(address.row.speaks)
