"""What a LiteMCP client sends, and what it makes of good, odd and hostile answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.lite import END, Run, calculator, until
from lab.rows import every
from lab.wording import raises

from wirespeed import Limits, Socket
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    InvalidResponse,
    TransportError,
)
from wirespeed.litemcp import CallResult, Content, LiteClient, LiteServer, Parameter, Tool
from wirespeed.litemcp.client import arrange, to_text
from wirespeed.litemcp.client_connection import GENERATOR, PRIME

INFO = {
    "version": [1, 0, 0],
    "name": "T",
    "parameters": [{"name": n, "type": "string"} for n in "abc"],
}
RESULT = {
    "version": [1, 0, 0],
    "params": {"a": "1"},
    "response": {"content": [{"type": "text", "data": "ok"}], "error": False},
}

Answer = Callable[[Any], "list[Any]"]


def reply(request: Any, data: Any = None, **more: Any) -> dict[str, Any]:
    """The usual answer to a request, with other data or other members."""
    kind = "info" if request["type"] == "get" else "result"
    if data is None:
        data = INFO if kind == "info" else RESULT
    return {"version": [1, 0, 0], "id": request["id"], "type": kind, "data": data, **more}


class Script:
    """A server on a UNIX socket that answers as a function says; bytes go as they are, None ends
    the connection."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Any] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = json.loads(await reader.readuntil(END))
                self.requests.append(request)
                for answer in self.answer(request):
                    if answer is None:
                        return
                    if not isinstance(answer, bytes):
                        answer = json.dumps(answer).encode() + END
                    writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def scripted(
    tmp_path: Path, answer: Answer, *, restart: int = 0, **options: Any
) -> AsyncIterator[tuple[LiteClient, Script]]:
    script = Script(answer)
    path = tmp_path / "s"
    server = await asyncio.start_unix_server(script.serve, path)
    try:
        async with LiteClient(Socket(f"unix:{path}", restart=restart), **options) as client:
            yield client, script
    finally:
        server.close()
        await server.wait_closed()


def usual(request: Any) -> list[Any]:
    return [reply(request)]


# -- what is sent ---------------------------------------------------------------------------------


async def test_requests_are_compact_and_end_with_three_newlines(tmp_path: Path) -> None:
    async with scripted(tmp_path, usual) as (client, script):
        result = await client.call("x", c=[1, {"y": True}])
        assert result == CallResult({"a": "1"}, result.response)
        first, second = script.requests
        assert first == {"version": [1, 0, 0], "id": first["id"], "type": "get", "data": {}}
        assert second["data"] == {
            "version": [1, 0, 0],
            "tool": "T",
            "arguments": ["x", "", '[1,{"y":true}]'],
        }
        await client.call()
        assert script.requests[2]["data"]["arguments"] == []


async def test_the_tool_is_asked_for_once(tmp_path: Path) -> None:
    async with scripted(tmp_path, usual) as (client, script):
        await asyncio.gather(*(client.call("x") for _ in range(20)))
        await client.prompt()
        assert [r["type"] for r in script.requests].count("get") == 1
        await client.info()
        assert [r["type"] for r in script.requests].count("get") == 2


