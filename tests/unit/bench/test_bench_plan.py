"""Several runs in one command: their order, the steps of a ramp, its knee, sizes of texts."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from lab.bench import a_result

from wirespeed.bench.load import Cost, Latency, Load, Startup
from wirespeed.bench.merge import Part, merged, shares
from wirespeed.bench.plan import Plan, knee, loads, steps, with_text
from wirespeed.bench.recorder import Recorder
from wirespeed.bench.series import Series, encoded


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


def test_the_shares_of_processes_are_the_load() -> None:
    load = Load(connections=7, processes=3, calls=100, rate=10.0, warmup=5, seed=2**63 - 2)
    found = shares(load)
    assert [one.connections for one in found] == [3, 2, 2]
    assert sum(one.calls or 0 for one in found) == 100 and sum(one.warmup for one in found) == 5
    assert sum(one.rate or 0 for one in found) == pytest.approx(10)
    assert [one.seed for one in found] == [2**63 - 2, 2**63 - 1, 0]
    assert {one.processes for one in found} == {1}
    assert shares(Load(calls=5)) == [Load(calls=5)]
    with pytest.raises(ValueError, match="calls"):
        shares(Load(connections=2, processes=2, calls=1))


def part(values: list[int], cpu: float | None, *times: float) -> Part:
    """A process whose calls took these microseconds, a call in each window."""
    recorder, series = Recorder(), Series(None)
    for value, t in zip(values, times, strict=True):
        recorder.latency.add(value * 1000)
        series.take(recorder, t)
    calls = len(values)
    result = a_result(
        calls=calls,
        counts=a_result().counts | {"ok": calls},
        seconds=times[-1],
        latency_us=Latency(mean=sum(values) / calls),
        server=Cost(cpu, 1000),
        latency_histogram=encoded(recorder.latency),
        startup=Startup(float(calls), 1.0),
    )
    return Part(result, series, encoded(recorder.latency), 0, None)


def test_results_of_processes_are_one() -> None:
    load = Load(connections=2, processes=2, duration=3.0)
    parts = [part([10, 20, 30], 1.0, 1.01, 2.0, 3.04), part([40], 2.0, 1.0)]
    parts = pickle.loads(pickle.dumps(parts))
    result = merged(load, parts, 0.25)
    assert result.load == load and result.calls == result.counts["ok"] == 4
    assert result.seconds == 3.04 and result.rate == 4 / 3.04
    assert result.latency_us.mean == 25 and result.latency_us.max == pytest.approx(40, rel=1e-3)
    assert result.latency_us.p50 == pytest.approx(20, rel=1e-3)
    assert result.server == Cost(3.0, 2000) and result.machine["others"] == 0.25
    assert [window.ok for window in result.series] == [2, 1, 1]
    assert result.startup == Startup(3.0, 1.0)
    # one process measures those of --pid; none may know what the server costs
    assert merged(load, [parts[0], part([1], None, 1.0)], 0.5).server.cpu_seconds == 1.0
    unknown = merged(load, [part([1], None, 1.0), part([1], None, 1.0)], None)
    assert unknown.server.cpu_seconds is None and unknown.machine["others"] is None
