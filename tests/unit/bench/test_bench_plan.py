"""Several runs in one command: their order, the steps of a ramp, its knee, sizes of texts."""

from __future__ import annotations

from typing import Any

import pytest
from lab.bench import a_result

from wirespeed.bench.load import Load
from wirespeed.bench.plan import Plan, knee, loads, steps, with_text


def test_the_runs_of_two_targets_are_in_pairs_whose_order_changes() -> None:
    one, other = Load(calls=1), Load(calls=2)
    plan = Plan([one, other], rounds=3, sides=2)
    made = list(plan)
    assert len(made) == len(plan) == 12
    assert [run.side for run in made] == [0, 1, 1, 0] * 3
    assert [run.round for run in made] == [0] * 4 + [1] * 4 + [2] * 4
    assert [run.load for run in made] == [one, one, other, other] * 3


def test_the_steps_of_a_ramp_are_geometric_and_have_its_ends() -> None:
    assert steps(1000, 16_000, 5) == [1000, 2000, 4000, 8000, 16_000]
    assert steps(1000, 1234, 2) == [1000, 1234]
    found = steps(1, 1e6, 1000)
    assert found == sorted(set(found)) and found[0] == 1 and found[-1] == 1e6


@pytest.mark.parametrize(("low", "high", "n"), [(2, 1, 3), (1, 1, 3), (0, 5, 3), (1, 5, 1)])
def test_ramps_that_are_not(low: float, high: float, n: int) -> None:
    with pytest.raises(ValueError):
        steps(low, high, n)


def test_sweeps_are_combined_with_the_rates_innermost() -> None:
    made = loads([1.0, 2.0], [64, 128], [1, 10], calls=5)
    assert [(load.connections, load.bytes, load.rate) for load in made[:5]] == [
        *((1, 64, 1.0), (1, 64, 2.0), (1, 128, 1.0), (1, 128, 2.0), (10, 64, 1.0)),
    ]
    assert len(made) == 8


def test_a_text_without_a_size_gets_one() -> None:
    value: Any = {"a": "$text", "b": ["$text", "$text:5", "$$text", 1], "c": {"d": "$text"}}
    assert with_text(value, 7) == {
        "a": "$text:7",
        "b": ["$text:7", "$text:5", "$$text", 1],
        "c": {"d": "$text:7"},
    }


def test_the_knee_is_the_last_step_that_keeps_up() -> None:
    def ramp(*found: tuple[float, float, float]) -> int | None:
        return knee([a_result(rate=rate, asked=asked, p99=p99) for asked, rate, p99 in found])

    assert ramp((100, 100, 5), (200, 191, 6), (400, 370, 7)) == 1  # less than 95 %
    assert ramp((100, 100, 5), (200, 200, 6), (400, 400, 31)) == 1  # over five times the median
    assert ramp((100, 100, 5), (200, 200, 90), (400, 400, 7)) == 2  # one bad step before good ones
    assert ramp((100, 80, 5), (200, 90, 5)) is None
    assert ramp((100, 96, 5)) == 0
