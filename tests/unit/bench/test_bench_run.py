"""Runs of loads on servers with one fault each: each call is counted once, as what became of it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from lab.raw import CHILDREN

from wirespeed import Server, Stdio
from wirespeed.bench.arguments import Arguments
from wirespeed.bench.driver import Work
from wirespeed.bench.load import Load, Result
from wirespeed.bench.recorder import OF_CALLS, OUTCOMES
from wirespeed.bench.run import Run
from wirespeed.client.targets import as_target
from wirespeed.types import Text

ECHO = {"text": "$text:64"}


def faulty(fault: str, every: int, seconds: float = 0) -> Stdio:
    path = str(CHILDREN / "faulty_server.py")
    return Stdio(sys.executable, ["-S", path, fault, str(every), str(seconds)])


async def measured(target: Any, expect: str | None = "text", **load: Any) -> Result:
    load = {"calls": 2000, "in_flight": 16, "warmup": 0} | load
    work = Work("echo", Arguments(dict(ECHO), expect))
    return await Run(as_target(target), work, Load(**load)).measure()


def counted(result: Result) -> dict[str, int]:
    assert list(result.counts) == list(OUTCOMES)
    assert result.calls == sum(result.counts[name] for name in OF_CALLS)
    return {name: count for name, count in result.counts.items() if count}


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        ("none", {"ok": 2000}),
        ("drop", {"ok": 1996, "missing": 4}),
        ("twice", {"ok": 2000, "duplicate": 4}),
        ("corrupt", {"ok": 1996, "wrong": 4}),
        ("other-id", {"ok": 1996, "missing": 4, "unexpected": 4}),
        ("error", {"ok": 1996, "protocol_errors": 4}),
        ("busy", {"ok": 1996, "refused": 4}),
        ("tool-error", {"ok": 1996, "tool_errors": 4}),
        ("garbage", {"ok": 2000, "unexpected": 4}),
        ("delay", {"ok": 1996, "missing": 4, "late": 4}),
    ],
)
def test_each_fault_is_counted_as_what_it_is(run: Any, fault: str, counts: dict[str, int]) -> None:
    # an answer is late after half a second, and the run waits for it as long again
    result = run(measured(faulty(fault, 500, 0.8), timeout=0.5))
    assert counted(result) == counts
    assert sum(window.ok for window in result.series) == counts["ok"]


def test_a_server_that_dies_is_started_again_and_costs_the_calls_that_it_had(run: Any) -> None:
    # each process answers 499 calls: the first one's fault, and so on
    result = run(measured(faulty("exit", 500), calls=1200, in_flight=1))
    assert counted(result) == {"ok": 1198, "missing": 2, "connection_losses": 2}


def test_a_stall_shows_in_an_open_loop_and_hides_in_the_service_time(run: Any) -> None:
    # 500 calls a second, one at a time; every 250th holds all others up for 200 ms
    stalls = faulty("stall", 250, 0.2)
    result = run(measured(stalls, rate=500.0, calls=1000, in_flight=1, timeout=5))
    assert counted(result) == {"ok": 1000}
    # a fifth of the calls wait behind a stall: those that were due in it, and while it is made up
    assert result.latency_us.p90 > 50_000
    assert result.service_time_us.p90 < 50_000


def test_the_rate_is_kept(run: Any) -> None:
    result = run(measured(faulty("none", 1), rate=1000.0, calls=2000, connections=2))
    assert counted(result) == {"ok": 2000}
    assert 1.99 < result.seconds < 5


def test_a_duration_ends_a_run(run: Any) -> None:
    result = run(measured(faulty("none", 1), calls=None, duration=0.5))
    assert 0.5 <= result.seconds < 5
    assert result.calls == result.counts["ok"] > 100


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_in_this_process(run: Any, era: Any) -> None:
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async def main() -> Result:
        work = Work("echo", Arguments(dict(ECHO), "text"))
        load = Load(calls=500, connections=3)
        return await Run(as_target(server), work, load, era=era).measure()

    result = run(main())
    assert counted(result) == {"ok": 500}
    assert result.era == era
    assert result.bytes.sent > 500 * 64 and result.bytes.received > 500 * 64


def test_answers_whose_form_changes_are_still_compared(run: Any) -> None:
    """The quick comparison knows one form; others are decoded."""
    server = Server("s")
    n = 0

    @server.tool
    async def echo(text: str) -> list[Text]:
        nonlocal n
        n += 1
        return [Text(text if n % 100 else text[1:]), Text(str(n))]

    async def main() -> Result:
        work = Work("echo", Arguments(dict(ECHO), "text"))
        return await Run(as_target(server), work, Load(calls=500, warmup=0)).measure()

    assert counted(run(main())) == {"ok": 495, "wrong": 5}


def test_a_check_of_ones_own_judges_the_result(run: Any) -> None:
    server = Server("s")
    n = 0

    @server.tool
    async def count() -> int:
        nonlocal n
        n += 1
        return n

    async def main() -> Result:
        work = Work("count", Arguments({}), lambda result: result["content"][0]["text"] != "7")
        return await Run(as_target(server), work, Load(calls=20, warmup=0)).measure()

    assert counted(run(main())) == {"ok": 19, "wrong": 1}
