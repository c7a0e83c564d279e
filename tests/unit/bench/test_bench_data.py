"""Arguments of loads, counts of latencies, loads as data."""

from __future__ import annotations

import json
import random
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every

from wirespeed.bench.arguments import MAX_TEXT, Arguments
from wirespeed.bench.load import Load
from wirespeed.bench.recorder import HIGHEST, Counts, Recorder

VALUES = st.integers(0, HIGHEST)


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_a_bucket_is_at_most_a_thousandth_wide(values: list[int]) -> None:
    counts = Counts()
    for value in values:
        counts.add(value)
    assert counts.total == len(values) == sum(count for _, count in counts.items())
    assert counts.sum == pytest.approx(sum(values))
    left = sorted(values)
    for highest, count in counts.items():
        for value in left[:count]:
            assert value <= highest <= value * 1.001
        del left[:count]


def test_values_that_are_no_times_count_as_the_nearest() -> None:
    counts = Counts()
    counts.add(-5)
    counts.add(2 * HIGHEST)
    (least, _), (most, _) = counts.items()
    assert least == 0 and most >= HIGHEST


def test_hdr_reads_what_was_counted() -> None:
    rng = random.Random(7)
    values = [int(rng.lognormvariate(11, 2)) for _ in range(20_000)]
    counts, histogram = Counts(), HdrHistogram(1, HIGHEST, 3)
    for value in values:
        counts.add(value)
    for value, count in counts.items():
        histogram.record_value(value, count)
    values.sort()
    for percent in (50, 90, 99, 99.9):
        exact = values[ceil(len(values) * percent / 100) - 1]
        assert histogram.get_value_at_percentile(percent) == pytest.approx(exact, rel=0.003)


def test_windows_are_what_was_counted_between_them() -> None:
    recorder = Recorder()
    recorder.latency.add(5)
    recorder.count("wrong")
    recorder.count("late")
    assert recorder.take_window() == (1, 1, [(5, 1)])
    assert recorder.take_window() == (0, 0, [])
    recorder.latency.add(5)
    recorder.latency.add(6)
    assert recorder.take_window() == (2, 0, [(5, 1), (6, 1)])


def test_placeholders(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text('line\n"é"')
    template = Arguments(
        {
            "n": "$n",
            "text": "$text:100",
            "one": '$choice:a|"b|ü',
            "file": f"$file:{path}",
            "dollar": "$$n",
            "deep": [{"x": ["$n", 1.5, None, True]}],
        },
        "one",
    )
    seen = set()
    for n in (0, 7, 10**12):
        text, expected = template.render(n)
        value = json.loads(text)
        assert value["n"] == n and value["deep"] == [{"x": [n, 1.5, None, True]}]
        assert len(value["text"]) == 100
        assert value["file"] == 'line\n"é"' and value["dollar"] == "$n"
        assert value["one"] == expected and expected in ("a", '"b', "ü")
        assert b"\n" not in text
        seen.add(value["text"])
    assert len(seen) == 3


@every(
    ("value", "expected"),
    [
        ("$n", "5"),
        ("constant", "constant"),
        ('"quoted\\', '"quoted\\'),
        ("$$n", "$n"),
        (12, "12"),
        (True, "true"),
        (1.5, "1.5"),
    ],
)
def test_what_is_expected_back(value: Any, expected: str) -> None:
    assert Arguments({"x": value}, "x").render(5)[1] == expected


@every(
    ("value", "expect"),
    [
        ({"x": "$"}, None),
        ({"x": "$n:3"}, None),
        ({"x": "$text"}, None),
        ({"x": "$text:0"}, None),
        ({"x": "$text:1e3"}, None),
        ({"x": "$text:99999999999"}, None),
        ({"x": "$text:" + "9" * 5000}, None),
        ({"x": "$choice:"}, None),
        ({"x": ["$other"]}, None),
        ({"x": 1}, "y"),
        ({"x": [1]}, "x"),
    ],
)
def test_templates_that_are_not(value: Any, expect: str | None) -> None:
    with pytest.raises(ValueError, match=r"argument|placeholder|takes|expected back"):
        Arguments(value, expect)


def test_only_regular_files_up_to_a_size_are_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"not a regular file: '/dev/zero'"):
        Arguments({"x": "$file:/dev/zero"})
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MAX_TEXT + 1)
    with pytest.raises(OSError, match="more than 64 MiB"):
        Arguments({"x": f"$file:{large}"})
    large.write_text("x" * 5_000_000)
    assert len(Arguments({"x": f"$file:{large}"}).render(0)[0]) > 5_000_000


def test_a_seed_repeats_the_values() -> None:
    made = [Arguments({"t": "$text:200"}, None, seed).render(1) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


@every(
    "fields",
    [
        {},
        {"calls": 1, "duration": 1.0},
        {"calls": 0},
        {"calls": 10**12 + 1},
        {"calls": 1, "warmup": 2**63},
        {"calls": 1, "connections": 0},
        {"calls": 1, "in_flight": 0},
        {"calls": 1, "in_flight": 2**20},
        {"calls": 1, "rate": 0.0},
        {"calls": 1, "poisson": True},
        {"calls": 1, "rate": 5.0, "think": 1.0},
        {"calls": 1, "timeout": 0.0},
        {"duration": -1.0},
    ],
)
def test_loads_that_are_not(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Load(**fields)
