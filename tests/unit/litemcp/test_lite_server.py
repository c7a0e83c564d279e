"""What a LiteMCP server answers, ignores and logs, over a socket in this process."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lab.lite import (
    VERSION,
    Run,
    calculator,
    call,
    content,
    failure,
    get,
    served,
)
from lab.rows import every
from lab.wording import raises

from wirespeed import Limits
from wirespeed.errors import ToolError
from wirespeed.litemcp import Content, LiteServer, Response

# -- the pages' own exchange ----------------------------------------------------------------------


async def test_the_exchange_of_the_pages() -> None:
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


@pytest.mark.parametrize("data", [{}, None, {"anything": 1}, [], "x", ...])
async def test_the_data_of_a_get_do_not_matter(once: Run, data: Any) -> None:
    request = get(1, data=data)
    if data is ...:
        del request["data"]
    async with served(calculator()) as peer:
        assert (await peer.ask(request))["type"] == "info"


async def test_arguments_are_positional_and_echoed_by_name() -> None:
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


async def test_a_failing_tool_keeps_the_shape(once: Run, caplog: Any) -> None:
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

    async with served(server) as peer:
        for how, said in (
            ("loud", "these words"),
            ("silent", "KeyError"),
            (
                "unsendable",
                "the result cannot be sent as JSON: object has no JSON form; "
                "return JSON values, dataclasses or content",
            ),
            ("surrogate", "the result cannot be sent: it holds a lone surrogate"),
            ("told", "told"),
        ):
            answer = await peer.ask(call(hash(how), "fails", [how]))
            assert failure(answer) == said
            assert answer["data"]["params"] == {"how": how}
    assert "tool fails failed" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("mask", [False, True])
async def test_errors_of_the_tool_may_be_masked(
    mask: bool, once: Run, caplog: pytest.LogCaptureFixture
) -> None:
    server = LiteServer(mask_errors=mask)

    @server.tool
    async def fails(how: str) -> str:
        raise (ToolError if how == "told" else KeyError)("city")

    async with served(server) as peer:
        assert failure(await peer.ask(call(1, "fails", ["told"]))) == "city"
        assert not caplog.records
        text = failure(await peer.ask(call(2, "fails", ["secret"])))
    (record,) = caplog.records
    assert record.exc_info is not None
    if mask:
        reference = text.removeprefix("tool fails failed with KeyError; reference ")[:8]
        assert record.getMessage() == f"tool fails failed (reference {reference})"
    else:
        assert text == "KeyError: 'city'"


async def test_the_name_of_the_tool_is_exact(once: Run) -> None:
    async with served(calculator()) as peer:
        for name in ("calculator", "Calculator ", "", "add"):
            answer = await peer.ask(call(hash(name), name, ["1", "2"]))
            assert failure(answer) == f"unknown tool {name!r}: the tool is 'Calculator'"
            assert answer["data"]["params"] == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "data is not a ToolCall"),
        ([], "data is not a ToolCall"),
        ({}, "data is not a ToolCall: Object missing required field `tool`"),
        ({"tool": 1}, "data is not a ToolCall"),
        (
            {"version": VERSION, "tool": "Calculator", "arguments": {"a": "1"}},
            "data is not a ToolCall",
        ),
        ({"tool": "Calculator", "arguments": ["1", "2"]}, "data: the version is missing"),
        ({"version": [1], "tool": "Calculator", "arguments": []}, "data: a version is"),
        ({"version": [2, 0, 0], "tool": "Calculator"}, "data: LiteMCP 2.0.0 is not supported"),
    ],
)
async def test_a_call_that_is_none_gets_an_error(once: Run, data: Any, said: str) -> None:
    async with served(calculator()) as peer:
        request = {"version": VERSION, "id": 1, "type": "call", "data": data}
        assert said in failure(await peer.ask(request))


@every("text", [r"\ud800", r"x\uD800y", r"\udc00", r"\ud800\u0041", r"\\\udfff", r"\udc00\ud800"])
async def test_a_lone_surrogate_gets_an_answer(text: str) -> None:
    frame = b'{"version":[1,0,0],"id":1,"type":"TYPE","data":{"version":[1,0,0],'
    frame += b'"tool":"Calculator","arguments":["%s","1"]}}\n\n\n' % text.encode()
    async with served(calculator()) as peer:
        answer = await peer.ask(frame.replace(b"TYPE", b"call"))
        assert answer["id"] == 1
        assert "lone surrogate" in failure(answer)
        answer = await peer.ask(frame.replace(b"TYPE", b"get").replace(b":1,", b":2,", 1))
        assert answer["type"] == "info"
        await peer.nothing_for(frame.replace(b"TYPE", b"other").replace(b":1,", b":3,", 1))


@pytest.mark.parametrize(("text", "is_"), [(r"\ud83c\udf89", "🎉"), (r"\\ud800", r"\ud800")])
async def test_pairs_of_surrogates_are_text(text: str, is_: str) -> None:
    server = LiteServer("echo")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with served(server) as peer:
        data = b'{"version":[1,0,0],"tool":"echo","arguments":["%s"]}' % text.encode()
        frame = b'{"version":[1,0,0],"id":1,"type":"call","data":%s}\n\n\n' % data
        assert content(await peer.ask(frame)) == [("text", is_)]


async def test_arguments_that_are_no_strings(once: Run) -> None:
    server, loose = LiteServer(), LiteServer(strict=False)

    @server.tool
    @loose.tool
    async def show(a: str, b: str = "", c: str = "") -> str:
        return f"{a}|{b}|{c}"

    given = [1, {"x": [True, None]}, "s\u00e9"]
    async with served(server) as peer:
        answer = await peer.ask(call(1, "show", given))
        assert failure(answer) == "arguments[0] is not a string"
    async with served(loose) as peer:
        answer = await peer.ask(call(1, "show", given))
        assert content(answer) == [("text", '1|{"x":[true,null]}|s\u00e9')]
        assert answer["data"]["params"] == {"a": "1", "b": '{"x":[true,null]}', "c": "s\u00e9"}
        # nor needs its data a version
        data = {"tool": "show", "arguments": ["x"]}
        request = {"version": VERSION, "id": 2, "type": "call", "data": data}
        assert content(await peer.ask(request)) == [("text", "x||")]


async def test_a_gap_is_a_default(once: Run) -> None:
    server = LiteServer()

    @server.tool
    async def show(a: str = "A", b: int = 2, c: str = "C") -> str:
        return f"{a}|{b}|{c}"

    async with served(server) as peer:
        answer = await peer.ask(call(1, "show", ["", "", "c"]))
        assert content(answer) == [("text", "A|2|c")]
        assert answer["data"]["params"] == {"a": "", "b": "", "c": "c"}


# -- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw_id", [b"0", b"-7", b"2147483648", b"1" * 30, b"8" * 6000])
async def test_ids_come_back_as_they_were(once: Run, raw_id: bytes) -> None:
    async with served(calculator()) as peer:
        await peer.send(b'{"type":"get","id":%b,"version":[1,0,0]}\n\n\n' % raw_id)
        assert (await peer.frame()).startswith(b'{"version":[1,0,0],"id":%b,"type"' % raw_id)


@pytest.mark.parametrize("id", [True, None, 1.5, "1", [1], {}])
async def test_other_ids_are_logged_and_not_answered(once: Run, id: Any, caplog: Any) -> None:
    async with served(calculator()) as peer:
        await peer.nothing_for(get(id), call(id, "Calculator", ["1", "2"]))
        assert peer.connection.faults == 2
    assert caplog.text.count("its id is not an integer") == 2


async def test_a_repeated_id_gets_no_answer_and_runs_nothing(caplog: Any) -> None:
    server = LiteServer()
    ran = []

    @server.tool
    async def note(text: str) -> str:
        ran.append(text)
        return text

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
    assert ran == ["a", "e"]
    assert "its id 5 was used before" in caplog.text


# -- versions -------------------------------------------------------------------------------------


async def test_a_call_of_another_version_gets_an_error_and_a_get_the_info(
    once: Run,
) -> None:
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


async def test_a_server_of_another_version_says_so_everywhere(once: Run) -> None:
    async with served(calculator(version=(2, 1, 0))) as peer:
        info = await peer.ask(get(1))
        assert info["version"] == info["data"]["version"] == [2, 1, 0]
        answer = await peer.ask(call(2, "Calculator", ["1", "2"]))
        assert failure(answer) == "LiteMCP 1.0.0 is not supported, only 2.1.0"
        assert answer["version"] == answer["data"]["version"] == [2, 1, 0]


# -- what is ignored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"nonsense", "not one JSON value"),
        (b'{"id":1,"type":"get"}\n{"id":2,"type":"get"}', "not one JSON value"),
        (b'{"id":1,"type":"get"', "not one JSON value"),
        (b"[]", "not a JSON object"),
        (b'"get"', "not a JSON object"),
        (b'{"id":1,"type":"get","x":"\xff"}', "not UTF-8"),
        (b'{"type":"get"}', "without an id"),
        (b'{"id":1}', "not a message of LiteMCP (Object missing required field `type`)"),
        (b'{"id":1,"type":5}', "not a message of LiteMCP"),
        (b'{"id":1,"type":"\\ud800"}', "not a message of LiteMCP"),
        (b'{"id":1,"type":"list"}', "its type 'list' is unknown"),
        (b'{"id":1,"type":"info","data":{}}', "its type 'info' is for clients"),
        (b'{"id":1,"type":"result","data":{}}', "its type 'result' is for clients"),
        (b'{"id":1,"type":"get","data":' + b"[" * 300 + b"]" * 300 + b"}", "nested deeper"),
        (b"x" * 3000, "longer than the limit of 2000 bytes"),
    ],
)
async def test_what_cannot_be_answered_is_logged(
    once: Run, frame: bytes, said: str, caplog: Any
) -> None:
    async with served(calculator(limits=Limits(max_message=2000))) as peer:
        await peer.nothing_for(frame + b"\n\n\n")
        assert peer.connection.faults == 1
        # the id of a message that was ignored is still free
        assert (await peer.ask(get(1)))["type"] == "info"
    assert said in caplog.text
    assert max(map(len, caplog.messages)) < 1000


async def test_of_a_member_that_comes_twice_the_last_counts(once: Run) -> None:
    async with served(calculator()) as peer:
        await peer.send(b'{"id":1,"type":"call","data":5,"type":"get"}\n\n\n')
        assert (await peer.recv())["type"] == "info"


async def test_empty_frames_are_no_fault(once: Run, caplog: Any) -> None:
    async with served(calculator()) as peer:
        await peer.nothing_for(b"\n" * 6, b" \n\n\n\r\n\r\n\r\n\t\n")
        assert peer.connection.faults == 0
    assert not caplog.messages


async def test_a_flood_of_bad_input_does_not_fill_the_log(once: Run, caplog: Any) -> None:
    async with served(calculator()) as peer:
        await peer.nothing_for(b"x\n\n\n" * 1000)
        assert peer.connection.faults == 1000
    assert len(caplog.messages) == 101
    assert "is not logged" in caplog.messages[-1]


async def test_logs_are_warnings_of_the_package(once: Run, caplog: Any) -> None:
    async with served(calculator()) as peer:
        await peer.nothing_for(b"x\n\n\n")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("wirespeed.litemcp", logging.WARNING)


# -- threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["function", "generator"])
async def test_as_many_calls_run_as_the_server_has_threads(kind: str) -> None:
    release, inside = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        inside.release()
        assert release.wait(20)
        return "out"

    def words() -> Iterator[str]:
        yield wait()

    server, other = LiteServer(threads=2), LiteServer(threads=1)
    for one in (server, other):
        one.tool(wait if kind == "function" else words)
    async with served(server) as peer, served(other) as elsewhere:
        try:
            await peer.send(*(call(n, server.name) for n in range(4)))
            for _ in range(2):
                assert await asyncio.to_thread(inside.acquire, timeout=20)
            await elsewhere.send(call(9, other.name))  # it has threads of its own
            assert await asyncio.to_thread(inside.acquire, timeout=20)
            assert not await asyncio.to_thread(inside.acquire, timeout=0.1)
        finally:
            release.set()
        assert set(await peer.answers(4)) == {0, 1, 2, 3}
        assert (await elsewhere.recv())["id"] == 9
    with raises(ValueError):
        LiteServer(threads=0)
