"""Requests that middleware passes on with other params."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from lab.raw import modern, request
from lab.server import MODERN, text_of, tool_call

from wirespeed import Client, Context, Server
from wirespeed.types import Accept, InboundRequest, Reply

pytestmark = pytest.mark.compiled


@pytest.fixture
def echoing(server: Server) -> Server:
    """A server whose handlers tell what they were asked."""

    @server.tool
    async def echo(text: str = "", n: int = 0) -> str:
        return f"{text} {n}"

    @server.tool
    def other(text: str = "", n: int = 0) -> str:
        return f"other {text}"

    @server.tool
    def told(ctx: Context) -> dict[str, Any]:
        meta = {k: v for k, v in ctx.meta.items() if k.startswith("x/")}
        return {"meta": meta, "id": ctx.request_id}

    server.tool_raw("raw", {"type": "object"}, lambda data: bytes(data).decode(), inline=True)

    @server.prompt
    def prompt(topic: str) -> str:
        return topic

    @server.resource("a://{name}")
    def resource(name: str) -> str:
        return name

    return server


def replacing(server: Server, method: str, **members: Any) -> None:
    """Let a middleware replace the requests of a method."""

    @server.add_middleware
    async def replace(request: InboundRequest, call_next: Any) -> Any:
        if request.method != method:
            return await call_next(request)
        return await call_next(request.replace(**members))


@pytest.mark.parametrize(
    "members, text",
    [
        ({"arguments": {"text": "new"}}, "new 0"),
        ({"arguments": {}}, " 0"),
        ({"name": "other"}, "other old"),
        ({"name": "other", "arguments": {"text": "new"}}, "other new"),
        ({"params": {"name": "other"}}, "other "),
        ({"params": b'{"name":"echo","arguments":{"n":7}}'}, " 7"),
        ({"params": {"name": "echo"}, "arguments": {"n": 8}}, " 8"),
        ({"meta": {"x/y": 1}}, "old 5"),
        ({}, "old 5"),
    ],
)
@pytest.mark.parametrize("id", [1, "a/b", 2**80])
def test_a_call_with_other_params(
    members: Any, text: str, id: Any, any_peer: Any, echoing: Server, version: str
) -> None:
    replacing(echoing, "tools/call", **members)
    result = any_peer.result(tool_call(version, id, "echo", {"text": "old", "n": 5}))
    assert text_of(result) == text


def test_other_methods_with_other_params(caller: Any, echoing: Server) -> None:
    replacing(echoing, "prompts/get", arguments={"topic": "new"})
    replacing(echoing, "resources/read", name="a://new")
    one = caller(echoing)
    got = one.result("prompts/get", name="prompt", arguments={"topic": "old"})
    assert got["messages"][0]["content"]["text"] == "new"
    read = one.plain("resources/read", uri="a://old")
    assert read["contents"][0]["text"] == "new"


def test_the_meta_of_the_request_stays(any_peer: Any, echoing: Server, version: str) -> None:
    replacing(echoing, "tools/call", params={"name": "told", "_meta": {"x/b": 2}}, meta={"x/c": 3})
    message = tool_call(version, "the id", "echo")
    message["params"].setdefault("_meta", {})["x/a"] = [1]
    told = json.loads(text_of(any_peer.result(message)))
    assert told == {"meta": {"x/a": [1], "x/b": 2, "x/c": 3}, "id": "the id"}


def test_values_are_passed_on_exactly(peer: Any, echoing: Server) -> None:
    replacing(echoing, "tools/call", meta={"x/y": 1})
    big = b'{"a":123456789012345678901234567890,"b":1.0,"c":-0.0,"d":"\\u0041","e":{"a":1,"a":2}}'
    params = b'{"name":"raw","arguments":%b}' % big
    peer.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}\n' % params)
    assert text_of(peer.recv()["result"]) == big.decode()


def test_the_params_are_decoded_as_wanted(any_peer: Any, echoing: Server, version: str) -> None:
    class Params(msgspec.Struct):
        name: str
        arguments: dict[str, Any] = {}

    seen: list[Any] = []

    @echoing.add_middleware
    async def look(request: InboundRequest, call_next: Any) -> Any:
        if request.method == "tools/call":
            params = request.decode(Params)
            seen.append((params.name, params.arguments, request.arguments))
            changed = request.replace(arguments={**request.arguments, "n": 1})
            seen.append((changed.name, changed.arguments, changed.decode()["arguments"]))
            assert (changed.id, changed.raw_id, changed.method) == (1, b"1", "tools/call")
            assert changed.protocol_version == version
            assert changed.state is request.state
            return await call_next(changed)
        return await call_next(request)

    assert text_of(any_peer.result(tool_call(version, 1, "echo", {"text": "x"}))) == "x 1"
    assert seen == [
        ("echo", {"text": "x"}, {"text": "x"}),
        ("echo", {"text": "x", "n": 1}, {"text": "x", "n": 1}),
    ]


def test_later_middleware_sees_and_replaces_what_earlier_replaced(
    any_peer: Any, echoing: Server, version: str
) -> None:
    seen: list[Any] = []

    def adding(n: int) -> Any:
        async def add(request: InboundRequest, call_next: Any) -> Any:
            if request.method != "tools/call":
                return await call_next(request)
            seen.append(request.arguments["n"])
            request.state.setdefault("adds", []).append(n)
            return await call_next(
                request.replace(arguments={"n": request.arguments["n"] + n, "text": "sum"})
            )

        return add

    for n in (1, 10, 100):
        echoing.add_middleware(adding(n))
    result = any_peer.result(tool_call(version, 1, "echo", {"n": 0}))
    assert text_of(result) == "sum 111"
    assert seen == [0, 1, 11]


def test_the_handler_may_be_asked_twice_with_different_params(
    any_peer: Any, echoing: Server, version: str
) -> None:
    @echoing.add_middleware
    async def twice(request: InboundRequest, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        texts = []
        for one in (request.replace(arguments={"n": 1}), request, request.replace(name="other")):
            reply = await call_next(one)
            texts.append(reply.decode()["content"][0]["text"])
        return Reply.result({"content": [{"type": "text", "text": "|".join(texts)}]})

    result = any_peer.result(tool_call(version, 1, "echo", {"n": 5}))
    assert text_of(result) == " 1| 5|other "


def test_what_cannot_be_replaced(any_peer: Any, echoing: Server, version: str) -> None:
    errors: list[Any] = []

    @echoing.add_middleware
    async def wrong(request: InboundRequest, call_next: Any) -> Any:
        deep: Any = []
        for _ in range(2000):
            deep = [deep]
        for members in (
            {"name": "x"},
            {"arguments": {}},
            {"params": [1]},
            {"params": b"[1]"},
            {"params": b"{"},
            {"params": object()},
            {"params": {"x": deep}},
            {"params": {"name": "x", "_meta": 1}},
        ):
            try:
                request.replace(**members)
            except Exception as exc:
                errors.append(exc)
            else:
                raise AssertionError(members)
        return await call_next(request)

    make = modern if version == MODERN else request
    any_peer.result(make(1, "tools/list", {}))
    texts = [str(exc) for exc in errors[-8:]]
    assert texts[:2] == [
        "tools/list has no name to replace: use params",
        "tools/list has no arguments to replace: use params",
    ]
    assert all(isinstance(exc, ValueError | TypeError) for exc in errors)


def test_a_request_replaces_that_of_its_own_call_only(
    peer: Any, echoing: Server, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[InboundRequest] = []

    @echoing.add_middleware
    async def mixed(request: InboundRequest, call_next: Any) -> Any:
        kept.append(request.replace())
        return await call_next(kept[0])

    peer.server.add_tool(lambda: "x", name="x")
    assert peer.error(request(9, "ping")) == (-32603, "Internal error")
    assert "or its replace(…)" in caplog.text


def test_an_unknown_tool_is_named_as_it_was_replaced(
    any_peer: Any, echoing: Server, version: str
) -> None:
    replacing(echoing, "tools/call", name="othr")
    code, text = any_peer.error(tool_call(version, 1, "echo"))
    assert (code, text) == (-32602, "Unknown tool: othr; did you mean other?")


async def test_the_middleware_of_a_mounted_server_is_that_of_the_new_name() -> None:
    seen: list[str] = []
    front = Server("front")
    for name in ("a", "b"):
        inner = Server(name)
        inner.add_tool(lambda name=name: name, name="tool")  # type: ignore[misc]

        @inner.add_middleware
        async def note(request: InboundRequest, call_next: Any, name: str = name) -> Any:
            seen.append(name)
            return await call_next(request.replace(meta={"x/y": 1}))

        front.mount(name, inner)

    @front.add_middleware
    async def swap(request: InboundRequest, call_next: Any) -> Any:
        if request.name == "a_tool":
            request = request.replace(name="b_tool")
        return await call_next(request)

    async with Client(front) as client:
        assert (await client.call_tool("a_tool")).text == "b"
    assert seen == ["b"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_questions_of_a_replaced_call_come_back_to_it(era: Any) -> None:
    server = Server("lab")

    @server.tool
    async def book(seat: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Take {seat}?")
        return f"{seat}: {answer.accepted}"

    replacing(server, "tools/call", arguments={"seat": "7c"})
    asked: list[str] = []

    def on_elicit(params: Any) -> Any:
        asked.append(params.message)
        return Accept({})

    async with Client(server, era=era, on_elicit=on_elicit) as client:
        result = await client.call_tool("book", {"seat": "1a"})
    assert (result.text, asked) == ("7c: True", ["Take 7c?"])


def test_a_subscription_may_be_replaced(modern_peer: Any, echoing: Server) -> None:
    replacing(echoing, "subscriptions/listen", params={"notifications": {"toolsListChanged": True}})
    peer = modern_peer
    peer.send(modern(5, "subscriptions/listen", {"notifications": {"promptsListChanged": True}}))
    first = peer.recv()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {"toolsListChanged": True}
    echoing.remove_tool("other")
    assert peer.recv()["method"] == "notifications/tools/list_changed"
    peer.end_input()
    assert "result" in peer.until(5)[-1]  # its end answers the request of the client


@pytest.mark.parametrize("meta", [5, None, "x"])
def test_a_meta_that_is_not_an_object_is_dropped(meta: Any, peer: Any, echoing: Server) -> None:
    replacing(echoing, "tools/call", name="told")
    message = tool_call("2025-06-18", 3, "echo")
    message["params"]["_meta"] = meta
    assert json.loads(text_of(peer.result(message))) == {"meta": {}, "id": 3}
