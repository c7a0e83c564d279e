"""Types -> JSON Schema and validation errors."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
)

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from lab.rows import every
from lab.wording import raises
from msgspec import Meta

from wirespeed.errors import SignatureError
from wirespeed.schema.json_schema import (
    build_schemas,
    default_form,
    describe_validation_error,
    input_schema,
    nonfinite,
    nonfinite_in,
    prepare_type,
)
from wirespeed.schema.python_types import dec_hook, enc_hook
from wirespeed.server.tools.results import Output, ResultError, output_for

# -- a small checker of JSON Schema 2020-12, for what these schemas use ---------------------------

_TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
_SCHEMAS = {"items", "additionalProperties", "propertyNames"}
_SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SCHEMA_MAPS = {"properties", "$defs"}
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_TEXTS = {"title", "description", "format", "contentEncoding", "pattern", "$ref"}
_OTHER = {"type", "enum", "const", "default", "examples", "required", "uniqueItems"}
_OTHER |= {"discriminator", "readOnly", "x-fastmcp-wrap-result"}


def check_schema(root: Any) -> None:
    """The meta-schema's rules: keywords and their types; every reference resolves."""
    json.loads(json.dumps(root, allow_nan=False))

    def visit(schema: Any, at: str) -> None:
        if isinstance(schema, bool):
            return
        assert isinstance(schema, dict), at
        for key, value in schema.items():
            where = f"{at}/{key}"
            if key in _SCHEMAS:
                visit(value, where)
            elif key in _SCHEMA_LISTS:
                assert isinstance(value, list) and value, where
                for index, item in enumerate(value):
                    visit(item, f"{where}/{index}")
            elif key in _SCHEMA_MAPS:
                for name, item in value.items():
                    visit(item, f"{where}/{name}")
            elif key in _COUNTS:
                assert type(value) is int and value >= 0, where
            elif key in _NUMBERS:
                assert type(value) in (int, float), where
            elif key in _TEXTS:
                assert isinstance(value, str), where
            else:
                assert key in _OTHER, where
        if "type" in schema:
            assert schema["type"] in _TYPES, at
        if "required" in schema:
            assert len(set(schema["required"])) == len(schema["required"]), at
            assert set(schema["required"]) <= schema["properties"].keys(), at
        if "$ref" in schema:
            assert schema["$ref"].startswith("#/$defs/"), at
            assert schema["$ref"].removeprefix("#/$defs/") in root["$defs"], at

    visit(root, "#")


