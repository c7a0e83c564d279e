"""Content blocks, cut to what each revision has: in results of tools, messages of prompts, contents
of resources, and sampling both ways."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from lab.caller import before, since
from lab.server import FOREVER, LEGACY, MODERN

from wirespeed import Client, Context, Server
from wirespeed.protocol.blocks import (
    Annotations,
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    UnknownContent,
    fit_block,
)
from wirespeed.types import (
    PromptMessage,
    Root,
    SampleParams,
    SampleResult,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)

pytestmark = pytest.mark.every_revision
ALL = [*LEGACY, MODERN]
META = {"com.example/k": [1]}
NOTE = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-02T03:04:05Z")
NOTE_WIRE = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"}
FULL: list[Any] = [
    Text("t", annotations=NOTE, meta=META),
    Image(b"i", "image/png", annotations=NOTE, meta=META),
    Audio(b"a", "audio/wav", annotations=NOTE, meta=META),
    EmbeddedResource(
        ResourceContents("a://b", "x/y", text="t", meta=META), annotations=NOTE, meta=META
    ),
    ResourceLink(
        "a://b", "n", "T", "D", "x/y", 3, [Icon("https://x.example/i", "x/y", ["1x1"], "dark")],
        annotations=NOTE, meta=META,
    ),
]  # fmt: skip


def expected(version: str) -> list[Any]:
    """The same blocks as the ``schema.ts`` of a revision has them."""
    note = dict(NOTE_WIRE)
    contents: dict[str, Any] = {"uri": "a://b", "mimeType": "x/y", "text": "t", "_meta": META}
    more: dict[str, Any] = {"annotations": note, "_meta": META}
    link: dict[str, Any] = {
        "type": "resource_link", "uri": "a://b", "name": "n", "title": "T", "description": "D",
        "mimeType": "x/y", "size": 3, **more,
        "icons": [{"src": "https://x.example/i", "mimeType": "x/y", "sizes": ["1x1"],
                   "theme": "dark"}],
    }  # fmt: skip
    audio: dict[str, Any] = {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"}
    if version in before("2025-11-25"):
        del link["icons"]
    if version in before("2025-06-18"):
        del note["lastModified"], more["_meta"], contents["_meta"]
        link = {"type": "text", "text": "[resource: T] a://b"}
    audio |= more
    if version in before("2025-03-26"):
        audio = {"type": "text", "text": "[audio: audio/wav, 1 bytes]"}
    return [
        {"type": "text", "text": "t", **more},
        {"type": "image", "data": "aQ==", "mimeType": "image/png", **more},
        audio,
        {"type": "resource", "resource": contents, **more},
        link,
    ]


def test_results_of_tools(caller: Any, server: Server, version: str) -> None:
    @server.tool
    def blocks() -> Any:
        return FULL

    assert caller().result("tools/call", name="blocks")["content"] == expected(version)


def test_messages_of_prompts(caller: Any, server: Server, version: str) -> None:
    @server.prompt
    def blocks() -> Any:
        return [PromptMessage("assistant", FULL), FULL[0]]

    wanted = expected(version)
    messages = caller().result("prompts/get", name="blocks")["messages"]
    assert [message["content"] for message in messages] == [*wanted, wanted[0]]


def test_contents_of_resources(caller: Any, server: Server, version: str) -> None:
    server.add_resource("a://b", FULL[3].resource)
    [contents] = caller().plain("resources/read", uri="a://b")["contents"]
    assert contents == expected(version)[3]["resource"]


@pytest.mark.parametrize("version", ALL)
def test_what_a_revision_has_is_not_copied(version: str) -> None:
    plain = [
        Text("t"),
        Text("t", annotations=Annotations(priority=1)),
        EmbeddedResource(ResourceContents("a://b", text="")),
    ]
    for block in plain:
        assert fit_block(block, version) is block
    if version in since("2025-11-25"):
        for block in FULL:
            assert fit_block(block, version) is block


@pytest.mark.parametrize("version", ALL)
def test_the_authors_own_blocks_stay_as_they_are(version: str) -> None:
    before = [msgspec.json.encode(block) for block in FULL]
    for block in FULL:
        fit_block(block, version)
    assert [msgspec.json.encode(block) for block in FULL] == before


def test_a_block_that_nobody_knows_becomes_text(caller: Any, server: Server) -> None:
    @server.tool
    def odd() -> Any:
        return [UnknownContent({"type": "hologram", "data": "x"}), "and text"]

    @server.tool
    def alone() -> Any:
        return UnknownContent({"type": "hologram", "data": "x"})

    client = caller()
    told = {"type": "text", "text": "[hologram]"}
    said = {"type": "text", "text": "and text"}
    assert client.result("tools/call", name="odd")["content"] == [told, said]
    assert client.result("tools/call", name="alone") == {"content": [told]}


# -- sampling -------------------------------------------------------------------------------------

TOOLS: list[Any] = [
    SamplingMessage("assistant", ToolUseContent("1", "t", {}, meta=META), meta=META),
    SamplingMessage("user", ToolResultContent("1", FULL, 5, meta=META)),
]


def sampled(version: str, messages: Any, answer: Any, **options: Any) -> tuple[Any, Any]:
    """What a server of one revision asks, and what it gets."""
    asked: list[Any] = []
    got: list[Any] = []
    server = Server("s", versions=[version])

    @server.tool
    async def ask(ctx: Context) -> str:
        got.append(await ctx.sample(messages, max_tokens=5, **options))
        return "done"

    async def on_sample(params: SampleParams) -> Any:
        asked.append(params)
        return answer

    async def main() -> None:
        async with Client(server, on_sample=on_sample, sampling_tools=True) as client:
            assert (await client.call_tool("ask")).text == "done"

    asyncio.run(asyncio.wait_for(main(), FOREVER))
    return msgspec.to_builtins(asked[0].messages), got[0]


@pytest.mark.parametrize("version", ALL)
def test_messages_of_sampling(version: str) -> None:
    question = SamplingMessage("user", FULL[:3], meta=META)
    answer = SampleResult(content=FULL[0], model="m")
    messages, got = sampled(version, question, answer)
    wanted = expected(version)[:3]
    if version in since("2025-11-25"):
        assert messages == [{"role": "user", "content": wanted, "_meta": META}]
    else:
        assert messages == [{"role": "user", "content": block} for block in wanted]
    assert msgspec.to_builtins(got.content) == wanted[0]


@pytest.mark.parametrize("version", since("2025-11-25"))
def test_results_of_tools_in_sampling(version: str) -> None:
    messages, _ = sampled(version, TOOLS, SampleResult(content="x", model="m"), tools=[])
    result = messages[1]["content"]
    assert result["content"] == expected(version)
    # an object until 2026-07-28
    assert result.get("structuredContent") == (5 if version == MODERN else None)


@pytest.mark.parametrize("version", ALL)
def test_roots_of_a_client(version: str) -> None:
    server = Server("s", versions=[version])

    @server.tool
    async def ask(ctx: Context) -> Any:
        return [msgspec.to_builtins(root) for root in await ctx.roots()]

    async def main() -> Any:
        root = Root("file:///a", "A", META)
        async with Client(server, roots=[root]) as client:
            return msgspec.json.decode((await client.call_tool("ask")).text)

    root = {"uri": "file:///a", "name": "A", "_meta": META}
    if version in before("2025-06-18"):
        del root["_meta"]
    assert asyncio.run(asyncio.wait_for(main(), FOREVER)) == [root]
