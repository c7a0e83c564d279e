"""What the clients of the chaos saw, what the hosts noted, and what of it is wrong."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stores import EMPTIED, OLDER, PROMOTED

LIFETIME = 16.0  # seconds that a session lives without use: keys are gone soon after the end
RETURN = 5.0  # seconds until all hosts notice that the store or a host is back
UNSAID = 1.0  # seconds of writes that a replica may lack when it is promoted
# What the outcome of a request means, by its beginning.
MEANINGS = {
    "answered": "answered",
    "cancelled": "cancelled",
    "status 50": "refused",
    "error -31001": "refused",
    "error -31007": "refused",
}


class Fault(NamedTuple):
    """A fault, from when to when. ``host``: "" for the store."""

    kind: str
    host: str
    start: float
    end: float = math.inf

    def touches(self, start: float, end: float) -> bool:
        """Whether it is felt in a time."""
        return self.start < end and start < self.end + RETURN


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

    Args:
        seed: Of what clients do.
        lives_return: Whether a host has the same life of a session again, as a proxy does whose
            clients share a server.

    Attributes:
        outcomes: How often each outcome was seen.
        calls: How requests ended that were made during a fault, or soon after it, by its kind; and
            without any fault, below "".
        n_wrong: How much was that must not be.
        faults: Those that are over.
        open: Those that are not, by host.
    """

    def __init__(self, seed: int, *, lives_return: bool = False) -> None:
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.calls: dict[str, Counter[str]] = defaultdict(Counter)
        self.n_wrong = 0
        self.faults: list[Fault] = []
        self.open: dict[str, Fault] = {}
        self.is_over = False
        self._lives_return = lives_return
        self._runs: dict[str, list[Run]] = defaultdict(list)  # by session
        self._gone: dict[str, float] = {}  # sessions whose client left, and when

    def note(self, text: str) -> None:
        """Tell at once what must not be, so that it stands beside the faults of its time."""
        print(f"{time.monotonic():.2f} WRONG: {text}", flush=True)
        self.n_wrong += 1

    def over(self, host: str) -> Fault:
        """The fault of a host is over."""
        fault = self.open.pop(host)._replace(end=time.monotonic())
        self.faults.append(fault)
        return fault

    def touching(self, start: float, end: float) -> Iterator[Fault]:
        """The faults that are felt in a time."""
        for fault in itertools.chain(self.open.values(), reversed(self.faults)):
            if fault.touches(start, end):
                yield fault
            elif fault.end + 120 < start:
                break  # earlier ones ended before, too

    def ended(self, since: float, outcome: str) -> None:
        """A request has an outcome."""
        self.outcomes[outcome] += 1
        meaning = "lost"
        for text, one in MEANINGS.items():
            if outcome.startswith(text):
                meaning = one
        kinds = {fault.kind for fault in self.touching(since, time.monotonic())}
        for kind in kinds or {""}:
            self.calls[kind][meaning] += 1

    def left(self, who: str) -> None:
        """A client has ended its session: nothing of it runs any more."""
        self._gone[who] = time.monotonic()

    def may_be_lost(self, asked: float, answered: float, used: float) -> bool:
        """Whether hosts may have lost what one of them answered between two times: the store was
        emptied since, lost its last writes, or no host may have reached it then; and a host was
        away too. Or no host has answered since ``used``, and the session has ended by its time.
        """
        now = time.monotonic()
        if now - used > LIFETIME:
            return True
        stores = [
            fault
            for fault in self.touching(asked - UNSAID, now)
            if not fault.host
            and (
                fault.kind == EMPTIED
                or fault.start - (UNSAID if fault.kind in (*PROMOTED, OLDER) else 0.0) < answered
            )
        ]
        return any(
            host.host and host.touches(store.start, store.end + RETURN)
            for store in stores
            for host in self.touching(store.start, now)
        )

    # -- what ran ----------------------------------------------------------------------------------

    def ran(self, run: Run) -> None:
        """A handler ran."""
        self.outcomes["runs"] += 1
        self._runs[run.session].append(run)

    def judge(self, seconds: float = 0.0) -> None:
        """Judge the runs of sessions whose clients left so long ago, and forget these: each request
        ran once at most, and a session had one owner at a time."""
        until = time.monotonic() - seconds
        for session in [one for one, left in self._gone.items() if left <= until]:
            del self._gone[session]
            runs = self._runs.pop(session, [])
            for nonce, n in Counter(run.nonce for run in runs).items():
                if n > 1:
                    self.note(f"{nonce} ran {n} times")
            self._judge_owners(session, sorted(run for run in runs if run.life))

    def judge_all(self) -> None:
        """Judge the runs of all sessions."""
        self._gone = dict.fromkeys([*self._gone, *self._runs], 0.0)
        self.judge()

    def _judge_owners(self, session: str, runs: list[Run]) -> None:
        last: dict[str, Run] = {}  # of each life
        previous: Run | None = None
        for run in runs:
            if previous is None or run.life != previous.life:
                self.outcomes["owners"] += 1
                before = last.get(run.life)
                if (
                    previous is not None
                    and before is not None
                    and not self._may_return(before, run)
                ):
                    self.note(
                        f"{session} has two owners: {before.host} {before.life[:6]} ran "
                        f"{before.nonce} at {before.at:.3f} and {run.nonce} at {run.at:.3f}, "
                        f"{previous.host} {previous.life[:6]} ran {previous.nonce} at "
                        f"{previous.at:.3f}"
                    )
            last[run.life] = previous = run

    def _may_return(self, before: Run, run: Run) -> bool:
        """Whether a session may have gone to another host and come back between two runs."""
        hosts = {fault.host for fault in self.touching(before.at, run.at)}
        return self._lives_return and len(hosts) > 1


class Journals:
    """The journals of hosts: a line for each run of a handler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # bytes

    def read(self) -> list[Run]:
        """The runs that were noted since the last time."""
        found = []
        for file in self._folder.glob("*.journal"):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                data = lines.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            for line in whole.decode().splitlines():
                at, host, life, nonce = line.split(" ")
                found.append(Run(float(at), host, life, nonce))
        return found