def conforms(value: Any, schema: Any, root: Any) -> bool:
    """Whether *value* is an instance of *schema* (formats are annotations)."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not conforms(
        value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root
    ):
        return False
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
    }
    kind = schema.get("type")
    if kind in kinds and not isinstance(value, kinds[kind]):
        return False
    if kind == "integer" and type(value) is not int:
        return False
    if kind == "number" and type(value) not in (int, float):
        return False
    if "enum" in schema and not any(v == value and type(v) is type(value) for v in schema["enum"]):
        return False
    if "anyOf" in schema and not any(conforms(value, s, root) for s in schema["anyOf"]):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        if not set(schema.get("required", ())) <= value.keys():
            return False
        other = schema.get("additionalProperties", True)
        return all(conforms(v, properties.get(k, other), root) for k, v in value.items())
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            return False
        head = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        return all(
            conforms(v, head[i] if i < len(head) else rest, root) for i, v in enumerate(value)
        )
    if type(value) in (int, float):
        return schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
    return True


def schema_of(tp: Any) -> dict[str, Any]:
    """The root schema of a tool with the one required parameter "p" of this type."""
    root = input_schema([("p", prepare_type(tp, "f"), msgspec.NODEFAULT, None)])
    check_schema(root)
    return root


def decode(tp: Any, value: Any) -> Any:
    struct = msgspec.defstruct("Arguments", [("p", prepare_type(tp, "f"))])
    data = json.dumps({"p": value}).encode()
    return msgspec.json.decode(data, type=struct, dec_hook=dec_hook).p


def error_of(tp: Any, value: Any) -> str:
    with pytest.raises(msgspec.ValidationError) as info:
        decode(tp, value)
    text = describe_validation_error(info.value)
    assert "\n" not in text
    return text


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: int = 0


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


@dataclass
class Left:
    x: int


@dataclass
class Right:
    y: int
    tags: list[str] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    first: int
    second: str


class Opaque:
    def __repr__(self) -> str:
        return "Opaque()"  # names a test: no address


class Doc:
    """As in PEP 727."""

    def __init__(self, documentation: str) -> None:
        self.documentation = documentation

    def __repr__(self) -> str:
        return f"Doc({self.documentation!r})"


UserId = NewType("UserId", int)


class Inner(pydantic.BaseModel):
    z: float = pydantic.Field(gt=0, description="height")


class Model(pydantic.BaseModel):
    """A model."""

    x: int
    inner: list[Inner] | None = None


class Tree(pydantic.BaseModel):
    kids: list[Tree] = []


# -- schemas --------------------------------------------------------------------------------------


@every(
    ("tp", "expected"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array"}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
            },
        ),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object"}),
        (Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (dt.datetime, {"type": "string"}),
        (Annotated[dt.datetime, Meta(tz=True)], {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.time, {"type": "string"}),
        (dt.timedelta, {"type": "string", "format": "duration"}),
        (decimal.Decimal, {"type": "string", "format": "decimal"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (UserId, {"type": "integer"}),
        (
            Annotated[int, Meta(ge=1, description="n")],
            {"type": "integer", "minimum": 1, "description": "n"},
        ),
        (Annotated[int, "n"], {"type": "integer", "description": "n"}),
        (Annotated[int, annotated_types.Ge(1)], {"type": "integer", "minimum": 1}),
        (
            Annotated[int, annotated_types.Interval(gt=1, lt=9)],
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9},
        ),
        (
            Annotated[str, annotated_types.Len(1, 3)],
            {"type": "string", "minLength": 1, "maxLength": 3},
        ),
        (Annotated[int, annotated_types.MultipleOf(3)], {"type": "integer", "multipleOf": 3}),
        (
            Annotated[dt.datetime, annotated_types.Timezone(...)],
            {"type": "string", "format": "date-time"},
        ),
        (
            list[Annotated[int, annotated_types.Le(5)]],
            {"type": "array", "items": {"type": "integer", "maximum": 5}},
        ),
        (
            dict[str, Annotated[int, pydantic.Field(ge=1, description="n")]],
            {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 1, "description": "n"},
            },
        ),
        (
            Annotated[str, pydantic.Field(pattern="^a", title="T", examples=["ab"])],
            {"type": "string", "pattern": "^a", "title": "T", "examples": ["ab"]},
        ),
        (
            Annotated[int | None, annotated_types.Ge(1)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
        (
            Annotated[int | None, Meta(ge=1, title="T")],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "title": "T"},
        ),
        (LiteralString, {"type": "string"}),
        (
            Annotated[int, annotated_types.Ge(1)] | str,
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]},
        ),
        (Annotated[int, pydantic.Strict()], {"type": "integer"}),
        (Annotated[int, Doc("n")], {"type": "integer", "description": "n"}),
        (
            Annotated[int, pydantic.Field(json_schema_extra={"examples": [1]})],
            {"type": "integer", "examples": [1]},
        ),
        (Annotated[int, Opaque()], {"type": "integer"}),
        (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
        (pydantic.conint(ge=3), {"type": "integer", "minimum": 3}),
    ],
    ids=str,
)
def test_schema_without_definitions(tp: Any, expected: dict[str, Any]) -> None:
    assert schema_of(tp) == {"type": "object", "properties": {"p": expected}, "required": ["p"]}


POINT = {
    "title": "Point",
    "description": "A place.",
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}


@pytest.mark.parametrize(
    ("tp", "name", "expected"),
    [
        (Point, "Point", POINT),
        (
            Movie,
            "Movie",
            {
                "title": "Movie",
                "type": "object",
                "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
                "required": ["title"],
            },
        ),
        (
            Pair,
            "Pair",
            {
                "title": "Pair",
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Node,
            "Node",
            {
                "title": "Node",
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Node"},
                        "default": [],
                    },
                },
                "required": ["value"],
            },
        ),
        (
            Tree,
            "Tree",
            {
                "title": "Tree",
                "type": "object",
                "properties": {
                    "kids": {
                        "title": "Kids",
                        "type": "array",
                        "items": {"$ref": "#/$defs/Tree"},
                        "default": [],
                    }
                },
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_schema_of_a_class_is_a_definition(tp: Any, name: str, expected: dict[str, Any]) -> None:
    root = schema_of(tp)
    assert root["properties"] == {"p": {"$ref": f"#/$defs/{name}"}}
    assert root["$defs"] == {name: expected}


def test_tagged_union_has_a_discriminator() -> None:
    root = schema_of(Cat | Dog | None)
    assert root["$defs"].keys() == {"Cat", "Dog"}
    union, null = root["properties"]["p"]["anyOf"]
    assert null == {"type": "null"}
    assert union["discriminator"]["mapping"] == {"Cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}
    assert decode(Cat | Dog | None, {"type": "dog", "name": "Rex"}) == Dog("Rex")


def test_pydantic_definitions_are_merged() -> None:
    root = schema_of(dict[str, Model | None])
    assert root["$defs"].keys() == {"Model", "Inner"}
    assert root["$defs"]["Inner"]["properties"]["z"]["exclusiveMinimum"] == 0
    inner = root["$defs"]["Model"]["properties"]["inner"]
    assert inner["anyOf"][0]["items"] == {"$ref": "#/$defs/Inner"}


def test_same_names_for_different_types_do_not_clash() -> None:
    class Box(msgspec.Struct):
        inner: Inner

    def other() -> Any:
        class Inner(msgspec.Struct):
            other: str

        return Inner

    def third() -> Any:
        class Inner(pydantic.BaseModel):
            third: bool

        return Inner

    globals()["Box"] = Box
    tps = [prepare_type(t, "f") for t in (Inner, Model, other(), third(), list[Inner])]
    root = input_schema([(f"p{i}", t, msgspec.NODEFAULT, None) for i, t in enumerate(tps)])
    check_schema(root)
    accepts = [
        ({"z": 1.5}, {"other": "s"}),
        ({"x": 1, "inner": [{"z": 1.5}]}, {"x": 1, "inner": [{"other": "s"}]}),
        ({"other": "s"}, {"third": True}),
        ({"third": True}, {"other": "s"}),
        ([{"z": 1.5}], [{"third": True}]),
    ]
    for index, (good, bad) in enumerate(accepts):
        schema = root["properties"][f"p{index}"]
        assert conforms(good, schema, root), index
        assert not conforms(bad, schema, root), index


def test_a_model_shared_by_two_parameters_is_defined_once() -> None:
    schemas, components = build_schemas([Model, Inner, list[Model]])
    assert components.keys() == {"Model", "Inner"}
    assert schemas[1] == {"$ref": "#/$defs/Inner"}
    assert schemas[2] == {"type": "array", "items": {"$ref": "#/$defs/Model"}}


def test_a_model_that_uses_another_of_its_name() -> None:
    def other() -> Any:
        class Model(pydantic.BaseModel):
            a: int

        return Model

    outer = pydantic.create_model("Model", inner=(other(), ...))
    root = schema_of(outer)
    assert conforms({"p": {"inner": {"a": 1}}}, root, root)
    assert not conforms({"p": {"a": 1}}, root, root)


def test_root_schema_lists_required_and_defaults() -> None:
    root = input_schema(
        [("a", int, msgspec.NODEFAULT, "first"), ("b", Colour, Colour.RED, None), ("c", Any, 1, "")]
    )
    check_schema(root)
    assert root["required"] == ["a"]
    assert list(root["properties"]) == ["a", "b", "c"]
    assert root["properties"]["a"] == {"type": "integer", "description": "first"}
    assert root["properties"]["b"] == {
        "type": "string",
        "enum": ["blue", "red"],
        "default": "red",
    }
    assert "additionalProperties" not in root


def test_no_parameters() -> None:
    assert input_schema([]) == {"type": "object", "properties": {}}


@every(
    ("value", "form"),
    [
        (None, None),
        (3, 3),
        ((1, 2), [1, 2]),
        (b"\x00\x01", "AAE="),
        (Colour.RED, "red"),
        (Point(1), {"x": 1, "y": 0}),
        (Inner(z=2.0), {"z": 2.0}),
        (pathlib.Path("a/b"), "a/b"),
        (dt.date(2026, 7, 28), "2026-07-28"),
        (math.nan, msgspec.UNSET),
        ([1.0, math.inf], msgspec.UNSET),
        ({"a": (math.nan,)}, msgspec.UNSET),
        (object(), msgspec.UNSET),
        ("\ud800", msgspec.UNSET),
    ],
)
def test_default_form(value: Any, form: Any) -> None:
    got = default_form(value)
    assert got is form if form is msgspec.UNSET else got == form


@pytest.mark.parametrize("find", [nonfinite, nonfinite_in])
def test_nonfinite(find: Callable[[Any], str | None]) -> None:
    assert find({"a": [1, {-math.inf}]}) == "-Infinity at a[1][0]"
    assert find({"a": [{"b": math.nan}], "c": None}) == "NaN at a[0].b"
    assert find(math.inf) == "Infinity"
    assert find({"a": [1, {2.0}], "b": "nan", "c": None}) is None
    assert find({"a": "\u00cb\x7f\u00f8", "b": 2**70, "c": None}) is None


# -- decoding -------------------------------------------------------------------------------------


@every(
    ("tp", "value", "expected"),
    [
        (float, 1, 1.0),
        (bytes, "AAE=", b"\x00\x01"),
        (set[int], [1, 1], {1}),
        (Colour, "red", Colour.RED),
        (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (Left | None, {"x": 1}, Left(1)),
        (Movie, {"title": "t"}, {"title": "t"}),
        (Pair, [1, "a"], Pair(1, "a")),
        (Node, {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
        (pathlib.Path | None, "a", pathlib.Path("a")),
        (Model, {"x": 1, "inner": [{"z": 2}]}, Model(x=1, inner=[Inner(z=2.0)])),
        (list[Model | None], [None, {"x": 1}], [None, Model(x=1)]),
    ],
)
def test_decode(tp: Any, value: Any, expected: Any) -> None:
    got = decode(tp, value)
    assert got == expected
    assert type(got) is type(expected)


@every(
    ("tp", "value", "text"),
    [
        (int, "5", "argument 'p': Expected `int`, got `str`"),
        (int, 1.0, "argument 'p': Expected `int`, got `float`"),
        (int, True, "argument 'p': Expected `int`, got `bool`"),
        (list[int], [1, "x"], "argument 'p[1]': Expected `int`, got `str`"),
        (Point, {}, "argument 'p': missing required field 'x'"),
        (Node, {"value": 1, "children": [{}]}, "argument 'p.children[0]': missing required "),
        (dict[str, int], {"k": "v"}, "argument 'p[...]': Expected `int`, got `str`"),
        (dict[int, str], {"k": "v"}, "argument 'p': key: Expected `int`, got `str`"),
        (Colour, "x - at `$.q`", "argument 'p': Invalid enum value 'x - at `$.q`'"),
        (pathlib.Path, 3, "argument 'p': Expected `str`, got `int`"),
        (pathlib.Path, {}, "argument 'p': Expected `str`, got `object`"),
        (Annotated[int, annotated_types.Ge(3)], 2, "argument 'p': Expected `int` >= 3"),
        (Annotated[int | None, pydantic.Field(ge=3)], 2, "argument 'p': Expected `int` >= 3"),
        (Annotated[str, Meta(pattern="^a$")], "b", "argument 'p': Expected `str` matching regex"),
        (Model, {}, "argument 'p.x': Field required"),
        (
            list[Model],
            [{"x": 1, "inner": [{"z": -1}]}],
            "argument 'p[0].inner[0].z': Input should be greater than 0",
        ),
        (Model, 3, "argument 'p': Input should be an object"),
    ],
)
def test_invalid_arguments_are_named(tp: Any, value: Any, text: str) -> None:
    assert error_of(tp, value).startswith(text)


def test_several_problems_of_a_model_in_one_line() -> None:
    text = error_of(Model, {"x": "a", "inner": [{"z": "b"}]})
    assert text.count("argument 'p.") == 2
    assert "argument 'p.x': " in text and "; argument 'p.inner[0].z': " in text
    many = error_of(Model, {"x": 1, "inner": [{} for _ in range(3)] + [{"z": 0}] * 20})
    assert many.endswith("; and 15 more")


def test_texts_for_the_root_and_for_malformed_json() -> None:
    decoder = msgspec.json.Decoder(msgspec.defstruct("Arguments", [("a", int)]))

    def text(data: bytes) -> str:
        with pytest.raises((msgspec.DecodeError, RecursionError)) as info:
            decoder.decode(data)
        return describe_validation_error(info.value)

    assert text(b"{}") == "missing required argument 'a'"
    assert text(b"[]") == "arguments: Expected `object`, got `array`"
    assert text(b"null") == "arguments: Expected `object`, got `null`"
    assert text(b'{"a":1').startswith("arguments: malformed JSON")
    deep = b"[" * 3_000_000 + b"]" * 3_000_000  # Python 3.14 goes as deep as the stack allows
    assert text(b'{"x":%b}' % deep) == "arguments: nested too deeply"


def test_error_text_is_bounded_and_encodable() -> None:
    text = error_of(Literal["a"], "x\n" * 2000)
    assert len(text) == 500 and text.endswith("…")
    exc = msgspec.ValidationError("bad \ud800 - at `$.p`")
    assert describe_validation_error(exc) == "argument 'p': bad ?"


def test_errors_of_the_authors_own_validation() -> None:
    @dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("odd\nnumber")

    assert error_of(Even, {"n": 1}) == "argument 'p': odd number"

    @dataclass
    class Broken:
        n: int

        def __post_init__(self) -> None:
            raise LookupError("a bug")

    with pytest.raises(LookupError):  # not a matter of the arguments: must stay distinguishable
        decode(Broken, {"n": 1})


# -- refusals and pydantic's help -----------------------------------------------------------------


@every(
    ("tp", "reason"),
    [
        (Opaque, "type `Opaque` has no JSON form"),
        (list[Opaque], "type `Opaque` has no JSON form"),
        (Annotated[Opaque, Meta(extra_json_schema={"type": "string"})], "has no JSON form"),
        (Annotated[str, Meta(ge=3)], "Can only set `ge` on a numeric type"),
        (5, "5"),
        ([int], "is not a type"),
    ],
    ids=str,
)
def test_unsupported_types_are_refused(tp: Any, reason: str) -> None:
    with pytest.raises(SignatureError, match=re.escape(reason)) as info:
        prepare_type(tp, "tool 'f': parameter 'p'")
    assert str(info.value).startswith("tool 'f': parameter 'p': ")
    assert "\n" not in str(info.value)


def test_union_that_msgspec_refuses_goes_to_pydantic_strictly() -> None:
    tp = int | Left | Right
    assert decode(tp, 3) == 3
    assert decode(tp, {"y": 1}) == Right(1)
    root = schema_of(tp)
    assert root["$defs"].keys() == {"Left", "Right"}
    assert [s.get("type", s.get("$ref")) for s in root["properties"]["p"]["anyOf"]] == [
        "integer",
        "#/$defs/Left",
        "#/$defs/Right",
    ]
    text = error_of(tp, "5")  # strict: not turned into 5
    assert "Input should be a valid integer" in text


def test_pydantic_metadata_is_honoured() -> None:
    def double(value: int) -> int:
        return 2 * value

    assert decode(Annotated[int, pydantic.AfterValidator(double)], 4) == 8
    trimmed = Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]
    assert decode(trimmed, " a ") == "a"
    assert decode(pydantic.SecretStr, "a").get_secret_value() == "a"


def test_pydantic_dataclass_keeps_its_validators() -> None:
    @pydantic.dataclasses.dataclass
    class Positive:
        n: int = pydantic.Field(gt=0)

    assert decode(Positive, {"n": 1}) == Positive(1)
    assert error_of(Positive, {"n": -1}) == "argument 'p.n': Input should be greater than 0"


def test_constraints_of_msgspec_are_never_lost_to_pydantic() -> None:
    # pydantic ignores msgspec.Meta, so a union that only it could take is refused.
    with pytest.raises(SignatureError, match="more than one dataclass"):
        prepare_type(Left | Right | list[Annotated[int, Meta(ge=1)]], "f")
    described = Left | Right | list[Annotated[int, Meta(description="d")]]
    assert decode(described, [1]) == [1]  # nothing that could be violated


def test_a_type_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # What msgspec does with ``type J = list[J]``, a syntax that not every Python here has.
    def build(tps: Any, mode: str) -> Any:
        raise RecursionError

    monkeypatch.setattr("wirespeed.schema.json_schema.build_schemas", build)
    with raises(SignatureError):
        prepare_type(list[Left], "f")


def test_without_pydantic_the_union_is_refused_and_nothing_is_imported() -> None:
    code = """
