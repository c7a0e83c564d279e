"""Whole numbers in float notation, where a schema has integers."""

from __future__ import annotations

import decimal
import enum
import json
import re
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every

from wirespeed.schema.json_schema import build_schemas
from wirespeed.schema.whole_numbers import MAX_DIGITS, MAX_NUMBERS, WholeNumbers, digits_of


@every(
    ("literal", "digits"),
    [
        ("1.0", "1"),
        ("-1.0", "-1"),
        ("-0.0", "0"),
        ("0e0", "0"),
        ("-0e-5", "0"),
        ("0e99999999999999999999", "0"),
        ("1e3", "1000"),
        ("1E+3", "1000"),
        ("1.20e1", "12"),
        ("150e-1", "15"),
        ("0.001e3", "1"),
        ("1e00000000002", "100"),
        ("9007199254740993.0", "9007199254740993"),
        ("1e20", "1" + "0" * 20),
        ("1e39", "1" + "0" * 39),
        ("-1e39", "-1" + "0" * 39),
        ("1e40", None),
        ("1.5", None),
        ("15e-1", None),
        ("1e-1", None),
        ("1e999999999", None),
        ("1e99999999999999999999", None),
        ("1e-99999999999999999999", None),
        ("1" * MAX_DIGITS + ".0", "1" * MAX_DIGITS),
        ("1" * (MAX_DIGITS + 1) + ".0", None),
    ],
)
def test_digits_of_a_literal(literal: str, digits: str | None) -> None:
    assert digits_of(literal) == digits


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
)
def test_digits_are_exact_or_absent(literal: str) -> None:
    with decimal.localcontext(prec=200):
        value = decimal.Decimal(literal)
        digits = digits_of(literal)
        if digits is not None:
            assert int(digits) == value
            assert re.fullmatch(r"-?[1-9][0-9]*|0", digits)
        else:
            assert value != value.to_integral_value() or abs(value) >= 10**MAX_DIGITS


class Level(enum.IntEnum):
    LOW = 1


class Move(msgspec.Struct, tag="move"):
    by: int


class Zoom(msgspec.Struct, tag="zoom"):
    by: float


class Tree(msgspec.Struct):
    size: int
    kids: list[Tree] = []


class Pair(NamedTuple):
    first: int
    second: float


class Row(TypedDict):
    id: int
    share: float


class Model(pydantic.BaseModel):
    id: int
    share: float


def rewritten(tp: Any, text: str) -> str | None:
    (schema,), defs = build_schemas([tp])
    found = WholeNumbers(schema, defs).in_digits(text.encode())
    return None if found is None else found.decode()


@every(
    ("tp", "text", "expected"),
    [
        (int, " 1e2 ", " 100 "),
        (int | None, "1.0", "1"),
        (int | str, "1.0", "1"),
        (Annotated[int, msgspec.Meta(ge=3)], "1.0", "1"),
        (Literal[1, 2, "x"], "1.0", "1"),
        (Level, "1.0", "1"),
        (list[int], "[1.0, 2, 3.5, 4e0]", "[1, 2, 3.5, 4]"),
        (tuple[int, float, int], "[1.0,1.0,1.0]", "[1,1.0,1]"),
        (tuple[int, ...], "[1.0,1.0]", "[1,1]"),
        (Pair, "[1.0,1.0]", "[1,1.0]"),
        (dict[str, int], r'{"1.0":1.0,"\"2.0\\":2.0}', r'{"1.0":1,"\"2.0\\":2}'),
        (Row, '{"id":1.0,"share":1.0}', '{"id":1,"share":1.0}'),
        (Model, '{"id":1.0,"share":1.0}', '{"id":1,"share":1.0}'),
        (list[Model | None], '[null,{"id":1.0,"share":1.0}]', '[null,{"id":1,"share":1.0}]'),
        (
            list[Move | Zoom],
            '[{"type":"zoom","by":1.0},{"type":"move","by":1.0}]',
            '[{"type":"zoom","by":1.0},{"type":"move","by":1}]',
        ),
        (
            Tree,
            '{"size":1.0,"kids":[{"size":2e0,"kids":[{"size":3.5}]}]}',
            '{"size":1,"kids":[{"size":2,"kids":[{"size":3.5}]}]}',
        ),
        (Literal[1] | dict[str, int], '{"a":1.0}', '{"a":1}'),
    ],
)
def test_where_there_is_an_integer_a_whole_number_gets_digits(
    tp: Any, text: str, expected: str
) -> None:
    assert rewritten(tp, text) == expected


