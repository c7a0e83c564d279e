"""What a caller reads from the result of a tool: data, typed values, failures."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from lab.client import text_result
from lab.peer import MODERN_PEER, Rules, Talk, with_client
from lab.wording import raises

from wirespeed import TASKS, Client, Context, Server
from wirespeed.errors import CallTimeout, InputNeeded, InvalidResponse, RemoteError, ToolError
from wirespeed.types import CallToolResult, Image, Text

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


class City(msgspec.Struct):
    name: str
    founded: datetime.date


class Model(pydantic.BaseModel):
    name: str


server = Server("results")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def cities() -> list[City]:
    return [City("Bonn", datetime.date(11, 1, 1))]


@server.tool
async def city(known: bool = True) -> dict[str, str] | None:
    return {"name": "Bonn"} if known else None


@server.tool
async def report() -> dict[str, int]:
    """An object that looks like a wrapped value."""
    return {"result": 5}


@server.tool
async def where(name: str) -> str:
    if name != "Bonn":
        raise ValueError("no such city")
    return "7"


def rules(content: Any, **schema: Any) -> Rules:
    """A modern server whose tool ``t`` returns this structured content."""
    end = {"resultType": "complete"}
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    if schema:
        tool |= {"outputSchema": {"type": "object"} | schema}
    call = text_result() | {"structuredContent": content} | end
    return MODERN_PEER | {"tools/call": call, "tools/list": {"tools": [tool]} | end}


# -- data ------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("listed", [False, True])
async def test_the_data_of_a_tool_is_its_value(era: Any, listed: bool) -> None:
    async with Client(server, era=era) as client:
        if listed:
            await client.list_tools()
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert (added.data, added.structured_content) == (3, {"result": 3})
        assert added.wrapped
        assert (await client.call_tool("report")).data == {"result": 5}
        assert (await client.call_tool("where", {"name": "Bonn"})).data == "7"


@ERAS
async def test_the_data_of_a_task_is_the_value(era: Any) -> None:
    working = Server("tasks")

    @working.tool(task="required")
    async def count() -> int:
        return 7

    async with Client(working, era=era, extensions=[TASKS]) as client:
        assert (await (await client.start_tool("count")).result()).data == 7
        assert (await client.call_tool("count")).data == 7


async def test_the_data_of_a_resumed_call_is_the_value() -> None:
    asking = Server("asks")

    @asking.tool
    async def seats(ctx: Context) -> int:
        answer = await ctx.elicit("How many?", int)
        return answer.content or 0

    form: dict[str, dict[str, object]] = {"elicitation": {"form": {}}}
    async with Client(asking, capabilities=form) as client:
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("seats")
        [key] = caught.value.requests
        assert (await client.resume(caught.value, {key: {"value": 3}})).data == 3


async def test_only_a_marker_unwraps(tmp_path: Path) -> None:
    wrapped = {"result": [1]}
    schema = {"properties": {"result": {"type": "array"}}, "required": ["result"]}
    marked = schema | {"x-fastmcp-wrap-result": True}
    async with with_client(tmp_path, rules(wrapped, **schema)) as (client, peer):
        await client.list_tools()
        assert (await client.call_tool("t")).data == wrapped
        for value in (1, "true", None):
            peer.rules |= rules(wrapped, **schema | {"x-fastmcp-wrap-result": value})
            await client.list_tools()
            assert (await client.call_tool("t")).data == wrapped
        peer.rules |= rules(wrapped, **marked)
        await client.list_tools()
        assert (await client.call_tool("t")).data == [1]
        for odd in ({"result": 1, "more": 2}, {}, [1], None):
            peer.rules |= rules(odd, **marked)
            assert (await client.call_tool("t")).data == odd


def test_data_without_structured_content() -> None:
    assert CallToolResult([Text("a")]).data == "a"
    assert CallToolResult([Image(b"i", "image/png"), Text("a")]).data == "a"
    assert CallToolResult([Text("a"), Text("b")]).data is None
    assert CallToolResult([]).data is None
    assert CallToolResult([Text("a")], None).data is None  # JSON's null
    assert CallToolResult([Text("no")], is_error=True).data is None
    assert CallToolResult([Text("no")], {"code": 1}, is_error=True).data is None


def test_raise_for_error() -> None:
    good = CallToolResult([Text("a")])
    assert good.raise_for_error() is good
    bad = CallToolResult([Text("no such city"), Text("try Bonn")], is_error=True)
    with raises(ToolError) as caught:
        bad.raise_for_error()
    assert caught.value.result is bad
    with raises(ToolError):
        CallToolResult([], is_error=True).raise_for_error()


# -- type= -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
@ERAS
async def test_values_of_a_type(era: Any, listed: bool) -> None:
    async with Client(server, era=era) as client:
        if listed:
            await client.list_tools()
        assert await client.call_tool("add", {"a": 1, "b": 2}, type=int) == 3
        bonn = City("Bonn", datetime.date(11, 1, 1))
        assert await client.call_tool("cities", type=list[City]) == [bonn]
        assert await client.call_tool("city", type=Model | None) == Model(name="Bonn")
        assert await client.call_tool("city", {"known": False}, type=Model | None) is None
        assert await client.call_tool("report", type=dict[str, int]) == {"result": 5}
        assert await client.call_tool("where", {"name": "Bonn"}, type=Path) == Path("7")
        assert await client.call_tool("where", {"name": "Bonn"}, type=int) == 7  # text that is JSON
        assert await client.call_tool("where", {"name": "Bonn"}, type=str) == "7"


async def test_the_tools_are_listed_once_where_the_value_may_be_wrapped() -> None:
    methods: list[str] = []

    async def watch(request: Any, call_next: Any) -> Any:
        methods.append(request.method)
        return await call_next(request)

    async with Client(server, middleware=[watch]) as client:
        await client.call_tool("where", {"name": "Bonn"}, type=str)
        await client.call_tool("where", {"name": "Bonn"})
        assert methods == ["tools/call"] * 2
        calls = [client.call_tool("add", {"a": n, "b": 2}) for n in range(20)]
        assert [result.data for result in await asyncio.gather(*calls)] == list(range(2, 22))
        assert await client.call_tool("add", {"a": 1, "b": 2}, type=int) == 3
        assert sorted(methods) == ["tools/call"] * 23 + ["tools/list"]


async def test_a_list_that_is_late_leaves_the_result_as_it_is(tmp_path: Path) -> None:
    may, waiting = asyncio.Event(), []

    async def listed(talk: Talk, message: dict[str, Any]) -> None:
        waiting.append(asyncio.ensure_future(late(talk, message)))

    async def late(talk: Talk, message: dict[str, Any]) -> None:
        await may.wait()
        schema = {"type": "object", "x-fastmcp-wrap-result": True}
        tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}
        await talk.result(message, {"tools": [tool], "resultType": "complete"})

    late_rules = rules({"result": 1}) | {"tools/list": listed}
    async with with_client(tmp_path, late_rules) as (client, peer):
        assert (await client.call_tool("t", timeout=0.1)).data == {"result": 1}
        calls = [asyncio.ensure_future(client.call_tool("t")) for _ in range(2)]
        await client.discover()  # answered behind both calls
        assert not calls[0].done() and not calls[1].done()
        calls[0].cancel()
        may.set()
        assert (await calls[1]).data == 1
        assert len(peer.sent("tools/list")) == 1


async def test_an_unlisted_tool_is_looked_for_once(tmp_path: Path) -> None:
    unlisted = rules({"result": 1})
    unlisted["tools/list"] = {"tools": [], "resultType": "complete"}
    async with with_client(tmp_path, unlisted) as (client, peer):
        for _ in range(2):
            assert await client.call_tool("t", type=dict) == {"result": 1}
        assert len(peer.sent("tools/list")) == 1


async def test_a_list_that_fails_leaves_the_result_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_client(tmp_path, rules({"result": 1})) as (client, peer):
        peer.rules["tools/list"] = (-32603, "broken")
        assert await client.call_tool("t", type=dict) == {"result": 1}
        assert (await client.call_tool("t")).data == {"result": 1}
        assert caplog.text.count("which tools wrap their values is not known: broken") == 1
        assert len(peer.sent("tools/list")) == 1


async def test_a_wrapped_value_without_a_marker_fits_too(tmp_path: Path) -> None:
    async with with_client(tmp_path, rules({"result": [1]})) as (client, _):
        assert await client.call_tool("t", type=list[int]) == [1]
        with raises(InvalidResponse):
            await client.call_tool("t", type=str)


async def test_a_server_without_structured_content_sends_json_as_text(tmp_path: Path) -> None:
    text = '[{"name": "Bonn", "founded": "0011-01-01"}]'
    plain = MODERN_PEER | {"tools/call": text_result(text) | {"resultType": "complete"}}
    async with with_client(tmp_path, plain) as (client, _):
        [city] = await client.call_tool("t", type=list[City])
        assert city.founded.year == 11
        assert await client.call_tool("t", type=str) == text


async def test_a_value_that_does_not_fit_is_named() -> None:
    faults = {
        ("add", str): "tool add did not return str: result: Expected `str`, got `int`",
        ("cities", list[dict[str, int]]): (
            "tool cities did not return list[dict[str, int]]: "
            "result '[0][...]': Expected `int`, got `str`"
        ),
        ("cities", list[Model]): None,
        ("report", City): "tool report did not return City: missing required field 'name'",
        ("report", Model): "tool report did not return Model: result 'name': Field required",
    }
    arguments = {"add": {"a": 1, "b": 2}}
    async with Client(server) as client:
        for (name, wanted), fault in faults.items():
            call = client.call_tool(name, arguments.get(name), type=wanted)
            if fault is None:
                assert await call == [Model(name="Bonn")]
                continue
            with pytest.raises(InvalidResponse) as caught:
                await call
            assert str(caught.value) == fault


async def test_a_failed_tool_raises(tmp_path: Path) -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match="no such city") as caught:
            await client.call_tool("where", {"name": "Ulm"}, type=str)
        assert caught.value.result.is_error
        with pytest.raises(RemoteError):
            await client.call_tool("nowhere", type=str)
        with pytest.raises(CallTimeout):
            await client.call_tool("add", {"a": 1, "b": 2}, type=int, timeout=-1)


async def test_a_type_without_a_json_form_is_refused_before_the_call() -> None:
    async with Client(server) as client:
        sent = client.counters["messages_out"]
        with raises(TypeError):
            await client.call_tool("add", {"a": 1, "b": 2}, type=type(Client))
        assert client.counters["messages_out"] == sent
