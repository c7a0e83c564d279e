"""Schemas that hosts can show: smaller, and the same values."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every

from wirespeed import Client, Server
from wirespeed.schema.json_schema import build_schemas, smallest

NULL = {"type": "null"}
NUMBER = {"type": "number"}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(msgspec.Struct):
    side: int | float
    colour: Colour | None = None


CASES: list[tuple[Any, dict[str, Any]]] = [
    (int | float, NUMBER),
    (float | int | None, {"anyOf": [NUMBER, NULL]}),
    (bool | float | int, {"anyOf": [{"type": "boolean"}, NUMBER]}),
    (list[int | float], {"type": "array", "items": NUMBER}),
    (dict[str, int | float], {"type": "object", "additionalProperties": NUMBER}),
    (
        Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)],
        {"type": "number", "minimum": 0},
    ),
    (Annotated[int, msgspec.Meta(ge=0)] | float, NUMBER),
    (
        int | Annotated[float, msgspec.Meta(ge=0)],
        {"anyOf": [{"type": "integer"}, {"type": "number", "minimum": 0}]},
    ),
    (Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}),
    (
        Literal["a"] | Literal["b"],  # noqa: PYI030
        {"type": "string", "enum": ["a", "b"]},
    ),
    (
        Literal[1] | Literal["a"] | Literal[2],  # noqa: PYI030
        {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["a"]}]},
    ),
    (
        Literal["a", None],  # noqa: PYI061
        {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]},
    ),
    (Literal[1, "a"], {"enum": [1, "a"]}),
    (Literal[True], {"type": "boolean", "enum": [True]}),
    (
        bool | Literal[True],  # noqa: PYI051
        {"type": "boolean", "examples": [True]},
    ),
    (
        str | Literal["auto"],  # noqa: PYI051
        {"type": "string", "examples": ["auto"]},
    ),
    (Literal[1, 2] | float, {"type": "number", "examples": [1, 2]}),
    (Colour, {"type": "string", "enum": ["blue", "red"]}),
    (Level | None, {"anyOf": [{"type": "integer", "enum": [1, 2]}, NULL]}),
]


@every(("tp", "expected"), CASES, ids=lambda case: repr(case)[:60])
def test_types(tp: Any, expected: dict[str, Any]) -> None:
    (schema,), definitions = build_schemas([tp])
    assert schema == expected
    assert definitions == {}


def test_definitions() -> None:
    """Those that list values stand where they are used; the others are small, too."""
    (schema,), definitions = build_schemas([Shape])
    assert schema == {"$ref": "#/$defs/Shape"}
    assert list(definitions) == ["Shape"]
    assert definitions["Shape"]["properties"] == {
        "side": NUMBER,
        "colour": {
            "anyOf": [{"type": "string", "enum": ["blue", "red"]}, NULL],
            "default": None,
        },
    }


def test_what_is_said_of_an_alternative_stays() -> None:
    schema = {"anyOf": [{"type": "integer", "description": "a count"}, NUMBER]}
    assert smallest(schema, {}) == schema
    said = {"description": "How many.", "anyOf": [{"type": "integer"}, NUMBER]}
    assert smallest(said, {}) == {"type": "number", "description": "How many."}
    other = {"minimum": 1, "anyOf": [{"type": "integer"}, {"type": "number", "minimum": 0}]}
    assert smallest(other, {})["anyOf"]  # both limits hold: neither replaces the other


def test_a_schema_by_hand_is_left_as_it_is() -> None:
    schema = {"properties": {"enum": NUMBER, "anyOf": {"enum": []}}, "enum": [[1], {"a": None}]}
    assert smallest(schema, {}) == schema
    assert smallest(True, {}) is True
    assert smallest({"anyOf": []}, {}) == {"anyOf": []}


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.builds(dict, type=st.sampled_from(["integer", "number", "string", "boolean", "null"])),
    st.builds(
        dict,
        type=st.sampled_from(["integer", "number"]),
        minimum=st.integers(-2, 2),
    ),
    st.builds(
        dict,
        enum=st.lists(st.sampled_from([1, 2, "a", "b", True, None, 1.5]), min_size=1, unique=True),
    ),
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(dict, anyOf=st.lists(inner, min_size=1, max_size=4)),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda one: {"type": "object", "properties": {"enum": one}}, inner),
        st.builds(lambda parts: {"oneOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=8,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([0, 1, 2, -1, -3, 1.0, 1.5, -2.5, "a", "b", "c", True, False, None]),
    lambda inner: st.lists(inner, max_size=2) | st.builds(dict, enum=inner),
    max_leaves=4,
)


@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=12))
def test_the_values_are_the_same(schema: dict[str, Any], values: list[Any]) -> None:
    before = json.dumps(schema)
    found = smallest(schema, {})
    assert json.dumps(schema) == before  # it was not changed
    for value in values:
        assert jsonschema_rs.is_valid(found, value) == jsonschema_rs.is_valid(schema, value)
    assert smallest(found, {}) == found


DECODED: list[Any] = [
    int | float,
    int | float | None,
    Literal[1, 2] | float,
    str | Literal["auto"],  # noqa: PYI051
    bool | Literal[True],  # noqa: PYI051
    Level,
    Literal[1, 2],
]


@every("tp", DECODED, ids=repr)
async def test_what_the_schema_accepts_is_decoded(tp: Any) -> None:
    server = Server("numbers")

    async def take(value: Any) -> str:
        return repr(value)

    take.__annotations__["value"] = tp
    server.add_tool(take)
    (schema,), _ = build_schemas([tp])
    async with Client(server) as client:
        for value in (1, 1.0, 2.5, 2, 3, 1e20, 2**53 + 1, -1, None, "1", "auto", True, False):
            result = await client.call_tool("take", {"value": value})
            assert result.is_error is not jsonschema_rs.is_valid(schema, value), value
