"""What else a server may send: requests, batches, notifications, noise, too much."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from lab.client import LEGACY, MODERN, Fake, Run, fill, initialized, text_result, until
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.errors import CallTimeout, ChildExited, InvalidResponse
from wirespeed.limits import Limits
from wirespeed.types import LogMessage

pytestmark = pytest.mark.compiled

Make = Callable[..., Fake]


def request(method: str, id_text: str = '"s1"', params: str = "{}") -> list[Any]:
    line = '{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}'
    return ["raw", fill(line, id_text, method, params)]


def says(*actions: Any) -> dict[str, Any]:
    """A legacy server that does this before it answers a call."""
    return LEGACY | {"tools/call": [*actions, ["result", text_result()]]}


async def one_call(server: Fake, **options: Any) -> None:
    async with Client(server.target, era="legacy", **options) as client:
        assert (await client.call_tool("echo")).text == "ok"
        await client.ping()


# -- requests of the server ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_text", "id_"), [('"s1"', "s1"), ("0", 0), ("7", 7), ('""', ""), ("-1", -1)]
)
def test_a_ping_of_the_server_is_answered(run: Run, fake: Make, id_text: str, id_: Any) -> None:
    server = fake(says(request("ping", id_text)))
    run(one_call(server))
    assert {"jsonrpc": "2.0", "id": id_, "result": {}} in server.lines


def test_a_ping_of_the_server_during_the_handshake_is_answered(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"initialize": [request("ping"), *initialized()]})
    once(one_call(server))
    assert {"jsonrpc": "2.0", "id": "s1", "result": {}} in server.lines


@pytest.mark.parametrize(
    "method", ["sampling/createMessage", "elicitation/create", "roots/list", "tools/list", "x"]
)
def test_other_requests_of_the_server_are_refused(once: Run, fake: Make, method: str) -> None:
    server = fake(says(request(method, "3")))
    once(one_call(server))
    error = {"code": -32601, "message": f"Method not found: {method}"}
    assert {"jsonrpc": "2.0", "id": 3, "error": error} in server.lines


def test_broken_requests_of_the_server_are_not_answered(once: Run, fake: Make) -> None:
    server = fake(says(request("ping", "null"), request("ping", "true"), request("ping", "1.5")))
    once(one_call(server))
    assert "" not in server.methods


def test_a_ping_and_calls_share_numbers(once: Run, fake: Make) -> None:
    """The server's ids are its own: the id of our call, used by it, is another request."""
    server = fake(says(["raw", '{"jsonrpc":"2.0","id":$ID,"method":"ping"}']))
    once(one_call(server))
    assert [line["result"] for line in server.lines if "result" in line] == [{}]


# -- batches ---------------------------------------------------------------------------------------


def in_a_batch(*texts: str) -> list[list[Any]]:
    return [["raw", "[" + ",".join(texts) + "]"]]


ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"batched"}]}}'
NOTE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
PING = '{"jsonrpc":"2.0","id":"p","method":"ping"}'


async def test_batches_of_a_2025_03_26_server_are_taken(fake: Make) -> None:
    rules = LEGACY | {
        "initialize": initialized("2025-03-26"),
        "tools/call": in_a_batch(NOTE, PING, ANSWER, "1", '{"jsonrpc":"2.0"}'),
    }
    server = fake(rules)
    logs: list[LogMessage] = []
    async with Client(server.target, era="legacy", on_log=logs.append) as client:
        assert (await client.call_tool("echo")).text == "batched"
        await client.ping()
        assert client.counters["faults"] == 2
    assert [entry.data for entry in logs] == [1]
    # one request of the batch, answered in a batch
    assert '[{"jsonrpc":"2.0","id":"p","result":{}}]' in server.log.read_text()


async def test_many_answers_in_one_batch(once: Run, fake: Make) -> None:
    rules = LEGACY | {
        "initialize": initialized("2025-03-26"),
        "tools/call": [["later", in_a_batch(ANSWER)]],
        "ping": [["release"], ["result", {}]],
    }
    async with Client(fake(rules).target, era="legacy") as client:
        calls = [asyncio.create_task(client.call_tool("x")) for _ in range(20)]
        await asyncio.sleep(0)
        await client.ping()
        assert [(await task).text for task in calls] == ["batched"] * 20


