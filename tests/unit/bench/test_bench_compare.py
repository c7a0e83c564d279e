"""Comparisons of runs: what chance explains, and what it does not."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from lab.bench import a_result

from wirespeed.bench.compare import compare, compare_all, differences
from wirespeed.bench.load import Cost, Latency, Load, Result, UsersResult, Window
from wirespeed.bench.recorder import OF_CALLS
from wirespeed.bench.report import as_csv, as_json, read_json


def noisy(rng: random.Random, slower: float = 1.0, noise: float = 0.05, **changes: Any) -> Result:
    """A run of 20 s of a server that needs 100 µs a call: each run has its own deviation, and each
    of its windows another one that is like that of its neighbour."""
    of_run = math.exp(rng.gauss(0, noise))
    windows, drift, total = [], 0.0, 0
    for t in range(1, 21):
        drift = 0.7 * drift + rng.gauss(0, 0.03)
        took = 100 * slower * of_run * math.exp(drift)
        windows.append(Window(float(t), int(1e6 / took), 0, took, 2 * took, 9 * took))
        total += windows[-1].ok
    took = 20e6 / total
    cost = total * slower * 80e-6 * math.exp(rng.gauss(0, 0.03))
    return a_result(
        total / 20,
        calls=total,
        seconds=20.0,
        latency_us=Latency(took, 1.5 * took, 2 * took, 5 * took, 9 * took, took),
        server=Cost(cost, 2**24),
        series=windows,
        **changes,
    )


def rounds(rng: random.Random, n: int, slower: float) -> list[Result]:
    """Two servers in turn, on a machine whose speed changes much from round to round."""
    found = []
    for number in range(n):
        drift = math.exp(rng.gauss(0, 0.4))
        for versus in (False, True):
            one = noisy(rng, drift * (slower if versus else 1), 0.02)
            found.append(msgspec.structs.replace(one, round=number, versus=versus))
    return found


def test_equals_have_no_difference_19_of_20_times() -> None:
    rng = random.Random(3)
    single = sum(compare([noisy(rng)], [noisy(rng)], paired=False).differs for _ in range(20))
    paired = sum(compare_all(rounds(rng, 5, 1.0), None)[0].differs for _ in range(20))
    assert single <= 1
    assert paired <= 1


def test_a_server_with_30_percent_more_work_is_found() -> None:
    rng = random.Random(4)
    found = [compare([noisy(rng)], [noisy(rng, 1.3)], paired=False) for _ in range(10)]
    assert sum(one.differs for one in found) >= 9
    assert all(one.figures["cpu"].verdict in ("higher", "no difference") for one in found)
    found = [compare_all(rounds(rng, 5, 1.3), None)[0] for _ in range(10)]
    assert sum(one.figures["rate"].verdict == "lower" for one in found) >= 9


def test_noise_between_runs_counts_which_windows_do_not_show() -> None:
    """Windows that are all alike say nothing about the next run."""
    rng = random.Random(5)
    one, other = noisy(rng, noise=0), noisy(rng, 1.1, noise=0)
    figure = compare([one], [other], paired=False).figures["rate"]
    assert figure.low < 1 < figure.high
    # pairs make the interval narrower; a crowded machine makes it wider
    pairs = compare_all(rounds(rng, 10, 1.1), None)[0].figures["rate"]
    assert pairs.high / pairs.low < figure.high / figure.low
    crowded = [
        msgspec.structs.replace(run, machine=run.machine | {"others": 0.5}) for run in (one, other)
    ]
    wide = compare(crowded[:1], crowded[1:], paired=False).figures["rate"]
    assert wide.high / wide.low > 1.5 * figure.high / figure.low


def test_a_figure_that_a_side_lacks_is_left_out() -> None:
    one = a_result(server=Cost(None, None))
    assert list(compare([one], [a_result()], paired=False).figures) == [
        "rate",
        "p50",
        "p99",
        "mean",
    ]
    nothing = a_result(rate=0.0, latency_us=Latency())
    assert compare([nothing], [a_result()], paired=False).figures == {}


def test_figures_that_nobody_measured_are_no_faults() -> None:
    strange = a_result(
        rate=-5.0,
        seconds=-1.0,
        machine={"others": -3},
        series=[Window(float(-t), t - 3, 0, -1.0, 0.0, 5.0) for t in range(20)],
        latency_histogram="x",
        server=Cost(0.0, 0),
    )
    assert list(compare([strange], [strange], paired=False).figures) == ["p50", "p99", "mean"]


def test_an_interval_of_a_short_run_on_a_busy_machine_is_a_float() -> None:
    busy = a_result(seconds=1e-3, machine={"others": 1.0}, calls=10**9, server=Cost(0.1, 0))
    found = compare([busy], [busy], paired=False)
    assert found.figures["cpu"].high < math.inf and not found.differs


def test_loads_are_compared_with_their_equals() -> None:
    loads = [Load(calls=5, bytes=size) for size in (64, 128, 256)]
    a = [a_result(load=load) for load in loads[:2]]
    b = [a_result(load=load) for load in loads[1:]]
    assert [one.load.bytes for one in compare_all(a, b)] == [128]
    assert len(compare_all(a[:1], b[1:])) == 1  # one load each: a warning says how they differ
    with pytest.raises(ValueError, match="no load in common"):
        compare_all(a[:1], b)
    with pytest.raises(ValueError, match="one target"):
        compare_all(a, None)
    both = [a_result(), a_result(versus=True)]
    with pytest.raises(ValueError, match="two targets"):
        compare_all(both, a)


def test_what_else_differs_is_said() -> None:
    one, other = a_result(), a_result()
    assert list(differences(one, other)) == []
    changed = msgspec.structs.replace(
        other,
        load=Load(duration=10.0, in_flight=1, seed=5),
        era="legacy",
        machine=other.machine | {"processors": 64, "others": 0.5},
        versions=other.versions | {"python": "3.14", "server": "server 2"},
    )
    assert list(differences(one, changed)) == [
        "the load differs: in_flight is 16 and 1",
        "the era differs: modern and legacy",
        "the machine differs: processors is 2 and 64",
        "the versions differ: python is 3.11 and 3.14",
        "the versions differ: server is server 1 and server 2",
    ]
    elsewhere = msgspec.structs.replace(
        other, target="./b", versions={**other.versions, "server": "b"}
    )
    assert list(differences(one, elsewhere)) == []


def test_reports_are_read_as_they_were_written() -> None:
    one = noisy(random.Random(1), round=3, versus=True)
    assert read_json(as_json([one], False)) == [one]
    assert read_json(as_json([one, one], True)) == [one, one]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        pytest.param(b"[" * 100_000, id="deep"),
        b"{}",
        b'{"runs": []}',
        b'{"runs": [{}]}',
        as_json([a_result(counts={})], False),
        as_json([a_result()], False)[:-5],
    ],
)
def test_files_that_are_not_reports(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(data)


def test_a_table_has_the_kinds_of_users() -> None:
    import csv

    counts = dict.fromkeys(OF_CALLS, 0) | {"ok": 7, "missing": 1}
    kinds = [UsersResult("agent", 8, counts, Latency(p50=5.0), progress=3)]
    text = as_csv([a_result(users=kinds), a_result()])
    one, two = csv.DictReader(text.splitlines(keepends=True))
    assert (one["user_agent_calls"], one["user_agent_ok"]) == ("8", "7")
    assert (one["user_agent_missing"], one["user_agent_p50_us"]) == ("1", "5.0")
    assert one["user_agent_progress"] == "3" and two["user_agent_calls"] == ""


def test_a_table_has_a_row_for_each_run() -> None:
    hostile = a_result(target='a,"b"\n', load=Load(calls=5, poisson=True, rate=5.0))
    other = a_result(server=Cost(None, None), machine={}, versions={"other": "1"})
    import csv

    text = as_csv([hostile, other])
    (one, two) = csv.DictReader(text.splitlines(keepends=True))
    assert one["target"] == 'a,"b"\n' and one["load_poisson"] == "1" and one["load_rate"] == "5.0"
    assert float(one["p99_us"]) == 200 and one["ok"] == "10000"
    assert two["server_cpu_seconds"] == two["processor"] == "" and two["other"] == "1"
