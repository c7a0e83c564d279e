"""Arguments of tools: other notations of a number, texts for other values, unknown names."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from lab.raw import call
from lab.rows import every
from lab.server import MODERN, Peer, pass_on, text_of, tool_call
from lab.wording import raises

from wirespeed import Client, Server, SyncClient
from wirespeed.errors import RemoteError

VERSIONS = ["2025-11-25", MODERN]


def raw_call(version: str, tool: str, arguments: str) -> bytes:
    """A tools/call whose arguments are exactly this text."""
    line = json.dumps(tool_call(version, 1, tool, "HERE")).replace('"HERE"', arguments)
    return line.encode() + b"\n"


def said(peer: Peer, version: str, tool: str, arguments: str) -> str:
    """The text that a tool returned, or that of its error."""
    return text_of(peer.ask(raw_call(version, tool, arguments))["result"])


# -- whole numbers --------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


@dataclass
class Line:
    points: list[Point]
    width: int = 1


@attrs.define
class Box:
    size: int


class Row(TypedDict):
    id: int


class Model(pydantic.BaseModel):
    id: int


async def number(n: int) -> str:
    return repr(n)


@pytest.mark.smoke
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.0", 1),
        ("-0.0", 0),
        ("1e3", 1000),
        ("9007199254740993.0", 2**53 + 1),
        ("1e20", 10**20),
        ("18446744073709551617.0", 2**64 + 1),
    ],
)
def test_a_whole_number_is_an_integer_in_every_notation(
    text: str, value: int, version: str, connect: Any, server: Server
) -> None:
    server.add_tool(number)
    peer = connect(version)
    assert said(peer, version, "number", f'{{"n":{text}}}') == repr(value)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1.5", "Expected `int`, got `float`"),
        ("1e-1", "Expected `int`, got `float`"),
        ("1e40", "Expected `int`, got `float`"),
        ("1e999999999", "Number out of range"),
        ('"5"', "Expected `int`, got `str`"),
        ('"1.0"', "Expected `int`, got `str`"),
        ("true", "Expected `int`, got `bool`"),
    ],
)
def test_anything_else_is_not_an_integer(
    text: str, why: str, version: str, connect: Any, server: Server
) -> None:
    server.add_tool(number)
    answer = said(connect(version), version, "number", f'{{"n":{text}}}')
    assert answer == f"Invalid arguments for tool number: argument 'n': {why}"


def list_of(value: list[int]) -> Any:
    return value


def struct(value: list[Point]) -> Any:
    return [[point.x, point.y] for point in value]


def data_class(value: Line) -> Any:
    return [value.points[0].x, value.width]


def attrs_class(value: Box) -> Any:
    return value.size


def typed_dict(value: dict[str, Row]) -> Any:
    return value


def model(value: list[Model]) -> Any:
    return [one.id for one in value]


def checked(value: Annotated[int, pydantic.AfterValidator(abs)]) -> Any:
    return value


def mixed(value: int | float | None, other: int = 0) -> Any:  # noqa: PYI041
    return [value, other]


def anything(value: Any, other: int = 0) -> Any:
    return [value, other]


def literal(value: Literal[1, "x"]) -> Any:
    return value


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (list_of, '{"value":[1.0,2e1,3]}', "[1,20,3]"),
        (struct, '{"value":[{"x":1.0,"y":2.0},{"x":3}]}', "[[1,2.0],[3,0.5]]"),
        (data_class, '{"value":{"points":[{"x":9007199254740993.0}],"width":2.0}}',
         "[9007199254740993,2]"),
        (attrs_class, '{"value":{"size":1e2}}', "100"),
        (typed_dict, '{"value":{"a":{"id":1.0}}}', '{"a":{"id":1}}'),
        (model, '{"value":[{"id":1.0}]}', "[1]"),
        (checked, '{"value":-9007199254740993.0}', "9007199254740993"),
        # a float stays one beside an integer that the same call wrote as a float
        (mixed, '{"value":1.0,"other":2.0}', "[1.0,2]"),
        (anything, '{"value":[1.0],"other":2.0}', "[[1.0],2]"),
        (literal, '{"value":1.0}', "1"),
    ],
)  # fmt: skip
def test_at_any_depth_of_every_kind_of_type(
    function: Callable[..., Any],
    arguments: str,
    expected: str,
    version: str,
    connect: Any,
    server: Server,
) -> None:
    server.add_tool(function, name="tool", inline=True)
    assert said(connect(version), version, "tool", arguments) == expected


@pytest.mark.parametrize("long", ["", "x" * 5000], ids=["short", "long"])
@pytest.mark.parametrize("middleware", [False, True])
def test_beside_a_long_text_and_behind_middleware(
    long: str, middleware: bool, connect: Any, server: Server
) -> None:
    @server.tool
    async def cut(text: str, at: int) -> str:
        return f"{len(text)} {at!r}"

    if middleware:
        server.add_middleware(pass_on)
    arguments = f'{{"text":"{long}","at":3.0}}'
    assert said(connect(MODERN), MODERN, "cut", arguments) == f"{len(long)} 3"


def test_a_raw_tool_gets_the_text_that_came(connect: Any, server: Server) -> None:
    server.tool_raw("raw", {"type": "object"}, lambda view: bytes(view).decode(), inline=True)
    text = '{"n":1.0,"toolCallId":"5"}'
    assert said(connect(MODERN), MODERN, "raw", text) == text


async def test_in_strings_of_prompts_and_templates_too(server: Server) -> None:
    @server.prompt
    def page(n: int, items: list[int]) -> str:
        return f"{n!r} {items!r}"

    @server.resource("users://{id}")
    def user(id: int) -> str:
        return repr(id)

    async with Client(server) as client:
        arguments = {"n": "9007199254740993.0", "items": "[1.0, 1e3]"}
        prompt = await client.get_prompt("page", arguments)
        assert prompt.messages[0].content.text == "9007199254740993 [1, 1000]"
        (content,) = (await client.read_resource("users://1e20")).contents
        assert content.text == str(10**20)


# -- texts for other values -----------------------------------------------------------------------


def several(
    n: int = 0,
    on: bool = False,
    ratio: float = 0.0,
    note: str = "",
    items: list[int] | None = None,
    point: Point | None = None,
    models: list[Model] | None = None,
    path: PurePosixPath | None = None,
) -> Any:
    ids = None if models is None else [one.id for one in models]
    x = None if point is None else point.x
    return [n, on, ratio, note, items, x, ids, path]


INT = 12345678901234567890
EMPTY = [0, False, 0.0, "", None, None, None, None]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n", "5", 5),
        ("n", "1e3", 1000),
        ("n", "9007199254740993.0", 2**53 + 1),
        ("on", "true", True),
        ("ratio", "2.5", 2.5),
        ("items", "null", None),
        ("items", " [1, 2.0]", [1, 2]),
        ("items", ["1", 2], [1, 2]),
        ("items", ["9007199254740993.0", " 1e3 ", "12345678901234567890"], [2**53 + 1, 1000, INT]),
        ("items", '["9007199254740993.0"]', [2**53 + 1]),
        ("point", {"x": "9007199254740993.0"}, 2**53 + 1),
        ("point", '{"x": "9007199254740993.0"}', 2**53 + 1),
        ("point", '{"x": 1.0}', 1),
        ("point", {"x": "7"}, 7),
        ("models", '[{"id": 3}]', [3]),
    ],
)
def test_a_text_stands_for_another_value_where_the_tool_allows_that(
    name: str, value: Any, expected: Any, version: str, connect: Any
) -> None:
    lax, strict = Server("lab", coerce=True), Server("lab")
    for server in (lax, strict):
        server.add_tool(several)
    arguments = json.dumps({name: value, "note": "5"})
    got = json.loads(said(connect(version, to=lax), version, "several", arguments))
    at = ["n", "on", "ratio", "note", "items", "point", "models"].index(name)
    wanted = [*EMPTY[:3], "5", *EMPTY[4:]]
    wanted[at] = expected
    assert got == wanted
    refused = said(connect(version, to=strict), version, "several", arguments)
    assert refused.startswith("Invalid arguments for tool several: argument")


def test_the_option_of_a_tool_is_stronger_than_the_servers(connect: Any) -> None:
    server = Server("lab", coerce=True)
    server.add_tool(number, name="as_server")
    server.add_tool(number, name="strict", coerce=False)
    peer = connect(MODERN, to=server)
    assert said(peer, MODERN, "as_server", '{"n":"5"}') == "5"
    refused = said(peer, MODERN, "strict", '{"n":"5"}')
    assert refused.endswith("argument 'n': Expected `int`, got `str`")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"n":"five"}', "argument 'n': Expected `int`, got `str`"),
        ('{"n":"1.5"}', "argument 'n': Expected `int`"),
        ('{"items":"[1"}', "argument 'items': Expected `array | null`, got `str`"),
        (r'{"items":"[1],\"n\":2"}', "argument 'items': Expected `array | null`, got `str`"),
        ('{"note":5}', "argument 'note': Expected `str`, got `int`"),
        ('{"path":5}', "argument 'path': Expected `str`, got `int`"),
        ('{"nn":"5"}', "unknown argument 'nn'; did you mean 'n'?"),
    ],
)
def test_a_text_that_is_no_such_value_is_refused(
    arguments: str, why: str, connect: Any, server: Server
) -> None:
    server.add_tool(several, coerce=True)
    answer = said(connect(MODERN), MODERN, "several", arguments)
    assert answer.startswith(f"Invalid arguments for tool several: {why}")


# -- unknown arguments ----------------------------------------------------------------------------


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    limit: int = 0


def search(
    text: str = "", limit: int = 10, closed: Closed | None = None, at: Point | None = None
) -> str:
    return f"{text} {limit}"


@pytest.mark.smoke
@pytest.mark.every_revision
@pytest.mark.parametrize("text", ["a", "x" * 5000], ids=["short", "long"])
def test_an_unknown_argument_is_refused_with_the_nearest_name(
    text: str, version: str, connect: Any, server: Server
) -> None:
    server.add_tool(search)
    answer = connect(version).ask(tool_call(version, 1, "search", {"text": text, "limitt": 5}))
    if version >= "2025-11-25":
        assert answer["result"]["isError"] is True
        text = text_of(answer["result"])
    else:
        assert answer["error"]["code"] == -32602
        text = answer["error"]["message"]
    assert text == (
        "Invalid arguments for tool search: unknown argument 'limitt'; did you mean 'limit'?"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"toolCallId": "call_1"}, "unknown argument 'toolCallId'"),
        ({"l" * 100: 1}, f"unknown argument '{'l' * 100}'"),
        ({"": 1}, "unknown argument ''"),
        ({"limit": "2", "limitt": 1}, "argument 'limit': Expected `int`, got `str`"),
        ({"closed": {"limitt": 1}}, "argument 'closed': unknown field 'limitt'"),
    ],
)
def test_what_is_said_of_other_names(
    arguments: Any, why: str, connect: Any, server: Server
) -> None:
    server.add_tool(search)
    result = connect(MODERN).result(tool_call(MODERN, 1, "search", arguments))
    assert text_of(result) == f"Invalid arguments for tool search: {why}"


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Cup(msgspec.Struct):
    size: Size


def pour(
    what: Literal["tea", "water"] = "tea",
    cups: list[Cup] | None = None,
    by_name: dict[str, Size] | None = None,
    number: Literal[tuple(range(30))] = 0,  # type: ignore[valid-type]
) -> str:
    return what


@every(
    ("arguments", "why"),
    [
        (
            {"what": "milk"},
            """'what': Invalid enum value 'milk'; expected one of "tea", "water\"""",
        ),
        (
            {"cups": [{"size": "m"}]},
            """'cups[0].size': Invalid enum value 'm'; expected one of "l", "s\"""",
        ),
        (
            {"by_name": {"a.b": "m"}},
            """'by_name[...]': Invalid enum value 'm'; expected one of "l", "s\"""",
        ),
        ({"number": 30}, "'number': Invalid enum value 30"),
    ],
)
def test_the_values_of_an_enumeration_are_listed(arguments: Any, why: str) -> None:
    server = Server("s")
    server.add_tool(pour)
    with SyncClient(server) as client:
        result = client.call_tool("pour", arguments)
    assert result.text == f"Invalid arguments for tool pour: argument {why}"


