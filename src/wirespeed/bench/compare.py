"""A comparison of runs: ratios with intervals that chance alone seldom leaves.

The noise of a figure comes from the rounds of a run, by a bootstrap over them: of pairs, where two
targets were measured in turn. With few rounds the intervals are as much wider as Student's
distribution is than the normal one (the expanded percentile interval of Hesterberg, "What teachers
should know about the bootstrap", 2015).

One run cannot show how much the next one differs. Its noise within is that of its windows, by a
bootstrap of blocks of them, because neighbours are alike. To it comes `BETWEEN`, which grows with
the share of the machine that other processes took.

The interval of each figure is so wide that in 95 of 100 comparisons of equals all of them have the
ratio 1 inside.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist, fmean
from typing import Any

import msgspec
from hdrh.histogram import HdrHistogram

from wirespeed.bench.load import Load, Result, Window
from wirespeed.bench.report import by_load

# The share of equals for which all intervals have 1 inside.
CONFIDENCE = 0.95
# The standard deviation, as a share, of a figure between two runs of one server on a quiet machine
# with two processors, …
BETWEEN = {"rate": 0.06, "p50": 0.07, "p99": 0.25, "mean": 0.07, "cpu": 0.05}
# … of latencies of an open loop, where what waits makes others wait, …
_OPEN = {"p50": 0.25, "p99": 0.25, "mean": 0.25}
# … and how much of it comes to it for each part of the processors' time that others took, in the
# parts that they left. Processor time does not depend on them so much.
_CROWDED = {"cpu": 0.6}
_CROWDED_ELSE = 1.5
_MOST_OTHERS = 0.95
# Calls that come together share a wake-up of the server. How many do depends on the others, which
# matters for servers that need few microseconds for a call. This is the deviation in microseconds.
_WAKE_UP = 0.3
# Where a report does not say what others took.
_OTHERS_UNKNOWN = 0.25
# In a second the turns of a scheduler are about even: shorter runs differ more.
_EVEN = 1.0
_DRAWS = 2000
_MOST_LOG = 700.0  # whose exponential is a float
_MIN_ROUNDS = 3
_MIN_WINDOWS = 8
# Quantiles of Student's distribution at 0.995, from 2 degrees of freedom on.
_STUDENT = (9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169)

NO_DIFFERENCE = "no difference"

FIGURES: dict[str, Callable[[Result], float | None]] = {
    "rate": lambda result: result.rate,
    "p50": lambda result: result.latency_us.p50,
    "p99": lambda result: result.latency_us.p99,
    "mean": lambda result: result.latency_us.mean,
    "cpu": lambda result: cpu_of(result),
}


class Figure(msgspec.Struct, frozen=True):
    """A figure of two sides.

    Attributes:
        a, b: Calls a second, or microseconds; the geometric mean of the rounds.
        ratio: b / a.
        low, high: The interval of the ratio.
        verdict: Of b: ``higher``, ``lower`` or ``no difference``.
    """

    a: float
    b: float
    ratio: float
    low: float
    high: float
    verdict: str


class Comparison(msgspec.Struct, frozen=True):
    """Two sides with one load.

    Attributes:
        rounds: The number of runs of each side.
        figures: By their names in `FIGURES`; those that both sides have.
        differs: Whether an interval has not 1 inside.
    """

    load: Load
    a: str
    b: str
    rounds: tuple[int, int]
    figures: dict[str, Figure]
    differs: bool


def cpu_of(result: Result) -> float | None:
    """Return the server's processor time for a call, in microseconds; None: it is not known."""
    spent = result.server.cpu_seconds
    return spent / result.calls * 1e6 if spent and result.calls else None


def others_of(result: Result) -> float | None:
    """Return the share of the processors that other processes took; None: it is not known."""
    share = result.machine.get("others")
    return share if isinstance(share, int | float) else None


