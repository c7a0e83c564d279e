"""Latencies over the time of a run, and their percentiles: hdrh merges and writes counts."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any, TypeAlias

from hdrh.histogram import HdrHistogram

from wirespeed.bench.load import Latency, Window
from wirespeed.bench.recorder import HIGHEST, Counts, Recorder

_MAX_WINDOWS = 600
_WINDOW = 1.0  # seconds, of a run that is not longer than `_MAX_WINDOWS` of them

Buckets = list[tuple[int, int]]
Watch = Callable[[float, Window], object]
# Buckets by the highest values, and their counts: a tenth of the memory of a dictionary.
_Packed: TypeAlias = "tuple[array[int], array[int]]"
_Part: TypeAlias = tuple[float, int, int, _Packed]


class Series:
    """A run in parts of equal length. When there are more than `_MAX_WINDOWS`, each two neighbours
    become one.

    Args:
        watch: Hears of each second.
        seconds: How long the run will last; None: until its calls are made.
    """

    def __init__(self, watch: Watch | None, seconds: float | None = None) -> None:
        self._watch = watch
        self._length = _WINDOW * max(ceil((seconds or 0.0) / _WINDOW / _MAX_WINDOWS), 1)
        self._parts: list[_Part] = []

    async def run(self, recorder: Recorder, began: float) -> None:
        """Take a part whenever its time is over."""
        n = 0
        while True:
            n += 1
            await asyncio.sleep(max(0.0, began + n * _WINDOW - time.monotonic()))
            self.take(recorder, time.monotonic() - began)

    def take(self, recorder: Recorder, t: float) -> None:
        """Take what was counted since the last time."""
        ok, errors, fine = recorder.take_window()
        buckets = _coarse(fine)
        parts = self._parts
        if parts and t - (parts[-2][0] if len(parts) > 1 else 0.0) <= self._length * 1.001:
            parts[-1] = _merged(parts[-1], (t, ok, errors, buckets))
        else:
            parts.append((t, ok, errors, buckets))
        if len(parts) > _MAX_WINDOWS:
            self._length *= 2
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            self._parts = [_merged(*pair) for pair in pairs] + odd
        if self._watch is not None:
            self._watch(t, _window(t, ok, errors, buckets))

    def join(self, other: Series) -> None:
        """Take what another process counted at the same time."""
        length = max(self._length, other._length)
        found: dict[int, _Part] = {}
        for part in sorted((*self._parts, *other._parts), key=lambda part: part[0]):
            # an end is seldom exact: a little above it belongs to it
            place = ceil(part[0] / length - 0.1)
            found[place] = _merged(found[place], part) if place in found else part
        self._parts = [found[place] for place in sorted(found)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_parts, (self._length, self._parts)

    def windows(self) -> list[Window]:
        """Return the parts."""
        return [_window(*part) for part in self._parts]


def _of_parts(length: float, parts: list[_Part]) -> Series:
    series = Series(None)
    series._length, series._parts = length, parts
    return series


def _coarse(buckets: Buckets) -> _Packed:
    """The same in buckets of at most 2 %: windows are kept as long as the run lasts."""
    found: dict[int, int] = {}
    for value, count in buckets:
        rest = max(value.bit_length() - 7, 0)
        highest = value | ((1 << rest) - 1)
        found[highest] = found.get(highest, 0) + count
    return _packed(found)


def _packed(found: dict[int, int]) -> _Packed:
    return array("Q", found), array("Q", found.values())


def _merged(one: _Part, other: _Part) -> _Part:
    buckets = dict(zip(*one[3], strict=True))
    for value, count in zip(*other[3], strict=True):
        buckets[value] = buckets.get(value, 0) + count
    return other[0], one[1] + other[1], one[2] + other[2], _packed(buckets)


def _window(t: float, ok: int, errors: int, buckets: _Packed) -> Window:
    p50, p99, highest = _percentiles(zip(*buckets, strict=True), (50.0, 99.0, 100.0))
    return Window(t, ok, errors, p50, p99, highest)


def encoded(counts: Counts) -> str:
    """Return counts in the form in which programs exchange HDR histograms."""
    histogram = HdrHistogram(1, HIGHEST, 3)
    for value, count in counts.items():
        histogram.record_value(value, count)
    return str(histogram.encode().decode())


def _percentiles(buckets: Iterable[tuple[int, int]], wanted: Sequence[float]) -> list[float]:
    """Return percentiles in microseconds, in rising order; 0 without a value. No histogram of hdrh
    is made for this: one has 270 KiB, and only the garbage collector frees it."""
    ordered = sorted(buckets)
    total = sum(count for _, count in ordered)
    found = []
    rest = iter(ordered)
    value = below = 0
    for percent in wanted:
        rank = max(int(total * percent / 100 + 0.5), 1)  # as hdrh
        while below < rank <= total:
            value, count = next(rest)
            below += count
        found.append(value / 1000)
    return found


def latency_of(counts: Counts) -> Latency:
    """Return the percentiles of counts of nanoseconds."""
    if not counts.total:
        return Latency()
    found = _percentiles(counts.items(), (50.0, 90.0, 99.0, 99.9, 100.0))
    p50, p90, p99, p999, highest = found
    return Latency(p50, p90, p99, p999, highest, counts.sum / counts.total / 1000)
