"""Requests for every feature, in both eras: what is sent, and what becomes of the answers."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import META, Run
from lab.feature import FETCHES, LISTS, MEMBERS, MODERN_FETCHES, URI, Message, paged, peer
from lab.peer import LinePeer, Talk, nothing
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import CallTimeout, InvalidResponse, RemoteError
from wirespeed.protocol.blocks import Block, EmbeddedResource, Image, Text
from wirespeed.types import (
    Completion,
    GetPromptResult,
    PromptArgument,
    PromptInfo,
    PromptMessage,
    PromptRef,
    ReadResourceResult,
    ResourceContents,
    ResourceInfo,
    ResourceRef,
    ResourceTemplateInfo,
    UnknownContent,
)


def params_of(server: LinePeer, method: str) -> dict[str, Any]:
    """What the last request of a method carried besides `_meta`."""
    params: dict[str, Any] = dict(server.sent(method)[-1]["params"])
    params.pop("_meta", None)
    return params


# -- lists -----------------------------------------------------------------------------------------

FULL_RESOURCE = {
    "uri": "x://r",
    "name": "r",
    "title": "R",
    "description": "d",
    "mimeType": "text/plain",
    "size": 3,
    "annotations": {"priority": 1},
    "icons": [{"src": "data:,"}],
    "_meta": {"m": 1},
    "unknown": 1,
}
FULL_TEMPLATE = {
    "uriTemplate": "x://{id}",
    "name": "t",
    "title": "T",
    "description": "d",
    "mimeType": "text/plain",
    "annotations": {"audience": ["user"]},
    "icons": [{"src": "data:,"}],
    "_meta": {"m": 1},
}
FULL_PROMPT = {
    "name": "p",
    "title": "P",
    "description": "d",
    "arguments": [{"name": "a", "title": "A", "description": "x", "required": True}, {"name": "b"}],
    "icons": [{"src": "data:,"}],
    "_meta": {"m": 1},
}


async def test_what_lists_say(once: Run, tmp_path: Path, era: Any) -> None:
    server = peer(
        tmp_path,
        era,
        {
            "resources/list": {"resources": [FULL_RESOURCE, {"uri": "x://s", "name": "s"}]},
            "resources/templates/list": {"resourceTemplates": [FULL_TEMPLATE]},
            "prompts/list": {"prompts": [FULL_PROMPT, {"name": "q"}]},
        },
    )
    async with server, Client(server.url, era=era) as client:
        assert await client.list_resources() == [
            ResourceInfo(
                uri="x://r", name="r", title="R", description="d", mime_type="text/plain",
                size=3, annotations={"priority": 1}, icons=[{"src": "data:,"}], meta={"m": 1},
            ),
            ResourceInfo(uri="x://s", name="s"),
        ]  # fmt: skip
        assert await client.list_resource_templates() == [
            ResourceTemplateInfo(
                uri_template="x://{id}", name="t", title="T", description="d",
                mime_type="text/plain", annotations={"audience": ["user"]},
                icons=[{"src": "data:,"}], meta={"m": 1},
            )
        ]  # fmt: skip
        prompts = await client.list_prompts()
        assert prompts[0].arguments == [
            PromptArgument(name="a", title="A", description="x", required=True),
            PromptArgument(name="b"),
        ]
        assert prompts[1] == PromptInfo(name="q")
        assert [prompt.display_name for prompt in prompts] == ["P", "q"]


@pytest.mark.parametrize("kind", LISTS)
async def test_an_empty_cursor_continues_paging(
    once: Run, tmp_path: Path, era: Any, kind: str
) -> None:
    method, _, whole, walk, _ = LISTS[kind]
    pages = {None: ("ab", ""), "": ("c", "ü"), "ü": ("d", None)}
    server = peer(tmp_path, era, {method: paged(kind, pages)})
    async with server, Client(server.url, era=era) as client:
        assert [item.name for item in await whole(client)] == ["a", "b", "c", "d"]
        assert [item.name async for item in walk(client)] == ["a", "b", "c", "d"]
        assert [m["params"].get("cursor") for m in server.sent(method)] == [
            None, "", "ü", None, "", "ü",
        ]  # fmt: skip


@pytest.mark.parametrize("kind", LISTS)
async def test_a_cursor_that_is_refused_begins_again_once(
    once: Run, tmp_path: Path, era: Any, kind: str
) -> None:
    """The list changed between two pages, and the cursor went with it."""
    method, _, whole, walk, _ = LISTS[kind]
    first: Any = {None: ("ab", "old")}
    then: Any = {None: ("bc", "new"), "new": ("d", None)}

    async def answer(talk: Talk, message: Message) -> None:
        nonlocal pages
        await paged(kind, pages)(talk, message)
        if message.get("params", {}).get("cursor") == "old":
            pages = then

    pages = first
    server = peer(tmp_path, era, {method: answer})
    async with server, Client(server.url, era=era) as client:
        assert [item.name for item in await whole(client)] == ["b", "c", "d"]
        pages = first
        # what was given is not given twice
        assert [item.name async for item in walk(client)] == ["a", "b", "c", "d"]


async def test_a_cursor_that_is_always_refused(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern", {"prompts/list": paged("prompts", {None: ("a", "x")})})
    async with server, Client(server.url) as client:
        with raises(RemoteError, code=-32602):
            await client.list_prompts()
        assert len(server.sent("prompts/list")) == 4
        with raises(RemoteError, code=-32602):
            await client.list_prompts_page("made up")  # a page is not another page


# -- resources -------------------------------------------------------------------------------------


async def test_reading(once: Run, tmp_path: Path, era: Any) -> None:
    blob = base64.b64encode(b"\x00\xff").decode()
    result = {
        "contents": [
            {"uri": URI, "mimeType": "text/plain", "text": "one", "_meta": {"m": 1}},
            {"uri": URI + "/2", "text": ""},
            {"uri": URI + "/3", "mimeType": "image/png", "blob": blob},
        ],
        "ttlMs": 0,
        "cacheScope": "public",
        "_meta": {"r": 1},
        "resultType": "complete",
    }
    server = peer(tmp_path, era, {"resources/read": result})
    async with server, Client(server.url, era=era) as client:
        got = await client.read_resource(URI)
        assert got.contents == [
            ResourceContents(uri=URI, mime_type="text/plain", text="one", meta={"m": 1}),
            ResourceContents(uri=URI + "/2", text=""),
            ResourceContents(uri=URI + "/3", mime_type="image/png", blob=b"\x00\xff"),
        ]
        assert (got.text, got.data) == ("one\n", b"one")
        scope = "public" if era == "modern" else "private"  # which means nothing there
        assert (got.meta, got.cache_scope) == ({"r": 1}, scope)
        assert params_of(server, "resources/read") == {"uri": URI}


def test_the_bytes_of_a_resource() -> None:
    assert ReadResourceResult([]).data == b""
    assert ReadResourceResult([ResourceContents(uri=URI, blob=b"\x00")]).data == b"\x00"
    assert ReadResourceResult([ResourceContents(uri=URI, blob=b"\x00")]).text == ""
    assert ReadResourceResult([ResourceContents(uri=URI, text="ü")]).data == "ü".encode()


@pytest.mark.parametrize(
    "contents", [None, [{}], [{"uri": URI}], [{"uri": URI, "blob": "*"}], [{"text": "a"}], [1]]
)
async def test_invalid_contents(once: Run, tmp_path: Path, era: Any, contents: Any) -> None:
    server = peer(tmp_path, era, {"resources/read": {"contents": contents}})
    async with server, Client(server.url, era=era) as client:
        with raises(InvalidResponse):
            await client.read_resource(URI)


@pytest.mark.parametrize("code", [-32002, -32602])
async def test_a_missing_resource_by_either_code(
    once: Run, tmp_path: Path, era: Any, code: int
) -> None:
    server = peer(tmp_path, era, {"resources/read": (code, "Resource not found")})
    async with server, Client(server.url, era=era) as client:
        with raises(RemoteError) as caught:
            await client.read_resource("x://none")
        assert caught.value.resource_missing
        assert caught.value.code == code


async def test_other_errors_of_reading(once: Run, tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {"resources/read": (-32603, "broken")})
    async with server, Client(server.url, era=era) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource(URI)
        assert not caught.value.resource_missing
        with raises(TypeError):
            await client.read_resource(Path("/x"))  # type: ignore[arg-type]
        assert len(server.sent("resources/read")) == 1


async def test_reading_what_a_template_gives(once: Run, tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era)
    async with server, Client(server.url, era=era) as client:
        await client.read_template("file:///{+path}{?line}", path="a/b c", line=3)
        assert params_of(server, "resources/read") == {"uri": "file:///a/b%20c?line=3"}
        # names that are no keywords, or those of our own parameters
        await client.read_template("x://{timeout}/{a.b}", {"timeout": "1", "a.b": "ü"})
        assert params_of(server, "resources/read") == {"uri": "x://1/%C3%BC"}
        with raises(ValueError):
            await client.read_template("x://{", id=1)
        with pytest.raises(TypeError):
            await client.read_template("x://{id}", id=object())
        assert len(server.sent("resources/read")) == 2


# -- prompts ---------------------------------------------------------------------------------------


async def test_prompts(once: Run, tmp_path: Path, era: Any) -> None:
    pixel = base64.b64encode(b"px").decode()
    result = {
        "description": "d",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "hi"}},
            {"role": "assistant", "content": {"type": "image", "data": pixel, "mimeType": "i/p"}},
            {"role": "user", "content": {"type": "resource", "resource": {"uri": URI, "text": ""}}},
            {"role": "user", "content": {"type": "hologram", "x": 1}},
        ],
        "_meta": {"m": 1},
        "resultType": "complete",
    }
    server = peer(tmp_path, era, {"prompts/get": result})
    async with server, Client(server.url, era=era) as client:
        got = await client.get_prompt("p", {"a": "1"})
        contents: list[Block | UnknownContent] = [one.content for one in got.messages]
        assert contents[0] == Text(text="hi")
        assert contents[1] == Image(data=b"px", mime_type="i/p")
        assert isinstance(contents[2], EmbeddedResource)
        assert contents[3] == UnknownContent({"type": "hologram", "x": 1})
        assert [one.role for one in got.messages] == ["user", "assistant", "user", "user"]
        assert [one.text for one in got.messages] == ["hi", "", "", ""]
        assert (got.description, got.meta) == ("d", {"m": 1})
        assert params_of(server, "prompts/get") == {"name": "p", "arguments": {"a": "1"}}
        await client.get_prompt("p")
        assert params_of(server, "prompts/get") == {"name": "p"}


@pytest.mark.parametrize(
    "messages",
    [None, [{}], [{"role": "user"}], [{"role": "user", "content": {"type": "text"}}], [1]],
)
async def test_invalid_prompts(once: Run, tmp_path: Path, era: Any, messages: Any) -> None:
    server = peer(tmp_path, era, {"prompts/get": {"messages": messages}})
    async with server, Client(server.url, era=era) as client:
        with raises(InvalidResponse):
            await client.get_prompt("p")


async def test_arguments_of_prompts_are_strings(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        with raises(TypeError):
            await client.get_prompt("p", {"s": "1", "n": 1})  # type: ignore[dict-item]
        with raises(TypeError):
            await client.complete(PromptRef("p"), "a", "b", context={"n": 1})  # type: ignore[dict-item]
        with raises(TypeError):
            await client.complete("p", "a", "b")  # type: ignore[arg-type]
        assert not server.sent("prompts/get") and not server.sent("completion/complete")


def test_prompts_are_made_by_hand_too() -> None:
    message = PromptMessage("user", Text(text="x"))
    assert GetPromptResult([message]).messages[0].text == "x"


# -- completion ------------------------------------------------------------------------------------


async def test_completion(once: Run, tmp_path: Path, era: Any) -> None:
    completion = {"values": ["python", "pytorch"], "total": 10, "hasMore": True}
    server = peer(
        tmp_path, era, {"completion/complete": {"completion": completion, "resultType": "complete"}}
    )
    argument = {"name": "a", "value": "py"}
    async with server, Client(server.url, era=era) as client:
        got = await client.complete(PromptRef("p"), "a", "py", context={"b": "c"})
        assert got == Completion(["python", "pytorch"], 10, True)
        assert params_of(server, "completion/complete") == {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": argument,
            "context": {"arguments": {"b": "c"}},
        }
        for ref in (
            ResourceRef("x://{id}"),
            ResourceTemplateInfo(name="t", uri_template="x://{id}"),
        ):
            await client.complete(ref, "a", "py")
            assert params_of(server, "completion/complete") == {
                "ref": {"type": "ref/resource", "uri": "x://{id}"},
                "argument": argument,
            }
        await client.complete(PromptInfo(name="p"), "a", "py")
        assert params_of(server, "completion/complete")["ref"]["name"] == "p"
        server.rules["completion/complete"] = {"completion": {"values": []}}
        assert await client.complete(PromptRef("p"), "a", "") == Completion([])


@pytest.mark.parametrize(
    ("version", "has"), [("2024-11-05", False), ("2025-03-26", False), ("2025-06-18", True)]
)
async def test_completion_has_a_context_from_2025_06_18_on(
    once: Run, tmp_path: Path, version: str, has: bool
) -> None:
    server = peer(tmp_path, "legacy", {"completion/complete": {"completion": {"values": []}}})
    handshake = server.rules["initialize"]
    assert isinstance(handshake, dict)
    server.rules["initialize"] = handshake | {"protocolVersion": version}
    async with server, Client(server.url, era="legacy", auto_start=False) as client:
        await client.complete(PromptRef("p"), "a", "b", context={"c": "d"})
        assert client.protocol_version == version
        assert ("context" in params_of(server, "completion/complete")) == has


# -- the server itself -----------------------------------------------------------------------------


async def test_discovery(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        got = await client.discover()
        assert got.supported_versions == ["2026-07-28"]
        assert got.capabilities["completions"] == {}
        assert got.meta == {META + "serverInfo": {"name": "fake", "version": "2"}}


async def test_a_modern_server_is_sent_no_legacy_method(once: Run, tmp_path: Path) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url, log_level="info", on_resource_updated=print) as client:
        await client.ping()
        await client.set_log_level("error")
        await client.subscribe_resource(URI)
        async with client.subscribe(uris=[URI]):
            pass
        await client.unsubscribe_resource(URI)
        await server.got("notifications/cancelled", 2)
        sent = {message["method"] for message in server.talks[0].messages}
        assert sent == {
            "server/discover", "subscriptions/listen", "notifications/cancelled",
        }  # fmt: skip


# -- what all of them have in common ---------------------------------------------------------------


@pytest.mark.parametrize("method", FETCHES)
async def test_a_missing_result_type_is_complete(
    once: Run, tmp_path: Path, era: Any, method: str
) -> None:
    server = peer(tmp_path, era, {method: MEMBERS[method]})
    async with server, Client(server.url, era=era) as client:
        await FETCHES[method](client)


@pytest.mark.parametrize("method", MODERN_FETCHES)
@pytest.mark.parametrize("whole", [True, False])
async def test_an_unknown_result_type_is_an_error(
    once: Run, tmp_path: Path, method: str, whole: bool
) -> None:
    server = peer(tmp_path, "modern")
    async with server, Client(server.url) as client:
        members = MEMBERS.get(method, {"supportedVersions": []}) if whole else {}
        server.rules[method] = members | {"resultType": "unheard of"}
        with pytest.raises(InvalidResponse, match="unheard of" if whole else None):
            await MODERN_FETCHES[method](client)


@pytest.mark.parametrize("method", FETCHES)
async def test_a_callers_own_meta(once: Run, tmp_path: Path, era: Any, method: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
    meta = {"traceparent": trace, "com.example/x": {"ü": None}}
    server = peer(tmp_path, era, {method: MEMBERS[method]})
    calls: dict[str, Callable[[Client], Any]] = {
        "tools/list": lambda client: client.list_tools(meta=meta),
        "prompts/list": lambda client: client.list_prompts(meta=meta),
        "resources/list": lambda client: client.list_resources(meta=meta),
        "resources/templates/list": lambda client: client.list_resource_templates(meta=meta),
        "resources/read": lambda client: client.read_resource(URI, meta=meta, on_progress=print),
        "prompts/get": lambda client: client.get_prompt("p", meta=meta, on_progress=print),
        "completion/complete": lambda client: client.complete(PromptRef("p"), "a", "b", meta=meta),
        "tools/call": lambda client: client.call_tool("t", meta=meta, on_progress=print),
    }
    async with server, Client(server.url, era=era) as client:
        await calls[method](client)
        await FETCHES[method](client)
    with_meta, without = (m.get("params", {}).get("_meta", {}) for m in server.sent(method))
    assert {key: with_meta[key] for key in meta} == meta
    assert ("progressToken" in with_meta) == (
        method in ("resources/read", "prompts/get", "tools/call")
    )
    assert not set(meta) & set(without)
    assert (META + "protocolVersion" in with_meta) == (era == "modern")
    assert set(with_meta) - set(meta) - {"progressToken"} == set(without)


async def test_meta_of_other_requests(once: Run, tmp_path: Path, era: Any) -> None:
    server = peer(tmp_path, era, {"x/y": {}})
    async with server, Client(server.url, era=era) as client:
        await client.request("x/y", meta={"a": 1})
        assert server.sent("x/y")[-1]["params"]["_meta"]["a"] == 1
        await client.request("x/y", {"b": 2}, meta={})
        assert server.sent("x/y")[-1]["params"]["b"] == 2
        await client.ping(meta={"a": 3})
        method = "ping" if era == "legacy" else "server/discover"
        assert server.sent(method)[-1]["params"]["_meta"]["a"] == 3
        if era == "legacy":
            await client.set_log_level("info", meta={"a": 4})
            sent = server.sent("logging/setLevel")[-1]["params"]
            assert sent == {"level": "info", "_meta": {"a": 4}}


@pytest.mark.parametrize(
    "key", ["progressToken", *(META + n for n in ("protocolVersion", "clientInfo", "logLevel"))]
)
async def test_what_the_client_writes_itself_is_refused(
    once: Run, tmp_path: Path, era: Any, key: str
) -> None:
    server = peer(tmp_path, era)
    async with server, Client(server.url, era=era) as client:
        for call in (client.call_tool("t", meta={key: 1}), client.list_tools(meta={key: 1})):
            with raises(ValueError):
                await call
        with raises(TypeError):
            await client.call_tool("t", meta=[1])  # type: ignore[arg-type]
        with raises(TypeError):
            await client.call_tool("t", meta={1: 1})  # type: ignore[dict-item]
        assert not server.sent("tools/call") and not server.sent("tools/list")


@pytest.mark.parametrize("method", FETCHES)
async def test_every_request_has_its_time_limit(
    once: Run, tmp_path: Path, era: Any, method: str
) -> None:
    server = peer(tmp_path, era, {method: nothing})
    async with server, Client(server.url, era=era, timeout=0.3) as client:
        what = "tool t" if method == "tools/call" else method
        with pytest.raises(CallTimeout, match=f"^{what}: no answer"):
            await FETCHES[method](client)
        [cancelled] = await server.got("notifications/cancelled")
        assert cancelled["params"]["requestId"] == server.sent(method)[-1]["id"]
