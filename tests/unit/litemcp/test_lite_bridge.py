"""Bridges both ways: with servers that are children, over WebSocket, and in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import msgspec
import pytest
from lab.lite import Run, calculator, child, listening, until
from lab.wording import raises

from wirespeed import Client, Server, WebSocket
from wirespeed.errors import CallTimeout
from wirespeed.litemcp import Content, LiteClient, LiteServer, Parameter, Response, Tool
from wirespeed.litemcp.bridge import as_lite_server, as_mcp_tool
from wirespeed.server.tools.results import RawResult
from wirespeed.types import Audio, Image, Text, ToolResult

pytestmark = pytest.mark.smoke

PNG = b"\x89PNG"

# -- LiteMCP to MCP -------------------------------------------------------------------------------


async def test_a_litemcp_child_as_an_mcp_tool() -> None:
    server = Server("bridge")
    async with LiteClient(child("lite_server.py", "picture")) as lite:
        await as_mcp_tool(server, lite, optional=["times"])
        async with Client(server) as client:
            (tool,) = await client.list_tools()
            assert (tool.name, tool.description) == ("picture", "A picture of a text.")
            assert tool.input_schema == {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "times": {
                        "type": "string",
                        "description": "Optional, 1 by default. Type: integer.",
                    },
                },
                "required": ["text"],
                "additionalProperties": False,
            }
            result = await client.call_tool("picture", {"text": "ab", "times": "2"})
            assert result.content == [
                Text(text="abab"),
                Image(data=b"abab", mime_type="image/png"),
            ]
            assert result.is_error is False
            result = await client.call_tool("picture", {"text": "ab", "times": -1})
            assert (result.is_error, result.text) == (True, "no such picture")
            for arguments, said in (
                ({}, "missing argument: text"),
                ({"text": None}, "missing argument: text"),
                ({"text": "a", "more": "b"}, "unknown argument: more"),
            ):
                result = await client.call_tool("picture", arguments)
                assert (result.is_error, result.text) == (True, said)


async def test_an_mcp_child_as_a_litemcp_server() -> None:
    async with Client(child("tool_server.py")) as mcp:
        add = await as_lite_server(mcp, "add")
        fail = await as_lite_server(mcp, "fail")
        with raises(LookupError):
            await as_lite_server(mcp, "nothing")
        async with LiteClient(add) as client:
            info = await client.info()
            assert [(p.name, p.type) for p in info.parameters] == [
                ("a", "integer"),
                ("b", "integer"),
            ]
            result = await client.call(2, b=3)
            assert result.content == [Content("number", "5")]
            assert result.params == {"a": "2", "b": "3"}
            result = await client.call("x", 3)
            assert result.error
            assert result.text == "argument 'a': expected integer, got 'x'"
            assert (await client.call(2)).text == "missing argument: b"
        async with LiteClient(fail) as client:
            result = await client.call("these words")
            assert (result.error, result.text) == (True, "these words")


async def test_both_bridges_over_websocket() -> None:
    """LiteMCP over WebSocket, as MCP over WebSocket, as LiteMCP over WebSocket."""
    async with (
        listening(calculator(), token="sesame") as url,
        LiteClient(url, token="sesame") as lite,
    ):
        middle = Server("bridge")
        await as_mcp_tool(middle, lite, name="sum")
        async with listening(middle) as mcp_url, Client(WebSocket(mcp_url)) as mcp:
            end = await as_lite_server(mcp, "sum", name="total", refusal_status=401)
            async with listening(end) as last_url, LiteClient(last_url) as client:
                info = await client.info()
                assert info.name == "total"
                assert [p.name for p in info.parameters] == ["a", "b"]
                results = await asyncio.gather(*(client.call(i, b=1) for i in range(100)))
                assert [r.text for r in results] == [str(i + 1) for i in range(100)]
                assert (await client.call("x", 1)).error


async def test_the_client_is_opened_when_it_is_needed() -> None:
    server = Server("bridge")
    lite = LiteClient(calculator())
    info = Tool("Calculator", parameters=[Parameter("a", "number"), Parameter("b", "number")])
    await as_mcp_tool(server, lite, info=info, timeout=5)
    assert "closed" in repr(lite)
    async with Client(server) as client:
        result = await client.call_tool("Calculator", {"a": "1", "b": "2"})
        assert result.text == "3"
        assert "open" in repr(lite)
    await lite.close()


async def test_contents_become_blocks(once: Run) -> None:
    server = LiteServer("t")
    contents = [
        Content("text", "a"),
        Content("number", "5"),
        Content("image/png", "AA=="),
        Content("audio/wav", "AA=="),
        Content("image/png", "no base64"),
        Content("application/pdf", "AA=="),
        Content("json", "{}"),
    ]

    async def handler(arguments: list[str]) -> Any:
        return Response(contents, arguments == ["fail"])

    server.tool_raw([Parameter("how", "")], handler)
    mcp = Server("bridge")
    async with LiteClient(server) as lite, Client(mcp) as client:
        await as_mcp_tool(mcp, lite, name="blocks")
        result = await client.call_tool("blocks", {"how": "fail"})
        assert result.is_error
        assert result.content == [
            Text(text="a"),
            Text(text="5"),
            Image(data=b"\x00", mime_type="image/png"),
            Audio(data=b"\x00", mime_type="audio/wav"),
            Text(text="no base64"),
            Text(text="AA=="),
            Text(text="{}"),
        ]


async def test_texts_of_parameters_are_folded_into_descriptions(once: Run) -> None:
    mcp = Server("bridge")
    info = Tool(
        "t",
        "Does it",
        "Do it",
        [Parameter("a", "number", "The first", "2"), Parameter("b", "string")],
    )
    tool = await as_mcp_tool(mcp, LiteClient(LiteServer("t")), info=info)
    assert tool.entry.description == "Does it\n\nExample: Do it"
    assert tool.entry.inputSchema["properties"] == {
        "a": {"type": "string", "description": "The first. Type: number. Example: 2"},
        "b": {"type": "string"},
    }
    assert tool.entry.inputSchema["required"] == ["a", "b"]
    with raises(ValueError):
        await as_mcp_tool(mcp, LiteClient(LiteServer("t")), info=info, optional=["c"])
    with raises(ValueError):
        await as_mcp_tool(mcp, LiteClient(LiteServer("t")), info=info)


async def test_what_goes_wrong_on_the_way_is_told_in_general_words(caplog: Any) -> None:
    mcp = Server("bridge")
    lite = LiteClient(child("lite_server.py", "exits"))
    await as_mcp_tool(mcp, lite)
    async with Client(mcp) as client:
        result = await client.call_tool("exits", {"status": "5"})
        assert (result.is_error, result.text) == (True, "tool exits cannot be reached")
    await lite.close()
    assert "lite_server.py" in caplog.text  # for whoever runs the bridge


async def test_a_cancelled_call_drops_the_answer() -> None:
    server = LiteServer()
    ended: list[str] = []
    began = asyncio.Event()
    gate = asyncio.Event()

    @server.tool
    async def waits(text: str) -> str:
        began.set()
        await gate.wait()
        ended.append(text)
        return text

    mcp = Server("bridge")
    async with LiteClient(server) as lite, Client(mcp) as client:
        await as_mcp_tool(mcp, lite)
        task = asyncio.ensure_future(client.call_tool("waits", {"text": "a"}))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: lite.n_outstanding == 0)
        gate.set()
        await until(lambda: ended == ["a"])  # the tool went on
        assert (await client.call_tool("waits", {"text": "b"})).text == "b"


# -- MCP to LiteMCP -------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    y: int = 0


async def test_parameters_are_required_first_and_parsed_by_type(once: Run) -> None:
    mcp = Server("mcp")

    @mcp.tool
    async def show(
        text: str = "T",
        *,
        number: float = 1.5,
        flag: bool,
        many: list[int],
        point: Point | None = None,
        mode: Literal["a", "b"] = "a",
        either: int | str = 0,
        anything: Any = None,
    ) -> str:
        """Show.

        Args:
            flag: Up or down
        """
        return repr((text, number, flag, many, point, mode, either, anything))

    async with Client(mcp) as client:
        lite = await as_lite_server(client, "show")
        assert [(p.name, p.type) for p in lite.info.parameters] == [
            ("flag", "boolean"),
            ("many", "array of integer"),
            ("text", "string"),
            ("number", "number"),
            ("point", 'object {"x": integer, "y" (optional): integer} or null'),
            ("mode", '"a" or "b"'),
            ("either", "integer or string"),
            ("anything", "any"),
        ]
        assert lite.info.parameters[0].description == "Up or down"
        assert lite.info.parameters[3].description == "Optional, 1.5 by default."
        async with LiteClient(lite) as asking:
            for arguments, shown in (
                (["True", "[1, 2]"], (True, [1, 2], "T", 1.5, None, "a", 0, None)),
                (
                    ["false", "[]", "", "", '{"x":1}', "", "", "5"],
                    (False, [], "T", 1.5, Point(1), "a", 0, "5"),
                ),
                (["true", "[]", ""], (True, [], "", 1.5, None, "a", 0, None)),
                (
                    ["true", "[]", "x", "2", "null", "b", "7"],
                    (True, [], "x", 2.0, None, "b", "7", None),
                ),
            ):
                flag, many, *others = shown
                text, number, *rest = others
                result = await asking.invoke(arguments)
                assert result.text == repr((text, number, flag, many, *rest))
            for arguments, said in (
                ([], "missing arguments: flag, many"),
                (["true"], "missing argument: many"),
                (["yes", "[]"], "argument 'flag': expected boolean, got 'yes'"),
                (["", "[]"], "argument 'flag': expected boolean, got ''"),
                (["true", "1"], "argument 'many': expected array of integer, got '1'"),
                (["true", "[]", "", "x"], "argument 'number': expected number, got 'x'"),
                (
                    ["true", "[]", "", "", "", "c"],
                    "argument 'mode': expected \"a\" or \"b\", got 'c'",
                ),
            ):
                result = await asking.invoke(arguments)
                assert (result.error, result.text) == (True, said)
            # what the schema says beyond that, the MCP server checks
            result = await asking.invoke(["true", '["a"]'])
            assert result.error
            assert "many[0]" in result.text


@pytest.mark.off_schema("a kind of block that is yet to come")
async def test_results_of_mcp_become_contents(once: Run) -> None:
    mcp = Server("mcp")
    results: dict[str, Any] = {
        "text": "t",
        "number": 5,
        "none": None,
        "list": [1, 2],
        "object": {"a": 1},
        "image": Image(data=PNG, mime_type="image/png"),
        "mixed": [Text(text="t"), Image(data=b"\x00", mime_type="image/png")],
        "both": ToolResult(content="words", structured_content={"a": 1}),
        "failed": ToolResult(content="no", is_error=True),
        "strange": RawResult(b'{"content":[{"type":"new","x":1}],"resultType":"complete"}'),
    }

    @mcp.tool
    async def give(what: str) -> Any:
        return results[what]

    @mcp.tool
    async def typed(what: str) -> list[int]:
        return [1, 2]

    async with Client(mcp) as client:
        lite = await as_lite_server(client, "give")
        async with LiteClient(lite) as asking:
            for what, expected in (
                ("text", [("text", "t")]),
                ("number", [("text", "5")]),
                ("none", []),
                ("list", [("text", "[1,2]")]),
                ("object", [("json", '{"a":1}')]),
                ("image", [("image/png", "iVBORw==")]),
                ("mixed", [("text", "t"), ("image/png", "AA==")]),
                ("both", [("text", "words"), ("json", '{"a":1}')]),
                ("failed", [("text", "no")]),
                ("strange", [("json", '{"type":"new","x":1}')]),
            ):
                result = await asking.call(what)
                assert [(c.type, c.data) for c in result.content] == expected
                assert result.error == (what == "failed")
        async with LiteClient(await as_lite_server(client, "typed")) as asking:
            result = await asking.call("")
            assert result.content == [Content("json", "[1,2]")]


async def test_an_mcp_server_that_fails_is_told_in_general_words(once: Run, caplog: Any) -> None:
    mcp = Server("mcp")

    @mcp.tool
    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    async with Client(mcp) as client:
        lite = await as_lite_server(client, "slow", timeout=0.05)
        async with LiteClient(lite) as asking:
            result = await asking.call()
            assert (result.error, result.text) == (True, "tool slow did not answer in time")
        mcp.remove_tool("slow")
        lite = await as_lite_server(client, "slow", info=_info("slow"))
        async with LiteClient(lite) as asking:
            result = await asking.call()
            assert (result.error, result.text) == (True, "tool slow: Unknown tool: slow")
            with pytest.raises(CallTimeout):
                await asking.invoke(timeout=1e-9)


def _info(name: str, schema: Any = None) -> Any:
    from wirespeed.types import ToolInfo

    return ToolInfo(name, schema or {"type": "object"})


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"$ref": "#/$defs/N"}, "5", 5),
        ({"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}, "null", None),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": ["string", "integer"]}, "7", "7"),
        ({"enum": [1, "x", None]}, "x", "x"),
        ({"enum": [1, "x", None]}, "1", 1),
        ({"const": 5}, "5", 5),
        ({}, "5", "5"),
        (True, "5", "5"),
        ({"type": "number"}, " 5 ", 5),
        ({"type": "integer"}, "5.0", 5.0),
        ({"type": "object"}, '{"a":[1]}', {"a": [1]}),
    ],
)
async def test_strings_are_parsed_by_the_schema(
    once: Run, schema: Any, text: str, value: Any
) -> None:
    mcp = Server("mcp")
    root = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": {"N": {"type": "integer"}},
    }
    got = []

    async def handler(arguments: Any) -> None:
        got.append(json.loads(bytes(arguments)))

    mcp.tool_raw("t", root, handler)
    async with Client(mcp) as client, LiteClient(await as_lite_server(client, "t")) as asking:
        assert not (await asking.call(text)).error
    assert got == [{"v": value}]
    assert type(got[0]["v"]) is type(value)
