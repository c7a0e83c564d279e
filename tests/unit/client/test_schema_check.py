"""Values checked by schemas of servers: what is right, what is refused, and what it may cost."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from wirespeed.client.schema_check import SchemaCheck
from wirespeed.client.schema_graph import CUT
from wirespeed.client.validation import check_of
from wirespeed.errors import InvalidResponse
from wirespeed.protocol.results import CallToolResult

SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}},
    "required": ["rows"],
    "$defs": {"row": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
BAD = {"rows": [{}, {"name": 7}]}
UNUSABLE = r"outputSchema of t (cannot be used|has a reference to nothing|refers to another doc)"


def checked(schema: Any, value: Any = None, is_error: bool = False) -> None:
    check_of("t", schema)(CallToolResult([], value, is_error))


# -- values ----------------------------------------------------------------------------------------


def test_failures_are_not_checked() -> None:
    checked(SCHEMA, None, is_error=True)
    checked(SCHEMA, BAD, is_error=True)


def test_structured_content_must_be_there() -> None:
    with pytest.raises(InvalidResponse, match="no structuredContent, which the tool's"):
        checked(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "null"}, None), ({"type": "array"}, [1]), ({}, 7), (True, "x")],
)
def test_trap_74_any_schema_and_any_value(schema: Any, value: Any) -> None:
    checked(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"type": "object"}, 7, "structuredContent: "),
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
        checked({"type": "object"}, "x" * 100_000)
    assert len(str(caught.value)) < 400


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
]


def filled(schema: Any, port: int) -> Any:
    if isinstance(schema, dict):
        return {key: filled(value, port) for key, value in schema.items()}
    if isinstance(schema, list):
        return [filled(value, port) for value in schema]
    return schema.replace("%d", str(port)) if isinstance(schema, str) else schema


@pytest.mark.parametrize("schema", REFERENCES, ids=range(len(REFERENCES)))
def test_trap_77_no_reference_is_fetched(schema: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(InvalidResponse, match=UNUSABLE):
            checked(filled(schema, listener.getsockname()[1]), {"a": [1]})
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody came


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "urn:x:y", "json-schema:///x", "#/nope"])
def test_trap_77_what_is_not_resolved_is_refused(uri: str) -> None:
    with pytest.raises(InvalidResponse, match=UNUSABLE):
        checked({"$ref": uri}, 1)


def test_references_inside_a_schema_are_followed() -> None:
    inner = {"$id": "http://example.com/b", "type": "string"}
    for schema in (
        {"$defs": {"b": inner}, "$ref": "http://example.com/b"},
        {"$id": "http://example.com/a", "$defs": {"b": inner}, "$ref": "b"},
        {"$defs": {"b": {"$anchor": "here", "type": "string"}}, "$ref": "#here"},
    ):
        checked(schema, "x")
        with pytest.raises(InvalidResponse, match='is not of type "string"'):
            checked(schema, 1)


DRAFTS = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
]


@pytest.mark.parametrize("dialect", DRAFTS)
def test_known_dialects(dialect: str) -> None:
    checked({"$schema": dialect, "type": "object"}, {})
    with pytest.raises(InvalidResponse, match="is not of type"):
        checked({"$schema": dialect, "type": "object"}, 1)


def test_the_dialect_is_2020_12_unless_a_schema_says_otherwise() -> None:
    checked({"prefixItems": [{"type": "string"}]}, ["x"])
    with pytest.raises(InvalidResponse, match=r"structuredContent\[0\]"):
        checked({"prefixItems": [{"type": "string"}]}, [1])
    checked({"$schema": DRAFTS[2], "prefixItems": [{"type": "string"}]}, [1])  # not in draft 7


@pytest.mark.parametrize("dialect", ["http://example.com/schema", "", 7, None, DRAFTS[0] + "x"])
def test_unknown_dialects_are_refused(dialect: Any) -> None:
    with pytest.raises(InvalidResponse, match="dialect that is not supported"):
        checked({"$schema": dialect}, {})


@pytest.mark.parametrize("schema", [[], "x", 1, {"type": "x"}, {"properties": 1}, {"pattern": "("}])
def test_broken_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(InvalidResponse, match="outputSchema of t"):
        checked(schema, {})


# -- bounds ----------------------------------------------------------------------------------------


def test_deep_schemas_are_refused() -> None:
    schema: Any = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(InvalidResponse, match="deeper than 128 levels"):
        checked(schema, [])


def test_large_schemas_are_refused() -> None:
    with pytest.raises(InvalidResponse, match="more than 5000 parts"):
        checked({"anyOf": [True] * 5_001}, [])
    with pytest.raises(InvalidResponse, match="more than 100000 values"):
        checked({"enum": ["x"] * 100_001}, [])
    with pytest.raises(InvalidResponse, match="more than 5000 parts"):
        checked({"anyOf": [{} for _ in range(5_001)]}, [])


@pytest.mark.parametrize("by", ["pointer", "anchor", "id", "id and pointer"])
def test_references_that_double_are_refused(by: str) -> None:
    def name(n: int) -> dict[str, Any]:
        if "pointer" in by:
            return {}
        return {"$anchor": f"a{n}"} if by == "anchor" else {"$id": f"http://example.com/a{n}"}

    ref = {
        "pointer": "#/$defs/a{}",
        "anchor": "#a{}",
        "id": "http://example.com/a{}",
        "id and pointer": "s#/$defs/a{}",
    }[by]
    defs: dict[str, Any] = {
        f"a{n}": name(n) | {"allOf": [{"$ref": ref.format(n + 1)}] * 2} for n in range(40)
    }
    defs["a40"] = name(40) | {"type": "string"}
    schema = {"$defs": defs, "$ref": ref.format(0)}
    if by == "id and pointer":
        schema["$id"] = "http://example.com/s"
    with pytest.raises(InvalidResponse, match="more work than is allowed"):
        checked(schema, "x")


def test_what_is_evaluated_twice_counts_twice() -> None:
    schema: Any = {"type": "object"}
    for _ in range(40):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    with pytest.raises(InvalidResponse, match="more work than is allowed"):
        checked(schema, {})


R = {"$ref": "#"}
OLDER = "https://json-schema.org/draft/2019-09/schema"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def complete(keyword: str, width: int = 12) -> dict[str, Any]:
    """Every part refers to every other."""
    return {
        "$defs": {
            str(n): {
                "required": ["x"],
                "properties": {
                    "x": {keyword: [{"$ref": f"#/$defs/{m}"} for m in range(width) if m != n]}
                },
            }
            for n in range(width)
        },
        "$ref": "#/$defs/0",
    }


def in_x(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"properties": {"x": schema}} | more


# Schemas that would go through a value of depth n some 2^n times, one way or another.
BRANCHING: dict[str, dict[str, Any]] = {
    "allOf": in_x({"allOf": [R, R]}),
    "allOf that fails": in_x({"allOf": [R, R]}, required=["x"]),
    "anyOf that fails": in_x({"anyOf": [R, R]}, required=["x"]),
    "oneOf": in_x({"oneOf": [R, R]}),
    "oneOf that fails": in_x({"oneOf": [R, R]}, required=["x"]),
    "if": in_x({"if": R, "then": R, "else": R}),
    "if that fails": in_x({"if": R, "then": R, "else": R}, required=["x"]),
    "not": in_x({"not": {"not": R}, "allOf": [R]}),
    "not that fails": in_x({"not": R, "anyOf": [R, {"not": R}]}),
    "dependentSchemas": in_x({"dependentSchemas": {"x": R}, "$ref": "#"}),
    "dependencies": in_x({"dependencies": {"x": R}, "allOf": [R]}, **{"$schema": DRAFT_4}),
    "$dynamicRef": in_x(
        {"allOf": [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]}, **{"$dynamicAnchor": "n"}
    ),
    "$recursiveRef": in_x(
        {"allOf": [{"$recursiveRef": "#"}, {"$recursiveRef": "#"}]},
        **{"$schema": OLDER, "$recursiveAnchor": True},
    ),
    "$id": in_x({"allOf": [{"$ref": "s"}, {"$ref": "http://example.com/s#"}]})
    | {"$id": "http://example.com/s"},
    "patternProperties": {"patternProperties": {"x": R, "^x": R}},
    "both properties": {"patternProperties": {"x": R}, "properties": {"x": R}},
    "additionalProperties": {"additionalProperties": R, "allOf": [{"additionalProperties": R}]},
    "unevaluatedProperties": {"unevaluatedProperties": R, "allOf": [{"unevaluatedProperties": R}]},
    "beside": in_x({"$ref": "#", "allOf": [R]}),
    "into the middle": in_x({"allOf": [R, {"properties": {"x": {"$ref": "#/properties/x"}}}]}),
    "items": {"items": {"allOf": [R, R]}},
    "items that fail": {"items": {"anyOf": [R, R]}, "minItems": 1},
    "prefixItems": {"prefixItems": [{"allOf": [R, R]}]},
    "contains": {"prefixItems": [R], "contains": R},
    "contains that fails": {"items": {"anyOf": [R, R]}, "contains": R},
    "unevaluatedItems": {"unevaluatedItems": R, "allOf": [{"unevaluatedItems": R}]},
    "all with all": complete("anyOf"),
    "one of all with all": complete("oneOf"),
}


def nested(depth: int, keys: bool, inner: Any = None) -> Any:
    value = {} if keys else []
    if inner is not None:
        value = inner
    for _ in range(depth):
        value = {"x": value} if keys else [value]
    return value


@pytest.mark.parametrize("inner", [None, 7, "x"])
@pytest.mark.parametrize("name", BRANCHING)
def test_what_refers_to_itself_is_gone_through_once(
    name: str, inner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    class Counted(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            nonlocal asked
            asked += 1
            super().__setitem__(key, value)

    schema = BRANCHING[name]
    targets = len(schema.get("$defs", "12"))
    check = SchemaCheck("it", schema)
    monkeypatch.setattr(check, "_known", Counted())
    for keys in (True, False):
        asked = 0
        check.fault(nested(100, keys, inner))
        assert asked <= targets * 102


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [R]},
        {"not": R},
        {"if": R},
        {"dependentSchemas": {"x": R}},
        {"$dynamicAnchor": "n", "not": {"$dynamicRef": "#n"}},
        {"$schema": OLDER, "$recursiveAnchor": True, "anyOf": [{"$recursiveRef": "#"}]},
        {"$id": "http://example.com/s", "allOf": [{"$ref": "s"}]},
        {"$schema": DRAFT_4, "id": "http://example.com/s", "allOf": [{"$ref": "s#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"anyOf": [R, True], "unevaluatedProperties": False},
        complete("anyOf")["$defs"] and {"$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
    ],
)
def test_what_is_applied_to_one_value_without_end_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidResponse, match="applies itself to the same value without end"):
        check_of("t", schema)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (
            {"unevaluatedProperties": False, "properties": {"x": {"$ref": "#/$defs/a"}}}
            | {"$defs": {"a": {"unevaluatedProperties": False, "allOf": [in_x({"$ref": "#"})]}}},
            None,
        ),
        (
            {"$ref": "#/$defs/a", "unevaluatedProperties": False}
            | {"$defs": {"a": in_x({"$ref": "#"})}},
            "refers to itself under an unevaluatedProperties",
        ),
        ({"$id": "a", "$defs": {"b": {"$id": "b"}, "c": {"$id": "b"}}}, "two parts of one name"),
        ({"$defs": {"b": {"$anchor": "b"}, "c": {"$anchor": "b"}}}, "two parts of one name"),
        (
            {"$dynamicRef": "#b"} | {"$defs": {n: {"$id": n, "$dynamicAnchor": "b"} for n in "bc"}},
            "has several \\$dynamicAnchor",
        ),
        (
            {"$schema": OLDER, "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}}
            | {"$defs": {"b": {"$id": "b", "$recursiveAnchor": True}}},
            "has several \\$recursiveAnchor",
        ),
        ({"$defs": {"a": {"$schema": DRAFT_4, "$id": "a"}}}, "several dialects"),
        (
            {"$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(200)} | {"200": {}}},
            "applies more than 128 parts in one another",
        ),
        ({"properties": {"x" * 5000: {}}}, "names that are too long"),
        ({"$ref": "#/$defs/0", "$dynamicRef": "#/$defs/0", "allOf": 5, "$defs": {"0": 5}}, ""),
        ({"$ref": "#/properties", "properties": {}}, "reference to nothing"),
        ({"$ref": "#/enum/0", "enum": [{}]}, "reference to nothing"),
        ({"$id": "http://example.com/", "$ref": "http://["}, "a URI that is none"),
    ],
)
def test_what_cannot_be_counted_is_refused(schema: Any, fault: str | None) -> None:
    if fault is None:
        check_of("t", schema)
        return
    with pytest.raises(InvalidResponse, match=f"outputSchema of t .*{fault}"):
        check_of("t", schema)


def test_schemas_that_refer_to_themselves_are_fine() -> None:
    tree = {"type": "object", "properties": {"kids": {"items": {"$ref": "#"}}}}
    checked(tree, {"kids": [{"kids": []}]})
    with pytest.raises(
        InvalidResponse, match=r"structuredContent.kids\[0\].kids\[0\]: 1 is not of"
    ):
        checked(tree, {"kids": [{"kids": [1]}]})
    strict = {"properties": {"kids": {"items": {"$ref": "#"}}}, "unevaluatedProperties": False}
    checked(strict, {"kids": [{"kids": []}]})
    with pytest.raises(InvalidResponse, match=r"kids\[0\].*'pets' was unexpected"):
        checked(strict, {"kids": [{"pets": []}]})


def expressions(width: int) -> dict[str, Any]:
    """As pydantic writes a union of models that have fields of that union."""
    either = {"anyOf": [{"$ref": f"#/$defs/Op{n}"} for n in range(width)] + [{"type": "number"}]}
    defs = {
        f"Op{n}": {
            "type": "object",
            "properties": {"left": either, "right": either, "op": {"const": n}},
            "required": ["left", "right", "op"],
        }
        for n in range(width)
    }
    return {"$defs": defs, "properties": {"result": either}, "required": ["result"]}


def test_trees_of_unions_are_fine() -> None:
    value: Any = 1
    for n in range(60):
        value = {"left": value, "right": n, "op": n % 8}
    checked(expressions(8), {"result": value})
    checked(expressions(20), {"result": value})
    broken = {"left": {"left": 1, "right": 2, "op": "none"}, "right": 1, "op": 1}
    with pytest.raises(InvalidResponse, match=r"result: .* not valid under any of the schemas"):
        checked(expressions(8), {"result": broken})


def test_what_nests_too_deep_is_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    steps = {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}, {"not": {}}]} for n in range(20)}
    for last in ({"$ref": "#"}, {"not": {"not": {"$ref": "#"}}}):
        schema = in_x({"$ref": "#/$defs/0"}, **{"$defs": steps | {"20": last}})
        checked(schema, nested(5, True))
        value = nested(100, True)
        with pytest.raises(InvalidResponse, match="is too large to be checked"):
            checked(schema, value)
        check_of("t", schema, strict=False)(CallToolResult([], value))
    assert len(caplog.records) == 2
    checked({"items": {}}, nested(500, False))
    with pytest.raises(InvalidResponse, match="it is not valid, and too large to say where"):
        checked({"type": "null"}, nested(500, False))


def test_the_keyword_of_what_is_cut_is_not_for_servers() -> None:
    for own in ({}, in_x({"$ref": "#"})):
        schema = own | {CUT: ["", "/nothing"], "items": {CUT: 7}}
        checked(schema, {"x": [{}]})


def test_names_of_properties_are_no_keywords() -> None:
    words = ("$id", "$ref", "$anchor", "default", "enum", "const", "items", "allOf")
    schema = {"properties": {word: {"$ref": "#/$defs/n"} for word in words}}
    schema["$defs"] = {"n": {"type": "number"}}
    checked(schema, dict.fromkeys(words, 1))
    for word in words:
        with pytest.raises(InvalidResponse, match='"x" is not of type "number"'):
            checked(schema, {word: "x"})
    checked({"const": {"$ref": "http://example.com/"}}, {"$ref": "http://example.com/"})


def test_a_dialect_is_that_of_the_whole_schema() -> None:
    part = {"$schema": DRAFT_4, "prefixItems": [{"type": "null"}]}
    for schema in (
        {"properties": {"a": part}},
        in_x({}) | {"properties": {"a": {"$ref": "#/$defs/p"}}},
    ):
        schema["$defs"] = {"p": part}
        checked(schema, {"a": [None]})
        with pytest.raises(InvalidResponse, match=r"a\[0\]"):
            checked(schema, {"a": [1]})
    checked({"$recursiveRef": "http://example.com/"}, 1)  # 2020-12 has none


def test_beside_a_reference_of_an_old_dialect_nothing_counts() -> None:
    schema = {"$schema": DRAFTS[2], "$ref": "#/definitions/a b~1c", "type": "object"}
    schema["definitions"] = {"a b/c": {"items": {"$ref": "#"}, "type": "array"}}
    checked(schema, [[[]]])
    with pytest.raises(
        InvalidResponse, match=r'structuredContent\[0\]\[0\]: 1 is not of type "arr'
    ):
        checked(schema, [[1]])


EMAIL = (  # as zod writes it
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]"
    r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)


def test_regular_expressions() -> None:
    checked({"items": {"pattern": EMAIL}}, ["some.body@long.example.com"] * 1000)
    with pytest.raises(InvalidResponse, match=r"structuredContent\[1\]: .* does not match"):
        checked({"items": {"pattern": EMAIL}}, ["a@b.cc", "a..b@example.com"])
    for pattern in (r"^(a+)+$", r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", r"^.{1,100}$"):
        with pytest.raises(InvalidResponse, match="does not match"):
            checked({"pattern": pattern}, "a" * 90 + "!" * 20)


def test_regular_expressions_give_up() -> None:
    with pytest.raises(InvalidResponse, match="structuredContent"):
        checked({"pattern": r"(?=(a+)+\1$)b"}, "a" * 5000)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"pattern": "(?:(?:a{0,100}){0,100}){0,100}"}, "too large, or is none"),
        ({"pattern": "(?=(?:a{0,100}){0,100})"}, "too large, or is none"),
        ({"pattern": "("}, "too large, or is none"),
        ({"pattern": "a" * 10_001}, "too large, or is none"),
        ({"anyOf": [{"pattern": f"^.{{1,{n}}}$"} for n in range(800, 900)]}, "too large, or is no"),
        ({"patternProperties": {"^(?!x)": {}}}, "patternProperties that looks ahead or back"),
        ({"anyOf": [{"pattern": f"^{n}$"} for n in range(101)]}, "more than 100 regular"),
        ({"pattern": "(?i)[" + r"\p{L}" * 1000 + "]"}, "too large, or is none"),
        (
            {
                "$defs": {
                    "b": {"anyOf": [{"pattern": rf"^\p{{L}}?{n}$"} for n in range(50)]},
                    "0": {"items": {"anyOf": [{"$ref": f"#/$defs/{n}"} for n in range(40)]}},
                }
                | {
                    str(n): {"items": {"$ref": "#/$defs/0"}, "contains": {"$ref": "#/$defs/b"}}
                    for n in range(1, 40)
                },
                "$ref": "#/$defs/0",
            },
            "take too long to be compiled",
        ),
    ],
)
def test_regular_expressions_that_cost_too_much_are_refused(schema: Any, fault: str) -> None:
    with pytest.raises(InvalidResponse, match=fault):
        check_of("t", schema)


# Schemas that make work of large values, and such values.
COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "many": ({"items": {"allOf": [{"minimum": -n} for n in range(4000)]}}, [1] * 20_000),
    "an enum": ({"items": {"enum": [{"a": n} for n in range(4000)]}}, [{"a": 1}] * 2000),
    "dependentRequired": (
        {"items": {"dependentRequired": {str(n): [] for n in range(4000)}}},
        [{}] * 10_000,
    ),
    "a regular expression": ({"pattern": "([01]{1,50}x?){1,100}2"}, "01" * 20_000),
    "one that looks ahead": ({"pattern": "(?=.*b)c"}, "a" * 1_000_000),
    "fractions": ({"items": {"multipleOf": 1e-300}}, [1.7e308] * 100_000),
    "long numbers that are unique": ({"uniqueItems": True}, [2**64 + n for n in range(2000)]),
    "fractions that are unique": ({"uniqueItems": True}, [[n / 8 for n in range(14)]] * 4000),
    "a fraction": ({"items": {"not": {"const": 0.5}}}, [1] * 200_000),
    "an enum of numbers": ({"items": {"enum": [*range(500), "a", []]}}, [1.5] * 4000),
    "limits": ({"items": {"minimum": 1e-300}}, [1e300] * 150_000),
    "itself": (complete("oneOf", 40), nested(1, True, ["x"] * 100_000)),
}


@pytest.mark.parametrize("name", COSTLY)
def test_values_that_cost_too_much_are_not_checked(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema, value = COSTLY[name]
    with pytest.raises(InvalidResponse, match="is too large to be checked"):
        checked(schema, value)
    check = check_of("t", schema, strict=False)
    check(CallToolResult([], value))
    check(CallToolResult([], value))
    assert [r.getMessage() for r in caplog.records] == [
        "the result of t is too large to be checked against its outputSchema, as may others be; "
        "that is not told again"
    ]


def test_ordinary_values_are_not_costly() -> None:
    names = [f"column {n}" for n in range(30)]
    text = {"anyOf": [{"type": "string", "maxLength": 100}, {"type": "null"}]}
    row = {"type": "object", "properties": dict.fromkeys(names, text), "required": names}
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    row["properties"] |= {"kind": {"enum": ["a", "b"]}, "tags": tags, "id": {"minimum": 0}}
    value = dict.fromkeys(names, "some text") | {"kind": "a", "tags": ["x", "y"], "id": 123456}
    checked({"items": row, "type": "array"}, [value] * 500)


def test_large_values_are_checked_but_not_explained() -> None:
    schema = {"items": {"properties": {"a": {"type": "integer"}}}}
    rows = [{"a": n} for n in range(100_000)]
    checked(schema, rows)
    with pytest.raises(InvalidResponse, match="structuredContent: it is not valid, and too large"):
        checked(schema, [*rows, {"a": "x"}])


def test_many_faults_are_not_collected() -> None:
    either = {"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    with pytest.raises(InvalidResponse, match="structuredContent: it is not valid, and too large"):
        checked({"anyOf": [either] * 20}, [1] * 1000)


@pytest.mark.parametrize("base", ["s", "http://example.com/s"])
def test_references_by_way_of_an_id(base: str) -> None:
    schema = {
        "$id": base,
        "$defs": {"a": {"type": "null"}},
        "allOf": [{"$ref": f"{base}#/$defs/a"}],
    }
    checked(schema, None)
    with pytest.raises(InvalidResponse, match='7 is not of type "null"'):
        checked(schema, 7)
