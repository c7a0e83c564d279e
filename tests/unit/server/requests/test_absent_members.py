"""Null where a member may be absent, and `[]` for an object without members, in requests."""

from __future__ import annotations

from typing import Any

import pytest
from lab.raw import META, call, initialize, modern, request
from lab.server import LEGACY, MODERN, tool_call

from wirespeed import Context, Server

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@pytest.fixture
def server() -> Server:
    server = Server("absent", version="1")

    @server.tool
    def nothing() -> str:
        return "called"

    @server.tool
    def needs(a: int) -> int:
        return a

    def raw(arguments: Any) -> str:
        return bytes(arguments).decode()

    server.tool_raw("raw", {"type": "object"}, raw)

    @server.tool
    def declared(ctx: Context) -> dict[str, Any]:
        return ctx.client_capabilities

    @server.prompt
    def greet(name: str = "you") -> str:
        return f"hello {name}"

    @server.prompt
    def greet_by_name(name: str) -> str:
        return f"hello {name}"

    @server.completion("greet", "name")
    def names(value: str, known: dict[str, str]) -> list[str]:
        return sorted(known)

    return server


NOTHING: list[Any] = [None, []]


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
def test_arguments(version: str, nothing: Any, server: Server, connect: Any) -> None:
    peer = connect(version, to=server)
    ask = modern if version == MODERN else request

    def called(name: str) -> Any:
        return peer.ask(ask(1, "tools/call", {"name": name, "arguments": nothing}))["result"]

    assert called("nothing")["content"][0]["text"] == "called"
    assert called("raw")["content"][0]["text"] == "{}"
    missing = called("needs")
    assert missing["isError"]
    assert "missing required argument 'a'" in missing["content"][0]["text"]


@pytest.mark.parametrize("value", ["", 0, False, [1]])
def test_other_arguments_are_refused(value: Any, server: Server, connect: Any) -> None:
    peer = connect(LEGACY[-1], to=server)
    code, text = peer.error(request(1, "tools/call", {"name": "nothing", "arguments": value}))
    assert (code, text) == (-32602, "params.arguments must be an object")


@pytest.mark.parametrize("nothing", [b"null", b"[]"])
def test_params(nothing: bytes, server: Server, connect: Any) -> None:
    peer = connect(LEGACY[-1], to=server)
    for method in (b"tools/list", b"ping", b"prompts/list"):
        line = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}\n' % (method, nothing)
        assert "result" in peer.ask(line)


@pytest.mark.parametrize("nothing", NOTHING)
def test_prompts_and_completion(nothing: Any, server: Server, connect: Any) -> None:
    peer = connect(LEGACY[-1], to=server)

    def get(name: str, arguments: Any) -> Any:
        return peer.ask(request(1, "prompts/get", {"name": name, "arguments": arguments}))

    def said(answer: Any) -> str:
        text: str = answer["result"]["messages"][0]["content"]["text"]
        return text

    assert said(get("greet", nothing)) == "hello you"
    assert said(get("greet", {"name": None})) == "hello you"
    assert "name" in get("greet_by_name", nothing)["error"]["message"]
    assert "name" in get("greet_by_name", {"name": None})["error"]["message"]
    for context in (nothing, {"arguments": nothing}, {"arguments": {"x": None}}):
        params = {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": ""},
            "context": context,
        }
        answer = peer.ask(request(1, "completion/complete", params))
        assert answer["result"]["completion"]["values"] == []


@pytest.mark.parametrize(
    ("offered", "meant"),
    [
        ([], {}),
        ({"sampling": None, "roots": {"listChanged": None}}, {"roots": {}}),
        (
            {"sampling": [], "elicitation": {"form": []}},
            {"sampling": {}, "elicitation": {"form": {}}},
        ),
        (
            {"experimental": {"x": [], "y": {"z": None}}},
            {"experimental": {"x": {}, "y": {"z": None}}},
        ),
    ],
)
def test_capabilities(offered: Any, meant: Any, server: Server, connect: Any) -> None:
    peer = connect(to=server)
    params = {"protocolVersion": LEGACY[-1], "capabilities": offered, "clientInfo": {}}
    assert "result" in peer.ask(request(0, "initialize", params))
    assert peer.ask(tool_call(LEGACY[-1], 1, "declared"))["result"]["structuredContent"] == meant
    peer = connect(to=server)
    line = modern(1, "tools/call", {"name": "declared"}, **{META + "clientCapabilities": offered})
    assert peer.ask(line)["result"]["structuredContent"] == meant


@pytest.mark.parametrize("name", ["logLevel", "clientInfo"])
def test_null_in_the_envelope(name: str, server: Server, connect: Any) -> None:
    peer = connect(to=server)
    assert "result" in peer.ask(modern(1, "tools/list", **{META + name: None}))


@pytest.mark.parametrize("nothing", NOTHING)
def test_a_subscription_to_nothing(nothing: Any, server: Server, connect: Any) -> None:
    peer = connect(to=server)
    wanted = nothing if nothing == [] else {"toolsListChanged": None, "resourceSubscriptions": None}
    said = peer.ask(modern(1, "subscriptions/listen", {"notifications": wanted}))
    assert said["params"]["notifications"] == {}


def test_null_for_rounds_and_tasks(server: Server, connect: Any) -> None:
    peer = connect(LEGACY[-1], to=server)
    assert "result" in peer.ask(call(1, "nothing", {}, task=None))
    assert initialize
    peer = connect(to=server)
    params = {"name": "nothing", "inputResponses": [], "requestState": None}
    assert "result" in peer.ask(modern(1, "tools/call", params))
