"""What a tool may know and say: Context over the wire, in both eras."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from lab.raw import META, call, cancel, modern, request
from lab.server import LEGACY, MODERN, text_of

from wirespeed import Context, Server

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def progress_of(messages: list[Any]) -> list[Any]:
    return [m["params"] for m in messages if m.get("method") == "notifications/progress"]


def logs_of(messages: list[Any]) -> list[Any]:
    return [m["params"] for m in messages if m.get("method") == "notifications/message"]


def ask(peer: Any, version: str, tool: str, arguments: Any = None, **meta: Any) -> list[Any]:
    """Call a tool: all that came, the answer last."""
    params = {"name": tool, "arguments": arguments or {}}
    if version == MODERN:
        peer.send(modern(1, "tools/call", params, **meta))
    else:
        peer.send(request(1, "tools/call", params, **meta))
    got: list[Any] = peer.until(1)
    return got


@pytest.fixture
def reporting(server: Server) -> Server:
    @server.tool
    async def steps(values: list[float], ctx: Context) -> str:
        for value in values:
            await ctx.progress(value)
        return "done"

    @server.tool
    def steps_in_thread(values: list[float], ctx: Context) -> str:
        for value in values:
            ctx.progress(value, total=10, message="m")
        return "done"

    @server.tool
    async def logs(ctx: Context) -> str:
        for level in LEVELS:
            await ctx.log(level, {"level": level})
        return "done"

    @server.tool
    def logs_in_thread(ctx: Context) -> str:
        for level in LEVELS:
            ctx.log(level, {"level": level})
        return "done"

    return server


# -- progress -------------------------------------------------------------------------------------


@pytest.mark.every_revision
@pytest.mark.parametrize("tool", ["steps", "steps_in_thread"])
def test_progress_only_rises(tool: str, version: str, connect: Any, reporting: Server) -> None:
    peer = connect(version)
    values = [0, 1, 1, 0.5, 2, -5, 2.5, 2.5, 3]
    got = ask(peer, version, tool, {"values": values}, progressToken="t")
    sent = progress_of(got)
    assert [p["progress"] for p in sent] == [0, 1, 2, 2.5, 3]
    assert {p["progressToken"] for p in sent} == {"t"}
    if tool == "steps_in_thread":
        assert {p["total"] for p in sent} == {10}
        assert all(("message" in p) == (version != "2024-11-05") for p in sent)
    assert text_of(got[-1]["result"]) == "done"
    assert peer.fence() == []


@pytest.mark.parametrize(
    "token",
    [0, "", 7, -1, "0", 12345678901234567890123, "é/\n"],
)
def test_zero_and_the_empty_string_are_progress_tokens(
    token: Any, version: str, connect: Any, reporting: Server
) -> None:
    got = ask(connect(version), version, "steps", {"values": [1]}, progressToken=token)
    (sent,) = progress_of(got)
    assert sent == {"progressToken": token, "progress": 1}
    assert type(sent["progressToken"]) is type(token)


@pytest.mark.parametrize("token", [None, True, False, [], {}, 1.5, 1e3])
def test_what_is_no_token_asks_for_nothing(token: Any, peer: Any, reporting: Server) -> None:
    assert len(ask(peer, "2025-06-18", "steps", {"values": [1]}, progressToken=token)) == 1


def test_without_a_token_nothing_is_sent(version: str, connect: Any, reporting: Server) -> None:
    assert len(ask(connect(version), version, "steps", {"values": [1, 2]})) == 1


def test_no_progress_comes_after_the_response(peer: Any, server: Server) -> None:
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        await ctx.progress(1)
        return "kept"

    got = ask(peer, "2025-06-18", "keep", progressToken=1)
    assert [p["progress"] for p in progress_of(got)] == [1]
    (ctx,) = kept
    assert ctx.cancelled

    async def late() -> None:
        await ctx.progress(2)
        await ctx.log("error", "late")

    peer.run(late())
    thread = threading.Thread(target=ctx.progress, args=(3,))
    thread.start()
    thread.join()
    assert peer.fence() == []


def test_a_thread_that_outlives_its_call_says_nothing(peer: Any, server: Server) -> None:
    gate, said = threading.Event(), threading.Event()

    @server.tool(timeout=0.5)  # the thread has begun by then
    def slow(ctx: Context) -> str:
        gate.wait()
        assert ctx.cancelled
        ctx.progress(1)
        ctx.error("late")
        said.set()
        return "late"

    got = ask(peer, "2025-06-18", "slow", progressToken=1)
    assert got[-1]["result"]["isError"] is True
    gate.set()
    assert said.wait(20)
    assert peer.fence() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_progress_that_is_not_a_finite_number_is_not_sent(
    value: float, connect: Any, server: Server
) -> None:
    @server.tool
    async def bad(total: bool, ctx: Context) -> str:
        try:
            await (ctx.progress(1, total=value) if total else ctx.progress(value))
        except ValueError as exc:
            await ctx.progress(2)
            return str(exc)
        return "sent"

    peer = connect("2025-06-18")
    for total in (False, True):
        got = ask(peer, "2025-06-18", "bad", {"total": total}, progressToken=1)
        assert "finite" in text_of(got[-1]["result"])
        assert [p["progress"] for p in progress_of(got)] == [2]


def test_threads_of_one_call_cannot_make_progress_fall(connect: Any, server: Server) -> None:
    @server.tool
    def race(ctx: Context) -> str:
        def count(first: int) -> None:
            for i in range(first, 400, 4):
                ctx.progress(i)

        threads = [threading.Thread(target=count, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    got = ask(connect("2025-06-18"), "2025-06-18", "race", progressToken=1)
    sent = [p["progress"] for p in progress_of(got)]
    assert sent == sorted(set(sent))
    assert sent[-1] == 399


def test_progress_of_two_requests_is_not_mixed(peer: Any, server: Server) -> None:
    both = asyncio.Barrier(2)

    @server.tool
    async def steps(ctx: Context, n: int) -> str:
        for i in range(3):
            await both.wait()
            await ctx.progress(n + i)
        return "done"

    peer.send(
        call(1, "steps", {"n": 0}, progressToken="one"),
        call(2, "steps", {"n": 10}, progressToken=2),
    )
    got = [peer.recv() for _ in range(8)]
    by_token: dict[Any, list[Any]] = {}
    for sent in progress_of(got):
        by_token.setdefault(sent["progressToken"], []).append(sent["progress"])
    assert by_token == {"one": [0, 1, 2], 2: [10, 11, 12]}


# -- logging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["logs", "logs_in_thread"])
@pytest.mark.parametrize("version", LEGACY)
def test_legacy_logs_from_the_level_that_was_set(
    version: str, tool: str, any_peer: Any, reporting: Server
) -> None:
    assert [m["level"] for m in logs_of(ask(any_peer, version, tool))] == list(LEVELS[1:])
    for i, level in enumerate(LEVELS):
        assert any_peer.result(request(9, "logging/setLevel", {"level": level})) == {}
        got = logs_of(ask(any_peer, version, tool))
        assert got == [{"level": name, "data": {"level": name}} for name in LEVELS[i:]]


@pytest.mark.parametrize("params", [{"level": "loud"}, {"level": 1}, {}, {"level": ""}])
def test_an_invalid_log_level_is_refused(params: Any, connect: Any) -> None:
    assert connect("2025-06-18").error(request(1, "logging/setLevel", params))[0] == -32602


@pytest.mark.parametrize("tool", ["logs", "logs_in_thread"])
def test_modern_logs_are_only_for_requests_that_ask(
    tool: str, modern_peer: Any, reporting: Server
) -> None:
    assert logs_of(ask(modern_peer, MODERN, tool)) == []
    for i, level in enumerate(LEVELS):
        got = ask(modern_peer, MODERN, tool, **{META + "logLevel": level})
        assert [m["level"] for m in logs_of(got)] == list(LEVELS[i:])
        assert "result" in got[-1]
    assert logs_of(ask(modern_peer, MODERN, tool)) == []


def test_a_log_has_its_logger_and_any_data(connect: Any, server: Server) -> None:
    data = [None, 1.5, {"a": "é\u2028\n"}, float("nan"), b"x", {1, 2}, object]

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.log("error", data, logger="one.two")
        await ctx.warning("w")
        await ctx.info("i")
        await ctx.debug("d")
        await ctx.error(None)
        return "done"

    first, *rest = logs_of(ask(connect("2025-06-18"), "2025-06-18", "log"))
    assert first["logger"] == "one.two"
    assert first["data"][:4] == [None, 1.5, {"a": "é\u2028\n"}, None]
    assert rest == [
        {"level": "warning", "data": "w"}, {"level": "info", "data": "i"},
        {"level": "error", "data": None},
    ]  # fmt: skip


def test_an_unknown_level_is_the_tools_error(connect: Any, server: Server) -> None:
    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.log("loud", "x")
        return "done"

    result = connect("2025-06-18").result(call(1, "log"))
    assert result["isError"] is True
    assert "debug, info" in text_of(result)


def test_a_log_that_is_no_text_breaks_nothing(peer: Any, server: Server) -> None:
    @server.tool
    async def log(ctx: Context) -> str:
        try:
            await ctx.error("\udcff")
        except UnicodeEncodeError:
            await ctx.error("a file name that is no text")
        return "done"

    assert len(ask(peer, "2025-06-18", "log")) == 2
    assert peer.fence() == []


def test_a_tool_that_says_a_lot_waits_for_the_client(peer: Any, server: Server) -> None:
    @server.tool
    async def talk(ctx: Context) -> str:
        for i in range(100):
            await ctx.error(f"{i}:" + "x" * 65536)
        return "done"

    got = ask(peer, "2025-06-18", "talk")
    assert [int(m["data"].split(":")[0]) for m in logs_of(got)] == list(range(100))


def test_many_messages_of_one_tick_are_all_waited_for(connect: Any, server: Server) -> None:
    """The outbox may be empty again before the first write was ever short."""

    @server.tool
    async def burst(ctx: Context) -> str:
        for i in range(40):
            last = ctx.error(f"{i}:" + "x" * 65536)
        await last
        return "done"

    assert len(logs_of(ask(connect("2025-06-18"), "2025-06-18", "burst"))) == 40


def test_what_nobody_reads_is_dropped_before_it_grows(
    peer: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    queued: list[int] = []

    @server.tool(inline=True)
    def shout(ctx: Context) -> str:
        for _ in range(2000):
            ctx.error("x" * 10_000)
        queued.append(len(peer.connection.session.outbox))
        return "done"

    got = ask(peer, "2025-06-18", "shout")
    limit = 4 * server.limits.output_high
    assert limit <= queued[0] < limit + 20_000
    assert 0 < len(logs_of(got)) < 2000
    assert "does not read" in caplog.text


# -- knowing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, "", 1, "1", -7, 12345678901234567890123, "é"])
def test_the_request_id_has_its_type(id: Any, connect: Any, server: Server) -> None:
    seen: list[Any] = []

    @server.tool(inline=True)
    def look(ctx: Context) -> str:
        seen.append(ctx.request_id)
        return "ok"

    connect("2025-06-18").result(call(id, "look"))
    assert seen == [id]
    assert type(seen[0]) is type(id)


def test_a_thread_can_look_whether_it_is_cancelled(peer: Any, server: Server) -> None:
    started, noticed = threading.Event(), threading.Event()

    @server.tool
    def work(ctx: Context) -> str:
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        noticed.set()
        return "dropped"

    peer.send(call(1, "work"))
    peer.fence()
    assert started.wait(20)
    peer.send(cancel(1))
    assert peer.fence() == []
    assert noticed.wait(20)
    assert peer.fence() == []


@pytest.mark.parametrize(("version", "keys"), [("2024-11-05", 0), (MODERN, 3)])
def test_the_meta_of_the_request(version: str, keys: int, connect: Any, server: Server) -> None:
    @server.tool
    async def meta(ctx: Context) -> dict[str, Any]:
        return ctx.meta

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    peer = connect(version)
    (answer,) = ask(peer, version, "meta", traceparent=trace, **{"com.example/x": [None]})
    got = json.loads(answer["result"]["content"][0]["text"])
    assert (got["traceparent"], got["com.example/x"]) == (trace, [None])
    assert len(got) == keys + 2
    if not keys:
        (answer,) = ask(peer, version, "meta")
        assert answer["result"]["content"][0]["text"] == "{}"


@pytest.mark.parametrize("meta", [5, "x", [], None])
def test_a_meta_that_is_no_object_says_nothing(meta: Any, connect: Any, server: Server) -> None:
    @server.tool
    async def look(ctx: Context) -> int:
        return len(ctx.meta)

    params = {"name": "look", "_meta": meta}
    result = connect("2025-06-18").result(request(1, "tools/call", params))
    assert result["structuredContent"] == {"result": 0}


def test_the_meta_behind_long_arguments(connect: Any, server: Server) -> None:
    @server.tool
    async def look(text: str, ctx: Context) -> str:
        assert ctx.client_info is not None
        return f"{len(text)} {ctx.meta['com.example/x']} {ctx.client_info['name']}"

    params = {"name": "look", "arguments": {"text": "x" * 100_000}}
    result = connect().result(modern(1, "tools/call", params, **{"com.example/x": 7}))
    assert text_of(result) == "100000 7 raw"
