"""Typed classes as forms, and answers as typed values."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed.errors import InvalidResponse, SignatureError
from wirespeed.schema.forms import Email, Uri, form_of, titles

Meta = msgspec.Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    S = "small"
    L = "large"


class Number(enum.IntEnum):
    ONE = 1


class Inner(msgspec.Struct):
    x: int


def field_of(tp: Any) -> dict[str, Any]:
    """The schema of one required field of this type."""
    form = form_of(msgspec.defstruct("Form", [("f", tp)]))
    assert form.schema["type"] == "object"
    schema: dict[str, Any] = form.schema["properties"]["f"]
    return schema


@every(
    ("tp", "schema"),
    [
        (str, {"type": "string"}),
        (
            Annotated[str, Meta(min_length=1, max_length=9, title="T", description="D")],
            {"type": "string", "minLength": 1, "maxLength": 9, "title": "T", "description": "D"},
        ),
        (Annotated[str, Meta(pattern="^a")], {"type": "string", "pattern": "^a"}),
        (Email, {"type": "string", "format": "email"}),
        (Uri, {"type": "string", "format": "uri"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (Annotated[datetime.datetime, Meta(tz=True)], {"type": "string", "format": "date-time"}),
        (Annotated[datetime.datetime, Meta(tz=False)], {"type": "string"}),
        # what a form has no format for is text
        (datetime.time, {"type": "string"}),
        (uuid.UUID, {"type": "string"}),
        (Decimal, {"type": "string"}),
        (int, {"type": "integer"}),
        (Annotated[int, Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[int, Meta(gt=1, lt=9)], {"type": "integer", "minimum": 2, "maximum": 8}),
        (float, {"type": "number"}),
        (Annotated[float, Meta(ge=0.5)], {"type": "number", "minimum": 0.5}),
        (Annotated[float, Meta(gt=0.5)], {"type": "number"}),
        (Annotated[int, Meta(multiple_of=5)], {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (Literal["z", "a"], {"type": "string", "enum": ["z", "a"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Size, {"type": "string", "enum": ["small", "large"]}),
        (
            Annotated[Colour, Meta(title="T", description="D")],
            {"type": "string", "enum": ["red", "blue"], "title": "T", "description": "D"},
        ),
        (
            Annotated[Literal["s", "m"], titles({"m": "Medium", "s": "Small"})],
            {
                "type": "string",
                "oneOf": [{"const": "m", "title": "Medium"}, {"const": "s", "title": "Small"}],
            },
        ),
        (
            Annotated[Colour, titles({"red": "Red", "blue": "Blue"})],
            {
                "type": "string",
                "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}],
            },
        ),
        (
            list[Literal["z", "a"]],
            {"type": "array", "items": {"type": "string", "enum": ["z", "a"]}},
        ),
        (
            Annotated[set[Colour], Meta(min_length=1, max_length=2)],
            {
                "type": "array",
                "items": {"type": "string", "enum": ["red", "blue"]},
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (
            tuple[Colour, ...],
            {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
        ),
        (
            list[Annotated[Colour, titles({"red": "Red", "blue": "Blue"})]],
            {
                "type": "array",
                "items": {
                    "anyOf": [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}]
                },
            },
        ),
    ],
)
def test_a_type_has_its_field(tp: Any, schema: dict[str, Any]) -> None:
    assert field_of(tp) == schema
    assert field_of(tp | None) == schema


class Order(msgspec.Struct, rename="camel", kw_only=True):
    """What is bought."""

    item_name: str
    size: Annotated[Size, Meta(title="Size")] = Size.L
    count: int = 1
    gift: bool = False
    note: str | None = None
    when: datetime.date | None = None
    must: int | None = msgspec.field(name="must-be")
    price: float | msgspec.UnsetType = msgspec.UNSET


ORDER = {
    "type": "object",
    "properties": {
        "itemName": {"type": "string"},
        "size": {"type": "string", "enum": ["small", "large"], "title": "Size", "default": "large"},
        "count": {"type": "integer", "default": 1},
        "gift": {"type": "boolean", "default": False},
        "note": {"type": "string"},
        "when": {"type": "string", "format": "date"},
        "must-be": {"type": "integer"},
        "price": {"type": "number"},
    },
    "required": ["itemName"],
}


def test_a_struct_is_a_form_with_names_defaults_and_what_is_required() -> None:
    assert form_of(Order).schema == ORDER
    assert form_of(Order) is form_of(Order)


def test_an_answer_becomes_the_struct() -> None:
    form = form_of(Order)
    assert form.decode({"itemName": "hat"}) == Order(item_name="hat", must=None)
    got = form.decode(
        {
            "itemName": "hat",
            "size": "small",
            "count": 3.0,
            "gift": True,
            "note": None,
            "when": "2026-11-22",
            "must-be": 7,
            "price": 5,
            "other": {"ignored": []},
        }
    )
    assert got == Order(
        item_name="hat",
        size=Size.S,
        count=3,
        gift=True,
        when=datetime.date(2026, 11, 22),
        must=7,
        price=5.0,
    )
    assert type(got.count) is int


@every(
    ("content", "says"),
    [
        (None, "missing required field 'itemName'"),
        ({}, "missing required field 'itemName'"),
        ({"itemName": 5}, "field 'itemName': Expected `str`, got `int`"),
        ({"itemName": "x", "count": 1.5}, "field 'count': Expected `int`, got `float`"),
        ({"itemName": "x", "count": "1"}, "field 'count': Expected `int`, got `str`"),
        ({"itemName": "x", "count": True}, "field 'count': Expected `int`, got `bool`"),
        ({"itemName": "x", "size": "tiny"}, "field 'size': Invalid enum value 'tiny'"),
        ({"itemName": "x", "when": "tomorrow"}, "field 'when': Invalid RFC3339"),
        ({"itemName": ["x"]}, "field 'itemName': Expected `str`, got `array`"),
    ],
)
def test_an_answer_that_does_not_fit_names_its_field(content: Any, says: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        form_of(Order).decode(content)
    text = str(caught.value)
    assert text.startswith("the answer does not fit the form Order: ")
    assert says in text


def test_what_the_form_cannot_say_is_checked_in_the_answer() -> None:
    form = form_of(msgspec.defstruct("F", [("mail", Email), ("uri", Uri)]))
    assert form.decode({"mail": "a@b", "uri": "urn:x"}) is not None
    for content in ({"mail": "nobody", "uri": "urn:x"}, {"mail": "a@b", "uri": "no uri"}):
        with pytest.raises(InvalidResponse, match=r"field .(mail|uri)."):
            form.decode(content)


def test_2025_06_18_has_names_of_options_apart_and_defaults_of_booleans() -> None:
    form = form_of(
        msgspec.defstruct(
            "F",
            [
                ("size", Annotated[Literal["s", "m"], titles({"s": "Small", "m": "Medium"})]),
                ("word", Annotated[str, Meta(pattern="^a")]),
                ("n", int, 1),
                ("yes", bool, True),
            ],
        )
    )
    assert form.plain_schema == {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            "word": {"type": "string"},
            "n": {"type": "integer"},
            "yes": {"type": "boolean", "default": True},
        },
        "required": ["size", "word"],
    }
    assert form.unplain is None
    many = form_of(msgspec.defstruct("F", [("a", str), ("tags", list[Literal["a", "b"]])]))
    assert (many.plain_schema, many.unplain) == (None, "tags")


@dataclasses.dataclass
class Person:
    name: str
    age: int = 0


class Record(TypedDict, total=False):
    name: str
    age: int


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(description="who", min_length=2)
    home: pydantic.AnyUrl | None = None
    colours: list[Colour] = pydantic.Field(default_factory=list, max_length=1)
    size: Literal["s", "m"] = pydantic.Field(
        "s", json_schema_extra=titles({"s": "Small", "m": "Medium"}).extra_json_schema
    )


def test_dataclasses_typed_dicts_and_pydantic_models_are_forms() -> None:
    assert form_of(Person).schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 0}},
        "required": ["name"],
    }
    assert form_of(Person).decode({"name": "Ann"}) == Person("Ann")
    assert form_of(Record).schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    }
    assert form_of(Record).decode({"age": 4.0}) == {"age": 4}
    properties = form_of(Model).schema["properties"]
    assert properties["name"] == {
        "type": "string",
        "minLength": 2,
        "title": "Name",
        "description": "who",
    }
    assert properties["home"]["format"] == "uri"
    assert properties["colours"]["items"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["size"]["oneOf"][0] == {"const": "s", "title": "Small"}
    got = form_of(Model).decode({"name": "Ann", "home": "https://a.example", "colours": ["red"]})
    assert isinstance(got, Model)
    assert got.colours == [Colour.RED]
    with raises(InvalidResponse):
        form_of(Model).decode({"name": "A"})


@every(
    ("tp", "content", "value"),
    [
        (bool, {"value": True}, True),
        (int, {"value": 4}, 4),
        (Literal["b", "a"], {"value": "a"}, "a"),
        (Colour, {"value": "blue"}, Colour.BLUE),
        (list[Colour], {"value": ["blue"]}, [Colour.BLUE]),
        (int | None, {}, None),
        (None, {}, None),
        (None, None, None),
    ],
)
def test_one_value_is_a_form_with_one_field(tp: Any, content: Any, value: Any) -> None:
    form = form_of(tp)
    assert list(form.schema["properties"]) == ([] if tp is None else ["value"])
    assert form.decode(content) == value


@every(
    ("tp", "what"),
    [
        (Inner, "an object"),
        (Inner | None, "an object"),
        (dict[str, int], "an object"),
        (list[str], "a list of anything but choices"),
        (list[Inner], "a list of anything but choices"),
        (list[list[Colour]], "a list of anything but choices"),
        (tuple[int, str], "a list of anything but choices"),
        (bytes, "bytes"),
        (int | str, "a choice of types"),
        (int | str | None, "a choice of types"),
        (Any, "any value"),
        (Number, "choices of other values"),
        (Literal[1, 2], "choices of other values"),
        (Literal["a", 2], "choices of other values"),
    ],
)
def test_nesting_is_refused_by_name(tp: Any, what: str) -> None:
    with pytest.raises(SignatureError) as caught:
        form_of(msgspec.defstruct("Form", [("ok", str), ("deep", tp)]))
    text = str(caught.value)
    assert text.startswith("form Form: field 'deep': a form is flat")
    assert text.endswith(f"not {what}")


def test_what_is_no_form_at_all_is_refused() -> None:
    for tp in (dict, dict[str, str], object(), 5, {"a": int}):
        with pytest.raises(SignatureError):
            form_of(tp)


def test_titles_must_be_of_the_options() -> None:
    tp = Annotated[Literal["a", "b"], titles({"a": "A"})]
    with raises(SignatureError):
        form_of(msgspec.defstruct("Form", [("f", tp)]))


def test_a_default_that_json_cannot_hold_is_left_out() -> None:
    form = form_of(msgspec.defstruct("Form", [("f", float, float("inf"))]))
    assert form.schema["properties"]["f"] == {"type": "number"}


# -- forms from a JSON Schema ---------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "pattern": "^x", "x-hint": "short"},
        "rows": {"type": "integer", "maximum": 9, "default": 3},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "way": {"type": "string", "oneOf": [{"const": "w", "title": "Walk"}]},
        "sure": {"type": "boolean", "default": True},
    },
    "required": ["name"],
}
EXTRAS = {"type": "array", "items": {"type": "string", "enum": ["milk", "sugar"]}}


def of_field(field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": field}}


def test_a_schema_is_a_form_that_is_sent_as_it_is() -> None:
    form = form_of(SCHEMA)
    assert form.schema == SCHEMA
    titled = form_of(
        of_field({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}})
    )
    assert (titled.unplain, titled.plain_schema) == ("x", None)


def test_a_schema_in_2025_06_18_has_names_of_options_apart() -> None:
    plain = form_of(SCHEMA).plain_schema
    assert plain is not None
    assert plain["properties"] == {
        "name": {"type": "string", "minLength": 2, "x-hint": "short"},
        "rows": {"type": "integer", "maximum": 9},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "way": {"type": "string", "enum": ["w"], "enumNames": ["Walk"]},
        "sure": {"type": "boolean", "default": True},
    }


def test_an_answer_to_a_schema_is_a_dict_of_its_fields() -> None:
    answer = form_of(SCHEMA).decode({"rows": 5.0, "other": [1], "name": "Ann"})
    assert answer == {"name": "Ann", "rows": 5}
    assert type(answer["rows"]) is int
    assert form_of(of_field(EXTRAS)).decode({"x": ["milk"]}) == {"x": ["milk"]}


@every(
    ("content", "says"),
    [
        ({}, "'name' is required"),
        (None, "'name' is required"),
        ({"name": "A"}, "'name' must have at least 2 characters"),
        ({"name": None}, "'name' is not a string"),
        ({"name": "Ann", "rows": 5.5}, "'rows' must be a whole number"),
        ({"name": "Ann", "rows": True}, "'rows' must be a whole number"),
        ({"name": "Ann", "rows": 10}, "'rows' must be at most 9"),
        ({"name": "Ann", "size": "Small"}, "'size' must be one of 's', 'm'"),
        ({"name": "Ann", "way": "x"}, "'way' must be one of 'w'"),
        ({"name": "Ann", "sure": "yes"}, "'sure' must be true or false"),
    ],
)
def test_an_answer_that_does_not_fit_a_schema_names_its_field(content: Any, says: str) -> None:
    with pytest.raises(InvalidResponse, match=f"the answer does not fit the form: {says}"):
        form_of(SCHEMA).decode(content)


@every(
    ("field", "what"),
    [
        ({"type": "object", "properties": {}}, "an object"),
        ({"type": "array", "items": {"type": "number"}}, "a list of anything but choices"),
        ({"type": "array"}, "a list of anything but choices"),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}]}}, "a list of anything but"),
        ({"type": "string", "enum": ["a", 1]}, "other choices"),
        ({"type": "string", "enum": ["a"], "enumNames": []}, "other choices"),
        ({"type": "string", "enumNames": ["a"]}, "other choices"),
        ({"type": "string", "oneOf": [{"const": "a"}]}, "other choices"),
        ({"type": "string", "oneOf": {"const": "a", "title": "A"}}, "other choices"),
        ({"type": "number", "enum": ["a"]}, "other choices"),
        ({"type": ["string", "null"]}, r"the type \['string', 'null'\]"),
        ({"$ref": "#/$defs/x"}, "the type None"),
        (True, "the type None"),
    ],
)
def test_a_field_of_a_schema_that_is_not_flat_is_refused_by_name(field: Any, what: str) -> None:
    with pytest.raises(SignatureError, match=f"^form: field 'x': a form is flat, .*, not {what}"):
        form_of(of_field(field))


@every(
    ("schema", "why"),
    [
        ({}, 'the type "object", and properties'),
        ({"type": "object"}, 'the type "object", and properties'),
        ({"type": "object", "properties": []}, 'the type "object", and properties'),
        ({"properties": {}}, 'the type "object", and properties'),
        (of_field({"type": "string", "default": object()}), "schema has no JSON form"),
        (of_field({"type": "string", "title": "\udce9"}), "lone surrogate"),
    ],
)
def test_a_schema_that_is_no_form_at_all_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        form_of(schema)
