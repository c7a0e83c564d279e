"""What the clients of the chaos saw, what the hosts noted, and what of it is wrong."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LIFETIME = 16.0  # seconds that a session lives without use: keys are gone soon after the end
RETURN = 5.0  # seconds until all hosts notice that the store or a host is back
EMPTIED = "the store restarts empty"


class Fault(NamedTuple):
    """A fault, from when to when. ``host``: "" for the store."""

    kind: str
    host: str
    start: float
    end: float


class Run(NamedTuple):
    """A run of a handler, as its host noted it. ``life``: of the session, with this owner; empty
    without a session."""

    at: float
    host: str
    life: str
    nonce: str

    @property
    def session(self) -> str:
        return self.nonce.rpartition("/")[0]


class Seen:
    """What was seen.

    Attributes:
        outcomes: How often each outcome was seen.
        wrong: What must not be.
        faults: Those that are over.
        open: Those that are not, by host.
        adopted: Seconds from a fault to the first answer of another owner, by kind.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.faults: list[Fault] = []
        self.open: dict[str, tuple[str, float]] = {}
        self.adopted: dict[str, list[float]] = defaultdict(list)
        self.is_over = False
        self._ended: Counter[str] = Counter()

    def ended(self, nonce: str, outcome: str) -> None:
        """A request has an outcome."""
        self.outcomes[outcome] += 1
        self._ended[nonce] += 1
        if self._ended[nonce] > 1:
            self.wrong.append(f"{nonce} has two outcomes")

    def may_be_lost(self, asked: float, answered: float, used: float) -> bool:
        """Whether hosts may have lost what one of them answered between two times: the store was
        emptied since, or no host may have reached it then; and a host was away too. Or no host has
        answered since ``used``, and the session has ended by its time.
        """
        now = time.monotonic()
        if now - used > LIFETIME:
            return True
        faults = [*self.faults, *(Fault(k, h, at, now) for h, (k, at) in self.open.items())]
        return any(
            store.end + RETURN > asked
            and (store.kind == EMPTIED or store.start < answered)
            and host.start < store.end + RETURN
            and host.end + RETURN > store.start
            for store, host in itertools.product(faults, faults)
            if host.host and not store.host
        )

    def judge(self, runs: Iterable[Run]) -> None:
        """Judge what the hosts noted: each request ran once at most, and a session had one owner at
        a time."""
        nonces: Counter[str] = Counter()
        lives: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
        for run in runs:
            nonces[run.nonce] += 1
            if run.life:
                lives[run.session][run.life].append(run)
        self.wrong += [f"{nonce} ran {n} times" for nonce, n in nonces.items() if n > 1]
        self.outcomes["runs"] += len(nonces)
        for session, found in lives.items():
            spans = sorted((min(r), max(r)) for r in found.values())
            self.outcomes["owners"] += len(spans)
            for (_, last), (first, _) in itertools.pairwise(spans):
                if last.at >= first.at:
                    self.wrong.append(
                        f"{session} has two owners: {last.host} {last.life[:6]} ran {last.nonce} "
                        f"at {last.at:.3f}, {first.host} {first.life[:6]} since {first.at:.3f}"
                    )


def runs_of(journals: Iterable[Path]) -> list[Run]:
    """The runs that hosts noted."""
    found = []
    for journal in journals:
        for line in journal.read_text().splitlines():
            at, host, life, nonce = line.split(" ")
            found.append(Run(float(at), host, life, nonce))
    return found
