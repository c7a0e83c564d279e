"""Filling in forms: every kind of field of client/elicitation, and what breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed.schema.form_answers import defaults, fill


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


COLORS = ["red", "green"]
TITLED = [{"const": color, "title": color.title()} for color in COLORS]

GOOD: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "string"}, ["", "x", "ä" * 1000]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü", "🎶🎶🎶"]),
    ({"type": "string", "format": "email"}, ["a@b", "a.b+c@example.com"]),
    ({"type": "string", "format": "uri"}, ["https://example.com/a?b#c", "urn:x:y"]),
    ({"type": "string", "format": "date"}, ["2026-02-28", "2024-02-29"]),
    (
        {"type": "string", "format": "date-time"},
        ["2026-07-28T01:02:03Z", "2026-07-28t01:02:03.5+02:00", "2016-12-31T23:59:60Z"],
    ),
    ({"type": "string", "format": "unheard-of"}, ["anything"]),
    ({"type": "string", "format": ["odd"], "minLength": "odd", "enum": "odd"}, ["anything"]),
    ({"type": "string", "pattern": "(a+)+$"}, ["a" * 100 + "b"]),
    ({"type": "string", "enum": COLORS}, COLORS),
    ({"type": "string", "enum": COLORS, "enumNames": ["R", "G"]}, COLORS),
    ({"type": "string", "oneOf": TITLED}, COLORS),
    ({"type": "number", "minimum": 0, "maximum": 1.5}, [0, 1.5, 0.25, 10**0]),
    ({"type": "integer", "minimum": -1}, [-1, 0, 10**30, 2.0]),
    ({"type": "boolean"}, [True, False]),
    (
        {
            "type": "array",
            "items": {"type": "string", "enum": COLORS},
            "minItems": 1,
            "maxItems": 2,
        },
        [["red"], ["red", "green"]],
    ),
    ({"type": "array", "items": {"anyOf": TITLED}}, [[], ["green"]]),
    ({}, ["x", 1, True, ["a"]]),
    ({"type": "hologram"}, ["x"]),
    ({"type": ["string", "null"], "maxLength": 1}, ["x"]),
    ({"type": ["integer", "string"]}, ["x", 1]),
    ({"type": ["hologram", 7]}, ["x"]),
    ({"enum": [1, True, "x"]}, [1, True, "x", 1.0]),
    ({"oneOf": [{"type": "string"}, {"const": "x"}]}, ["y"]),
    ({"minimum": 1, "maxLength": 1, "minItems": 1}, [1, "x", "", ["long"], False]),
    ({"type": "array", "items": {}}, [["a"]]),
]

BAD: list[tuple[dict[str, Any], list[Any]]] = [
    ({"type": "string"}, [1, True, ["a"], {}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["a", "abcd"]),
    ({"type": "string", "format": "email"}, ["", "a", "a@", "@b", "a b@c", "a@b@c"]),
    ({"type": "string", "format": "uri"}, ["", "x", "//x/y", "http://a b", "1:x"]),
    ({"type": "string", "format": "date"}, ["2026-02-29", "20260228", "2026-2-1", "2026-02-28x"]),
    (
        {"type": "string", "format": "date-time"},
        ["2026-07-28", "2026-07-28T01:02:03", "2026-07-28 01:02:03Z", "2026-13-28T01:02:03Z"],
    ),
    ({"type": "string", "enum": COLORS}, ["blue", "RED", ""]),
    ({"type": "string", "oneOf": TITLED}, ["Red"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [-0.1, 1.1, "1", True, float("nan")]),
    ({"type": "number"}, [float("inf")]),
    ({"type": "integer"}, [1.5, "1", False]),
    ({"type": "boolean"}, [0, 1, "true"]),
    (
        {
            "type": "array",
            "items": {"type": "string", "enum": COLORS},
            "minItems": 1,
            "maxItems": 2,
        },
        [[], ["red", "red", "red"], ["blue"], "red", [1]],
    ),
    ({"type": "array", "items": {"anyOf": TITLED}}, [["Red"]]),
    ({}, [{}, [1], float("nan"), object()]),
    ({"enum": COLORS}, ["blue", 1, ["red"]]),
    ({"enum": [1, "x"]}, [True, "1", 2]),
    ({"type": "integer", "enum": [1, 2]}, [3, "1"]),
    ({"type": "hologram", "enum": COLORS}, ["blue"]),
    ({"oneOf": TITLED}, ["Red"]),
    ({"anyOf": TITLED}, ["Red"]),
    ({"format": "email"}, ["a"]),
    ({"type": ["string"], "format": "date"}, [7, "2026-02-29"]),
    ({"type": ["integer", "boolean"], "minimum": 1}, [0, "x", 1.5]),
    ({"minimum": 1, "maximum": 2}, [0, 3]),
    ({"minLength": 2, "maxLength": 3}, ["a", "abcd"]),
    ({"minItems": 1, "maxItems": 1}, [[], ["a", "b"]]),
    ({"items": {"enum": COLORS}}, [["blue"]]),
    ({"type": "array", "items": {"format": "email"}}, [["a"]]),
]


@every(("field", "value"), [(field, value) for field, values in GOOD for value in values])
def test_good_values(field: dict[str, Any], value: Any) -> None:
    assert fill(form(x=field), {"x": value}) == {"x": value}
    assert defaults(form(x=field | {"default": value})) == {"x": value}


@every(("field", "value"), [(field, value) for field, values in BAD for value in values])
def test_bad_values(field: dict[str, Any], value: Any) -> None:
    with raises(ValueError):
        fill(form(x=field), {"x": value})
    assert defaults(form(x=field | {"default": value})) == {}  # and is not sent by itself


def test_what_is_required_may_come_from_a_default() -> None:
    schema = form(a={"type": "string", "default": "x"}, b={"type": "string"}) | {
        "required": ["a", "b"]
    }
    assert fill(schema, {"b": "y"}) == {"a": "x", "b": "y"}
    for content in ({}, {"a": "z"}, {"b": None}):
        with raises(ValueError):
            fill(schema, content)


def test_a_field_that_is_left_alone_gets_its_default() -> None:
    schema = form(a={"type": "string", "default": "x"}, b={"type": "string"})
    assert fill(schema, {"a": None, "b": None}) == {"a": "x"}


def test_the_order_is_that_of_the_form() -> None:
    schema = form(a={"type": "integer"}, b={"type": "integer", "default": 2}, c={})
    assert list(fill(schema, {"c": 3, "a": 1})) == ["a", "b", "c"]


def test_what_is_not_asked_for_is_an_error_unless_the_form_takes_it() -> None:
    schema = form(a={"type": "integer"})
    with raises(ValueError):
        fill(schema, {"a": 1, "b": 2})
    assert fill(schema | {"additionalProperties": True}, {"b": 2}) == {"b": 2}
    with raises(ValueError):
        fill(schema | {"additionalProperties": True}, {"b": {}})


@pytest.mark.parametrize("schema", [{}, {"properties": 1}, {"properties": {}, "required": 1}])
def test_odd_forms_are_empty_forms(schema: dict[str, Any]) -> None:
    assert fill(schema, {}) == {}
    assert defaults(schema) == {}
    assert fill({"properties": {"a": 1}, "required": [1]}, {"a": "x"}) == {"a": "x"}
