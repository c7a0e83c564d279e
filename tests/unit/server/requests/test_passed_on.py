"""Handlers of a server that return what a client gave them: it goes out as what it is, cut to the
revision of whoever asked."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from lab.caller import before, since
from lab.server import FOREVER, LEGACY, MODERN
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.protocol.blocks import Audio, ResourceContents, ResourceLink, Text, UnknownContent
from wirespeed.types import (
    CallToolResult,
    Completion,
    GetPromptResult,
    PromptMessage,
    PromptRef,
    PromptResult,
    ReadResourceResult,
    ResourceResult,
    ToolResult,
)

pytestmark = [pytest.mark.every_revision, pytest.mark.compiled]
META_PREFIX = "io.modelcontextprotocol/"
OWN = {"com.example/k": 1}
HOP = {
    META_PREFIX + "serverInfo": {"name": "other", "version": "9"},
    META_PREFIX + "subscriptionId": 7,
    META_PREFIX + "related-task": {"taskId": "T"},
}
ALL = [*LEGACY, MODERN]


# -- results as they are ---------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", [Any, CallToolResult, CallToolResult | str, None])
def test_a_result_of_a_tool(caller: Any, server: Server, version: str, annotation: Any) -> None:
    given = CallToolResult(
        [Text("t", meta=OWN), Audio(b"a", "audio/wav"), UnknownContent({"type": "new"})],  # type: ignore[list-item]
        {"a": [1]},
        True,
        {**OWN, **HOP},
    )

    def relay() -> Any:
        return given

    if annotation is not None:
        relay.__annotations__["return"] = annotation
    else:
        del relay.__annotations__["return"]
    server.add_tool(relay)
    client = caller()
    result = client.result("tools/call", name="relay")
    assert result["isError"] is True
    assert result["_meta"] == OWN
    assert result["content"][2] == {"type": "text", "text": "[new]"}
    if version in since("2025-06-18"):
        assert result["structuredContent"] == {"a": [1]}
        assert result["content"][0] == {"type": "text", "text": "t", "_meta": OWN}
    else:
        assert "structuredContent" not in result
        assert result["content"][0] == {"type": "text", "text": "t"}
    if version in before("2025-03-26"):
        assert result["content"][1] == {"type": "text", "text": "[audio: audio/wav, 1 bytes]"}
    # it has no schema: nobody promised one
    assert "outputSchema" not in client.plain("tools/list")["tools"][0]


def test_a_result_that_breaks_the_tools_own_promise(caller: Any, server: Server) -> None:
    given = CallToolResult([], {"result": "no number"})

    @server.tool
    def number() -> int:
        return given  # type: ignore[return-value]

    result = caller().result("tools/call", name="number")
    assert result["isError"] is True
    assert "does not fit the tool's return annotation" in result["content"][0]["text"]


def test_a_result_that_is_not_an_object(caller: Any, server: Server, version: str) -> None:
    server.tool_raw("five", {"type": "object"}, lambda _: CallToolResult([Text("5")], 5))
    result = caller().result("tools/call", name="five")
    assert result.get("structuredContent") == (5 if version == MODERN else None)


def test_messages_and_results_of_prompts(caller: Any, server: Server, version: str) -> None:
    messages = [
        PromptMessage("assistant", Text("a", meta=OWN)),
        PromptMessage("user", UnknownContent({"type": "new"})),
        PromptMessage("user", ResourceLink("a://b", "n")),
    ]
    wanted: list[Any] = [
        {"role": "assistant", "content": {"type": "text", "text": "a", "_meta": OWN}},
        {"role": "user", "content": {"type": "text", "text": "[new]"}},
        {"role": "user", "content": {"type": "resource_link", "uri": "a://b", "name": "n"}},
    ]
    if version in before("2025-06-18"):
        del wanted[0]["content"]["_meta"]
        wanted[2]["content"] = {"type": "text", "text": "[resource: n] a://b"}

    @server.prompt
    def listed() -> list[PromptMessage]:
        return messages

    @server.prompt
    def whole() -> GetPromptResult:
        """The prompt's own."""
        return GetPromptResult(messages, "What it is for", {**OWN, **HOP})

    @server.prompt
    def plain() -> GetPromptResult:
        """The prompt's own."""
        return GetPromptResult(messages[:1], None, HOP)

    client = caller()
    assert client.result("prompts/get", name="listed") == {"messages": wanted}
    assert client.result("prompts/get", name="whole") == {
        "messages": wanted, "description": "What it is for", "_meta": OWN,
    }  # fmt: skip
    assert client.result("prompts/get", name="plain") == {
        "messages": wanted[:1], "description": "The prompt's own.",
    }  # fmt: skip


