"""Latencies as text: exact percentiles, and a histogram of text bars."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10

PERCENTILES = (50.0, 90.0, 99.0)

# The edges within a decade: round numbers with about equal distances on a log scale.
_STEPS = (
    *(1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8),
    *(3.15, 3.55, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0),
)
_STRIDES = (1, 2, 4, 10, 20)
# Values above this percentile share the last row, so that one straggler does not flatten the rest.
_TAIL = 98.0
_EIGHTHS = " ▏▎▍▌▋▊▉"


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of values that are sorted and not empty."""
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)]


def bins(ordered: Sequence[float], rows: int) -> list[tuple[float, float, int]]:
    """Return at most ``rows`` rows (low, high, count) that count each value once: low <= v < high.

    The values are sorted, positive and not empty; ``rows`` is at least 2. The steps are as fine as
    the number of rows allows. The few largest values share the last row, which ends at the largest.
    """
    largest = ordered[-1]
    usual = percentile(ordered, _TAIL)
    edges: list[float] = []
    for stride in _STRIDES:
        edges = _edges(ordered[0], usual, stride)
        if len(edges) - 1 < rows:
            break
    edges = edges[:rows]
    if edges[-1] <= largest:
        edges.append(largest)
    found = []
    before = 0
    for row, (low, high) in enumerate(pairwise(edges), start=2):
        # the last row includes the largest value
        upto = len(ordered) if row == len(edges) else bisect_left(ordered, high)
        found.append((low, high, upto - before))
        before = upto
    return found


def _edges(smallest: float, largest: float, stride: int) -> list[float]:
    """Return edges: the first is at most the smallest value, the last is above the largest."""
    steps = _STEPS[::stride]
    at = floor(log10(smallest)) * len(steps)
    if _edge(at, steps) > smallest:  # log10 rounds
        at -= 1
    while _edge(at + 1, steps) <= smallest:
        at += 1
    edges = [_edge(at, steps)]
    while edges[-1] <= largest:
        at += 1
        edges.append(_edge(at, steps))
    return edges


def _edge(at: int, steps: Sequence[float]) -> float:
    decade, step = divmod(at, len(steps))
    return float(f"{steps[step]}e{decade}")


def bar(share: float, width: int, *, blocks: bool) -> str:
    """Return a bar of at most ``width`` characters. It is not empty if the share is above 0."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    if not blocks:
        return "#" * max(round(eighths / 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
