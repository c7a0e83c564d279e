"""The faults of the hosts, the links and the store of a deployment."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Callable, Sequence

from deployment import NAMES, Deployment
from lab import netns
from seen import Fault, Seen
from stores import Work

DRAINED_IN = 30.0


class Faults:
    """Faults of a deployment.

    Attributes:
        of_hosts: What can happen to a host, by kind.
        of_store: What can happen to the store, by kind.
    """

    def __init__(self, deployed: Deployment, seen: Seen, chance: random.Random) -> None:
        self._deployed = deployed
        self._seen = seen
        self._random = chance
        self._work: set[asyncio.Task[None]] = set()
        self.of_hosts: dict[str, Callable[[str], Work]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "drain": self._drain,
        }
        if deployed.machines:
            self.of_hosts |= {
                "unplug": lambda name: self._cut(name, "lan", "depot"),
                "cut off from the store": lambda name: self._cut(name, "depot"),
                "cut off from the others": lambda name: self._cut(name, "lan"),
            }
        self.of_store = deployed.store.faults

    async def run(self, seconds: float, every: float, kinds: Sequence[str]) -> None:
        """Do one after another, also while earlier ones last, but one host is well."""
        until = time.monotonic() + seconds
        while time.monotonic() + every < until:
            await asyncio.sleep(every)
            kind = self._random.choice(kinds)
            well = [name for name in NAMES if name not in self._seen.open]
            if kind in self.of_store:
                if "" not in self._seen.open:
                    self._begin(kind, "", self.of_store[kind]())
            elif len(well) > 1:
                name = self._random.choice(well)
                self._begin(kind, name, self.of_hosts[kind](name))
        if self._work:
            await asyncio.wait(self._work)

    async def roll(self, seconds: float, pause: float) -> None:
        """Drain one host after the other, and start it again."""
        names = itertools.cycle(NAMES)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            name = next(names)
            self._begin("drain", name, self._drain(name))
            await asyncio.wait(self._work)
            await asyncio.sleep(pause)

    def _begin(self, kind: str, host: str, work: Work) -> None:
        self._seen.open[host] = Fault(kind, host, time.monotonic())
        print(f"{time.monotonic():.2f} {kind} {host}", flush=True)
        task = asyncio.create_task(self._last(host, work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _last(self, host: str, work: Work) -> None:
        try:
            await work
        except Exception as exc:
            self._seen.note(f"fault of {host or 'the store'}: {exc!r}")
        fault = self._seen.over(host)
        print(f"{fault.end:.2f} {fault.kind} {host}: over", flush=True)

    async def _kill(self, name: str) -> None:
        await self._deployed.hosts[name].kill()
        await asyncio.sleep(self._random.choice((0.0, 1.0, 6.0)))
        await self._deployed.start(name)

    async def _freeze(self, name: str) -> None:
        host = self._deployed.hosts[name]
        host.signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(2, 8))
        host.signal(signal.SIGCONT)

    async def _drain(self, name: str) -> None:
        host = self._deployed.hosts[name]
        host.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAINED_IN):
                while host.process.poll() is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self._seen.note(f"{name} does not end")
            await host.kill()
        if host.process.returncode:
            self._seen.note(f"{name} ended with {host.process.returncode}")
        await self._deployed.start(name)

    async def _cut(self, name: str, *links: netns.Link) -> None:
        machine = self._deployed.machines[name]
        for link in links:
            machine.plug(link, "down")
        await asyncio.sleep(self._random.uniform(2, 8))
        for link in links:
            machine.plug(link, "up")