def compare(a: Sequence[Result], b: Sequence[Result], *, paired: bool) -> Comparison:
    """Compare runs of two sides.

    paired: The rounds were made in turn.
    """
    figures = {}
    alpha = (1 - CONFIDENCE) / len(FIGURES)
    for name, value in FIGURES.items():
        one, other = _logs(a, value), _logs(b, value)
        if one is None or other is None:
            continue
        rng = random.Random(name)  # the same files give the same intervals
        ratio = fmean(other) - fmean(one)
        if paired and len(one) == len(other) >= _MIN_ROUNDS:
            pairs = [there - here for here, there in zip(one, other, strict=True)]
            drawn = _of_rounds(pairs, rng)
        else:
            drawn = [
                there - here
                for here, there in zip(
                    _of_side(a, one, name, rng), _of_side(b, other, name, rng), strict=True
                )
            ]
        drawn.sort()
        at = int(alpha / 2 * _DRAWS)
        low, high = drawn[at], drawn[-1 - at]
        verdict = NO_DIFFERENCE if low <= 0 <= high else "higher" if ratio > 0 else "lower"
        a_value, b_value = _exp(fmean(one)), _exp(fmean(other))
        figures[name] = Figure(a_value, b_value, _exp(ratio), _exp(low), _exp(high), verdict)
    differs = any(figure.verdict != NO_DIFFERENCE for figure in figures.values())
    rounds = len(a), len(b)
    return Comparison(a[0].load, a[0].target, b[0].target, rounds, figures, differs)


def _exp(log: float) -> float:
    return math.exp(min(log, _MOST_LOG))


def compare_all(a: Sequence[Result], b: Sequence[Result] | None) -> list[Comparison]:
    """Compare the runs of two reports, each load with the same one; of one report: its two targets.

    ValueError: there are no two sides.
    """
    one = by_load(a)
    if b is None:
        if any(len(sides) < 2 for sides in one.values()):
            raise ValueError("it has runs of one target: give a second report")
        return [compare(sides[False], sides[True], paired=True) for sides in one.values()]
    other = by_load(b)
    for sides in (*one.values(), *other.values()):
        if len(sides) > 1:
            raise ValueError("a report with runs of two targets is compared alone")
    firsts = {load: _only(sides) for load, sides in one.items()}
    seconds = {load: _only(sides) for load, sides in other.items()}
    both = [load for load in firsts if load in seconds]
    if both:
        return [compare(firsts[load], seconds[load], paired=False) for load in both]
    if len(firsts) > 1 or len(seconds) > 1:
        raise ValueError("the reports have no load in common")
    return [compare(_only(firsts), _only(seconds), paired=False)]


def _only(items: dict[Any, list[Result]]) -> list[Result]:
    (found,) = items.values()
    return found


def differences(a: Result, b: Result) -> Iterator[str]:
    """Say what besides the target differs between two runs, and makes a comparison doubtful."""
    loads = [msgspec.structs.asdict(one.load) for one in (a, b)]
    for name, value in loads[0].items():
        if name != "seed" and loads[1][name] != value:
            yield f"the load differs: {name} is {value} and {loads[1][name]}"
    if a.era != b.era:
        yield f"the era differs: {a.era} and {b.era}"
    for name in ("processor", "processors", "system"):
        one, other = a.machine.get(name), b.machine.get(name)
        if one != other:
            yield f"the machine differs: {name} is {one} and {other}"
    for name in dict.fromkeys((*a.versions, *b.versions)):
        one, other = a.versions.get(name), b.versions.get(name)
        if one != other and (name != "server" or a.target == b.target):
            yield f"the versions differ: {name} is {one} and {other}"


# -- noise ----------------------------------------------------------------------------------------


def _logs(side: Sequence[Result], value: Callable[[Result], float | None]) -> list[float] | None:
    found = [value(result) for result in side]
    logs = [math.log(one) for one in found if one is not None and one > 0]
    return logs if len(logs) == len(found) else None


def _of_side(
    side: Sequence[Result], logs: list[float], name: str, rng: random.Random
) -> list[float]:
    """Draw a figure of one side, as it might have been."""
    if len(logs) >= _MIN_ROUNDS:
        drawn = _of_rounds(logs, rng)
    else:
        each = [_of_run(result, name, log, rng) for result, log in zip(side, logs, strict=True)]
        drawn = [fmean(one) for one in zip(*each, strict=True)]
    # rounds of one time do not show how another time differs
    between = fmean([_between(result, name) for result in side])
    return [one + rng.gauss(0, between) for one in drawn]