def test_nested_types_follow_their_own_rule(connect: Any, server: Server) -> None:
    server.add_tool(search)
    arguments = {"at": {"x": 1, "z": 2}}
    assert text_of(connect(MODERN).result(tool_call(MODERN, 1, "search", arguments))) == " 10"


@pytest.mark.parametrize("arguments", [None, {}])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_tool_without_parameters(
    arguments: Any, version: str, connect: Any, server: Server
) -> None:
    @server.tool
    async def now() -> str:
        return "now"

    peer = connect(version)
    assert text_of(peer.result(tool_call(version, 1, "now", arguments))) == "now"
    refused = text_of(peer.result(tool_call(version, 2, "now", {"random_string": "x"})))
    assert refused == "Invalid arguments for tool now: unknown argument 'random_string'"


@pytest.mark.parametrize("where", ["server", "tool"])
async def test_extra_ignore_drops_them(where: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("lab", extra="ignore" if where == "server" else "forbid")
    server.add_tool(search, **({"extra": "ignore"} if where == "tool" else {}))
    server.add_tool(search, name="strict", extra="forbid")
    async with Client(server) as client:
        shown = {tool.name: tool.input_schema for tool in await client.list_tools()}
        assert "additionalProperties" not in shown["search"]
        assert shown["strict"]["additionalProperties"] is False
        arguments = {"limit": 2, "toolCallId": "call_1"}
        assert (await client.call_tool("search", arguments)).text == " 2"
        assert (await client.call_tool("search", {"limit": "2", "a": 1})).is_error
        assert (await client.call_tool("strict", arguments)).is_error
    assert caplog.records == []


def test_an_extra_that_is_neither_is_refused() -> None:
    with raises(ValueError):
        Server("lab", extra="allow")  # type: ignore[arg-type]
    with raises(ValueError):
        Server("lab").add_tool(search, extra=None)  # type: ignore[arg-type]
    with raises(TypeError):
        Server("lab").tool_raw("raw", {"type": "object"}, print, coerce=True)  # type: ignore[call-arg]


async def test_prompts_ignore_other_names(server: Server) -> None:
    @server.prompt
    def hello(name: str) -> str:
        return name

    async with Client(server) as client:
        prompt = await client.get_prompt("hello", {"name": "a", "other": "b"})
        assert prompt.messages[0].content.text == "a"
        with raises(RemoteError, code=-32602):
            await client.get_prompt("hello", {"nam": "a"})


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"meta": '{"a": 1}', "rows": []}, "argument 'meta'"),
        ({"meta": {}, "rows": ["[1]"]}, "argument 'rows[0]'"),
        ({"meta": {}, "rows": [], "more": "[1, 2]"}, "argument 'more'"),
    ],
)
def test_a_json_text_in_the_place_of_its_value(
    connect: Any, server: Server, arguments: Any, place: str
) -> None:
    @server.tool
    async def take(
        meta: dict[str, int], rows: list[list[int]], more: list[int] | None = None
    ) -> None: ...

    peer = connect("2025-11-25")
    text = text_of(peer.result(call(1, "take", arguments)))
    assert place in text
    assert "got `str`, a JSON text: send the value itself" in text
    assert "coerce=True" in text
    text = text_of(peer.result(call(2, "take", {"meta": "not JSON", "rows": []})))
    assert "got `str`" in text and "JSON text" not in text
