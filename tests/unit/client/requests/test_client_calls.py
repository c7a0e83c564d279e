"""Calls and what comes of them: results, errors, strange responses, progress, arguments."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from lab.client import LEGACY, META, MODERN, Fake, Run, fill, text_result, turns
from lab.wording import raises
from msgspec import UNSET

from wirespeed import Client
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    LimitExceeded,
    LocalError,
    RemoteError,
)
from wirespeed.limits import Limits
from wirespeed.protocol.blocks import Audio, EmbeddedResource, Image, ResourceLink, Text
from wirespeed.types import CallToolResult, UnknownContent

pytestmark = pytest.mark.compiled

Make = Callable[..., Fake]


def calling(base: Any, **tools: Any) -> dict[str, Any]:
    """Rules that do something for the tools of these names."""
    return base | {f"tools/call:{name}": actions for name, actions in tools.items()}


def raw(text: str) -> list[list[Any]]:
    """A whole response but for its head."""
    return [["raw", fill('{"jsonrpc":"2.0","id":$ID,%s}', text)]]


async def call(server: Fake, *names: str, **options: Any) -> list[Any]:
    """What calls of these tools give, results or exceptions; of a legacy server."""
    async with Client(server.target, era="legacy") as client:
        return [
            *await asyncio.gather(
                *(client.call_tool(name, **options) for name in names), return_exceptions=True
            )
        ]


# -- results ---------------------------------------------------------------------------------------


def test_every_kind_of_content(once: Run, fake: Make) -> None:
    content = [
        {"type": "text", "text": "tönt 🎶", "annotations": {"priority": 0.5}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
        {"type": "text", "text": "more"},
    ]
    result = {"content": content, "_meta": {"a": 1}, "unknown": True}
    server = fake(calling(LEGACY, all=[["result", result]]))
    [got] = once(call(server, "all"))
    kinds = [type(block) for block in got.content]
    assert kinds == [Text, Image, Audio, ResourceLink, EmbeddedResource, EmbeddedResource, Text]
    assert got.text == "tönt 🎶\nmore"
    assert (got.meta, got.is_error, got.structured_content) == ({"a": 1}, False, UNSET)
    assert json.loads(msgspec.json.encode(got.content[:2])) == [
        content[0] | {"annotations": {"priority": 0.5}},
        content[1],
    ]


def test_unknown_content_is_kept_as_it_came(once: Run, fake: Make) -> None:
    blocks = [{"type": "hologram", "x": [1]}, {"type": "text", "text": "a"}, {"no": "type"}]
    result = {"content": blocks, "structuredContent": [1, None], "isError": True, "_meta": {"b": 2}}
    server = fake(calling(LEGACY, odd=[["result", result]]))
    [got] = once(call(server, "odd"))
    assert got.content == [UnknownContent(blocks[0]), Text("a"), UnknownContent(blocks[2])]
    assert got.structured_content == [1, None]
    assert (got.is_error, got.meta, got.text) == (True, {"b": 2}, "a")


@pytest.mark.parametrize(
    "value", [{"a": {"b": [1, 2.5, None]}}, [1], "text", 0, False, 12345678901234567890123]
)
def test_structured_content_is_any_json(once: Run, fake: Make, value: Any) -> None:
    server = fake(calling(LEGACY, some=[["result", {"content": [], "structuredContent": value}]]))
    [got] = once(call(server, "some"))
    assert got.structured_content == value and type(got.structured_content) is type(value)


def test_a_failed_tool_is_a_result(once: Run, fake: Make) -> None:
    server = fake(calling(LEGACY, bad=[["result", text_result("sorry") | {"isError": True}]]))
    [got] = once(call(server, "bad"))
    assert isinstance(got, CallToolResult) and got.is_error and got.text == "sorry"


async def test_a_missing_result_type_is_complete(once: Run, fake: Make) -> None:
    server = fake(calling(MODERN, plain=[["result", text_result("a")]]))
    async with Client(server.target) as client:
        assert (await client.call_tool("plain")).result_type == "complete"


@pytest.mark.parametrize("kind", ["task", "", "Complete"])
@pytest.mark.parametrize("content", [[], [{"type": "hologram"}]])
async def test_an_unknown_result_type_is_an_error(
    once: Run, fake: Make, kind: str, content: Any
) -> None:
    result = {"content": content, "resultType": kind}
    server = fake(
        MODERN
        | {
            "tools/call": [["result", result]],
            "tools/list": [["result", {"tools": [], "resultType": kind}]],
        }
    )
    async with Client(server.target) as client:
        with pytest.raises(InvalidResponse, match=f"resultType {kind!r}"):
            await client.call_tool("any")
        with pytest.raises(InvalidResponse, match=f"resultType {kind!r}"):
            await client.list_tools()


@pytest.mark.parametrize(
    "result",
    [
        1, None, "text", [], {"content": {}}, {"content": [1]},
        {"content": [{"type": "text"}]}, {"content": [{"type": "image", "data": 1}]},
        {"content": [], "isError": "yes"}, {"content": [], "_meta": 1},
    ],
)  # fmt: skip
def test_an_invalid_result_fails_its_call_only(once: Run, fake: Make, result: Any) -> None:
    server = fake(calling(LEGACY, broken=[["result", result]]))
    broken, good = once(call(server, "broken", "echo"))
    assert isinstance(broken, InvalidResponse) and "tools/call is not valid" in str(broken)
    assert not isinstance(broken, LocalError)
    assert good.text == "ok"


# -- errors and strange responses ------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, 0, "", [], {"supported": [1]}, False])
def test_errors_of_the_server(once: Run, fake: Make, data: Any) -> None:
    error = {"code": -32602, "message": "Unknown tool: x", "data": data, "more": 1}
    server = fake(calling(LEGACY, x=[["error", error]]))
    failed, good = once(call(server, "x", "echo"))
    assert type(failed) is RemoteError
    assert (failed.code, failed.message, failed.data) == (-32602, "Unknown tool: x", data)
    assert str(failed) == "Unknown tool: x (code -32602)"
    assert good.text == "ok"


@pytest.mark.parametrize(
    "text",
    [
        '"result":{"content":[]},"error":{"code":1,"message":"both"}',
        '"neither":1',
        '"error":"text"',
        '"error":null',
        '"error":[]',
        '"error":{}',
        '"error":{"code":"1","message":"m"}',
        '"error":{"code":1.5,"message":"m"}',
        '"error":{"code":1}',
        '"error":{"code":1,"message":2}',
    ],
)
def test_a_broken_response_fails_the_call(once: Run, fake: Make, text: str) -> None:
    server = fake(calling(LEGACY, broken=raw(text)))
    broken, good = once(call(server, "broken", "echo"))
    assert type(broken) is InvalidResponse
    assert good.text == "ok"


def test_a_response_of_another_json_rpc_fails_the_call(once: Run, fake: Make) -> None:
    line = '{"jsonrpc":"1.0","id":$ID,"result":{"content":[]}}'
    [broken] = once(call(fake(calling(LEGACY, old=[["raw", line]])), "old"))
    assert type(broken) is InvalidResponse and "jsonrpc" in str(broken)


@pytest.mark.parametrize("head", ["", '"id":null,', '"id":"x",', '"id":true,', '"id":[$ID],'])
async def test_errors_about_nothing_are_ignored(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    line = fill('{"jsonrpc":"2.0",%s"error":{"code":-32700,"message":"what?"}}', head)
    server = fake(calling(LEGACY, odd=[["raw", line], ["result", text_result("still")]]))
    async with Client(server.target, era="legacy") as client:
        assert (await client.call_tool("odd")).text == "still"
        late = client.counters["late_responses"]
        assert (late == 1) == (head == '"id":"x",')
    assert "what?" in caplog.text


@pytest.mark.parametrize("id", ['"$ID"', "$ID.0", '"$ID.0"'])
async def test_an_answer_whose_id_has_another_type(once: Run, fake: Make, id: str) -> None:
    error = fill('{"jsonrpc":"2.0","id":%s,"error":{"code":-5,"message":"mine"}}', id)
    result = fill('{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}', id)
    server = fake(calling(LEGACY, bad=[["raw", error]], good=[["raw", result]]))
    async with Client(server.target, era="legacy") as client:
        with pytest.raises(RemoteError, match="mine"):
            await client.call_tool("bad")
        assert (await client.call_tool("good")).content == []


async def test_an_answer_that_fits_no_call_is_named(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    line = '{"jsonrpc":"2.0","id":"other","result":{"content":[]}}'
    server = fake(calling(LEGACY, odd=[["raw", line]]))
    async with Client(server.target, era="legacy") as client:
        with raises(CallTimeout):
            await client.call_tool("odd", timeout=0.5)
    assert "skipped an answer" in caplog.text


async def test_unknown_and_double_responses_are_counted(once: Run, fake: Make) -> None:
    twice = [
        ["result", text_result("first")],
        ["result", text_result("second")],
        *raw('"error":{"code":1,"message":"third"}'),
    ]
    unknown = [
        ["raw", fill('{"jsonrpc":"2.0","id":%s,"result":{}}', text)]
        for text in ("0", "-1", "99999999", '"1"', '""', "123456789012345678901234567890")
    ]
    server = fake(calling(LEGACY, twice=twice, unknown=[*unknown, ["result", text_result("u")]]))
    async with Client(server.target, era="legacy") as client:
        assert (await client.call_tool("twice")).text == "first"
        assert (await client.call_tool("unknown")).text == "u"
        assert client.counters["late_responses"] == 2 + len(unknown)
        assert client.counters["requests_outstanding"] == 0


def test_answers_out_of_order_find_their_callers(run: Run, fake: Make) -> None:
    server = fake(
        calling(
            LEGACY,
            a=[["later", [["result", text_result("a")]]]],
            b=[["later", [["result", text_result("b")]]]],
            c=[["result", text_result("c")], ["release"]],
        )
    )
    got = run(call(server, "a", "b", "a", "c"))
    assert [result.text for result in got] == ["a", "b", "a", "c"]


async def test_a_decoder_that_fails_fails_its_request_only(once: Run, fake: Make) -> None:
    server = fake(LEGACY)

    def broken(exc: BaseException) -> Callable[[Any], Any]:
        def decode(data: Any) -> Any:
            raise exc

        return decode

    async with Client(server.target, era="legacy") as client:
        with pytest.raises(ZeroDivisionError):
            await client.request("ping", decode=broken(ZeroDivisionError("mine")))
        with raises(InvalidResponse):
            await client.request("ping", decode=broken(ValueError("mine")))
        with raises(RuntimeError):
            await client.request("ping", decode=broken(StopIteration(1)))
        assert await client.request("ping", decode=bytes) == b"{}"
        assert await client.request("ping") == {}


# -- concurrency and limits ------------------------------------------------------------------------


async def test_a_thousand_calls_at_once(fake: Make) -> None:
    server = fake(LEGACY)
    async with Client(server.target, era="legacy") as client:
        results = await asyncio.gather(*(client.call_tool("echo", {"i": i}) for i in range(1000)))
        assert [result.text for result in results] == ["ok"] * 1000
        assert client.counters["requests_outstanding"] == 0
    sent = server.sent("tools/call")
    assert [message["params"]["arguments"]["i"] for message in sent] == list(range(1000))
    assert len({message["id"] for message in sent}) == 1000


async def test_too_many_outstanding_calls(once: Run, fake: Make) -> None:
    server = fake(
        calling(
            LEGACY,
            wait=[["later", [["result", text_result("w")]]]],
            go=[["release"], ["result", text_result("g")]],
        )
    )
    limits = Limits(max_outstanding=3)
    async with Client(server.target, era="legacy", limits=limits) as client:
        waiting = [asyncio.create_task(client.call_tool("wait")) for _ in range(2)]
        await turns()
        go = asyncio.create_task(client.call_tool("go"))
        await turns(1)
        with raises(LimitExceeded):
            await client.call_tool("echo")
        with pytest.raises(LimitExceeded):
            await client.ping()
        await asyncio.gather(go, *waiting)
        assert (await client.call_tool("echo")).text == "ok"
    assert len(server.sent("tools/call")) == 4 and not server.sent("ping")


# -- progress --------------------------------------------------------------------------------------


def progress(params: str) -> list[Any]:
    line = '{"jsonrpc":"2.0","method":"notifications/progress","params":{%s}}'
    return ["raw", fill(line, params)]


STEPS = [
    progress('"progressToken":$TOKEN,"progress":1,"total":3,"message":"one"'),
    progress('"progressToken":$TOKEN,"progress":2.5'),
    progress('"progressToken":$TOKEN,"progress":3,"total":null'),
    ["result", text_result("done")],
    progress('"progressToken":$TOKEN,"progress":4'),
]


@pytest.mark.parametrize("base", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_progress_comes_in_order_and_stops_with_the_answer(fake: Make, base: Any) -> None:
    server = fake(calling(base, slow=STEPS))
    seen: list[Any] = []
    async with Client(server.target) as client:
        await client.call_tool("slow", on_progress=lambda *step: seen.append(step))
        assert seen == [(1.0, 3.0, "one"), (2.5, None, None), (3.0, None, None)]
        await client.call_tool("echo")
        assert len(seen) == 3
    message = server.sent("tools/call")[0]
    token = message["params"]["_meta"]["progressToken"]
    assert token == message["id"]
    assert (META + "protocolVersion" in message["params"]["_meta"]) == (base is MODERN)
    assert "progressToken" not in server.sent("tools/call")[1]["params"].get("_meta", {})


@pytest.mark.parametrize("base", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_progress_that_does_not_rise_is_not_handed_on(
    once: Run, fake: Make, base: Any
) -> None:
    values = ["-1", "0", "0", "-5", "0.5", "0.5", "0.25", "1e2", "99", "100", "101"]
    steps = [progress(f'"progressToken":$TOKEN,"progress":{value}') for value in values]
    server = fake(calling(base, slow=[*steps, ["result", text_result()]]))
    seen: list[Any] = []
    async with Client(server.target) as client:
        for _ in range(2):  # each request begins anew
            await client.call_tool("slow", on_progress=lambda value, *_: seen.append(value))
    assert seen == [-1, 0, 0.5, 100, 101] * 2


async def test_progress_of_other_tokens_is_not_handed_on(once: Run, fake: Make) -> None:
    tokens = ("0", '""', '"$TOKEN"', "$TOKEN.0", "null", "999")
    lines = [progress(f'"progressToken":{token},"progress":1') for token in tokens]
    nothing = [
        ["raw", '{"jsonrpc":"2.0","method":"notifications/progress"}'],
        progress('"progress":1'),
        progress('"progressToken":$TOKEN'),
        progress('"progressToken":$TOKEN,"progress":"1"'),
    ]
    server = fake(calling(LEGACY, slow=[*lines, *nothing, ["result", text_result("d")]]))
    seen: list[Any] = []
    async with Client(server.target, era="legacy") as client:
        await client.call_tool("slow", on_progress=lambda *step: seen.append(step))
    assert seen == []


@pytest.mark.parametrize("exc", [ZeroDivisionError("mine"), asyncio.CancelledError("mine")])
async def test_a_progress_callback_that_raises_is_logged(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture, exc: BaseException
) -> None:
    server = fake(calling(LEGACY, slow=STEPS))

    def on_progress(*step: Any) -> None:
        raise exc

    async with Client(server.target, era="legacy") as client:
        assert (await client.call_tool("slow", on_progress=on_progress)).text == "done"
        assert (await client.call_tool("echo")).text == "ok"
    failures = [r for r in caplog.records if "progress callback" in r.getMessage()]
    assert len(failures) == 3
    assert all(r.levelno == logging.ERROR and r.exc_info[1] is exc for r in failures)  # type: ignore[index]


async def test_an_async_progress_callback_is_run(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = fake(calling(LEGACY, slow=STEPS))
    seen: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        seen.append(done)
        if done == 3:
            raise ZeroDivisionError("mine")

    async with Client(server.target, era="legacy") as client:
        await client.call_tool("slow", on_progress=on_progress)
        await client.ping()
        await turns()
    assert seen == [1.0, 2.5, 3.0]
    assert "mine" in caplog.text


async def test_a_progress_callback_that_closes_the_client(fake: Make) -> None:
    # the answer never comes: only the closing ends the call
    server = fake(calling(LEGACY, slow=STEPS[:1]))
    client = Client(server.target, era="legacy")
    await client.open()
    closing: list[asyncio.Task[None]] = []

    def on_progress(*step: Any) -> None:
        closing.append(asyncio.get_running_loop().create_task(client.close()))

    with raises(ConnectionClosed):
        await client.call_tool("slow", on_progress=on_progress)
    await closing[0]


async def test_an_async_progress_callback_that_closes_the_client(fake: Make) -> None:
    server = fake(calling(LEGACY, slow=STEPS[:1]))
    closed: list[bool] = []
    client = Client(server.target, era="legacy")
    await client.open()

    async def on_progress(*step: Any) -> None:
        await client.close()
        closed.append(True)

    with pytest.raises(ConnectionClosed):
        await client.call_tool("slow", on_progress=on_progress)
    await client.close()
    await turns()
    assert closed == [True]


# -- arguments -------------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


class Row(msgspec.Struct, array_like=True):
    x: int


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"a": 1, "b": [None, "ü\u2028"]}, {"a": 1, "b": [None, "ü\u2028"]}),
        ({}, {}),
        (Point(1), {"x": 1, "y": 0.5}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (b'{"a": 1, "a2": "\\ud83c\\udfb6"}', {"a": 1, "a2": "🎶"}),
        (b'  {\n "a":\r\n\t1 \n}\n', {"a": 1}),
        (bytearray(b'{"a":1}'), {"a": 1}),
        (memoryview(b'{"a":1}'), {"a": 1}),
        (b'{"long":"' + b"x" * 10_000 + b'"}', {"long": "x" * 10_000}),
    ],
)
def test_arguments(once: Run, fake: Make, arguments: Any, sent: Any) -> None:
    server = fake(LEGACY)
    once(call(server, "echo", arguments=arguments))
    assert server.sent("tools/call")[0]["params"] == {"name": "echo", "arguments": sent}


def test_no_arguments(once: Run, fake: Make) -> None:
    server = fake(LEGACY)
    once(call(server, "echo", 'odd "näme"\n\u2028'))
    assert [m["params"] for m in server.sent("tools/call")] == [
        {"name": "echo"},
        {"name": 'odd "näme"\n\u2028'},
    ]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"a": object()}, TypeError, "unsupported"),
        ({"a": [float("nan")]}, ValueError, r"hold NaN at a\[0\]: JSON has no NaN"),
        (Point(1, float("-inf")), ValueError, "hold -Infinity at y"),
        ({"a": "\ud800"}, ValueError, "a is not valid text: it has the lone surrogate"),
        ({object(): 1}, TypeError, "str-like or number-like keys"),
        ([1], TypeError, "must be a mapping"),
        ("{}", TypeError, "must be a mapping"),
        (1, TypeError, "must be a mapping"),
        (Row(1), TypeError, "must be a mapping"),
        (b"", ValueError, "not JSON"),
        (b"{", ValueError, "not JSON at byte 1"),
        (b'{"a":1}}', ValueError, "not JSON at byte 7"),
        (b'{"a":1}\n{"b":2}', ValueError, "not JSON"),
        (b'{"a":NaN}', ValueError, "not JSON at byte 5"),
        (b'{"a":"\xff"}', ValueError, "not UTF-8 at byte 6"),
        (b'{"a":"new\nline"}', ValueError, "not JSON"),
        (b"[1]", TypeError, "must be a JSON object"),
        (b"null", TypeError, "must be a JSON object"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", ValueError, "nested deeper than 128"),
    ],
)
async def test_arguments_that_cannot_be_sent(
    once: Run, fake: Make, arguments: Any, kind: type[Exception], text: str
) -> None:
    server = fake(LEGACY)
    async with Client(server.target, era="legacy") as client:
        with pytest.raises(kind, match=text):
            await client.call_tool("echo", arguments)
        assert client.counters["requests_outstanding"] == 0
        assert (await client.call_tool("echo")).text == "ok"
    assert [m["params"] for m in server.sent("tools/call")] == [{"name": "echo"}]


async def test_bytes_that_change_after_the_call(once: Run, fake: Make) -> None:
    server = fake(LEGACY)
    async with Client(server.target, era="legacy") as client:
        arguments = bytearray(b'{"long":"' + b"x" * 5_000 + b'"}')
        task = asyncio.create_task(client.call_tool("echo", arguments))
        await turns(1)
        arguments[:] = b"?" * len(arguments)
        await task
    assert server.sent("tools/call")[0]["params"]["arguments"] == {"long": "x" * 5_000}


@pytest.mark.parametrize(
    ("params", "kind"),
    [([1], TypeError), ("text", TypeError), ({"_meta": {}}, ValueError), ({"a": {1j}}, TypeError)],
)
async def test_params_that_cannot_be_sent(
    once: Run, fake: Make, params: Any, kind: type[Exception]
) -> None:
    server = fake(LEGACY)
    async with Client(server.target, era="legacy") as client:
        with pytest.raises(kind):
            await client.request("ping", params)
        await client.request("ping", {"a": 1})
    assert [m["params"] for m in server.sent("ping")] == [{"a": 1}]


async def test_modern_requests_without_params_have_a_meta(once: Run, fake: Make) -> None:
    server = fake(MODERN | {"x/y": [["result", {"resultType": "complete", "z": 1}]]})
    async with Client(server.target) as client:
        assert (await client.request("x/y"))["z"] == 1
        steps: list[Any] = []
        await client.request("x/y", {"a": 1}, on_progress=lambda *s: steps.append(s))
    first, second = server.sent("x/y")
    assert list(first["params"]) == ["_meta"]
    assert second["params"]["a"] == 1
    assert second["params"]["_meta"]["progressToken"] == second["id"]


@pytest.mark.parametrize("arguments", [(5,), (None,), (b"echo",)])
async def test_a_tool_name_is_a_string(once: Run, fake: Make, arguments: Any) -> None:
    async with Client(fake(LEGACY).target, era="legacy") as client:
        with pytest.raises(TypeError):
            await client.call_tool(*arguments)