def test_results_of_reading(caller: Any, server: Server, version: str) -> None:
    contents = [
        ResourceContents("a://1", "x/y", text="", meta=OWN),
        ResourceContents("a://1/2", blob=b""),
    ]
    wanted: list[Any] = [
        {"uri": "a://1", "mimeType": "x/y", "text": "", "_meta": OWN},
        {"uri": "a://1/2", "blob": ""},
    ]
    if version in before("2025-06-18"):
        del wanted[0]["_meta"]

    @server.resource("a://1")
    def one() -> ReadResourceResult:
        return ReadResourceResult(contents, 5000, "public", {**OWN, **HOP})

    @server.resource("a://{+rest}")
    async def none(rest: str) -> Any:
        return ReadResourceResult([], -5, "everybody")

    server.add_resource("a://3", ReadResourceResult(contents[1:], 7))
    server.add_resource("a://4", ReadResourceResult([], 10**400))
    client = caller()
    read = client.result("resources/read", uri="a://1")
    assert (read["contents"], read["_meta"]) == (wanted, OWN)
    if version == MODERN:
        assert (read["ttlMs"], read["cacheScope"]) == (5000, "public")
    read = client.result("resources/read", uri="a://2")
    assert read.pop("contents") == []
    assert read == ({"ttlMs": 0, "cacheScope": "private"} if version == MODERN else {})
    read = client.result("resources/read", uri="a://3")
    assert read.pop("contents") == wanted[1:]
    assert read == ({"ttlMs": 7, "cacheScope": "private"} if version == MODERN else {})
    read = client.result("resources/read", uri="a://4")
    assert read.get("ttlMs") == (2**53 - 1 if version == MODERN else None)


def test_completions(caller: Any, server: Server) -> None:
    @server.prompt
    def p(a: str) -> str:
        return a

    @server.completion(p, "a")
    def suggestions(value: str) -> Completion:
        return Completion(["x", "y"], float(value), True)

    client = caller()
    for total, shown in ("5.0", {"total": 5}), ("2.5", {}):  # schema.json: an integer
        assert client.result(
            "completion/complete",
            ref={"type": "ref/prompt", "name": "p"},
            argument={"name": "a", "value": total},
        ) == {"completion": {"values": ["x", "y"], "hasMore": True, **shown}}


