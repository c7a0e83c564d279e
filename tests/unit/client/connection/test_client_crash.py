"""Servers that crash, hang up or stop to listen, and what is started again."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import (
    LEGACY,
    MODERN,
    Fake,
    HastyClient,
    Run,
    alive,
    hasty_client,
    text_result,
    turns,
    until,
)
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.client.connection.connection import ClientConnection
from wirespeed.errors import (
    CallTimeout,
    ChildExited,
    ConnectionClosed,
    LaunchError,
    TransportError,
    WirespeedError,
)
from wirespeed.transport.backoff import Backoff

Make = Callable[..., Fake]

DIES = LEGACY | {
    "tools/call:wait": [],
    "tools/call:die": [["stderr", "first words"], ["stderr", "last words"], ["exit", 7]],
}


async def outcome(client: Client, tool: str = "echo", **options: Any) -> Any:
    try:
        return (await client.call_tool(tool, **options)).text
    except WirespeedError as exc:
        return type(exc)


# -- one crash -------------------------------------------------------------------------------------


async def test_calls_in_flight_fail_at_once_with_all_that_is_known(
    fake: Make, tmp_path: Path
) -> None:
    server = fake(DIES, cwd=tmp_path)
    async with HastyClient(server.target, era="legacy", timeout=None) as client:
        waiting = [asyncio.create_task(client.call_tool("wait")) for _ in range(50)]
        await turns(1)
        errors = await asyncio.gather(client.call_tool("die"), *waiting, return_exceptions=True)
        for error in errors:
            assert type(error) is ChildExited and error.status == 7
        first, *rest = str(errors[0]).splitlines()
        assert first.startswith("the server closed its output: command ")
        assert "scripted.py" in first and f"directory {tmp_path}" in first
        assert (
            "the server exited with status 7; Stdio(restart=…) or client.restart() starts it"
            in first
        )
        assert [line.strip() for line in rest] == ["first words", "last words"]
        assert len({id(error) for error in errors}) == len(errors)  # tracebacks apart
        assert client.counters["requests_outstanding"] == 0
        # so do later ones, and the client is still told what it spoke to
        with pytest.raises(ChildExited, match="last words"):
            await client.call_tool("echo")
        assert client.protocol_version == "2025-11-25"
        await until(lambda: not alive(server.pids[0]))
    assert len(server.pids) == 1


async def test_killed_in_the_middle_of_an_answer(fake: Make) -> None:
    half = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"te'
    server = fake(DIES | {"tools/call:half": [["raw", half], ["kill", signal.SIGKILL]]})
    async with HastyClient(server.target, era="legacy") as client:
        with raises(ChildExited) as caught:
            await client.call_tool("half")
        assert caught.value.status == -signal.SIGKILL


async def test_answers_before_a_crash_count(fake: Make) -> None:
    """The last answer and the end arrive together, or the end is seen by a write first."""
    server = fake(
        DIES
        | {
            "tools/call:a": [["later", [["result", text_result("a")]]]],
            "tools/call:b": [["release"], ["exit", 1]],
        }
    )
    async with HastyClient(server.target, era="legacy") as client:
        got = await asyncio.gather(outcome(client, "a"), outcome(client, "b"))
        assert got == ["a", ChildExited]


async def test_answers_of_a_child_that_a_write_finds_dead(
    fake: Make, connections: list[ClientConnection]
) -> None:
    server = fake(DIES | {"tools/call:b": [["result", text_result("b")], ["exit", 1]]})
    async with HastyClient(server.target, era="legacy") as client:
        [connection] = connections
        assert connection.link is not None
        first = asyncio.create_task(outcome(client, "b"))
        second = asyncio.create_task(outcome(client, "wait"))
        await turns(1)
        connection.link.flush()
        # without a turn of the loop: the answers lie in the pipe
        while alive(server.pids[0]) and not is_zombie(server.pids[0]):
            time.sleep(0.001)
        connection.notify("notifications/x")
        connection.link.flush()  # finds the pipe broken before anything was read
        assert await first == "b"
        assert await second in (ChildExited, TransportError)


def is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return b") Z " in file.read()
    except OSError:
        return True


async def test_a_child_that_closes_stdout_but_lives(fake: Make) -> None:
    server = fake(DIES | {"tools/call:close": [["close", 1]]})
    async with HastyClient(server.target, era="legacy") as client:
        with pytest.raises(TransportError, match="closed its output") as caught:
            await client.call_tool("close")
        assert not isinstance(caught.value, ChildExited)
        assert f"the server is still running (pid {server.pids[0]})" in str(caught.value)
        # it is of no more use, so it is ended without waiting for `close`
        await until(lambda: not alive(server.pids[0]))


async def test_a_child_that_closes_stdin_but_lives(fake: Make) -> None:
    server = fake(
        DIES | {"tools/call:deaf": [["close", 0], ["result", text_result("deaf")]]},
        shutdown_grace=0.05,
    )
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "deaf") == "deaf"
        with raises(TransportError):
            await client.call_tool("echo")
        with raises(TransportError):
            await client.call_tool("echo")
    assert not alive(server.pids[0])


async def test_a_crash_while_nothing_is_called(
    fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = fake(LEGACY | {"notifications/initialized": [["exit", 5]]})
    async with HastyClient(server.target, era="legacy") as client:
        await until(lambda: caplog.records)
        with raises(ChildExited):
            await client.call_tool("echo")
        with raises(ChildExited):
            await client.list_tools()


async def test_a_call_between_the_end_and_its_explanation(once: Run, fake: Make) -> None:
    server = fake(DIES)
    async with HastyClient(server.target, era="legacy") as client:
        with pytest.raises(ChildExited):
            await client.call_tool("die")
        # all that comes at once afterwards is told the same
        got = await asyncio.gather(*(outcome(client) for _ in range(5)))
        assert got == [ChildExited] * 5


# -- starting again --------------------------------------------------------------------------------


async def test_restart_starts_anew(fake: Make) -> None:
    server = fake(DIES)
    async with HastyClient(server.target, era="legacy") as client:
        waiting = asyncio.create_task(client.call_tool("wait"))
        await server.got("tools/call")
        await client.restart()
        with raises(ConnectionClosed):
            await waiting
        assert await outcome(client) == "ok"
        assert await outcome(client, "die") is ChildExited
        await client.restart()
        assert await outcome(client) == "ok"
    assert len(server.pids) == 3 and not any(map(alive, server.pids))


async def test_restarts_at_once_make_one(once: Run, fake: Make) -> None:
    server = fake(DIES)
    async with HastyClient(server.target, era="legacy") as client:
        await asyncio.gather(client.restart(), client.restart(), client.restart())
        assert await outcome(client) == "ok"
    assert len(server.pids) == 2 and not any(map(alive, server.pids))


async def test_open_after_a_crash_starts_anew(once: Run, fake: Make) -> None:
    server = fake(DIES)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        await client.open()
        assert await outcome(client) == "ok"
    assert len(server.pids) == 2 and not any(map(alive, server.pids))


async def test_the_next_call_after_a_crash_starts_again(fake: Make) -> None:
    server = fake(DIES, restart=1)
    async with HastyClient(server.target) as client:
        for _ in range(3):  # a success makes up for a crash
            got = await asyncio.gather(outcome(client, "wait"), outcome(client, "die"))
            assert got == [ChildExited] * 2
            assert await asyncio.gather(*(outcome(client) for _ in range(20))) == ["ok"] * 20
    assert len(server.pids) == 4 and not any(map(alive, server.pids))
    assert len(server.sent("server/discover")) == 1


async def test_calls_right_behind_a_crash_wait_for_the_new_start(fake: Make) -> None:
    server = fake(DIES, restart=1)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        assert await outcome(client) == "ok"
        # list_tools and ping start it, too
        assert await outcome(client, "die") is ChildExited
        assert [tool.name for tool in await client.list_tools()] == ["echo"]


async def test_gives_up_after_crashes_in_a_row(fake: Make) -> None:
    server = fake(DIES, restart=3)
    async with HastyClient(server.target, era="legacy") as client:
        for _ in range(6):
            assert await outcome(client, "die") is ChildExited
        assert len(server.pids) == 4  # the first and three more
        with pytest.raises(ChildExited, match="last words"):
            await client.call_tool("echo")
        await client.restart()  # by hand it counts anew
        assert await outcome(client) == "ok"
    assert len(server.pids) == 5


async def test_failed_starts_count_as_crashes(once: Run, fake: Make) -> None:
    broken = {"*": [["stderr", "no database"], ["exit", 9]]}
    server = fake(DIES, broken, broken, broken, LEGACY, restart=3)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        with pytest.raises(ChildExited, match="no database") as caught:
            await client.call_tool("echo")
        assert caught.value.status == 9
        with pytest.raises(ChildExited, match="no database"):
            await client.call_tool("echo")
        assert len(server.pids) == 4
        await client.restart()
        assert await outcome(client) == "ok"


async def test_a_failed_start_is_tried_again(once: Run, fake: Make) -> None:
    broken = {"*": [["exit", 9]]}
    server = fake(DIES, broken, broken, LEGACY, restart=3)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        assert await outcome(client) == "ok"
    assert len(server.pids) == 4


async def test_the_delay_doubles(once: Run, fake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"*": [["exit", 9]]}
    server = fake(DIES, broken, restart=8)
    SlowClient = hasty_client(restarts=Backoff(0.1, 2.0))
    delays: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        if seconds >= 0.1:
            delays.append(seconds)
            seconds = 0
        await sleep(seconds)

    async with SlowClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        monkeypatch.setattr(asyncio, "sleep", counted)
        assert await outcome(client) is ChildExited
        monkeypatch.undo()
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


async def test_a_program_that_is_gone_at_the_restart(once: Run, fake: Make, tmp_path: Path) -> None:
    server = fake(DIES)
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    target = Stdio(program, server.target.args, stderr="discard", restart=1)
    async with HastyClient(target, era="legacy") as client:
        program.unlink()
        assert await outcome(client, "die") is ChildExited
        with raises(LaunchError):
            await client.call_tool("echo")
        with raises(LaunchError):
            await client.call_tool("echo")


async def test_a_cancelled_caller_does_not_stop_the_restart(fake: Make) -> None:
    slow = LEGACY | {"initialize": [["sleep", 0.2], *LEGACY["initialize"]]}
    server = fake(DIES, slow, restart=1)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        first = asyncio.create_task(client.call_tool("echo"))
        second = asyncio.create_task(client.call_tool("echo"))
        await server.got("initialize", 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).text == "ok"
    assert len(server.pids) == 2


async def test_a_timeout_holds_while_the_server_is_started_again(once: Run, fake: Make) -> None:
    server = fake(DIES, {"initialize": []}, restart=1)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client, "die") is ChildExited
        with raises(CallTimeout):
            await client.call_tool("echo", timeout=0.05)


async def test_close_ends_a_restart(fake: Make) -> None:
    server = fake(DIES, {"initialize": []}, restart=1)
    client = HastyClient(server.target, era="legacy")
    async with client:
        assert await outcome(client, "die") is ChildExited
        call = asyncio.create_task(client.call_tool("echo"))
        await server.got("initialize", 2)
    with raises(ConnectionClosed):
        await call
    assert not any(map(alive, server.pids))


async def test_no_restart_after_close(once: Run, fake: Make) -> None:
    server = fake(DIES, restart=5)
    client = HastyClient(server.target, era="legacy")
    async with client:
        assert await outcome(client, "die") is ChildExited
    with raises(ConnectionClosed):
        await client.call_tool("echo")
    assert len(server.pids) == 1


# -- listening -------------------------------------------------------------------------------------


async def test_listens_are_sent_again_after_a_crash(fake: Make) -> None:
    dies = MODERN | {"tools/call:die": [["exit", 7]]}
    server = fake(dies, restart=2)
    lists: list[Any] = []
    async with HastyClient(server.target, on_tools_changed=lists.append) as client:
        await server.got("subscriptions/listen")
        assert await outcome(client, "die") is ChildExited
        # with nothing called: the server is started again to hear from it
        await server.got("subscriptions/listen", 2)
        await until(lambda: lists)
        assert await outcome(client) == "ok"
    assert len(server.pids) == 2
    first, second = server.sent("subscriptions/listen")
    assert first["params"]["notifications"] == {"toolsListChanged": True}
    assert second["params"] == first["params"]
    assert [[tool.name for tool in tools] for tools in lists] == [["echo"]]


async def test_a_listening_client_gives_up_in_the_end(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    dies = MODERN | {"subscriptions/listen": [["exit", 7]]}
    server = fake(dies, restart=2)
    async with HastyClient(server.target, on_tools_changed=print) as client:
        await until(lambda: caplog.text.count("exited with status 7") == 3)
        with pytest.raises(ChildExited, match="status 7"):
            await client.call_tool("echo")
    assert len(server.pids) == 3


async def test_stderr_is_no_failure(once: Run, fake: Make) -> None:
    lines: list[str] = []
    server = fake(LEGACY | {"start": [["stderr", "FATAL ERROR: none"]]}, stderr=lines.append)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client) == "ok"
        await until(lambda: lines)
    assert lines == ["FATAL ERROR: none"]


async def test_megabytes_of_stderr_do_not_block(once: Run, fake: Make) -> None:
    noise = [["stderr", "x" * 1000]] * 3000
    server = fake(LEGACY | {"tools/call": [*noise, ["result", text_result()]]})
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client) == "ok"


async def test_a_server_that_ignores_the_shutdown_is_killed(fake: Make) -> None:
    """Its stdin closed, then SIGTERM, then SIGKILL, to the whole group."""
    stubborn = LEGACY | {"start": [["ignore", signal.SIGTERM]], "eof": [["stop"]]}
    server = fake(stubborn, shutdown_grace=0.05)
    async with HastyClient(server.target, era="legacy") as client:
        assert await outcome(client) == "ok"
    assert not alive(server.pids[0])


async def test_a_server_that_ends_with_its_input_is_not_signalled(
    once: Run, fake: Make, tmp_path: Path
) -> None:
    mark = tmp_path / "ended"
    code = (
        "import json, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if m.get('method') == 'initialize':\n"
        "        r = {'protocolVersion': '2025-11-25', 'capabilities': {},"
        " 'serverInfo': {'name': 'a', 'version': '1'}}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
        f"open({str(mark)!r}, 'w').write('by itself')\n"
    )
    async with HastyClient(Stdio(sys.executable, ["-I", "-S", "-c", code]), era="legacy"):
        pass
    assert mark.read_text() == "by itself"
