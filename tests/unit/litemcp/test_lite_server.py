"""What a LiteMCP server answers, ignores and logs, over a socket in this process."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from typing import Any

import pytest
from lite_lab import (
    VERSION,
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

from wirespeed import Limits
from wirespeed.litemcp import Content, LiteServer, Parameter, Response
from wirespeed.server import SignatureError

# -- the pages' own exchange ----------------------------------------------------------------------


def test_the_exchange_of_the_pages(run: Run) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            answer = await peer.ask(json.dumps(get(1), indent=4).encode() + b"\n\n\n")
            assert answer == {
                "version": [1, 0, 0],
                "id": 1,
                "type": "info",
                "data": {
                    "version": [1, 0, 0],
                    "name": "Calculator",
                    "description": "A simple calculator",
                    "example": "Calculate the sum of 2 and 3",
                    "parameters": [
                        {
                            "name": "a",
                            "type": "number",
                            "description": "The first number",
                            "example": "2",
                        },
                        {
                            "name": "b",
                            "type": "number",
                            "description": "The second number",
                            "example": "3",
                        },
                    ],
                },
            }
            answer = await peer.ask(call(2, "Calculator", ["2", "3"]))
            assert answer == {
                "version": [1, 0, 0],
                "id": 2,
                "type": "result",
                "data": {
                    "version": [1, 0, 0],
                    "params": {"a": "2", "b": "3"},
                    "response": {"content": [{"type": "number", "data": "5"}], "error": False},
                },
            }

    run(main())


@pytest.mark.parametrize("data", [{}, None, {"anything": 1}, [], "x", ...])
def test_trap_91_the_data_of_a_get_do_not_matter(once: Run, data: Any) -> None:
    async def main() -> None:
        request = get(1, data=data)
        if data is ...:
            del request["data"]
        async with served(calculator()) as peer:
            assert (await peer.ask(request))["type"] == "info"

    once(main())


def test_trap_92_arguments_are_positional_and_echoed_by_name(run: Run) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            answer = await peer.ask(call(1, "Calculator", ["2", "3"]))
            assert answer["data"]["params"] == {"a": "2", "b": "3"}
            answer = await peer.ask(call(2, "Calculator", ["x", "3"]))
            assert answer["data"]["params"] == {"a": "x", "b": "3"}
            assert failure(answer) == "argument 'a': expected number, got 'x'"
            answer = await peer.ask(call(3, "Calculator", ["2"]))
            assert answer["data"]["params"] == {"a": "2"}
            assert failure(answer) == "missing argument: b"
            answer = await peer.ask(call(4, "Calculator", ["1", "2", "3"]))
            assert answer["data"]["params"] == {"a": "1", "b": "2"}
            assert "too many arguments" in failure(answer)
            for none in (None, []):
                answer = await peer.ask(call(5 + (none is None), "Calculator", none))
                assert failure(answer) == "missing arguments: a, b"

    run(main())


def test_trap_92_a_failing_tool_keeps_the_shape(once: Run, caplog: Any) -> None:
    server = LiteServer()

    @server.tool
    async def fails(how: str) -> Any:
        if how == "silent":
            raise KeyError
        if how == "unsendable":
            return object()
        if how == "surrogate":
            return "\ud800"
        if how == "told":
            return Response([Content("text", "told")], True)
        raise ValueError("these words")

    async def main() -> None:
        async with served(server) as peer:
            for how, said in (
                ("loud", "these words"),
                ("silent", "KeyError"),
                ("unsendable", "the result cannot be sent as JSON: object has no JSON form"),
                ("surrogate", "the result cannot be sent: it holds a lone surrogate"),
                ("told", "told"),
            ):
                answer = await peer.ask(call(hash(how), "fails", [how]))
                assert failure(answer) == said
                assert answer["data"]["params"] == {"how": how}

    once(main())
    assert "tool fails failed" in caplog.text
    assert "Traceback" in caplog.text


def test_the_name_of_the_tool_is_exact(once: Run) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            for name in ("calculator", "Calculator ", "", "add"):
                answer = await peer.ask(call(hash(name), name, ["1", "2"]))
                assert failure(answer) == f"unknown tool {name!r}: this one is 'Calculator'"
                assert answer["data"]["params"] == {}

    once(main())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "data is no ToolCall"),
        ([], "data is no ToolCall"),
        ({}, "data is no ToolCall: Object missing required field `tool`"),
        ({"tool": 1}, "data is no ToolCall"),
        ({"version": VERSION, "tool": "Calculator", "arguments": {"a": "1"}}, "data is no ToolCall"),
        ({"tool": "Calculator", "arguments": ["1", "2"]}, "data: the version is missing"),
        ({"version": [1], "tool": "Calculator", "arguments": []}, "data: a version is"),
        ({"version": [2, 0, 0], "tool": "Calculator"}, "data: LiteMCP 2.0.0 is not spoken here"),
    ],
)
def test_a_call_that_is_none_gets_an_error(once: Run, data: Any, said: str) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            request = {"version": VERSION, "id": 1, "type": "call", "data": data}
            assert said in failure(await peer.ask(request))

    once(main())


def test_arguments_that_are_no_strings(once: Run) -> None:
    server, loose = LiteServer(), LiteServer(strict=False)

    @server.tool
    @loose.tool
    async def show(a: str, b: str = "", c: str = "") -> str:
        return f"{a}|{b}|{c}"

    async def main() -> None:
        given = [1, {"x": [True, None]}, "s\u00e9"]
        async with served(server) as peer:
            answer = await peer.ask(call(1, "show", given))
            assert failure(answer) == "arguments[0] is no string"
        async with served(loose) as peer:
            answer = await peer.ask(call(1, "show", given))
            assert content(answer) == [("text", '1|{"x":[true,null]}|s\u00e9')]
            assert answer["data"]["params"] == {"a": "1", "b": '{"x":[true,null]}', "c": "s\u00e9"}
            # nor needs its data a version
            data = {"tool": "show", "arguments": ["x"]}
            request = {"version": VERSION, "id": 2, "type": "call", "data": data}
            assert content(await peer.ask(request)) == [("text", "x||")]

    once(main())


def test_a_gap_is_a_default(once: Run) -> None:
    server = LiteServer()

    @server.tool
    async def show(a: str = "A", b: int = 2, c: str = "C") -> str:
        return f"{a}|{b}|{c}"

    async def main() -> None:
        async with served(server) as peer:
            answer = await peer.ask(call(1, "show", ["", "", "c"]))
            assert content(answer) == [("text", "A|2|c")]
            assert answer["data"]["params"] == {"a": "", "b": "", "c": "c"}

    once(main())


# -- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw_id", [b"0", b"-7", b"2147483648", b"1" * 30, b"8" * 6000])
def test_ids_come_back_as_they_were(once: Run, raw_id: bytes) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.send(b'{"type":"get","id":%b,"version":[1,0,0]}\n\n\n' % raw_id)
            assert (await peer.frame()).startswith(b'{"version":[1,0,0],"id":%b,"type"' % raw_id)

    once(main())


@pytest.mark.parametrize("id", [True, None, 1.5, "1", [1], {}])
def test_other_ids_are_logged_and_not_answered(once: Run, id: Any, caplog: Any) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.nothing_for(get(id), call(id, "Calculator", ["1", "2"]))
            assert peer.connection.faults == 2

    once(main())
    assert caplog.text.count("its id is no integer") == 2


def test_trap_90_a_repeated_id_gets_no_answer_and_runs_nothing(run: Run, caplog: Any) -> None:
    server = LiteServer()
    ran = []

    @server.tool
    async def note(text: str) -> str:
        ran.append(text)
        return text

    async def main() -> None:
        async with served(server) as peer:
            assert content(await peer.ask(call(5, "note", ["a"]))) == [("text", "a")]
            await peer.nothing_for(call(5, "note", ["b"]), get(5), b'{"id":5,"type":"get"}\n\n\n')
            # a get uses one up, too, and so does a call that fails
            assert (await peer.ask(get(6)))["type"] == "info"
            failure(await peer.ask(call(7, "other")))
            await peer.nothing_for(call(6, "note", ["c"]), call(7, "note", ["d"]))
            # the scope is the connection
            async with served(server) as other:
                assert content(await other.ask(call(5, "note", ["e"]))) == [("text", "e")]

    run(main())
    assert ran == ["a", "e"]
    assert "its id 5 was used before" in caplog.text


# -- versions -------------------------------------------------------------------------------------


def test_trap_97_a_call_of_another_version_gets_an_error_and_a_get_the_info(once: Run) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            versions = ([2, 0, 0], [1, 0], "1.0.0", None, [1, 0, True])
            for i, version in enumerate(versions):
                asked = await peer.ask(call(10 + i, "Calculator", ["1", "2"], version=version))
                assert "version" in failure(asked) or "2.0.0" in failure(asked)
                info = await peer.ask(get(20 + i, version=version))
                assert info["type"] == "info"
                assert info["version"] == info["data"]["version"] == VERSION
            for i, version in enumerate(([1, 10, 3], {"major": 1, "minor": 0, "patch": 0})):
                request = call(30 + i, "Calculator", ["1", "2"], version=version)
                request["data"]["version"] = version
                assert content(await peer.ask(request)) == [("number", "3")]
            request = call(40, "Calculator", ["1", "2"])
            del request["version"]
            assert failure(await peer.ask(request)) == "the version is missing"

    once(main())


def test_a_server_of_another_version_says_so_everywhere(once: Run) -> None:
    async def main() -> None:
        async with served(calculator(version=(2, 1, 0))) as peer:
            info = await peer.ask(get(1))
            assert info["version"] == info["data"]["version"] == [2, 1, 0]
            answer = await peer.ask(call(2, "Calculator", ["1", "2"]))
            assert failure(answer) == "LiteMCP 1.0.0 is not spoken here, but 2.1.0"
            assert answer["version"] == answer["data"]["version"] == [2, 1, 0]

    once(main())


# -- what is ignored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"nonsense", "not one JSON value"),
        (b'{"id":1,"type":"get"}\n{"id":2,"type":"get"}', "not one JSON value"),
        (b'{"id":1,"type":"get"', "not one JSON value"),
        (b"[]", "no JSON object"),
        (b'"get"', "no JSON object"),
        (b'{"id":1,"type":"get","x":"\xff"}', "not UTF-8"),
        (b'{"type":"get"}', "without an id"),
        (b'{"id":1}', "no message of LiteMCP (Object missing required field `type`)"),
        (b'{"id":1,"type":5}', "no message of LiteMCP"),
        (b'{"id":1,"type":"\\ud800"}', "no message of LiteMCP"),
        (b'{"id":1,"type":"list"}', "its type 'list' is unknown"),
        (b'{"id":1,"type":"info","data":{}}', "its type 'info' is for clients"),
        (b'{"id":1,"type":"result","data":{}}', "its type 'result' is for clients"),
        (b'{"id":1,"type":"get","data":' + b"[" * 300 + b"]" * 300 + b"}", "nested deeper"),
        (b"x" * 3000, "longer than the limit of 2000 bytes"),
    ],
)
def test_what_cannot_be_answered_is_logged(
    once: Run, frame: bytes, said: str, caplog: Any
) -> None:
    async def main() -> None:
        async with served(calculator(limits=Limits(max_message=2000))) as peer:
            await peer.nothing_for(frame + b"\n\n\n")
            assert peer.connection.faults == 1
            # the id of a message that was ignored is still free
            assert (await peer.ask(get(1)))["type"] == "info"

    once(main())
    assert said in caplog.text
    assert max(map(len, caplog.messages)) < 1000


def test_trap_89_empty_frames_are_no_fault(once: Run, caplog: Any) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.nothing_for(b"\n" * 6, b" \n\n\n\r\n\r\n\r\n\t\n")
            assert peer.connection.faults == 0

    once(main())
    assert not caplog.messages


def test_a_flood_of_bad_input_does_not_fill_the_log(once: Run, caplog: Any) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.nothing_for(b"x\n\n\n" * 1000)
            assert peer.connection.faults == 1000

    once(main())
    assert len(caplog.messages) == 101
    assert "is not logged" in caplog.messages[-1]


# -- many at once ---------------------------------------------------------------------------------


def test_answers_may_overtake_each_other(run: Run) -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        if text == "slow":
            await gate.wait()
        return text

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "waits", ["slow"]), *(call(i, "waits", ["x"]) for i in (2, 3)))
            assert set(await peer.answers(2)) == {2, 3}
            gate.set()
            assert content(await peer.recv()) == [("text", "slow")]

    run(main())


def test_many_calls_at_once_are_all_answered(run: Run) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            sending = asyncio.ensure_future(
                peer.send(*(call(i, "Calculator", [str(i), "1"]) for i in range(5000)))
            )
            answers = await peer.answers(5000)
            await sending
            for i in range(5000):
                assert content(answers[i]) == [("number", str(i + 1))]

    run(main())


def test_calls_in_flight_are_bounded(run: Run) -> None:
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

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(*(call(i, "waits", [str(i)]) for i in range(20)))
            for i in range(20):
                await until(lambda i=i: len(running) > i)
                assert peer.connection.stream.paused == (i < 18)
                running[i].set_result("done")
            assert len(await peer.answers(20)) == 20
            assert most == 3

    run(main())


def test_a_client_that_does_not_read_is_not_read_from(run: Run) -> None:
    server = LiteServer(limits=Limits(output_high=100_000, output_low=10_000))
    ran = 0

    @server.tool(inline=True)
    def big(n: int) -> str:
        nonlocal ran
        ran += 1
        return "x" * 20_000

    async def main() -> None:
        async with served(server) as peer:
            sending = asyncio.ensure_future(
                peer.send(*(call(i, "big", ["1"]) for i in range(300)))
            )
            await until(lambda: not peer.connection.stream.want_read)
            for _ in range(20):
                await asyncio.sleep(0)
            before = ran
            assert before < 100
            assert len(peer.connection.stream.outbox) < 200_000
            answers = await peer.answers(300)
            await sending
            assert len(answers) == ran == 300

    run(main())


def test_frames_that_wait_inside_are_taken_up_when_the_output_left_at_once(run: Run) -> None:
    """All requests come in one read; the answers pass the limit, and leave without blocking."""
    server = LiteServer(limits=Limits(output_high=500, output_low=100))

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(*(call(i, "echo", ["x" * 50]) for i in range(100)))
            assert len(await peer.answers(100)) == 100

    run(main())


# -- handlers -------------------------------------------------------------------------------------


def test_blocking_functions_do_not_stall_others(run: Run) -> None:
    server = LiteServer()
    release = threading.Event()

    @server.tool
    def blocks(text: str) -> str:
        if text == "slow":
            assert release.wait(10)
        return f"{text} {threading.current_thread() is threading.main_thread()}"

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "blocks", ["slow"]))
            assert content(await peer.ask(call(2, "blocks", ["quick"]))) == [("text", "quick False")]
            release.set()
            assert content(await peer.recv()) == [("text", "slow False")]

    run(main())


def test_every_kind_of_function_is_a_tool(run: Run) -> None:
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

    async def main() -> None:
        for function, is_inline, expected in cases:
            server = LiteServer("t")
            server.tool(inline=is_inline)(function)
            async with served(server) as peer:
                for i in range(3):
                    answer = await peer.ask(call(i, "t", ["3"]))
                    assert content(answer) == [("number", e) for e in expected]

    run(main())


def test_a_tool_with_a_time_limit(run: Run, caplog: Any) -> None:
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

    async def main() -> None:
        async with served(server) as peer:
            answer = await peer.ask(call(1, "slow", ["false"]))
            assert failure(answer) == "tool slow timed out after 0.05 s"
            assert content(await peer.ask(call(2, "slow", ["true"]))) == [("text", "slept")]

    run(main())
    assert ended == [True]
    assert "timed out" in caplog.text


def test_a_tool_of_raw_strings(once: Run) -> None:
    server = LiteServer("raw")

    async def handler(arguments: list[str]) -> Any:
        return arguments

    server.tool_raw([Parameter("a", "x"), Parameter("b", "y")], handler)

    async def main() -> None:
        async with served(server) as peer:
            assert content(await peer.ask(call(1, "raw", ["1"]))) == [("text", "1")]
            assert content(await peer.ask(call(2, "raw"))) == []
            answer = await peer.ask(call(3, "raw", ["1", "2", "3"]))
            assert failure(answer) == "too many arguments: 3 were given, 2 can be taken"
            info = await peer.ask(get(4))
            assert info["data"]["parameters"] == [
                {"name": "a", "type": "x"},
                {"name": "b", "type": "y"},
            ]
            assert "description" not in info["data"]

    once(main())


# -- the end --------------------------------------------------------------------------------------


def test_what_is_in_flight_at_the_end_of_input_is_answered(run: Run) -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        await gate.wait()
        return text

    async def main() -> None:
        async with served(server) as peer:
            # the last one has no terminator
            await peer.send(call(1, "waits", ["a"]), encode(call(2, "waits", ["b"])).rstrip())
            peer.end_input()
            await until(lambda: peer.connection.draining)
            gate.set()
            assert set(await peer.answers(2)) == {1, 2}
            assert await peer.at_end()
            await peer.connection.closed

    run(main())


def test_an_unfinished_message_at_the_end_of_input_is_dropped(once: Run, caplog: Any) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.send(b'{"id":1,"type":"get"')
            peer.end_input()
            assert await peer.at_end()
            assert peer.connection.faults == 1

    once(main())
    assert "not one JSON value" in caplog.text


def test_calls_beyond_the_bound_are_answered_after_the_end_of_input(run: Run) -> None:
    server = LiteServer(limits=Limits(max_in_flight=2))

    @server.tool
    async def waits(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(*(call(i, "waits", [str(i)]) for i in range(20)))
            peer.end_input()
            assert len(await peer.answers(20)) == 20
            assert await peer.at_end()

    run(main())


def test_drain_takes_no_more_and_answers_what_is_there(run: Run) -> None:
    server = LiteServer()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        await gate.wait()
        return text

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "waits", ["a"]))
            await until(lambda: peer.connection._running)
            peer.connection.drain()
            peer.connection.drain()
            await peer.send(call(2, "waits", ["b"]))
            gate.set()
            assert set(await peer.answers(1)) == {1}
            assert await peer.at_end()

    run(main())


def test_a_tool_that_does_not_end_is_told_after_the_grace_time(run: Run, caplog: Any) -> None:
    server = LiteServer(shutdown_grace=0.05)

    @server.tool
    async def hangs() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "hangs"))
            peer.end_input()
            assert failure(await peer.recv()) == "the server is shutting down"
            assert await peer.at_end()

    run(main())
    assert "did not end in time" in caplog.text


def test_a_client_that_leaves_cancels_its_calls(run: Run) -> None:
    server = LiteServer()
    ended: list[str] = []

    @server.tool
    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "waits"))
            await until(lambda: peer.connection._running)
            peer.connection.abort()
            await until(lambda: ended)
            assert peer.connection.closed.done()
            assert peer.connection.link is None
        assert not server._connections

    run(main())


def test_a_late_failure_of_a_thread_is_logged(once: Run, caplog: Any) -> None:
    server = LiteServer()

    @server.tool
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("late") from None

    async def main() -> None:
        async with served(server) as peer:
            await peer.send(call(1, "stubborn"))
            await until(lambda: peer.connection._running)

    once(main())
    assert "failed after its client left" in caplog.text


# -- declaring ------------------------------------------------------------------------------------


def test_there_is_one_tool_a_server() -> None:
    server = calculator()
    with pytest.raises(ValueError, match="make another LiteServer"):
        server.tool(lambda a: a)
    with pytest.raises(ValueError, match="make another LiteServer"):
        server.tool_raw([], print)


def test_a_server_without_a_tool_is_said_before_it_serves(once: Run) -> None:
    server = LiteServer("empty")
    for serve in (server.run, lambda: once(server.serve()), lambda: server.info):
        with pytest.raises(ValueError, match="has no tool"):
            serve()
    assert repr(server) == "<LiteServer 'empty'>"


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
    with pytest.raises(SignatureError, match="args"):
        LiteServer("t").tool(lambda *args: None)
    with pytest.raises(ValueError, match="timeout"):
        LiteServer().tool(timeout=0)(test_there_is_one_tool_a_server)
    with pytest.raises(ValueError, match="inline"):
        LiteServer().tool(inline=True)(asyncio.sleep)
    with pytest.raises(ValueError, match="two parameters named a"):
        LiteServer().tool_raw([Parameter("a", "x"), Parameter("a", "y")], print)
    with pytest.raises(ValueError, match="lone surrogate"):
        LiteServer(description="\ud800").tool_raw([], print)
    with pytest.raises(SignatureError, match="surrogates not allowed"):
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


def test_logs_are_warnings_of_the_package(once: Run, caplog: Any) -> None:
    async def main() -> None:
        async with served(calculator()) as peer:
            await peer.nothing_for(b"x\n\n\n")

    once(main())
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("wirespeed.litemcp", logging.WARNING)
