"""Values checked by schemas of servers: what is right, and what is refused."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises
from msgspec import UNSET

from wirespeed.client.output_checks import check_of
from wirespeed.errors import InvalidResponse
from wirespeed.protocol.results import CallToolResult

SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "required": ["rows"],
    "$defs": {"row": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
BAD = {"rows": [{}, {"name": 7}]}
UNUSABLE = r"outputSchema of t (cannot be used|refers to nothing|refers to another document)"


def checked(schema: Any, value: Any = UNSET, is_error: bool = False) -> None:
    check_of("t", schema)(CallToolResult([], value, is_error))


# -- values ----------------------------------------------------------------------------------------


def test_failures_are_not_checked() -> None:
    checked(SCHEMA, is_error=True)
    checked(SCHEMA, BAD, is_error=True)


def test_structured_content_must_be_there() -> None:
    for schema in (SCHEMA, {}, {"type": "null"}):
        with raises(InvalidResponse):
            checked(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "null"}, None), ({"type": "array"}, [1]), ({}, 7), (True, "x")],
)
def test_structured_content_of_any_schema_and_any_value(schema: Any, value: Any) -> None:
    checked(schema, value)


@every(
    ("schema", "value", "path"),
    [
        ({"type": "object"}, 7, "structuredContent: "),
        ({"type": "object"}, None, "structuredContent: "),
        ({"properties": {"a": {"type": "null"}}}, {"a": 1}, "structuredContent.a: "),
        ({"properties": {"a b": {"type": "null"}}}, {"a b": 1}, "structuredContent['a b']: "),
        ({"items": {"items": {"type": "null"}}}, [[None], [None, 1]], "structuredContent[1][1]: "),
        ({"required": ["x"]}, {}, "structuredContent: "),
    ],
)
def test_errors_name_the_place(schema: Any, value: Any, path: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        checked(schema, value)
    assert f"breaks its outputSchema: {path}" in str(caught.value)


def test_errors_are_short() -> None:
    with pytest.raises(InvalidResponse) as caught:
        checked({"type": "object"}, "x" * 10_000)
    assert len(str(caught.value)) < 400


def test_large_values_are_checked_but_not_explained() -> None:
    schema = {"items": {"type": "integer"}}
    checked(schema, list(range(20_000)))
    with raises(InvalidResponse):
        checked(schema, [*range(20_000), "x"])


@pytest.mark.parametrize("value", ["x" * 2_000_000, [0] * 1_000_000], ids=["a string", "a list"])
def test_values_that_are_too_large_are_not_checked(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with raises(InvalidResponse):
        checked({"type": "null"}, value)
    check = check_of("t", {"type": "null"}, strict=False)
    for _ in range(3):
        check(CallToolResult([], value))
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (
            logging.WARNING,
            "results of t are not checked: "
            "the value is too large to be checked by the outputSchema of t",
        )
    ]


# -- schemas ---------------------------------------------------------------------------------------


REFERENCES = [
    {"$ref": "http://127.0.0.1:%d/x"},
    {"$ref": "http://localhost:%d/x#/$defs/a"},
    {"$id": "http://127.0.0.1:%d/a", "$ref": "b"},
    {"$dynamicRef": "http://127.0.0.1:%d/x#a"},
    {"$defs": {"unused": {"$dynamicRef": "http://127.0.0.1:%d/x"}}},
    {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveRef": "http://127.0.0.1:%d/x",
    },
    {"properties": {"a": {"items": {"anyOf": [{"$ref": "http://127.0.0.1:%d/x"}]}}}},
    {"dependencies": {"a": {"$ref": "http://127.0.0.1:%d/x"}}},
    {"unknown": [{"$ref": "http://127.0.0.1:%d/x"}]},
]


def filled(schema: Any, port: int) -> Any:
    if isinstance(schema, dict):
        return {key: filled(value, port) for key, value in schema.items()}
    if isinstance(schema, list):
        return [filled(value, port) for value in schema]
    return schema.replace("%d", str(port)) if isinstance(schema, str) else schema


@every("schema", REFERENCES, ids=range(len(REFERENCES)))
def test_no_reference_is_fetched(schema: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(InvalidResponse, match=UNUSABLE):
            checked(filled(schema, listener.getsockname()[1]), {"a": [1]})
        with pytest.raises(BlockingIOError):
            listener.accept()  # there was no connection


@every(
    "uri",
    [
        "file:///etc/passwd",
        "urn:x:y",
        "json-schema:///x",
        "#/nope",
        "#nope",
        "#/enum/x",
        "#/enum/9",
    ],
)
def test_references_that_are_not_resolved_are_refused(uri: str) -> None:
    with pytest.raises(InvalidResponse, match=UNUSABLE):
        checked({"$ref": uri, "enum": [1]}, 1)


def test_references_inside_a_schema_are_followed() -> None:
    for schema in (
        {"$defs": {"b": {"type": "string"}}, "$ref": "#/$defs/b"},
        {"$id": "http://example.com/a", "$defs": {"b": {"type": "string"}}, "$ref": "#/$defs/b"},
        {"$defs": {"b": {"$anchor": "here", "type": "string"}}, "$ref": "#here"},
        {"$defs": {"b c~/d": {"type": "string"}}, "$ref": "#/$defs/b%20c~0~1d"},
        {"allOf": [{"type": "string"}, {"$ref": "#/allOf/0"}]},
    ):
        checked(schema, "x")
        with raises(InvalidResponse):
            checked(schema, 1)


DRAFTS = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
]


@every("dialect", DRAFTS)
def test_known_dialects(dialect: str) -> None:
    checked({"$schema": dialect, "type": "object"}, {})
    with raises(InvalidResponse):
        checked({"$schema": dialect, "type": "object"}, 1)


def test_the_dialect_is_2020_12_unless_a_schema_says_otherwise() -> None:
    checked({"prefixItems": [{"type": "string"}]}, ["x"])
    with raises(InvalidResponse):
        checked({"prefixItems": [{"type": "string"}]}, [1])
    checked({"$schema": DRAFTS[2], "prefixItems": [{"type": "string"}]}, [1])  # not in draft 7


@pytest.mark.parametrize("dialect", ["http://example.com/schema", "", 7, None, DRAFTS[0] + "x"])
def test_unknown_dialects_are_refused(dialect: Any) -> None:
    with raises(InvalidResponse):
        checked({"$schema": dialect}, {})


@every("schema", [[], "x", 1, {"type": "x"}, {"properties": 1}, {"pattern": "("}])
def test_broken_schemas_are_refused(schema: Any) -> None:
    with raises(InvalidResponse):
        checked(schema, {})


def test_names_of_properties_and_data_are_not_keywords() -> None:
    words = ("$id", "$ref", "$anchor", "default", "enum", "const", "items", "allOf")
    schema = {"properties": {word: {"$ref": "#/$defs/n"} for word in words}}
    schema["$defs"] = {"n": {"type": "number"}}
    checked(schema, dict.fromkeys(words, 1))
    for word in words:
        with raises(InvalidResponse):
            checked(schema, {word: "x"})
    remote = {"$ref": "http://example.com/"}
    for keyword in ({"const": remote}, {"enum": [remote]}, {"default": remote}):
        checked(keyword, remote)


# -- bounds ----------------------------------------------------------------------------------------

R = {"$ref": "#"}
OLDER = "https://json-schema.org/draft/2019-09/schema"


def deep(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def doubled(levels: int) -> Any:
    """A schema whose references, written out, double with each level."""
    defs: Any = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)}
    defs[str(levels)] = {"type": "string"}
    return {"$ref": "#/$defs/0", "$defs": defs}


LIST = {"properties": {"value": {"type": "integer"}, "next": R}, "required": ["value"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (LIST, {"value": 1, "next": {"value": 2}}, {"value": 1, "next": {"next": {}}}),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": R}}
            | {"type": "array"},
            [[], [[]]],
            [[], [[5]]],
        ),
        (
            {"$dynamicAnchor": "n", "type": "array", "items": {"$dynamicRef": "#n"}},
            [[]],
            [[1]],
        ),
        (
            {"$schema": OLDER, "$recursiveAnchor": True, "type": "array"}
            | {"items": {"$recursiveRef": "#"}},
            [[]],
            [[1]],
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "array", "items": R}]},
            ["a", ["b", ["c"]]],
            ["a", ["b", [1]]],
        ),
    ],
)
def test_a_schema_may_refer_to_itself(schema: Any, good: Any, bad: Any) -> None:
    checked(schema, good)
    with raises(InvalidResponse):
        checked(schema, bad)


def test_a_value_whose_check_would_take_too_long() -> None:
    """Each level has two ways: 2 to the power of its levels in all."""
    two = {"properties": {"x": {"anyOf": [R, R]}}}
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"x": value}
    with raises(InvalidResponse):
        checked(two, value)
    checked(two, {"x": {"x": {}}})


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"description": "x" * 70_000}, "has more than 65536 bytes"),
        ({"enum": ["x"] * 20_000}, "has more than 65536 bytes"),
        (deep(66), "is nested deeper than 64 levels"),
        ({"anyOf": [{} for _ in range(1001)]}, "has more than 1000 subschemas"),
        (doubled(40), "has more than 1000 subschemas"),
        (R, "refers to itself"),
        ({"allOf": [{"anyOf": [R]}]}, "refers to itself"),
        (
            {"properties": {"a": {"$ref": "#/$defs/m"}}, "$defs": {"m": R}}
            | {"allOf": [{"$ref": "#/$defs/m"}]},
            "refers to itself",
        ),
        ({"not": R}, "refers to itself"),
        ({"unknown": R}, "refers to itself"),
        ({"$defs": {"a": {"$id": "http://example.com/a"}}}, "contains another document"),
        ({"pattern": r"(?:\p{L}{1,1000}){1,1000}x"}, "cannot be used"),  # no engine can simplify it
    ],
)
def test_schemas_out_of_bounds_are_refused(
    schema: Any, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidResponse, match=f"outputSchema of t {fault}"):
        check_of("t", schema)
    check = check_of("t", schema, strict=False)
    check(CallToolResult([], {"any": "value"}))
    check(CallToolResult([]))
    [record] = caplog.records
    assert record.getMessage().startswith("results of t are not checked: the outputSchema of t ")


def test_schemas_at_the_bounds_are_used() -> None:
    checked({"anyOf": [{} for _ in range(999)]}, 1)
    checked(deep(64), [[]])
    checked(doubled(5), "x")
    checked({"description": "x" * 60_000}, 1)


EMAIL = (  # as zod writes it
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]"
    r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)


def test_regular_expressions() -> None:
    checked({"items": {"pattern": EMAIL}}, ["some.body@long.example.com"] * 1000)
    with raises(InvalidResponse):
        checked({"items": {"pattern": EMAIL}}, ["a@b.cc", "a..b@example.com"])
    for pattern in (r"^(a+)+$", r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", r"^.{1,100}$"):
        with raises(InvalidResponse):
            checked({"pattern": pattern}, "a" * 90 + "!" * 20)


def test_regular_expressions_give_up() -> None:
    with raises(InvalidResponse):
        checked({"pattern": r"(?=(a+)+\1$)b"}, "a" * 5000)