def test_the_answer_to_initialize_in_a_batch(once: Run, fake: Make) -> None:
    answer = (
        '{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-03-26",'
        '"capabilities":{},"serverInfo":{"name":"b","version":"1"}}}'
    )
    once(one_call(fake(LEGACY | {"initialize": in_a_batch(answer)})))


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_batches_of_other_servers_are_reported_and_ignored(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    rules = LEGACY | {"initialize": initialized(version), "tools/call": in_a_batch(ANSWER)}
    async with Client(fake(rules).target, era="legacy") as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("echo", timeout=0.05)
        await client.ping()
        assert client.counters["faults"] == 1
    assert "batches are not part of this protocol revision" in caplog.text


async def test_batches_of_a_modern_server_are_ignored(once: Run, fake: Make) -> None:
    async with Client(fake(MODERN | {"tools/call": in_a_batch(ANSWER)}).target) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("echo", timeout=0.05)
        await client.ping()


# -- noise -----------------------------------------------------------------------------------------


async def test_lines_that_are_no_messages_are_skipped_and_logged(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    noise = ["Listening…", "", "  ", "{", "[]", "null", "\udcff\udcfe", "\x00"]
    server = fake(says(*[["raw", text] for text in noise]))
    async with Client(server.target, era="legacy") as client:
        for _ in range(3):
            assert (await client.call_tool("echo")).text == "ok"
    records = [
        r
        for r in caplog.records
        if "skipped a line that is not a JSON-RPC message" in r.getMessage()
    ]
    assert len(records) == 3 * (len(noise) - 2)  # blank lines are nothing
    assert all(r.levelno == logging.WARNING for r in records)
    assert "Listening" in records[0].getMessage() and "not JSON" in records[0].getMessage()


def test_a_banner_before_the_handshake_is_skipped(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"start": [["raw", "*** Server v1 ***"], ["raw", ""]]})
    once(one_call(server))


def test_a_child_that_only_prints_is_told_with_its_first_line(once: Run, fake: Make) -> None:
    server = fake({"start": [["raw", "usage: server FILE"], ["exit", 2]]})
    with pytest.raises(ChildExited) as caught:
        once(one_call(server))
    assert "usage: server FILE" in str(caught.value)
    assert "exited with status 2" in str(caught.value)


def test_a_child_that_prints_and_stays_is_told_with_its_first_line(once: Run) -> None:
    # a shell, which prints long before the handshake is given up
    shell = Stdio("sh", ["-c", "echo '$ '; exec sleep 60"], shutdown_grace=0.05)

    async def main() -> None:
        async with Client(shell, era="legacy", handshake_timeout=1):
            pass

    with raises(CallTimeout):
        once(main())


async def test_carriage_returns_and_a_byte_order_mark(once: Run, fake: Make) -> None:
    answer = (
        '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"a\u2028b\x85"}]}}\r'
    )
    server = fake(LEGACY | {"tools/call": [["raw", answer]]})
    async with Client(server.target, era="legacy") as client:
        assert (await client.call_tool("echo")).text == "a\u2028b\x85"


def test_a_message_that_is_too_long_is_skipped(once: Run, fake: Make) -> None:
    server = fake(says(["raw", "x" * 30_000]))
    once(one_call(server, limits=Limits(max_message=10_000)))


async def test_an_answer_that_is_too_long_fails_its_call_and_the_connection_lives(
    once: Run, fake: Make
) -> None:
    server = fake(LEGACY | {"tools/call": [["fill", 30_000]]})
    limits = Limits(max_message=10_000)
    async with Client(server.target, era="legacy", limits=limits) as client:
        with raises(InvalidResponse):
            await client.call_tool("echo", timeout=60)
        await client.ping()


async def test_an_answer_that_is_too_deep_fails_its_call(once: Run, fake: Make) -> None:
    deep = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":%s}}'
    server = fake(LEGACY | {"tools/call": [["raw", deep % ("[" * 200 + "]" * 200)]]})
    async with Client(server.target, era="legacy") as client:
        with raises(InvalidResponse):
            await client.call_tool("echo", timeout=60)
        await client.ping()


async def test_large_answers(fake: Make) -> None:
    server = fake(LEGACY | {"tools/call": [["fill", 3 << 20]]})
    async with Client(server.target, era="legacy") as client:
        results = await asyncio.gather(*(client.call_tool("x") for _ in range(3)))
        assert [len(result.text) for result in results] == [3 << 20] * 3


# -- log messages ----------------------------------------------------------------------------------


def note(params: str) -> list[Any]:
    line = '{"jsonrpc":"2.0","method":"notifications/message","params":%s}'
    return ["raw", fill(line, params)]


def test_log_messages(run: Run, fake: Make, caplog: pytest.LogCaptureFixture) -> None:
    server = fake(
        says(
            note('{"level":"error","data":{"a":[1]},"logger":"db"}'),
            note('{"level":"debug"}'),
            note('{"data":"no level"}'),
            ["raw", '{"jsonrpc":"2.0","method":"notifications/message"}'],
            ["raw", '{"jsonrpc":"2.0","method":"notifications/unheard/of"}'],
            note('{"level":"info","data":null}'),
        )
    )
    logs: list[LogMessage] = []
    run(one_call(server, on_log=logs.append))
    assert logs == [
        LogMessage("error", {"a": [1]}, "db"),
        LogMessage("debug"),
        LogMessage("info"),
    ]
    assert caplog.text.count("a log message of the server is not valid") == 2


def test_log_messages_that_nobody_wants(once: Run, fake: Make) -> None:
    once(one_call(fake(says(["flood", 100], note("1")))))


def test_a_log_callback_that_raises(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def on_log(entry: LogMessage) -> None:
        raise asyncio.CancelledError("mine")

    once(one_call(fake(says(["flood", 2])), on_log=on_log))
    assert caplog.text.count("on_log failed") == 2


async def test_an_async_log_callback(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    async def on_log(entry: LogMessage) -> None:
        await asyncio.sleep(0)
        seen.append(entry.data)
        raise ZeroDivisionError("mine")

    async with Client(fake(says(["flood", 3])).target, era="legacy", on_log=on_log) as client:
        await client.call_tool("echo")
        await until(lambda: len(seen) == 3)
    assert seen == [0, 1, 2]
    assert caplog.text.count("on_log failed") == 3


def test_an_async_log_callback_is_cancelled_by_close(run: Run, fake: Make) -> None:
    ended: list[str] = []

    async def on_log(entry: LogMessage) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    run(one_call(fake(says(["flood", 2])), on_log=on_log))
    assert ended == ["cancelled"]  # the second one waited for its turn


# -- levels ----------------------------------------------------------------------------------------


async def test_log_levels_of_a_legacy_server(once: Run, fake: Make) -> None:
    server = fake(LEGACY)
    async with Client(server.target, era="legacy", log_level="warning") as client:
        await client.set_log_level("debug")
        with raises(ValueError):
            await client.set_log_level("loud")
    assert [m["params"]["level"] for m in server.sent("logging/setLevel")] == ["warning", "debug"]


async def test_log_levels_of_a_modern_server(once: Run, fake: Make) -> None:
    server = fake(MODERN)
    async with Client(server.target) as client:
        await client.call_tool("echo")
        await client.set_log_level("error")
        await client.call_tool("echo")
        await client.restart()
        await client.call_tool("echo")
    key = "io.modelcontextprotocol/logLevel"
    levels = [m["params"]["_meta"].get(key) for m in server.sent("tools/call")]
    assert levels == [None, "error", "error"]
    assert not server.sent("logging/setLevel")


@pytest.mark.parametrize("refusal", ["capability", "error"])
def test_a_server_without_logging_can_be_used(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture, refusal: str
) -> None:
    rules = dict(LEGACY)
    if refusal == "capability":
        rules["initialize"] = initialized(capabilities={"tools": {}})
    else:
        del rules["logging/setLevel"]
        rules["logging/setLevel"] = LEGACY["server/discover"]
    once(one_call(fake(rules), log_level="info"))
    assert "logging" in caplog.text or "did not set the log level" in caplog.text


def test_unknown_log_levels_are_refused(fake: Make) -> None:
    with raises(ValueError):
        Client(fake(LEGACY).target, log_level="loud")


@pytest.mark.parametrize(("base", "method"), [(LEGACY, "ping"), (MODERN, "server/discover")])
async def test_a_modern_server_is_not_pinged(once: Run, fake: Make, base: Any, method: str) -> None:
    server = fake(base)
    async with Client(server.target) as client:
        n = len(server.sent(method))
        await client.ping()
        assert len(server.sent(method)) == n + 1
    assert bool(server.sent("ping")) == (base is LEGACY)
