"""The parts of a run over its time."""

from __future__ import annotations

import tracemalloc

import pytest

from wirespeed.bench.recorder import Recorder
from wirespeed.bench.series import Series


def test_a_long_run_is_600_parts_of_equal_length() -> None:
    recorder, series = Recorder(), Series(None, 1200.0)
    for second in range(1, 1201):
        recorder.latency.add(1000 * second)
        series.take(recorder, float(second))
    windows = series.windows()
    assert [window.t for window in windows] == [2.0 * n for n in range(1, 601)]
    assert {window.ok for window in windows} == {2}
    # buckets of 2 %, of which the highest value counts
    assert [window.max for window in windows] == [
        pytest.approx(2.0 * n, rel=0.02) for n in range(1, 601)
    ]


def test_parts_with_latencies_of_all_sizes_take_little_memory() -> None:
    """A thousand latencies between 10 µs and 100 ms in each second."""
    recorder, series = Recorder(), Series(None)
    values = [int(10_000 * 10_000 ** (n / 1000)) for n in range(1000)]
    tracemalloc.start()
    try:
        for second in range(1, 601):
            for value in values:
                recorder.latency.add(value)
            series.take(recorder, float(second))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 12 * 2**20
