"""Values as header fields, and the rules of x-mcp-header (2026-07-28
basic/transports/streamable-http)."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed.protocol.header_values import (
    MAX_INTEGER,
    ParamField,
    decode,
    encode,
    encode_text,
    param_fields,
    same_value,
    value_at,
    values_of,
)

# "Encoding examples" of the page, and the edge cases of SEP-2243.
ENCODED = {
    "us-west1": "us-west1",
    "us west 1": "us west 1",
    "": "",
    "~!": "~!",
    "Hello, 世界": "=?base64?SGVsbG8sIOS4lueVjA==?=",
    "日本語": "=?base64?5pel5pys6Kqe?=",
    " padded ": "=?base64?IHBhZGRlZCA=?=",
    " us-west1": "=?base64?IHVzLXdlc3Qx?=",
    "us-west1 ": "=?base64?dXMtd2VzdDEg?=",
    " ": "=?base64?IA==?=",
    "line1\nline2": "=?base64?bGluZTEKbGluZTI=?=",
    "line1\r\nline2": "=?base64?bGluZTENCmxpbmUy?=",
    "us\n": "=?base64?dXMK?=",
    "\tindented": "=?base64?CWluZGVudGVk?=",
    "a\tb": "=?base64?YQli?=",
    "a\x7fb": "=?base64?YX9i?=",
    "=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
    "=?base64?=": "=?base64?PT9iYXNlNjQ/PQ==?=",
    "=?base64?open": "=?base64?open",
    "close?=": "close?=",
    "=?BASE64?SGVsbG8=?=": "=?BASE64?SGVsbG8=?=",
}


@every("text", ENCODED, ids=repr)
def test_texts_are_encoded_as_the_page_says(text: str) -> None:
    assert encode_text(text) == encode(text) == ENCODED[text]
    assert decode(ENCODED[text]) == text


@every(
    ("value", "field"),
    [
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-7, "-7"),
        (0, "0"),
        (-0.0, "0"),
        (42.0, "42"),
        (MAX_INTEGER, "9007199254740991"),
        (-MAX_INTEGER, "-9007199254740991"),
        (MAX_INTEGER + 1, None),
        (-MAX_INTEGER - 1, None),
        (2.0**53, None),
        (10**400, None),
        (3.5, None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
        ([1], None),
        ({}, None),
        ("\ud800", None),
    ],
)
def test_other_values_are_encoded_or_have_no_field(value: object, field: str | None) -> None:
    assert encode(value) == field


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("=?base64??=")
def test_every_text_survives_as_a_field(text: str) -> None:
    field = encode_text(text)
    assert field.isascii()
    assert field == field.strip()
    assert field.isprintable()
    assert decode(field) == text
    assert same_value(text, decode(field))


@given(st.integers(-MAX_INTEGER, MAX_INTEGER) | st.booleans())
def test_numbers_and_booleans_survive_as_fields(value: int) -> None:
    field = encode(value)
    assert field is not None
    assert same_value(value, decode(field))


@every(
    "field",
    [
        "=?base64?SGVsbG8?=",  # no padding
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?SGVsbG8=\t?=",
        "=?base64?SGVsbG9=?=",  # bits left over
        "=?base64?SGVsbG8==?=",
        "=?base64?====?=",
        "=?base64?_-8=?=",  # the alphabet of URLs
        "=?base64?/w==?=",  # not UTF-8
        "=?base64?7aCA?=",  # a surrogate
    ],
)
def test_bad_base64_between_both_markers_is_malformed(field: str) -> None:
    with raises(ValueError):
        decode(field)


@every("field", ["caf\xe9", "a\x00", "a\x7f", "a\nb", "a\n", "世", "=?base64?é?="])
def test_characters_that_fields_must_not_have_are_malformed(field: str) -> None:
    with raises(ValueError):
        decode(field)


@pytest.mark.parametrize(
    "field", ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?base64?=", "a\tb"]
)
def test_without_both_markers_a_field_stands_for_itself(field: str) -> None:
    assert decode(field) == field


@given(st.binary(max_size=12), st.sampled_from(["", "=", "A", "\n"]))
def test_base64_has_one_spelling(data: bytes, tail: str) -> None:
    code = b64encode(data).decode()
    try:
        text = decode(f"=?base64?{code}{tail}?=")
    except ValueError:
        return
    assert tail == ""
    assert text.encode() == data


@every(
    ("value", "text", "same"),
    [
        (42, "42", True),
        (42, "42.0", True),
        (42.0, "42", True),
        (42.0, "42.00", True),
        (42, "0042", True),
        (0, "-0", True),
        (42, "42.5", False),
        (42, "+42", False),
        (42, " 42", False),
        (42, "4.2e1", False),
        (42, "42\n", False),
        (42, "42.", False),
        (42, "", False),
        (42, "٤٢", False),
        (42, "43", False),
        (2**60, str(2**60), False),
        (42.5, "42.5", False),
        (1, "true", False),
        (True, "true", True),
        (True, "True", False),
        (True, "1", False),
        (False, "false", True),
        ("42", "42.0", False),
        ("us", "us", True),
        ("us", "US", False),
        ("", "", True),
        (None, "null", False),
        ([], "[]", False),
    ],
)
def test_values_are_compared_by_their_type(value: object, text: str, same: bool) -> None:
    assert same_value(value, text) is same


# -- rules of the keyword --------------------------------------------------------------------------


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(name: object = "Region", kind: object = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def test_marked_arguments_are_found_in_order_at_any_depth() -> None:
    found = param_fields(
        schema(
            region=marked(),
            plain={"type": "string"},
            where=schema(zone=marked("Zone", "integer"), dry=marked("Dry-Run", "boolean")),
            method=marked("Method"),
        )
    )
    assert found == (
        ParamField("Mcp-Param-Region", ("region",), "string"),
        ParamField("Mcp-Param-Zone", ("where", "zone"), "integer"),
        ParamField("Mcp-Param-Dry-Run", ("where", "dry"), "boolean"),
        ParamField("Mcp-Param-Method", ("method",), "string"),
    )
    arguments = {"region": "日", "where": {"zone": 7, "dry": None}, "method": []}
    assert list(values_of(found, arguments)) == [
        ("Mcp-Param-Region", "=?base64?5pel?="),
        ("Mcp-Param-Zone", "7"),
    ]
    assert list(values_of(found, {"where": "elsewhere"})) == []
    assert value_at({"a": {"b": 1}}, ("a", "b", "c")) is None


@every("value", [{}, {"type": "object"}, True, None, [], schema(a=True)])
def test_a_schema_without_the_keyword_has_no_fields(value: object) -> None:
    assert param_fields(value) == ()


def test_the_keyword_as_data_or_as_the_name_of_a_property_marks_nothing() -> None:
    data = {"x-mcp-header": "Region"}
    properties = {"x-mcp-header": {"type": "string"}, "a": {"default": data, "enum": [data]}}
    assert param_fields(schema(**properties, b={"const": data, "examples": [data]})) == ()


@every(
    "name",
    [
        "",
        "My Region",
        "Region:Primary",
        "Région",
        "Region\t1",
        "Region\r\n",
        "a/b",
        "(a)",
        None,
        1,
        [],
    ],
    ids=repr,
)
def test_a_name_that_is_not_a_token_is_refused(name: object) -> None:
    with raises(ValueError):
        param_fields(schema(a=marked(name)))


@every(
    "kind",
    ["number", "array", "object", "null", None, ["string"], ["string", "null"], {}],
    ids=repr,
)
def test_a_type_that_is_not_primitive_is_refused(kind: object) -> None:
    with raises(ValueError):
        param_fields(schema(a=schema(b=marked(kind=kind))))


def test_a_property_without_a_type_is_refused() -> None:
    with raises(ValueError):
        param_fields(schema(a={"anyOf": [{"type": "string"}], "x-mcp-header": "A"}))


@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_names_are_unique_whatever_their_case(second: str) -> None:
    with raises(ValueError):
        param_fields(schema(a=marked(), b=schema(c=marked(second))))


@every(
    "where",
    [
        marked(kind="object"),  # the root itself
        schema(a={"type": "array", "items": marked()}),
        schema(a={"type": "array", "items": [marked()]}),
        schema(a={"type": "array", "prefixItems": [marked()]}),
        schema(a={"contains": marked()}),
        schema(a={"additionalProperties": schema(b=marked())}),
        schema(a={"patternProperties": {"b": marked()}}),
        schema(a={"unevaluatedProperties": marked()}),
        schema(a={"propertyNames": marked()}),
        schema(a={"contentSchema": marked()}),
        schema(a={"oneOf": [{"type": "null"}, marked()]}),
        {"allOf": [schema(a=marked())]},
        {"anyOf": [schema(a=marked())]},
        {"not": schema(a=marked())},
        {"if": {}, "then": schema(a=marked())},
        {"if": schema(a=marked())},
        {"else": schema(a=marked())},
        {"dependentSchemas": {"a": schema(a=marked())}},
        {"dependencies": {"a": schema(a=marked()), "b": ["a"]}},
        {"$defs": {"A": marked()}, **schema(a={"$ref": "#/$defs/A"})},
        {"definitions": {"A": marked()}},
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_place_that_properties_alone_do_not_reach_is_refused(where: dict[str, Any]) -> None:
    with raises(ValueError):
        param_fields(where)


def test_a_deep_schema_is_walked_without_recursion() -> None:
    node = marked()
    for _ in range(100_000):
        node = {"not": node}
    with raises(ValueError):
        param_fields(node)
