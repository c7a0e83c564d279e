"""Summaries of ``wirespeed bench``: histograms, and what makes figures doubtful."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from lab.bench import a_result
from lab.rows import every
from rich.console import Console

from wirespeed.bench.load import Latency, Load, ToolCost
from wirespeed.bench.recorder import Counts
from wirespeed.bench.series import encoded
from wirespeed.cli.bench.live import sparkline
from wirespeed.cli.bench.summary import histogram, title, warnings


def rows(*micro: float) -> list[str]:
    counts = Counts()
    for value in micro:
        counts.add(int(value * 1000))
    return [str(line).strip() for line in histogram(a_result(latency_histogram=encoded(counts)))]


def test_a_histogram_has_round_limits_and_all_calls() -> None:
    assert rows(*[90] * 60, *[150] * 30, *[4000] * 9, 1_500_000) == [
        "≤ 100 µs   60.0%  " + "■" * 40,
        "≤ 200 µs   30.0%  " + "■" * 20,
        "≤ 500 µs       0",
        "≤ 1 ms       0",
        "≤ 2 ms       0",
        "≤ 5 ms    9.0%  " + "■" * 6,
        *("≤ 10 ms       0", "≤ 20 ms       0", "≤ 50 ms       0", "≤ 100 ms       0"),
        *("≤ 200 ms       0", "≤ 500 ms       0", "≤ 1 s       0", "≤ 2 s    1.0%  ■"),
    ]


def test_a_narrow_histogram_has_finer_limits() -> None:
    assert rows(*[11] * 5, *[13] * 4, 19) == [
        *("≤ 12 µs   50.0%  " + "■" * 40, "≤ 14 µs   40.0%  " + "■" * 32),
        *("≤ 17 µs       0", "≤ 20 µs   10.0%  " + "■" * 8),
    ]
    assert rows(5) == ["≤ 5 µs  100.0%  " + "■" * 40]
    assert histogram(a_result()) == []


@every(
    ("changes", "says"),
    [
        ({}, []),
        ({"tool": ToolCost(9.0, 0)}, ["this program was busy"]),
        ({"tool": ToolCost(9.0, 0), "load": Load(connections=2, processes=2, calls=5)}, []),
        ({"tool": ToolCost(1.0, 20)}, ["20 calls began over a millisecond late"]),
        ({"tool": ToolCost(1.0, 1), "calls": 500}, ["1 call began over a millisecond late"]),
        ({"machine": {"others": 0.5}}, ["other processes took over a fifth"]),
        (
            {"load": Load(calls=5, rate=5.0), "latency_us": Latency(p99=900.0)},
            ["calls waited for the server"],
        ),
    ],
)
def test_doubts(changes: dict[str, Any], says: list[str]) -> None:
    result = msgspec.structs.replace(a_result(), **changes)
    found = warnings([result])
    assert len(found) == len(says)
    assert all(text.startswith(start) for text, start in zip(found, says, strict=True))
    twice = warnings([result, a_result(), result])
    assert len(twice) == len(says) and all(text.startswith("in 2 runs: ") for text in twice)


def test_curves_of_blocks() -> None:
    assert sparkline(deque([0.0, 1.0, 4.0, 8.0])) == "▁▂▅█"
    assert sparkline(deque([0.0])) == sparkline(deque()) == ""


def test_a_long_target_is_cut_at_its_begin() -> None:
    out = Console(width=40)
    line = title(out, "A  ", f"{'/folder' * 10}/server", "  stdio, legacy").plain
    assert len(line) == 40
    assert line.startswith("A  ") and line.endswith("/server  stdio, legacy")
    assert title(out, "A  ", "server", "  stdio").plain == "A  server  stdio"