def test_the_result_of_another_method_is_refused(
    caller: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    called = CallToolResult([Text("the tool failed")], is_error=True)
    server.add_prompt(lambda: called, name="p")
    server.add_prompt(lambda: ["a", ReadResourceResult([])], name="q")
    server.add_resource("a://1", lambda: called, name="r")
    with raises(ValueError):
        server.add_resource("a://2", called)
    client = caller()
    for method, params in (
        ("prompts/get", {"name": "p"}),
        ("prompts/get", {"name": "q"}),
        ("resources/read", {"uri": "a://1"}),
    ):
        assert client.error(method, **params)["code"] == -32603
    assert "CallToolResult is not what a prompt returns" in caplog.text
    assert "ReadResourceResult is not what a prompt returns" in caplog.text
    assert "CallToolResult is not what a resource returns" in caplog.text


# -- a proxy, by hand ------------------------------------------------------------------------------


def origin(version: str) -> Server:
    """What is behind the proxy."""
    server = Server("origin", version="1", versions=[version])

    @server.tool
    def fine() -> ToolResult:
        return ToolResult(
            content=[Text("t", meta=OWN), Audio(b"a", "audio/wav"), ResourceLink("a://b", "n")],
            structured_content={"n": 1},
            meta=OWN,
        )

    @server.tool
    def broken() -> str:
        raise ValueError("no such thing")

    @server.prompt(description="Origin's")
    def greet(name: str) -> PromptResult:
        said = PromptMessage("assistant", Text(f"Hello {name}", meta=OWN))
        return PromptResult(messages=["Greet", said], meta=OWN)

    @server.completion(greet, "name")
    def names(value: str) -> Completion:
        return Completion(["Ann", "Anton"], 7)

    @server.resource("note://{name}")
    def note(name: str) -> ResourceResult:
        return ResourceResult(
            contents=[ResourceContents("", "x/y", text=name, meta=OWN)],
            ttl_ms=9000,
            cache_scope="public",
            meta=OWN,
        )

    return server


def proxy_of(client: Client, version: str) -> Server:
    """A server that hands on what a client gets."""
    server = Server("proxy", version="2", versions=[version])

    @server.tool
    async def fine() -> CallToolResult:
        return await client.call_tool("fine")

    @server.tool
    async def broken() -> Any:
        return await client.call_tool("broken")

    @server.prompt(description="Proxy's")
    async def greet(name: str) -> GetPromptResult:
        return await client.get_prompt("greet", {"name": name})

    @server.completion(greet, "name")
    async def names(value: str) -> Completion:
        return await client.complete(PromptRef("greet"), "name", value)

    @server.resource("note://{name}", ttl_ms=100)
    async def note(name: str) -> ReadResourceResult:
        return await client.read_resource(f"note://{name}")

    return server


async def answers(client: Client) -> dict[str, Any]:
    """What a client gets of all of it."""
    return {
        "fine": await client.call_tool("fine"),
        "broken": await client.call_tool("broken"),
        "prompt": await client.get_prompt("greet", {"name": "Ann"}),
        "completion": await client.complete(PromptRef("greet"), "name", "A"),
        "read": await client.read_resource("note://a"),
    }


def without_hop(answers: dict[str, Any]) -> dict[str, Any]:
    for result in answers.values():
        meta = getattr(result, "meta", None)
        if meta is not None:
            meta.pop(META_PREFIX + "serverInfo", None)
            result.meta = meta or None
    return answers


def through_proxy(behind: str, before: str) -> tuple[Any, Any, Any]:
    """The answers of an origin of one revision directly, and those of a proxy in front of it, to
    clients of the proxy's revision; and who the last said they are from."""

    async def main() -> tuple[Any, Any, Any]:
        async with Client(origin(behind)) as upstream:
            direct = without_hop(await answers(upstream))
            async with Client(proxy_of(upstream, before)) as client:
                proxied = await answers(client)
                who = (proxied["fine"].meta or {}).get(META_PREFIX + "serverInfo")
                return direct, without_hop(proxied), who

    result: tuple[Any, Any, Any] = asyncio.run(asyncio.wait_for(main(), FOREVER))
    return result


@pytest.mark.parametrize("version", ALL)
def test_a_proxy_of_one_revision_changes_nothing(version: str) -> None:
    direct, proxied, who = through_proxy(version, version)
    assert proxied == direct
    assert proxied["broken"].is_error
    assert "no such thing" in proxied["broken"].text
    assert who == ({"name": "proxy", "version": "2"} if version == MODERN else None)


@pytest.mark.parametrize("version", LEGACY)
def test_a_proxy_for_older_clients_cuts_what_they_do_not_have(version: str) -> None:
    direct, proxied, _ = through_proxy(MODERN, version)
    older, _, _ = through_proxy(version, version)
    assert proxied == older
    assert direct["fine"].structured_content == {"n": 1}


@pytest.mark.parametrize("version", LEGACY)
def test_a_proxy_for_newer_clients_adds_nothing(version: str) -> None:
    direct, proxied, _ = through_proxy(version, MODERN)
    assert proxied == direct
    # the origin did not say how long it may be kept
    assert (proxied["read"].ttl_ms, proxied["read"].cache_scope) == (0, "private")


def test_a_tool_as_a_task() -> None:
    server = Server("s", versions=["2025-11-25"])
    given = CallToolResult([Text("t")], {"n": 1}, True, OWN)

    @server.tool(task="required")
    async def relay() -> CallToolResult:
        return given

    async def main() -> None:
        async with Client(server) as client:
            task = await client.start_tool("relay")
            result = await task.result(timeout=FOREVER)
            assert (result.content, result.structured_content) == (given.content, {"n": 1})
            assert result.is_error
            assert result.meta is not None
            assert result.meta["com.example/k"] == 1

    asyncio.run(asyncio.wait_for(main(), FOREVER))


def test_msgspec_writes_what_came() -> None:
    """`msgspec.json.encode` of a result is the result as it came."""
    message = PromptMessage("user", Text("x"))
    found = msgspec.to_builtins(GetPromptResult([message], meta=OWN))
    assert found["_meta"] == OWN
    assert found["messages"] == [{"role": "user", "content": {"type": "text", "text": "x"}}]
