"""A server that offers what another offers, in the revisions of its own clients."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from wirespeed import Client, Context, Server
from wirespeed.errors import RemoteError, ToolError
from wirespeed.proxy import Mirror
from wirespeed.server.tools.signature import WireName

ERAS = ["2025-11-25", "2026-07-28"]


class Point(msgspec.Struct):
    x: int
    y: int


def behind(version: str) -> Server:
    """A server of one revision."""
    server = Server("behind", versions=[version])

    @server.tool(title="Adds", annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def point(x: int) -> Point:
        return Point(x, -x)

    @server.tool
    async def fail() -> str:
        raise ToolError("it broke")

    @server.tool
    async def steps(ctx: Context) -> str:
        for n in range(3):
            await ctx.progress(n, 3, f"step {n}")
        return "done"

    @server.tool
    async def meta(ctx: Context) -> dict[str, Any]:
        return {key: value for key, value in ctx.meta.items() if key.startswith("org.example/")}

    @server.tool
    async def hang() -> str:
        running.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return "never"

    @server.prompt
    async def review(
        code: str, tone: Annotated[str, msgspec.Meta(description="How")] = "mild"
    ) -> str:
        """Review code."""
        return f"{tone}: {code}"

    @server.completion("review", "tone")
    def tones(value: str, known: dict[str, str]) -> list[str]:
        return [value + "!", *known.values()]

    @server.resource("notes://today", mime_type="text/plain", size=5)
    async def today() -> str:
        return "sunny"

    @server.resource("notes://{day}/{+rest}")
    async def on(day: str, rest: str) -> str:
        if day == "none":
            from wirespeed.errors import ResourceNotFound

            raise ResourceNotFound
        return f"{day} {rest}"

    running, ended = asyncio.Event(), asyncio.Event()
    server.running_, server.ended_ = running, ended  # type: ignore[attr-defined]
    return server


@pytest.fixture(params=ERAS)
def server(request: Any) -> Server:
    return behind(request.param)


@pytest.fixture(params=["legacy", "modern"])
def era(request: Any) -> Any:
    return request.param


async def test_tools(server: Server, era: Any) -> None:
    async with Client(Mirror(server, name="front").server, era=era) as client:
        assert client.server_info is not None
        assert client.server_info["name"] == "front"
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["add"].description == "Add two numbers."
        assert tools["add"].title == "Adds"
        assert tools["add"].annotations == {"readOnlyHint": True}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        result = await client.call_tool("point", {"x": 4})
        assert result.structured_content == {"x": 4, "y": -4}
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert failed.text == "it broke"
        refused = await client.call_tool("add", {"a": 1})
        assert refused.is_error
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("unknown")
        assert caught.value.code == -32602


async def test_progress_and_meta_pass(server: Server, era: Any) -> None:
    reports: list[Any] = []
    async with Client(Mirror(server, name="front").server, era=era) as client:
        result = await client.call_tool("steps", on_progress=lambda *report: reports.append(report))
        assert result.data == "done"
        assert reports == [(n, 3, f"step {n}") for n in range(3)]
        said = await client.call_tool("meta", meta={"org.example/x": [1]})
        assert said.data == {"org.example/x": [1]}


async def test_cancellations_pass(server: Any, era: Any) -> None:
    async with Client(Mirror(server, name="front").server, era=era) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await server.running_.wait()
        call.cancel()
        await server.ended_.wait()


async def test_prompts_and_completion(server: Server, era: Any) -> None:
    async with Client(Mirror(server, name="front").server, era=era) as client:
        (prompt,) = await client.list_prompts()
        assert [(a.name, a.required, a.description) for a in prompt.arguments] == [
            ("code", True, None),
            ("tone", False, "How"),
        ]
        got = await client.get_prompt("review", {"code": "x"})
        assert got.messages[0].content.text == "mild: x"
        found = await client.complete(prompt, "tone", "a", context={"code": "c"})
        assert found.values == ["a!", "c"]


async def test_resources(server: Server, era: Any) -> None:
    async with Client(Mirror(server, name="front").server, era=era) as client:
        (resource,) = await client.list_resources()
        assert (resource.uri, resource.mime_type, resource.size) == (
            "notes://today",
            "text/plain",
            5,
        )
        assert (await client.read_resource("notes://today")).text == "sunny"
        assert (await client.read_resource("notes://mon/a/b")).text == "mon a/b"
        for uri in ("notes://none/x", "other://x"):
            with pytest.raises(RemoteError) as caught:
                await client.read_resource(uri)
            assert caught.value.resource_missing


async def test_changes_show(server: Server, era: Any) -> None:
    changed: asyncio.Queue[Any] = asyncio.Queue()
    updated: asyncio.Queue[str] = asyncio.Queue()
    mirrored = Mirror(server, name="front").server
    async with Client(
        mirrored,
        era=era,
        on_tools_changed=changed.put_nowait,
        on_resource_updated=updated.put_nowait,
    ) as client:
        server.remove_tool("fail")
        while "fail" in [tool.name for tool in await changed.get()]:
            pass
        await client.subscribe_resource("notes://today")
        server.resource_updated("notes://today")
        assert await updated.get() == "notes://today"


async def test_a_name_that_is_not_one_in_python(era: Any) -> None:
    server = Server("behind")

    async def look(file: Annotated[str, WireName("file-path")]) -> str:
        return file

    server.add_prompt(look)
    async with Client(Mirror(server, name="front").server, era=era) as client:
        got = await client.get_prompt("look", {"file-path": "a/b"})
        assert got.messages[0].content.text == "a/b"


async def test_mounted(server: Server, era: Any) -> None:
    outer = Server("outer")
    outer.mount("far", Mirror(server, name="front").server)
    async with Client(outer, era=era) as client:
        assert "far_add" in [tool.name for tool in await client.list_tools()]
        assert (await client.call_tool("far_add", {"a": 1, "b": 2})).data == 3


async def test_subscriptions_to_resources_of_its_own(server: Server, era: Any) -> None:
    """The server behind is asked for what it has, and for nothing else."""
    updated: asyncio.Queue[str] = asyncio.Queue()
    front = Mirror(server, name="front").server
    front.add_resource("own://a", lambda: "mine", name="own")
    async with Client(front, era=era, on_resource_updated=updated.put_nowait) as client:
        await client.subscribe_resource("own://a")
        front.resource_updated("own://a")
        assert await updated.get() == "own://a"


async def test_resources_of_its_own_before_a_server_without_resources(era: Any) -> None:
    updated: asyncio.Queue[str] = asyncio.Queue()
    front = Mirror(Server("behind"), name="front").server
    front.add_resource("own://a", lambda: "mine", name="own")
    async with Client(front, era=era, on_resource_updated=updated.put_nowait) as client:
        await client.subscribe_resource("own://a")
        front.resource_updated("own://a")
        assert await updated.get() == "own://a"
    assert front.service.middleware.chain is None


async def test_a_mounted_resource_by_its_own_uri_and_by_one_with_a_prefix(server: Server) -> None:
    updated: asyncio.Queue[str] = asyncio.Queue()
    outer = Server("outer")
    outer.mount("far", Mirror(server, name="front").server, uri_prefix="p+")
    async with Client(outer, era="legacy", on_resource_updated=updated.put_nowait) as client:
        for uri in ("notes://today", "notes://of/anne"):
            await client.subscribe_resource(f"p+{uri}")
            server.resource_updated(uri)
            assert await updated.get() == f"p+{uri}"


async def test_a_server_that_cannot_be_started() -> None:
    from wirespeed import Stdio
    from wirespeed.errors import StartupError

    mirrored = Mirror(Stdio("/nowhere/server"), name="front").server
    with pytest.raises(StartupError):
        async with Client(mirrored):
            pass
