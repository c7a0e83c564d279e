"""Strings to typed arguments, and results to contents."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from lab.rows import every

from wirespeed.litemcp import Content, Parameter, Response
from wirespeed.litemcp.contents import LiteResultError, contents_of, response_of
from wirespeed.litemcp.tool import decode_arguments, slots_of, typed_tool
from wirespeed.protocol.results import CallToolResult
from wirespeed.schema.from_strings import ArgumentError, type_text
from wirespeed.server.requests.launchers import Threads
from wirespeed.server.tools.signature import inspect_tool
from wirespeed.types import Audio, EmbeddedResource, Image, ResourceContents, Text, ToolResult


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    n: int


def parse(tp: Any, text: str) -> Any:
    def tool(value): ...  # type: ignore[no-untyped-def]

    tool.__annotations__["value"] = tp
    (slot,) = slots_of(inspect_tool(tool))
    return slot.parse(text)


@every(
    ("tp", "text", "value"),
    [
        (str, "5", "5"), (str, " x ", " x "), (str, "", ""), (str, "null", "null"),
        (Any, "5", "5"), (str | None, "null", "null"), (str | int, "5", "5"),
        (int, "5", 5), (int, " 5\n", 5), (int, "-0", 0), (int, "5.0", 5),
        (int, "9" * 40, int("9" * 40)),
        (float, "2", 2.0), (float, "2.5e3", 2500.0), (bool, "true", True), (bool, "False", False),
        (int | None, "null", None), (int | None, "7", 7), (None, "null", None),
        (list[int], "[1, 2]", [1, 2]), (list[int], ' ["3"] ', ArgumentError),
        (dict[str, int], '{"a":1}', {"a": 1}), (tuple[int, str], '[1,"a"]', (1, "a")),
        (int | list[int], "[1]", [1]), (int | list[int], "1", 1),
        (Point, '{"x":1}', Point(1)), (Model, '{"n":1}', Model(n=1)),
        (Colour, "red", Colour.RED), (Level, "1", Level.LOW), (Literal["a", "b"], "a", "a"),
        (Literal[1, 2], "2", 2), (bytes, "AAE=", b"\x00\x01"),
        (datetime.date, "2026-11-22", datetime.date(2026, 11, 22)),
        (uuid.UUID, "12345678" * 4, uuid.UUID("12345678" * 4)),
        (Decimal, "1.10", Decimal("1.10")), (Path, "/a b", Path("/a b")),
        (Annotated[int, msgspec.Meta(ge=3)], "3", 3),
        (Annotated[str, msgspec.Meta(min_length=2)], "ab", "ab"),
        (Annotated[int, pydantic.Field(ge=3)], "4", 4),
    ],
)  # fmt: skip
def test_a_string_becomes_what_the_type_says(tp: Any, text: str, value: Any) -> None:
    if value is ArgumentError:
        with pytest.raises(ArgumentError):
            parse(tp, text)
        return
    found = parse(tp, text)
    assert found == value
    assert type(found) is type(value)


@every(
    ("tp", "text", "said"),
    [
        (int, "x", "argument 'value': expected integer, got 'x'"),
        (int, "", "argument 'value': expected integer, got ''"),
        (int, "1.5", "argument 'value': expected integer, got '1.5'"),
        (bool, "yes", "argument 'value': expected boolean, got 'yes'"),
        (list[int], "1,2", "argument 'value': expected array of integer, got '1,2'"),
        (list[int], '[1,"a"]', "argument 'value': at '[1]': Expected `int`, got `str`"),
        (Point, '{"y":1}', "missing required field 'x'"),
        (Literal["a", "b"], "c", "argument 'value': Invalid enum value 'c'"),
        (Annotated[int, msgspec.Meta(ge=3)], "2", "argument 'value': Expected `int` >= 3"),
        (Annotated[str, msgspec.Meta(min_length=2)], "a", "of length >= 2"),
        (int, "x" * 200, "…'"),
        (list[int], "[" * 100_000, "argument 'value'"),
        (int, "\ud800", "argument 'value'"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tp: Any, text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(tp, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def with_gaps(a: int, b: str = "B", c: int = 3, *, d: str | None = None, e: str) -> None: ...


def test_missing_arguments_are_defaults_and_so_are_gaps() -> None:
    slots = slots_of(inspect_tool(with_gaps))
    assert [slot.name for slot in slots] == ["a", "b", "c", "d", "e"]
    assert decode_arguments(slots, ["1", "", "", "", "x"]) == [1, "B", 3, None, "x"]
    assert decode_arguments(slots, ["1", "b", "5", "d", ""]) == [1, "b", 5, "d", ""]
    for given, said in (
        ([], "missing arguments: a, e"),
        (["1"], "missing argument: e"),
        (["1", "", "", ""], "missing argument: e"),
        (["", "", "", "", "x"], "argument 'a': expected integer, got ''"),
        (["1"] * 6, "too many arguments: 6 were given, at most 5 are allowed"),
    ):
        with pytest.raises(ArgumentError, match=f"^{said}$"):
            decode_arguments(slots, given)


def test_an_empty_string_that_is_last_is_one_where_text_is_taken() -> None:
    def tool(a: str = "A", b: int = 2) -> None: ...

    slots = slots_of(inspect_tool(tool))
    assert decode_arguments(slots, [""]) == ["", 2]
    assert decode_arguments(slots, ["", ""]) == ["A", 2]
    assert decode_arguments(slots, []) == ["A", 2]


def test_mutable_defaults_are_copied() -> None:
    def tool(a: list[int] = [1]) -> None: ...  # noqa: B006

    slots = slots_of(inspect_tool(tool))
    decode_arguments(slots, [])[0].append(2)
    assert decode_arguments(slots, []) == [[1]]


def test_parameters_are_described_by_annotations_and_docstrings() -> None:
    def tool(
        city: Annotated[str, msgspec.Meta(description="Where", examples=["Ulm"])],
        days: Annotated[int, "How many days."] = 3,
        at: Point | None = None,
        mode: Literal["c", "f"] = "c",
        tags: list[str] = [],  # noqa: B006
    ) -> None:
        """The weather.

        Of a place on earth.

        Args:
            at: On the map, e.g. {"x": 1}
            mode: Celsius or Fahrenheit

        Examples:
            What is the weather
            in Ulm?
        """

    made = typed_tool(tool, Threads(1))
    assert (made.name, made.description) == ("tool", "The weather.\n\nOf a place on earth.")
    assert made.example == "What is the weather in Ulm?"
    assert made.parameters == [
        Parameter("city", "string", "Where", "Ulm"),
        Parameter("days", "integer", "How many days. Optional, 3 by default."),
        Parameter(
            "at",
            'object {"x": integer, "y" (optional): integer} or null',
            "On the map. Optional, null by default.",
            '{"x": 1}',
        ),
        Parameter("mode", '"c" or "f"', "Celsius or Fahrenheit. Optional, c by default."),
        Parameter("tags", "array of string", "Optional, [] by default."),
    ]


@every(
    ("schema", "text"),
    [
        ({"type": "string"}, "string"), ({}, "any"), (True, "any"), ({"const": 1}, "1"),
        ({"type": ["integer", "null"]}, "integer or null"), ({"type": "array"}, "array"),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"type": "string", "contentEncoding": "base64"}, "string (base64)"),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        ({"type": "object"}, "object"), ({"$ref": "#/$defs/nothing"}, "any"),
        ({"type": "array", "items": {"$ref": "#/$defs/Loop"}},
         'array of object {"next" (optional): object {"next" (optional): object}}'),
    ],
)  # fmt: skip
def test_types_in_words(schema: Any, text: str) -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Loop"}}}
    assert type_text(schema, {"Loop": loop}) == text


# -- results --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Data:
    a: int


@every(
    ("value", "expected"),
    [
        (None, []),
        ("text", [("text", "text")]),
        ("", [("text", "")]),
        (5, [("number", "5")]),
        (5.0, [("number", "5")]),
        (2.5, [("number", "2.5")]),
        (1e300, [("number", "1e+300")]),
        (float("nan"), [("number", "nan")]),
        (Decimal("1.10"), [("number", "1.10")]),
        (10**30, [("number", "1" + 30 * "0")]),
        (True, [("boolean", "true")]),
        (b"\x00\x01", [("application/octet-stream", "AAE=")]),
        (Image(data=b"\x00", mime_type="image/png"), [("image/png", "AA==")]),
        (Audio(data=b"\x00", mime_type="audio/wav"), [("audio/wav", "AA==")]),
        (Text(text="t"), [("text", "t")]),
        (EmbeddedResource(resource=ResourceContents("u:x", blob=b"\x00")),
         [("application/octet-stream", "AA==")]),
        (EmbeddedResource(resource=ResourceContents("u:x", "text/html", text="<p>")),
         [("text/html", "<p>")]),
        ({"a": 1}, [("json", '{"a":1}')]),
        (Point(1, 2), [("json", '{"x":1,"y":2}')]),
        (Data(1), [("json", '{"a":1}')]),
        (Model(n=1), [("json", '{"n":1}')]),
        (Colour.RED, [("text", "red")]),
        (Level.LOW, [("number", "1")]),
        (datetime.date(2026, 11, 22), [("text", "2026-11-22")]),
        ([], []),
        ([1, "a", b"b", {"c": 1}, [2], None],
         [("number", "1"), ("text", "a"), ("application/octet-stream", "Yg=="),
          ("json", '{"c":1}'), ("json", "[2]"), ("json", "null")]),
        ((1, 2), [("number", "1"), ("number", "2")]),
        (Content("unit", "m"), [("unit", "m")]),
    ],
)  # fmt: skip
def test_results_become_contents(value: Any, expected: list[tuple[str, str]]) -> None:
    assert [(c.type, c.data) for c in contents_of(value)] == expected
    assert response_of(value).error is False


def test_a_response_is_taken_as_it_is() -> None:
    response = Response([Content("a", "b")], True)
    assert response_of(response) is response


@every(
    "value",
    [
        object(),
        {"a": object()},
        {"a": "\ud800"},
        Content("a", 1),  # type: ignore[arg-type]
        Response([Content(None, "a")]),  # type: ignore[arg-type]
        Response(["a"]),  # type: ignore[list-item]
        ToolResult(content="x"),
        CallToolResult([Text("x")], is_error=True),
    ],
)
def test_what_cannot_be_sent_is_said(value: Any) -> None:
    with pytest.raises(LiteResultError):
        response_of(value)
