"""Runs of loads on servers with one fault each: each call is counted once, as what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from lab.raw import CHILDREN
from lab.rows import every

from wirespeed import Server, Stdio
from wirespeed.bench.arguments import Arguments
from wirespeed.bench.load import Load, Result
from wirespeed.bench.recorder import OF_CALLS, OUTCOMES
from wirespeed.bench.run import Run
from wirespeed.bench.work import Work
from wirespeed.cli.bench.summary import warnings
from wirespeed.client.targets import as_target
from wirespeed.types import RawResult, Text

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
        ("text-id", {"ok": 1996, "wrong": 4}),
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
    assert result.service_time_us.p90 < result.latency_us.p90 / 2


def slower(histogram: str, seconds: float) -> int:
    """The number of calls that took longer."""
    found = HdrHistogram.decode(histogram).get_recorded_iterator()
    return sum(
        item.count_at_value_iterated_to for item in found if item.value_iterated_to > seconds * 1e9
    )


def test_calls_that_were_due_in_a_stall_are_counted_as_slow(run: Any) -> None:
    # 500 calls a second; each second the server stalls for 200 ms, in which 100 are due
    async def main() -> tuple[Run, Result]:
        work = Work("echo", Arguments(dict(ECHO), "text"))
        load = Load(rate=500.0, calls=2000, in_flight=1, warmup=0, timeout=5)
        runs = Run(as_target(faulty("stall", 500, 0.2)), work, load)
        return runs, await runs.measure()

    runs, result = run(main())
    assert counted(result) == {"ok": 2000}
    # half of them wait for more than 100 ms, in each of three stalls; one call is sent in each
    late = slower(result.latency_histogram, 0.1)
    assert late >= 120
    assert 3 <= slower(runs.service_histogram, 0.1) < late / 5
    assert late <= result.held_up + 3
    assert any("service time hides it" in text for text in warnings([result]))


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


@pytest.mark.off_schema
@every(
    ("template", "answer"),
    [
        # what stands in the place of the text elsewhere decides, too
        ('{"text": "$choice:true|false"}', '{"content":[{"type":"text","text":"T"}],"isError":T}'),
        ('{"text": "$choice:text|image"}', '{"content":[{"type":"T","text":"text"}]}'),
        ('{"text": "$choice:a|b"}', '{"content":[{"type":"text","text":"a"}],"more":"T"}'),
        ('{"text": "$choice:isError|other"}', '{"content":[{"type":"text","text":"T"}],"T":true}'),
        ('{"text": "$n"}', '{"content":[{"type":"text","text":"1"}],"n":"T"}'),
    ],
)
def test_an_answer_is_never_right_because_another_one_was(template: str, answer: str) -> None:
    """Each answer is judged as if it were the first."""
    server = Server("s")

    async def echo(arguments: Any) -> RawResult:
        text = str(json.loads(bytes(arguments))["text"])
        return RawResult(answer.replace("T", text).encode())

    server.tool_raw("echo", {"type": "object"}, echo)

    async def main() -> Result:
        arguments = Arguments(json.loads(template), "text", 5)
        load = Load(calls=60, in_flight=1, warmup=0)
        return await Run(as_target(server), Work("echo", arguments), load).measure()

    right = 0
    arguments = Arguments(json.loads(template), "text", 5)
    for n in range(60):
        expected = arguments.render(n)[1]
        assert expected is not None
        result = json.loads(answer.replace("T", expected))
        texts = [block["text"] for block in result["content"] if block["type"] == "text"]
        right += texts[:1] == [expected] and not result.get("isError", False)
    counts = counted(asyncio.run(main()))
    assert counts.get("ok", 0) == right < 60


def test_a_run_goes_on_when_a_server_reads_again(run: Any) -> None:
    """Its outbox was full, and no call was left whose answer could have sent the next."""
    target = faulty("stall", 1, 0.7)

    async def main() -> Result:
        work = Work("echo", Arguments({"text": "$text:6000000"}, "text"))
        load = Load(calls=6, in_flight=4, warmup=0, timeout=0.3)
        return await Run(as_target(target), work, load).measure()

    assert run(main()).calls == 6


def test_a_pause_is_between_an_answer_and_the_next_call(run: Any) -> None:
    result = run(measured(faulty("stall", 1, 0.1), calls=4, in_flight=1, think=0.2))
    assert result.seconds >= 4 * 0.1 + 3 * 0.2 - 0.02


def test_a_check_that_fails_is_a_wrong_answer(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    def check(result: Any) -> bool:
        raise KeyError("no such member")

    async def main() -> Result:
        work = Work("echo", Arguments(dict(ECHO)), check)
        return await Run(as_target(faulty("none", 1)), work, Load(calls=5, warmup=0)).measure()

    assert counted(run(main())) == {"wrong": 5}
    assert "no such member" in caplog.text


def test_a_run_that_is_stopped_before_its_calls_makes_none(run: Any) -> None:
    async def main() -> Result:
        work = Work("echo", Arguments(dict(ECHO)))
        runs = Run(as_target(faulty("none", 1)), work, Load(duration=60, warmup=10))
        asyncio.get_running_loop().call_soon(runs.stop)
        return await runs.measure()

    assert run(main()).calls == 0


def test_a_run_that_is_stopped_does_not_wait_for_answers_that_do_not_come(run: Any) -> None:
    async def main() -> Result:
        work = Work("echo", Arguments(dict(ECHO), "text"))
        load = Load(duration=60, in_flight=4, warmup=0, timeout=30)
        one = Run(as_target(faulty("drop", 100)), work, load)
        asyncio.get_running_loop().call_later(0.5, one.stop)
        async with asyncio.timeout(20):
            return await one.measure()

    result = run(main())
    counts = counted(result)
    assert counts == {"ok": counts["ok"], "missing": 4}
    # no second of the sixty that were asked for counts, but those that it took
    assert result.seconds < 20
    assert result.rate == pytest.approx(counts["ok"] / result.seconds)


def test_a_long_id_that_is_no_call_is_unexpected(run: Any) -> None:
    result = run(measured(faulty("long-id", 500), timeout=0.5))
    assert counted(result) == {"ok": 1996, "missing": 4, "unexpected": 4}


def test_a_server_that_is_gone_for_good_ends_the_run(run: Any, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    # the second process finds no file
    text = (CHILDREN / "faulty_server.py").read_text()
    program.write_text(f"import os\nos.unlink({str(program)!r})\n{text}")
    target = Stdio(sys.executable, ["-S", str(program), "exit", "100", "0"])

    async def main() -> tuple[Run, Result]:
        work = Work("echo", Arguments(dict(ECHO), "text"))
        runs = Run(as_target(target), work, Load(calls=1000, in_flight=1, warmup=0))
        return runs, await runs.measure()

    runs, result = run(main())
    assert runs.failure is not None
    assert counted(result) == {"ok": 99, "missing": 1, "connection_losses": 1}


@contextlib.asynccontextmanager
async def refusing(status: int, n: int) -> AsyncIterator[str]:
    """An HTTP server of 2025-11-25 that answers each nth call with a status and Retry-After."""
    calls = 0

    def answer(message: Any) -> tuple[int, Any]:
        nonlocal calls
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "s", "version": "1"}
            return 200, {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        if message["method"] != "tools/call":
            return 202, None
        calls += 1
        if calls % n == 0:
            return status, None
        return 200, {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if not head.startswith(b"POST") or length is None:
                    writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                message = json.loads(await reader.readexactly(int(length[1])))
                code, result = answer(message)
                body = b""
                if result is not None:
                    whole = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                    body = json.dumps(whole).encode()
                writer.write(
                    b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (code, len(body), body)
                )
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@pytest.mark.parametrize(("status", "outcome"), [(503, "refused"), (429, "refused"), (500, "")])
def test_refusals_over_http_are_counted_and_not_sent_again(
    run: Any, status: int, outcome: str
) -> None:
    async def main() -> Result:
        async with refusing(status, 10) as url:
            work = Work("echo", Arguments(dict(ECHO), "text"))
            return await Run(
                as_target(url), work, Load(calls=100, warmup=0), era="legacy"
            ).measure()

    assert counted(run(main())) == {"ok": 90, outcome or "protocol_errors": 10}


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
