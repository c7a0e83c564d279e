"""Faults at random, and distributions of times."""

from __future__ import annotations

import random
import statistics

import pytest
from lab.rows import every

from wirespeed.bench.faults import Delay, Faults


@every(
    ("text", "mean", "deviation"),
    [
        ("5ms", 5e-3, 0),
        ("1.5s", 1.5, 0),
        ("40us", 40e-6, 0),
        ("5ms±1ms", 5e-3, 1e-3),
        ("5ms±1", 5e-3, 1e-3),
        ("5ms+-1ms", 5e-3, 1e-3),
        ("exp:5ms", 5e-3, 5e-3),
        ("uniform:1ms..9ms", 5e-3, 8e-3 / 12**0.5),
    ],
)
def test_times_have_the_distribution_that_is_written(
    text: str, mean: float, deviation: float
) -> None:
    delay, source = Delay(text), random.Random(7)
    times = [delay.draw(source) for _ in range(4000)]
    assert min(times) >= 0
    assert statistics.fmean(times) == pytest.approx(mean, rel=0.06)
    assert statistics.pstdev(times) == pytest.approx(deviation, rel=0.06)


def test_a_time_is_never_below_0() -> None:
    delay, source = Delay("1ms±5ms"), random.Random(7)
    assert min(delay.draw(source) for _ in range(100)) == 0


@every(
    ("text", "reason"),
    [
        ("", "is not a time"),
        ("5", "is not a time"),
        ("-5ms", "is not a time"),
        ("5ms±", "is not a time"),
        ("5±2ms", "is not a time"),
        ("5ms±2ms±1ms", "is not a time"),
        ("exp:", "is not a time"),
        ("gamma:5ms", "is not a time"),
        ("uniform:1ms", "is not a time"),
        ("uniform:9ms..1ms", "9ms is more than 1ms"),
        ("2000h", "is not a time"),
        ("4000s", "at most an hour"),
    ],
)
def test_what_is_no_time_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Delay(text)


def test_each_message_meets_one_fate_with_its_probability() -> None:
    faults = Faults("drop=0.1,duplicate=0.2, cut=0.05,delay=1ms", seed=3)
    source = faults.source(1, "client")
    found = [faults.next(source) for _ in range(4000)]
    counts = faults.counts
    assert counts["pass"] + counts["drop"] + counts["duplicate"] + counts["cut"] == 4000
    assert counts["drop"] == pytest.approx(400, rel=0.15)
    assert counts["duplicate"] == pytest.approx(800, rel=0.15)
    assert counts["cut"] == pytest.approx(200, rel=0.25)
    assert counts["delay"] == 4000 - counts["drop"]
    assert {seconds for fate, seconds in found if fate != "drop"} == {0.001}


def test_the_seed_repeats_the_faults_of_each_direction() -> None:
    def fates(seed: int, connection: int, direction: str) -> list[str]:
        faults = Faults("drop=0.5", seed)
        source = faults.source(connection, direction)
        return [faults.next(source)[0] for _ in range(64)]

    first = fates(1, 1, "client")
    assert first == fates(1, 1, "client")
    others = [fates(2, 1, "client"), fates(1, 2, "client"), fates(1, 1, "server")]
    assert first not in others
