"""The times until a session is served again: from the fault of its host, and from when another
host has noticed that."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from clients import BROKEN, Places
from lab.hosts import Visitor
from seen import Fault, Run, Seen

# What a host logs when it takes another one for gone, or hears that it has left.
_NOTICED = re.compile(
    r"^(\S+) INFO wirespeed\.cluster: host (\w+) has left, or is lost$", re.MULTILINE
)


class Served(NamedTuple):
    """A session was served again. ``is_alone``: no other fault was felt since that of the host."""

    fault: Fault
    at: float
    nonce: str
    is_alone: bool


class Adoption(NamedTuple):
    """The adoption of a session, in seconds after the fault of its host, and in seconds after
    another host noticed the fault first. The second is None if no host noticed it."""

    kind: str
    is_alone: bool
    seconds: float
    after_notice: float | None


class Probe:
    """Has a session at a host, and asks the others for it all of the time.

    Attributes:
        served: Answers to the first request after each fault of the host.
    """

    def __init__(self, seen: Seen, ways: Places, host: str, others: Sequence[str]) -> None:
        self.served: list[Served] = []
        self._seen = seen
        self._ways = ways
        self._host = host
        self._others = others
        self._n = 0

    async def run(self) -> None:
        session = 0
        while not self._seen.is_over:
            session += 1
            who = f"probe-{self._host}/{session}"
            visitor = Visitor(self._ways)
            with contextlib.suppress(*BROKEN, KeyError):  # it may open none
                await visitor.initialize(self._host)
                fault = await self._next_fault()
                if fault is None:
                    break
                await self._ask_others(visitor, fault, who)
            self._seen.left(who)
            await asyncio.sleep(0.2)

    async def _next_fault(self) -> Fault | None:
        while self._host not in self._seen.open:
            if self._seen.is_over:
                return None
            await asyncio.sleep(0.05)
        return self._seen.open[self._host]

    async def _ask_others(self, visitor: Visitor, fault: Fault, who: str) -> None:
        """Ask until the session is served, or known to be lost."""
        while self._host in self._seen.open or time.monotonic() < fault.start + 10:
            others = [one for one in self._others if one not in self._seen.open]
            if others:
                self._n += 1
                nonce = f"{who}/{self._n}"
                with contextlib.suppress(*BROKEN):
                    async with asyncio.timeout(1):
                        to = self._seen.random.choice(others)
                        response = await visitor.call(to, "work", nonce=nonce)
                    now = time.monotonic()
                    if response.status == 200 and b"-31006" not in response.body:
                        felt = list(self._seen.touching(fault.start, now))
                        self.served.append(Served(fault, now, nonce, len(felt) == 1))
                        return
                    if response.status == 404:
                        return
            await asyncio.sleep(0.05)


def adoptions(
    probes: Iterable[Probe], runs: dict[str, Run], logs: Iterable[Path]
) -> list[Adoption]:
    """The adoptions that the probes saw: another host has answered. ``runs``: the runs of the
    probes, by nonce."""
    noticed = notices(logs)
    found = []
    for served in (one for probe in probes for one in probe.served):
        run = runs.get(served.nonce)
        if run is None or run.host == served.fault.host:
            continue  # the host itself is back
        of_host = [at for at in noticed.get(served.fault.host, ()) if at >= served.fault.start]
        first = min(of_host, default=served.at + 1)
        found.append(
            Adoption(
                served.fault.kind,
                served.is_alone,
                served.at - served.fault.start,
                served.at - first if first <= served.at else None,
            )
        )
    return found


def notices(logs: Iterable[Path]) -> dict[str, list[float]]:
    """When hosts noticed that another one has gone, by that one, in the monotonic clock."""
    found: dict[str, list[float]] = {}
    start = time.time() - time.monotonic()
    for log in logs:
        for moment, host in _NOTICED.findall(log.read_text()):
            at = datetime.fromisoformat(moment).timestamp() - start
            found.setdefault(host, []).append(at)
    return found