def _between(result: Result, name: str) -> float:
    """The standard deviation of a figure between runs as this one."""
    quiet = BETWEEN[name] if result.load.rate is None else _OPEN.get(name, BETWEEN[name])
    others = others_of(result)
    others = _OTHERS_UNKNOWN if others is None else min(max(others, 0.0), _MOST_OTHERS)
    crowd = others / (1 - others)
    cost = cpu_of(result)
    found = math.hypot(
        quiet * (1 + _CROWDED.get(name, _CROWDED_ELSE) * crowd),
        _WAKE_UP * crowd / cost if cost else 0,
    )
    return found * math.sqrt(1 + _EVEN / max(result.seconds, 1e-3))


def _of_rounds(logs: Sequence[float], rng: random.Random) -> list[float]:
    n, centre = len(logs), fmean(logs)
    normal = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / len(FIGURES) / 2)
    degrees = n - 1
    if degrees - 2 < len(_STUDENT):
        student = _STUDENT[degrees - 2]
    else:
        student = normal + (normal**3 + normal) / (4 * degrees)
    wider = student / normal * math.sqrt(n / degrees)
    return [centre + wider * (fmean(rng.choices(logs, k=n)) - centre) for _ in range(_DRAWS)]


def _of_run(result: Result, name: str, log: float, rng: random.Random) -> list[float]:
    """Draw a figure of one run, by its windows; of few windows, by its histogram."""
    windows = _windows(result)
    if name in ("rate", "p50", "p99") and len(windows) >= _MIN_WINDOWS:
        return _of_windows(windows, name, log, rng)
    deviation = _of_calls(result, name)
    return [log + rng.gauss(0, deviation) for _ in range(_DRAWS)]


def _windows(result: Result) -> list[tuple[float, Window]]:
    """The seconds of each window with an answer, and the window. The last one is a part of one."""
    found, before = [], 0.0
    for window in result.series[:-1]:
        if min(window.ok, window.p50, window.p99, window.t - before) > 0:
            found.append((window.t - before, window))
        before = window.t
    return found


def _of_windows(
    windows: list[tuple[float, Window]], name: str, log: float, rng: random.Random
) -> list[float]:
    """Draw blocks of neighbours, until there are as many windows as there were."""
    n = len(windows)
    size = max(1, round(n ** (1 / 3)))
    # sums over the block that begins at each window; the first follow the last
    values = [
        (window.ok, seconds if name == "rate" else window.ok * math.log(getattr(window, name)))
        for seconds, window in windows
    ]
    around = values + values[:size]
    blocks = [
        (sum(top for top, _ in around[i : i + size]), sum(low for _, low in around[i : i + size]))
        for i in range(n)
    ]

    def figure(drawn: Sequence[tuple[float, float]]) -> float:
        ok, other = sum(one for one, _ in drawn), sum(one for _, one in drawn)
        return math.log(ok / other) if name == "rate" else other / ok

    shift = log - figure(values)
    return [shift + figure(rng.choices(blocks, k=-(-n // size))) for _ in range(_DRAWS)]


def _of_calls(result: Result, name: str) -> float:
    """The standard deviation of a latency, if calls were independent of each other."""
    if name not in ("p50", "p99", "mean") or not result.latency_histogram:
        return 0.0
    try:
        histogram = HdrHistogram.decode(result.latency_histogram)
    except Exception:  # of hdrh, which has no class of its own for this
        return 0.0
    n = histogram.get_total_count()
    if not n:
        return 0.0
    if name == "mean":
        mean = histogram.get_mean_value()
        return histogram.get_stddev() / mean / math.sqrt(n) if mean else 0.0
    share = 0.5 if name == "p50" else 0.99
    off = math.sqrt(share * (1 - share) / n)
    low, high = (
        max(histogram.get_value_at_percentile(100 * min(max(at, 0.0), 1.0)), 1)
        for at in (share - off, share + off)
    )
    return math.log(high / low) / 2