import sys, dataclasses, annotated_types, decimal
from typing import Annotated
from wirespeed.errors import SignatureError
from wirespeed.schema.json_schema import prepare_type
@dataclasses.dataclass
class A: x: int
@dataclasses.dataclass
class B: y: int
for tp in (int | A | B, Annotated[decimal.Decimal, annotated_types.Ge(0)], complex):
    try:
        prepare_type(tp, "tool 'f': parameter 'p'")
    except SignatureError as exc:
        print(exc)
assert prepare_type(list[A], "f") == list[A]
assert "pydantic" not in sys.modules and "pydantic_core" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("tool 'f': parameter 'p': ") for line in lines)
    assert "may not contain more than one dataclass" in lines[0]
    assert "Can only set `ge` on a numeric type" in lines[1]


def test_importing_the_module_imports_neither_pydantic_nor_dataclasses() -> None:
    code = (
        "import sys, logging, msgspec; before = set(sys.modules);"
        "import wirespeed.server.tools.signature;"
        "new = set(sys.modules) - before;"
        "print('wirespeed.schema.json_schema' in new,"
        " sorted(new & {'pydantic', 'pydantic_core', 'dataclasses', 'annotated_types'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "True []\n"


# -- outputs --------------------------------------------------------------------------------------


@every(
    ("tp", "value", "wrapped"),
    [
        (int, 3, True),
        (float, 1.5, True),
        (list[Point], [Point(1)], True),
        (Literal["a", "b"], "a", True),
        (Colour, Colour.RED, True),
        (Point | None, None, True),
        (Cat | Dog, Cat(9), True),
        (Pair, Pair(1, "a"), True),
        (tuple[int, str], (1, "a"), True),
        (set[int], {1, 2}, True),
        (bytes, b"ab", True),
        (Level, Level.HIGH, True),
        (Point, Point(1, 2), False),
        (Node, Node(1, [Node(2)]), False),
        (Right, Right(1, ["t"]), False),
        (Movie, {"title": "t", "year": 1999}, False),
        (dict[str, Point], {"a": Point(1)}, False),
        (dict[int, str], {1: "a"}, False),
        (dict, {"a": 1}, False),
        (Cat, Cat(9), False),
    ],
    ids=str,
)
def test_output_schema_describes_the_encoded_value(tp: Any, value: Any, wrapped: bool) -> None:
    output = output_for(tp, "f")
    check_schema(output.schema)
    assert output.schema["type"] == "object"
    assert output.wrapped is wrapped
    data = msgspec.json.encode({"result": value} if wrapped else value, enc_hook=enc_hook)
    assert conforms(json.loads(data), output.schema, output.schema)
    assert not conforms({"result": object()} if wrapped else [], output.schema, output.schema)
    output.check_content(data, value)
    with raises(ResultError):
        output.check_content(b"[]", [])


def test_object_root_is_inlined_and_kept_where_it_is_referred_to() -> None:
    assert "$defs" not in Output(Point, "f").schema
    node = Output(Node, "f").schema
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert node["$defs"].keys() == {"Node"}
    tree = Output(Tree, "f").schema
    check_schema(tree)
    assert tree["type"] == "object"
    described = Output(Annotated[Point, Meta(description="Where.")], "f").schema
    assert described["description"] == "Where."


def test_output_of_models_uses_the_serialization_schema() -> None:
    class Named(pydantic.BaseModel):
        n: int = pydantic.Field(serialization_alias="number")

        @pydantic.computed_field
        def twice(self) -> int:
            return 2 * self.n

    output = Output(Named, "f")
    check_schema(output.schema)
    assert set(output.schema["properties"]) == {"number", "twice"}
    assert output.dump is not None
    assert output.dump(Named(n=2)) == {"number": 2, "twice": 4}
    assert output.dump({"n": 2}) == {"number": 2, "twice": 4}
    output.check_value(b'{"n":"x"}', None)  # validators do not run again on the way out
    spoilt = Named(n=2)
    spoilt.n = "x"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="serializ"):
        output.dump(spoilt)


def test_outputs_with_code_of_the_author_are_not_decoded_again() -> None:
    calls = []

    @dataclass
    class Counted:
        n: int

        def __post_init__(self) -> None:
            calls.append(self.n)

    output = Output(list[Counted], "f")
    output.check_value(b'[{"n":1}]', None)
    output.check_class(None)
    with raises(ResultError):
        Output(Counted, "f").check_class(1)
    assert calls == []


# -- properties -----------------------------------------------------------------------------------

_scalars = st.sampled_from([int, float, str, bool, None, Colour, Point, Movie, Left])
_types = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),
    ),
    max_leaves=5,
)


@given(_types)
@examples(60)
def test_every_schema_is_valid_and_self_contained(tp: Any) -> None:
    schema_of(tp)
    check_schema(Output(tp, "f").schema)
