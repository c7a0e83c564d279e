"""The runs of one command: steps of a rate, sizes, numbers of connections, rounds, two targets in
turn.

A ramp has geometric steps: each is the one before it times the same factor, so that a knee is
found as exactly at its low end as at its high one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from wirespeed.bench.load import Load, Result

# A step of a ramp keeps up if it has this share of its rate, …
KEPT = 0.95
# … and if its 99th percentile is at most this multiple of the median of the earlier steps' ones.
JUMP = 5.0


@dataclass(frozen=True)
class Planned:
    """A run that is to be made.

    Attributes:
        side: The target: 0 for the first one, 1 for that of ``--versus``.
    """

    load: Load
    round: int
    side: int


@dataclass(frozen=True)
class Plan:
    """The runs of a command.

    Attributes:
        loads: The different loads, each of which is made in each round.
        rounds: How often.
        sides: The number of targets, 1 or 2. With two the runs are in pairs, whose order changes.
    """

    loads: Sequence[Load]
    rounds: int = 1
    sides: int = 1

    def __len__(self) -> int:
        return len(self.loads) * self.rounds * self.sides

    def __iter__(self) -> Iterator[Planned]:
        pair = 0
        for number in range(self.rounds):
            for load in self.loads:
                sides = range(self.sides)
                for side in sides if pair % 2 == 0 else reversed(sides):
                    yield Planned(load, number, side)
                pair += 1


def steps(low: float, high: float, n: int) -> list[float]:
    """Return the n rates of a ramp, with three digits each. ValueError: the ends or n are wrong."""
    if not 0 < low < high:
        raise ValueError("a ramp goes up, as in 1k..20k")
    if not 2 <= n <= 1000:
        raise ValueError("a ramp has 2 to 1,000 steps")
    inner = (float(f"{low * (high / low) ** (i / (n - 1)):.3g}") for i in range(1, n - 1))
    return list(dict.fromkeys((low, *inner, high)))


def loads(
    rates: Sequence[float | None],
    sizes: Sequence[int | None],
    connections: Sequence[int],
    **fields: Any,
) -> list[Load]:
    """Return each combination, the rates in the innermost loop. ValueError: as of `Load`."""
    return [
        Load(connections=number, bytes=size, rate=rate, **fields)
        for number in connections
        for size in sizes
        for rate in rates
    ]


def with_text(value: Any, size: int) -> Any:
    """Return arguments with texts of a size in place of ``"$text"``."""
    if isinstance(value, dict):
        return {key: with_text(item, size) for key, item in value.items()}
    if isinstance(value, list):
        return [with_text(item, size) for item in value]
    return f"$text:{size}" if value == "$text" else value


def knee(ramp: Sequence[Result]) -> int | None:
    """Return the index of the last step of a ramp that keeps up; None: none does.

    A step keeps up if its rate is at least `KEPT` of what was asked, and its 99th percentile at
    most `JUMP` times the median of those of the steps before it that keep up.
    """
    found = None
    before: list[float] = []
    for i, step in enumerate(ramp):
        p99 = step.latency_us.p99
        if step.load.rate is None or step.rate < KEPT * step.load.rate:
            continue
        if before and p99 > JUMP * median(before):
            continue
        before.append(p99)
        found = i
    return found