@every(
    ("tp", "text"),
    [
        (float, "1.0"),
        (int | float, "1.0"),
        (Literal[1] | float, "1.0"),
        (int | decimal.Decimal, "1.0"),
        (Any, "1.0"),
        (bool, "1.0"),
        (str, '"1.0"'),
        (dict[int, str], '{"1.0":"a"}'),
        (list[Any], "[1.0]"),
        (list[int | float], "[1.0]"),
        (Tree, '{"size":1,"other":1.0}'),
        (int, "1.5"),
        (int, "1"),
        (int, "1e999999999"),
        (int, "not JSON"),
        (list[int], "[1.0,"),
        (list[int], "[" * 5000),
    ],
)
def test_elsewhere_a_float_stays_what_it_is(tp: Any, text: str) -> None:
    assert rewritten(tp, text) is None


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,3})?([eE][+-]?[0-9])?", fullmatch=True)
TEXTS = st.text(alphabet='ab"\\\n1.0eE é💥').map(json.dumps)
DOCUMENTS = st.recursive(
    NUMBERS | TEXTS | st.sampled_from(["true", "null", " 1.0 "]),
    lambda inner: (
        st.lists(inner, max_size=5).map(lambda items: f"[{' ,'.join(items)}]")
        | st.dictionaries(TEXTS, inner, max_size=5).map(
            lambda items: f"{{{', '.join(f'{key} : {value}' for key, value in items.items())}}}"
        )
    ),
    max_leaves=20,
)
ALL_INTEGERS = {
    "anyOf": [
        {"type": ["integer", "string", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/$defs/All"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/All"}},
    ]
}


@given(DOCUMENTS)
def test_only_whole_numbers_change_wherever_they_stand(text: str) -> None:
    found = WholeNumbers(ALL_INTEGERS, {"All": ALL_INTEGERS}).in_digits(text.encode())

    def as_digits(literal: str) -> Any:
        digits = digits_of(literal)
        return ("float", literal) if digits is None else int(digits)

    expected = json.loads(text, parse_float=as_digits)
    if found is None:
        assert expected == json.loads(text, parse_float=lambda literal: ("float", literal))
    else:
        assert json.loads(found, parse_float=lambda literal: ("float", literal)) == expected


def test_a_text_with_too_many_floats_is_left_alone() -> None:
    numbers = ",".join(["1.0"] * MAX_NUMBERS)
    assert rewritten(list[int], f"[{numbers}]") == f"[{','.join(['1'] * MAX_NUMBERS)}]"
    assert rewritten(list[int], f"[{numbers},1.0]") is None


def test_a_definition_that_refers_to_itself_ends() -> None:
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}
    assert WholeNumbers(loop).in_digits(b"1.0") is None
    assert WholeNumbers({"$ref": "#/$defs/missing"}).in_digits(b"1.0") is None


# -- numbers that are strings ----------------------------------------------------------------------


def texts_rewritten(tp: Any, text: str) -> str:
    (schema,), defs = build_schemas([tp])
    return WholeNumbers(schema, defs).in_digits_of_texts(text.encode()).decode()


@every(
    ("tp", "text", "expected"),
    [
        (int, '"9007199254740993.0"', "9007199254740993"),
        (int, '" 1e2\\n"', "100"),
        (int, '"7"', "7"),
        (int, "1.0", "1"),
        (int | None, '"-1.0"', "-1"),
        (Literal[1, 2], '"2.0"', "2"),
        (list[int], '["1.0",2.0,"x","1.5","",null]', '[1,2,"x","1.5","",null]'),
        (dict[str, int], '{"1.0":"1.0"}', '{"1.0":1}'),
        (tuple[int, str, float], '["1.0","1.0","1.0"]', '[1,"1.0","1.0"]'),
        (Row, '{"id":"1e3","share":1.0e0}', '{"id":1000,"share":1.0e0}'),
        (list[Model], '[{"id":"1.0","share":1.0}]', '[{"id":1,"share":1.0}]'),
        (int, '"9007199254740993,0"', '"9007199254740993,0"'),
        (int, '"٣.0"', '"٣.0"'),
        (int, '"01.0"', '"01.0"'),
        (int, f'"{"9" * MAX_DIGITS}1.0"', f'"{"9" * MAX_DIGITS}1.0"'),
        (int | str, '"1.0"', '"1.0"'),
        (list[int | str], '["1.0",1.0]', '["1.0",1]'),
        (Literal[1, "1.0"], '"1.0"', '"1.0"'),
        (float, '"1.0"', '"1.0"'),
        (int | float, '"1.0"', '"1.0"'),
        (Any, '"1.0"', '"1.0"'),
        (decimal.Decimal, '"1.0"', '"1.0"'),
        (int, '{"', '{"'),
    ],
)
def test_texts_that_are_whole_numbers(tp: Any, text: str, expected: str) -> None:
    assert texts_rewritten(tp, text) == expected


def test_a_text_with_too_many_numbers_in_strings_is_left_alone() -> None:
    numbers = ",".join(['"1.0"'] * MAX_NUMBERS)
    assert texts_rewritten(list[int], f"[{numbers}]") == f"[{','.join(['1'] * MAX_NUMBERS)}]"
    assert texts_rewritten(list[int], f"[{numbers},1.0]") == f"[{numbers},1.0]"
    deep = "[" * 5000 + "1.0" + "]" * 5000
    assert texts_rewritten(list[int], deep) == deep