async def test_ids_are_random_and_none_comes_twice(once: Run, tmp_path: Path) -> None:
    async with scripted(tmp_path, usual) as (client, script):
        await asyncio.gather(*(client.call("x") for _ in range(500)))
        ids = [request["id"] for request in script.requests]
        assert len(set(ids)) == 501
        assert all(type(id) is int and 0 < id < 2**31 for id in ids)
    # the generator runs through all numbers before it comes back: its order is that of the group
    factors = (2, 3, 7, 11, 31, 151, 331)
    rest = PRIME - 1
    for factor in factors:
        while rest % factor == 0:
            rest //= factor
        assert pow(GENERATOR, (PRIME - 1) // factor, PRIME) != 1
    assert rest == 1


TOOL = Tool("T", parameters=[Parameter(n, "string") for n in "abc"])


@every(
    ("args", "kwargs", "expected"),
    [
        ((), {}, []),
        (("x",), {}, ["x"]),
        (("x",), {"b": 2}, ["x", "2"]),
        ((), {"c": "z"}, ["", "", "z"]),
        ((), {"b": "y", "a": "x"}, ["x", "y"]),
        ((1, 2.5, True), {}, ["1", "2.5", "true"]),
        ((None, b"\x00", {"a": []}), {}, ["null", "AA==", '{"a":[]}']),
    ],
)
def test_arguments_become_strings_in_order(args: Any, kwargs: Any, expected: list[str]) -> None:
    assert arrange(TOOL, args, kwargs) == expected


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1, 2, 3, 4), {}, "T takes 3 arguments, but 4 were given"),
        ((), {"d": 1}, "T has no parameter 'd'; it has: a, b, c"),
        ((1,), {"a": 1}, "T: 'a' was given twice"),
        ((object(),), {}, "has no JSON form"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_here(args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        arrange(TOOL, args, kwargs)


def test_values_whose_json_is_a_string_lose_their_quotes() -> None:
    import datetime
    import uuid

    assert to_text(datetime.date(2026, 11, 22)) == "2026-11-22"
    assert to_text(uuid.UUID(int=0)) == "00000000-0000-0000-0000-000000000000"


# -- what comes back ------------------------------------------------------------------------------


async def test_answers_may_overtake_each_other_and_strangers_are_dropped(tmp_path: Path) -> None:
    held: list[Any] = []

    def backwards(request: Any) -> list[Any]:
        if request["type"] == "get":
            return [reply({"id": 2**40, "type": "get"}), reply(request), reply(request)]
        held.append(request)
        if len(held) < 5:
            return []
        return [
            reply(r, {**RESULT, "params": {"a": r["data"]["arguments"][0]}}) for r in reversed(held)
        ]

    async with scripted(tmp_path, backwards) as (client, _):
        results = await asyncio.gather(*(client.call(i) for i in range(5)))
        assert [r.params["a"] for r in results] == list("01234")


ODD_INFO = {
    "name": "T",
    "description": 5,
    "example": {"x": 1},
    "parameters": [{"name": "a", "example": 2}, {"name": "b", "type": None, "more": []}],
}
ODD_RESULT = {
    "params": {"a": 1},
    "response": {"content": [{"type": "number", "data": 5}, {"data": {"x": 1}}, {"type": "text"}]},
}


async def test_a_lenient_client_takes_what_was_meant(once: Run, tmp_path: Path) -> None:
    def odd(request: Any) -> list[Any]:
        return [reply(request, ODD_INFO if request["type"] == "get" else ODD_RESULT)]

    async with scripted(tmp_path, odd) as (client, _):
        info = await client.info()
        assert (info.description, info.example) == ("5", '{"x":1}')
        assert info.parameters == [
            Parameter("a", "string", None, "2"),
            Parameter("b", "string"),
        ]
        result = await client.call()
        assert result.params == {"a": "1"}
        assert result.content == [
            Content("number", "5"),
            Content("text", '{"x":1}'),
            Content("text", ""),
        ]
        assert result.error is False


@pytest.mark.parametrize(
    ("kind", "data", "strict"),
    [
        ("get", ODD_INFO, True),
        ("call", ODD_RESULT, True),
        ("get", {}, False),
        ("get", {"name": 1}, False),
        ("get", [], False),
        ("get", {"name": "T", "parameters": [{"type": "x"}]}, False),
        ("get", {"name": "T", "parameters": [{"name": "a"}, {"name": "a"}]}, False),
        ("get", {**INFO, "version": [1]}, True),
        ("call", {}, False),
        ("call", {"response": 1}, False),
        ("call", {**RESULT, "version": [2, 0, 0]}, False),
        ("call", {k: v for k, v in RESULT.items() if k != "version"}, True),
        ("call", {**RESULT, "response": {"content": [], "error": "no"}}, False),
    ],
)
async def test_answers_that_are_none_are_told(
    once: Run, tmp_path: Path, kind: str, data: Any, strict: bool
) -> None:
    def bad(request: Any) -> list[Any]:
        return [reply(request, data if request["type"] == kind else None)]

    async with scripted(tmp_path, bad, strict=strict) as (client, _):
        with pytest.raises(InvalidResponse):
            await client.call("x")
        # the link is as good as before
        assert client.n_outstanding == 0
        with pytest.raises(InvalidResponse):
            await client.call("x")


@pytest.mark.parametrize("kind", ["get", "call"])
async def test_an_answer_of_another_type_is_told(once: Run, tmp_path: Path, kind: str) -> None:
    def bad(request: Any) -> list[Any]:
        return [reply(request, type="call") if request["type"] == kind else reply(request)]

    async with scripted(tmp_path, bad) as (client, _):
        with raises(InvalidResponse):
            await client.call("x")


async def test_a_server_of_another_version_can_be_asked_but_not_called(
    once: Run, tmp_path: Path, caplog: Any
) -> None:
    def newer(request: Any) -> list[Any]:
        version = [2, 1, 0]
        data = {**(INFO if request["type"] == "get" else RESULT), "version": version}
        return [reply(request, data, version=version)]

    async with scripted(tmp_path, newer) as (client, _):
        assert str((await client.info()).version) == "2.1.0"
        with raises(InvalidResponse):
            await client.call("x")
    assert "the server speaks LiteMCP 2.1.0, not 1.0.0" in caplog.text


@pytest.mark.parametrize(
    "noise",
    [
        b"nonsense\n\n\n",
        b"{}\n\n\n",
        b"\xff\xfe\n\n\n",
        b'{"id":true,"type":"info"}\n\n\n',
        b'{"id":1}\n\n\n',
        b"[" * 2000 + b"\n\n\n",
        b"x" * 20_000 + b"\n\n\n",
    ],
)
async def test_noise_is_skipped_and_logged(tmp_path: Path, noise: bytes, caplog: Any) -> None:
    limits = Limits(max_message=10_000)
    async with scripted(tmp_path, lambda r: [noise, reply(r)], limits=limits) as (client, _):
        assert (await client.call("x")).text == "ok"
    assert "skipped a line that is not a message" in caplog.text
    assert max(map(len, caplog.messages)) < 1000


# -- time, room, ends -----------------------------------------------------------------------------


async def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    async with scripted(tmp_path, lambda r: [], timeout=0.05) as (client, _):
        with raises(CallTimeout):
            await client.call("x")
        with pytest.raises(TimeoutError):
            await client.info(timeout=0.01)
        assert client.n_outstanding == 0


def test_a_timeout_is_seconds_above_0() -> None:
    for timeout in (0, -1, None):
        with raises(ValueError):
            LiteClient(calculator(), timeout=timeout)  # type: ignore[arg-type]


async def test_calls_wait_while_too_many_are_not_answered(tmp_path: Path) -> None:
    held: list[Any] = []

    def hold(request: Any) -> list[Any]:
        if request["type"] == "get":
            return [reply(request)]
        held.append(request)
        return []

    limits = Limits(max_outstanding=3)
    async with scripted(tmp_path, hold, limits=limits) as (client, _script):
        await client.info()
        calls = [asyncio.ensure_future(client.invoke(["x"], timeout=5)) for _ in range(3)]
        await until(lambda: len(held) == 3)
        with raises(CallTimeout):
            await client.invoke(["y"], timeout=0.05)
        waiting = asyncio.ensure_future(client.invoke(["z"], timeout=5))
        calls[0].cancel()
        await until(lambda: len(held) == 4)
        assert held[3]["data"]["arguments"] == ["z"]
        waiting.cancel()
        for task in calls:
            task.cancel()
        await asyncio.wait([waiting, *calls])


async def test_an_end_of_the_stream_fails_what_waits(tmp_path: Path) -> None:
    def end(request: Any) -> list[Any]:
        return [reply(request)] if request["type"] == "get" else [None]

    async with scripted(tmp_path, end) as (client, _):
        await client.info()
        results = await asyncio.gather(
            *(client.call("x") for _ in range(3)), return_exceptions=True
        )
        assert {type(r) for r in results} == {ConnectionLost}
        assert "the server closed its output" in str(results[0])
        with pytest.raises(ConnectionLost):
            await client.call("x")
    async with scripted(tmp_path, end, restart=1) as (client, script):
        with pytest.raises(ConnectionLost):
            await client.call("x")
        assert (await client.info()).name == "T"
        # what the tool is was asked again
        assert [r["type"] for r in script.requests] == ["get", "call", "get"]


async def test_what_a_server_that_ended_had_printed_is_in_the_error(
    once: Run, tmp_path: Path
) -> None:
    async with scripted(tmp_path, lambda r: [b"oh no\n\n\n", None]) as (client, _):
        with raises(ConnectionLost):
            await client.info()


async def test_a_client_that_is_not_open() -> None:
    client = LiteClient(calculator())
    assert "closed" in repr(client)
    for asking in (client.info(), client.call(1), client.prompt()):
        with raises(ConnectionClosed):
            await asking
    await client.close()


# -- a server in this process ---------------------------------------------------------------------


async def test_a_server_in_this_process() -> None:
    server = LiteServer()

    @server.tool
    def both(a: int, b: list[int] = [7]) -> list[int]:  # noqa: B006
        return [a, *b]

    async with LiteClient(server) as client:
        result = await client.call(1, [2, 3])
        assert [c.data for c in result.content] == ["1", "2", "3"]
        assert (await client.call(b=[1])).error
        big = "[" + "1," * 100_000 + "1]"
        assert len((await client.call(1, big)).content) == 100_002
    assert not server.connections
    async with client:
        assert (await client.call(1)).text == "1\n7"


def test_results_decode_into_public_structs() -> None:
    result = msgspec.json.decode(
        b'{"params":{},"response":{"content":[{"type":"text/csv","data":"a"},'
        b'{"type":"image/png","data":"AA=="},{"type":"json","data":"{}"}],"error":true}}',
        type=CallResult,
    )
    assert (result.error, result.text) == (True, "a\n{}")


async def accepted(listening: socket.socket) -> socket.socket:
    return (await asyncio.to_thread(listening.accept))[0]


async def test_closing_while_it_is_being_opened() -> None:
    # a port that takes connections and says nothing
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = LiteClient(f"ws://127.0.0.1:{silent.getsockname()[1]}/")
        opening = asyncio.ensure_future(client.open())
        (await accepted(silent)).close()
        await client.close()
        with pytest.raises((ConnectionClosed, TransportError)):
            await opening
        opening = asyncio.ensure_future(client.open())
        peer = await accepted(silent)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert "closed" in repr(client)
        while peer.recv(1000):  # the client has closed it, too
            pass
        peer.close()
        await client.close()


async def test_a_lost_link_is_opened_anew_by_open(tmp_path: Path) -> None:
    def end(request: Any) -> list[Any]:
        return [reply(request)] if request["type"] == "get" else [None]

    async with scripted(tmp_path, end) as (client, _):
        with pytest.raises(ConnectionLost):
            await client.call("x")
        with pytest.raises(ConnectionLost):
            await client.info()
        await client.open()
        assert (await client.info()).name == "T"


async def test_many_calls_that_wait_for_room_are_all_sent() -> None:
    server = calculator()
    limits = Limits(max_outstanding=10, output_high=2000, output_low=100)
    async with LiteClient(server, limits=limits) as client:
        calls = [asyncio.ensure_future(client.call(i, 1)) for i in range(1000)]
        for task in calls[::7]:
            task.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        for i, result in enumerate(results):
            if i % 7:
                assert isinstance(result, CallResult)
                assert result.text == str(i + 1)
            else:
                assert isinstance(result, asyncio.CancelledError)
