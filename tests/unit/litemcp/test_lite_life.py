"""Many calls at once, every kind of tool, and the ends of a connection."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from lab.lite import (
    Run,
    calculator,
    call,
    content,
    encode,
    failure,
    get,
    served,
    until,
)
from lab.wording import raises

from wirespeed import Limits
from wirespeed.errors import SignatureError
from wirespeed.litemcp import LiteServer, Parameter

# -- many at once ---------------------------------------------------------------------------------


async def test_answers_may_overtake_each_other() -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        if text == "slow":
            await gate.wait()
        return text

    async with served(server) as peer:
        await peer.send(call(1, "waits", ["slow"]), *(call(i, "waits", ["x"]) for i in (2, 3)))
        assert set(await peer.answers(2)) == {2, 3}
        gate.set()
        assert content(await peer.recv()) == [("text", "slow")]


async def test_many_calls_at_once_are_all_answered() -> None:
    async with served(calculator()) as peer:
        sending = asyncio.ensure_future(
            peer.send(*(call(i, "Calculator", [str(i), "1"]) for i in range(5000)))
        )
        answers = await peer.answers(5000)
        await sending
        for i in range(5000):
            assert content(answers[i]) == [("number", str(i + 1))]


async def test_calls_in_flight_are_bounded() -> None:
    server = LiteServer(limits=Limits(max_in_flight=3))
    running: list[asyncio.Future[str]] = []
    most = 0

    @server.tool
    async def waits(n: int) -> str:
        nonlocal most
        waiter = asyncio.get_running_loop().create_future()
        running.append(waiter)
        most = max(most, sum(not w.done() for w in running))
        return await waiter

    async with served(server) as peer:
        await peer.send(*(call(i, "waits", [str(i)]) for i in range(20)))
        for i in range(20):
            await until(lambda i=i: len(running) > i)
            assert peer.connection.stream.paused == (i < 18)
            running[i].set_result("done")
        assert len(await peer.answers(20)) == 20
        assert most == 3


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    server = LiteServer(limits=Limits(output_high=100_000, output_low=10_000))
    ran = 0

    @server.tool(inline=True)
    def big(n: int) -> str:
        nonlocal ran
        ran += 1
        return "x" * 20_000

    async with served(server) as peer:
        sending = asyncio.ensure_future(peer.send(*(call(i, "big", ["1"]) for i in range(300))))
        await until(lambda: not peer.connection.stream.want_read)
        for _ in range(20):
            await asyncio.sleep(0)
        before = ran
        assert before < 100
        assert len(peer.connection.stream.outbox) < 200_000
        answers = await peer.answers(300)
        await sending
        assert len(answers) == ran == 300


async def test_frames_that_wait_inside_are_taken_up_when_the_output_left_at_once() -> None:
    """All requests come in one read; the answers pass the limit, and leave without blocking."""
    server = LiteServer(limits=Limits(output_high=500, output_low=100))

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    async with served(server) as peer:
        await peer.send(*(call(i, "echo", ["x" * 50]) for i in range(100)))
        assert len(await peer.answers(100)) == 100


# -- handlers -------------------------------------------------------------------------------------


async def test_blocking_functions_do_not_stall_others() -> None:
    server = LiteServer()
    release = threading.Event()

    @server.tool
    def blocks(text: str) -> str:
        if text == "slow":
            assert release.wait(10)
        return f"{text} {threading.current_thread() is threading.main_thread()}"

    async with served(server) as peer:
        await peer.send(call(1, "blocks", ["slow"]))
        assert content(await peer.ask(call(2, "blocks", ["quick"]))) == [("text", "quick False")]
        release.set()
        assert content(await peer.recv()) == [("text", "slow False")]


async def test_every_kind_of_function_is_a_tool() -> None:
    context = contextvars.ContextVar("context", default=0)

    def plain(n: int) -> int:
        return n

    def inline(n: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        context.set(context.get() + 1)
        assert context.get() == 1
        return n

    def generator(n: int) -> Any:
        yield from range(n)

    async def agenerator(n: int) -> Any:
        for i in range(n):
            yield i

    async def keywords(n: int, *, times: int = 2) -> int:
        assert asyncio.current_task() is not None
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        return n * times

    class Method:
        async def method(self, n: int) -> int:
            return n

    cases: list[tuple[Any, bool, list[str]]] = [
        (plain, False, ["3"]),
        (inline, True, ["3"]),
        (generator, False, ["0", "1", "2"]),
        (agenerator, False, ["0", "1", "2"]),
        (keywords, False, ["6"]),
        (Method().method, False, ["3"]),
    ]
    for function, is_inline, expected in cases:
        server = LiteServer("t")
        server.tool(inline=is_inline)(function)
        async with served(server) as peer:
            for i in range(3):
                answer = await peer.ask(call(i, "t", ["3"]))
                assert content(answer) == [("number", e) for e in expected]


async def test_a_tool_with_a_time_limit(caplog: Any) -> None:
    server = LiteServer()
    ended = []

    @server.tool(timeout=0.05)
    async def slow(quick: bool) -> str:
        try:
            await asyncio.sleep(0 if quick else 60)
        except asyncio.CancelledError:
            ended.append(True)
            raise
        return "slept"

    async with served(server) as peer:
        answer = await peer.ask(call(1, "slow", ["false"]))
        assert failure(answer) == "tool slow timed out after 0.05 s"
        assert content(await peer.ask(call(2, "slow", ["true"]))) == [("text", "slept")]
    assert ended == [True]
    assert "timed out" in caplog.text


async def test_a_tool_of_raw_strings(once: Run) -> None:
    server = LiteServer("raw")

    async def handler(arguments: list[str]) -> Any:
        return arguments

    server.tool_raw([Parameter("a", "x"), Parameter("b", "y")], handler)
    async with served(server) as peer:
        assert content(await peer.ask(call(1, "raw", ["1"]))) == [("text", "1")]
        assert content(await peer.ask(call(2, "raw"))) == []
        answer = await peer.ask(call(3, "raw", ["1", "2", "3"]))
        assert failure(answer) == "too many arguments: 3 were given, at most 2 are allowed"
        info = await peer.ask(get(4))
        assert info["data"]["parameters"] == [
            {"name": "a", "type": "x"},
            {"name": "b", "type": "y"},
        ]
        assert "description" not in info["data"]


# -- the end --------------------------------------------------------------------------------------


async def test_what_is_in_flight_at_the_end_of_input_is_answered() -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        await gate.wait()
        return text

    async with served(server) as peer:
        # the last one has no terminator
        await peer.send(call(1, "waits", ["a"]), encode(call(2, "waits", ["b"])).rstrip())
        peer.end_input()
        await until(lambda: peer.connection.draining)
        gate.set()
        assert set(await peer.answers(2)) == {1, 2}
        assert await peer.at_end()
        await peer.connection.closed


async def test_an_unfinished_message_at_the_end_of_input_is_dropped(once: Run, caplog: Any) -> None:
    async with served(calculator()) as peer:
        await peer.send(b'{"id":1,"type":"get"')
        peer.end_input()
        assert await peer.at_end()
        assert peer.connection.faults == 1
    assert "not one JSON value" in caplog.text


async def test_calls_beyond_the_bound_are_answered_after_the_end_of_input() -> None:
    server = LiteServer(limits=Limits(max_in_flight=2))

    @server.tool
    async def waits(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    async with served(server) as peer:
        await peer.send(*(call(i, "waits", [str(i)]) for i in range(20)))
        peer.end_input()
        assert len(await peer.answers(20)) == 20
        assert await peer.at_end()


async def test_drain_takes_no_more_and_answers_what_is_there() -> None:
    server = LiteServer()
    began, gate = asyncio.Event(), asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        began.set()
        await gate.wait()
        return text

    async with served(server) as peer:
        await peer.send(call(1, "waits", ["a"]))
        await began.wait()
        peer.connection.drain()
        peer.connection.drain()
        await peer.send(call(2, "waits", ["b"]))
        gate.set()
        assert set(await peer.answers(1)) == {1}
        assert await peer.at_end()


async def test_a_tool_that_does_not_end_is_told_after_the_grace_time(caplog: Any) -> None:
    server = LiteServer(shutdown_grace=0.05)

    @server.tool
    async def hangs() -> None:
        await asyncio.sleep(60)

    async with served(server) as peer:
        await peer.send(call(1, "hangs"))
        peer.end_input()
        assert failure(await peer.recv()) == "the server is shutting down"
        assert await peer.at_end()
    assert "did not end in time" in caplog.text


async def test_a_client_that_leaves_cancels_its_calls() -> None:
    server = LiteServer()
    began = asyncio.Event()
    ended: list[str] = []

    @server.tool
    async def waits() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    async with served(server) as peer:
        await peer.send(call(1, "waits"))
        await began.wait()
        peer.connection.abort()
        await until(lambda: ended)
        assert peer.connection.closed.done()
        assert peer.connection.link is None
    assert not server.connections


async def test_a_late_failure_of_a_thread_is_logged(once: Run, caplog: Any) -> None:
    server = LiteServer()
    began = asyncio.Event()

    @server.tool
    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("late") from None

    async with served(server) as peer:
        await peer.send(call(1, "stubborn"))
        await began.wait()
    assert "failed after its client left" in caplog.text


# -- declaring ------------------------------------------------------------------------------------


def test_there_is_one_tool_a_server() -> None:
    server = calculator()
    with raises(ValueError):
        server.tool(lambda a: a)
    with raises(ValueError):
        server.tool_raw([], print)


def test_a_server_without_a_tool_is_said_before_it_serves(once: Run) -> None:
    server = LiteServer("empty")
    for serve in (server.run, lambda: once(server.serve()), lambda: server.info):
        with raises(ValueError):
            serve()
    assert repr(server) == "<LiteServer 'empty'>"


def test_the_url_that_is_advised_names_the_tool() -> None:
    server = LiteServer("the answer")
    server.tool(lambda: 42)
    with raises(TypeError):
        server.run(transport="websocket", port=1)  # type: ignore[call-arg]


def test_arguments_of_a_server_are_checked() -> None:
    for options in (
        {"name": ""},
        {"version": (1, 0)},
        {"version": (1, 0, True)},
        {"version": (1, 0, -1)},
        {"refusal_status": 404},
    ):
        with pytest.raises(ValueError, match=r"must be|status"):
            LiteServer(**options)  # type: ignore[arg-type]
    with raises(SignatureError):
        LiteServer("t").tool(lambda *args: None)
    with raises(ValueError):
        LiteServer().tool(timeout=0)(test_there_is_one_tool_a_server)
    with raises(ValueError):
        LiteServer().tool(inline=True)(asyncio.sleep)
    with raises(ValueError):
        LiteServer().tool_raw([Parameter("a", "x"), Parameter("a", "y")], print)
    with raises(ValueError):
        LiteServer(description="\ud800").tool_raw([], print)
    with raises(SignatureError):
        LiteServer(description="\ud800").tool(test_there_is_one_tool_a_server)


def test_texts_given_to_the_server_win() -> None:
    server = LiteServer("n", description="d", example="e")

    @server.tool
    async def tool(a: int) -> None:
        """Its own.

        Example: none
        """

    assert (server.info.name, server.info.description, server.info.example) == ("n", "d", "e")
    assert server.name == "n"
