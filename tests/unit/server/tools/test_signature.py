"""Callables -> tools: names, texts, parameters, and the call."""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
)

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from lab.rows import every
from lab.wording import raises

from wirespeed import HeaderParam
from wirespeed.errors import SignatureError
from wirespeed.protocol.blocks import Image, Text
from wirespeed.protocol.header_values import ParamField
from wirespeed.schema.json_schema import describe_validation_error
from wirespeed.server.tools.results import ResultKind
from wirespeed.server.tools.signature import ToolSpec, inspect_tool, parse_docstring

if TYPE_CHECKING:
    from fractions import Fraction as OnlyForCheckers


class Context:
    pass


class SpecialContext(Context):
    pass


CONTEXT = Context()


def run(spec: ToolSpec, arguments: Any = None, context: Any = CONTEXT) -> Any:
    """Decode and call as the server does."""
    data = b"{}" if arguments is None else json.dumps(arguments).encode()
    try:
        decoded = spec.decoder.decode(data)
    except msgspec.ValidationError as exc:
        decoded = spec.decode_again(data, exc)
    vector = [getattr(decoded, name) for name in spec.fields]
    if spec.context_index >= 0:
        vector.insert(spec.context_index, context)
    assert vector == spec.vector(decoded, context)
    assert spec.fields[: len(spec.positional)] == spec.positional
    result = spec.call(decoded, context)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def tool(function: Any, **options: Any) -> ToolSpec:
    return inspect_tool(function, context_class=Context, **options)


# -- names and texts ------------------------------------------------------------------------------


def add(a: int, b: int = 3) -> int:
    """Add two numbers.

    Both are integers.

    Args:
        a: The first.
        b (int, optional): The second,
            three by default.

    Returns:
        The sum.

    Raises:
        OverflowError: never.
    """
    return a + b


def test_everything_of_a_plain_function() -> None:
    spec = tool(add, title="Add")
    assert (spec.name, spec.title) == ("add", "Add")
    assert spec.description == "Add two numbers.\n\nBoth are integers."
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {
                "type": "integer",
                "description": "The second, three by default.",
                "default": 3,
            },
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert json.loads(spec.input_schema_json) == spec.input_schema
    assert spec.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    }
    assert spec.output_schema_json is not None
    assert json.loads(spec.output_schema_json) == spec.output_schema
    assert spec.result.kind is ResultKind.WRAPPED
    assert spec.function is add
    assert (spec.fields, spec.positional, spec.kwnames) == (("a", "b"), ("a", "b"), ())
    assert (spec.context_param, spec.context_index) == (None, -1)
    flags = (spec.is_async, spec.is_generator, spec.is_async_generator, spec.wraps_async)
    assert flags == (False, False, False, False)
    assert (run(spec, {"a": 1}), run(spec, {"a": 1, "b": 2})) == (4, 3)
    assert repr(spec) == "<ToolSpec 'add'>"


def test_given_name_and_description_win() -> None:
    spec = tool(add, name="admin.add-2", description="Sums.")
    assert (spec.name, spec.description, spec.title) == ("admin.add-2", "Sums.", None)
    assert spec.input_schema["properties"]["a"]["description"] == "The first."


def test_no_parameters_and_no_docstring() -> None:
    def now() -> str:
        return "now"

    spec = tool(now)
    assert spec.input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert spec.description is None and spec.output_schema is None
    assert spec.output_schema_json is None
    assert run(spec) == run(spec, {}) == "now"
    with pytest.raises(msgspec.ValidationError):
        spec.decoder.decode(b"[]")


GOOGLE = """Do it.

    More words.

    Arguments:
        first (dict[str, int]): One: with a colon.
        *second: Two
            goes on.

            And on.
        not an entry

    Example:
        do(1)

    Returns:
        Nothing.
    """
NUMPY = """Do it.

    More words.

    Parameters
    ----------
    first : dict of str, optional
        One: with a colon.
    second, third
        Two
        goes on.

        And on.

    Returns
    -------
    int
        Nothing.

    Example
    -------
    do(1)
    """
SPHINX = """Do it.

    More words.

    :param first: One: with a colon.
    :type first: int
    :param int second: Two
        goes on.

        And on.
    :keyword third:
    :returns: Nothing.
    :rtype: None
    """


@pytest.mark.parametrize(
    ("doc", "tail"),
    [(GOOGLE, "\n\nExample:\n    do(1)"), (NUMPY, "\n\nExample\n-------\ndo(1)"), (SPHINX, "")],
    ids=["google", "numpy", "sphinx"],
)
def test_docstring_styles(doc: str, tail: str) -> None:
    description, notes = parse_docstring(doc)
    assert description == "Do it.\n\nMore words." + tail
    assert notes.pop("first") == "One: with a colon."
    assert notes.pop("second") == "Two goes on. And on."
    assert notes.pop("third", "Two goes on. And on.") == "Two goes on. And on."
    assert notes == {}


@every(
    ("doc", "expected"),
    [
        (None, (None, {})),
        ("", (None, {})),
        ("  \n ", (None, {})),
        ("One line.", ("One line.", {})),
        ("Args:\n    a: x", (None, {"a": "x"})),
        ("Returns: the sum.", ("Returns: the sum.", {})),
        ("Args:\n        a: x\n        b: y\n    ", (None, {"a": "x", "b": "y"})),
        ("Args:\n        a: x\n\n    Returns:\n        y", (None, {"a": "x"})),
        # An indented title is text.
        ("Do.\nx\n\n    Args:\n        a: x", ("Do.\nx\n\n    Args:\n        a: x", {})),
        ("Do.\n\nArgs:\n    a: x\nAfter.", ("Do.\n\nAfter.", {"a": "x"})),
        ("Do.\n\n:note: kept", ("Do.\n\n:note: kept", {})),
        ("Parameters\n----------\na\n    x", (None, {"a": "x"})),
    ],
)
def test_docstring_corner_cases(doc: str | None, expected: Any) -> None:
    assert parse_docstring(doc) == expected


def test_annotated_descriptions_win_over_the_docstring() -> None:
    def f(
        a: Annotated[int, msgspec.Meta(description="meta")],
        b: Annotated[int, pydantic.Field(description="field")],
        c: Annotated[int, "text"],
        d: int = pydantic.Field(description="default"),
    ) -> None:
        """F.

        Args:
            a: doc
            b: doc
            c: doc
            d: doc
        """

    properties = tool(f).input_schema["properties"]
    assert [properties[n]["description"] for n in "abcd"] == ["meta", "field", "text", "default"]


# -- kinds of callables ---------------------------------------------------------------------------


class Adder:
    """Class text."""

    def __init__(self, base: int) -> None:
        self.base = base

    def method(self, a: int) -> int:
        """Method text."""
        return self.base + a

    async def later(self, a: int) -> int:
        return self.base + a

    @classmethod
    def make(cls, a: int) -> str:
        return f"{cls.__name__}{a}"

    @staticmethod
    def static(a: int) -> int:
        return a

    raw_static = staticmethod(lambda a: a)

    def __call__(self, a: int) -> int:
        return self.base + a


class AsyncCall:
    async def __call__(self, a: int) -> int:
        """Call text."""
        return a


def deco(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@deco
def decorated(a: int, /, b: Annotated[int, "second"] = 2, *, c: int = 3) -> list[int]:
    """Decorated."""
    return [a, b, c]


@deco
async def decorated_async(a: int) -> int:
    return a


def test_methods() -> None:
    spec = tool(Adder(10).method)
    assert (spec.name, spec.description) == ("method", "Method text.")
    assert run(spec, {"a": 1}) == 11
    assert list(spec.input_schema["properties"]) == ["a"]
    later = tool(Adder(10).later)
    assert later.is_async and run(later, {"a": 1}) == 11
    assert run(tool(Adder.make), {"a": 1}) == "Adder1"
    assert run(tool(Adder.static), {"a": 1}) == 1
    static = tool(vars(Adder)["static"])
    assert (static.name, run(static, {"a": 1})) == ("static", 1)


def test_callable_objects_need_a_name() -> None:
    with raises(SignatureError):
        tool(Adder(1))
    spec = tool(Adder(1), name="adder")
    assert (spec.description, spec.is_async) == ("Class text.", False)
    assert run(spec, {"a": 1}) == 2
    call = tool(AsyncCall(), name="call")
    assert (call.description, call.is_async, run(call, {"a": 1})) == ("Call text.", True, 1)


def test_lambdas_need_a_name() -> None:
    with raises(SignatureError):
        tool(lambda a: a)
    with raises(SignatureError):
        tool(lambda a: a, name="")
    spec = tool(lambda a: a, name="same")
    assert spec.input_schema["properties"] == {"a": {}}
    assert run(spec, {"a": [1, {"b": None}]}) == [1, {"b": None}]
    assert spec.result.kind is ResultKind.DYNAMIC


def test_partials_hide_what_they_bind() -> None:
    def send(text: str, *, key: str, times: int = 1) -> str:
        """Send."""
        return f"{text}{key}{times}"

    spec = tool(functools.partial(send, key="secret"))
    assert (spec.name, spec.description) == ("send", "Send.")
    assert list(spec.input_schema["properties"]) == ["text", "times"]
    assert b"secret" not in spec.input_schema_json
    assert run(spec, {"text": "a"}) == "asecret1"
    with pytest.raises(msgspec.ValidationError, match="unknown field `key`"):
        run(spec, {"text": "a", "key": "mine"})
    first = tool(functools.partial(decorated, 1))
    assert list(first.input_schema["properties"]) == ["b", "c"]
    assert run(first, {"b": 5}) == [1, 5, 3]
    middle = tool(functools.partial(add, a=4))
    assert (middle.kwnames, run(middle), run(middle, {"b": 1})) == (("b",), 7, 5)
    coroutine = tool(functools.partial(Adder(1).later, a=1))
    assert coroutine.is_async and run(coroutine) == 2


def test_wrapped_functions() -> None:
    spec = tool(decorated)
    assert (spec.name, spec.description) == ("decorated", "Decorated.")
    assert spec.positional == ("a", "b") and spec.kwnames == ("c",)
    assert spec.input_schema["properties"]["b"]["description"] == "second"
    assert run(spec, {"a": 1, "c": 9}) == [1, 2, 9]
    hidden = tool(decorated_async)
    assert (hidden.is_async, hidden.wraps_async) == (False, True)
    cached = tool(functools.lru_cache(add))
    assert run(cached, {"a": 1}) == 4


def test_builtins_and_compiled_callables() -> None:
    spec = tool(math.sqrt)
    assert spec.input_schema["required"] == ["x"]
    assert run(spec, {"x": 4}) == 2.0
    with raises(SignatureError):
        tool(max)


@pytest.mark.parametrize("thing", [int, Adder, 3, None, classmethod(lambda cls: 1)])
def test_what_is_no_function_is_refused(thing: Any) -> None:
    with raises(SignatureError):
        tool(thing, name="x")


def test_unbound_methods_are_refused() -> None:
    class Local:
        def method(self, a: int) -> int:
            return a

    for function in (Adder.method, Local.method):
        with raises(SignatureError):
            tool(function)

    def free(self: int) -> int:
        return self

    def untyped(self):  # type: ignore[no-untyped-def]
        return self

    assert run(tool(free), {"self": 1}) == 1
    assert run(tool(untyped), {"self": 1}) == 1


def test_endless_wrappers_are_refused() -> None:
    def loop() -> None: ...

    loop.__wrapped__ = loop  # type: ignore[attr-defined]
    with raises(SignatureError):
        tool(loop)


def test_kinds_of_functions() -> None:
    async def coroutine() -> str:
        return ""

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[Text]:
        yield Text("")

    def untyped_generator():  # type: ignore[no-untyped-def]
        yield 1

    def awaitable() -> Awaitable[int]:
        return coroutine()  # type: ignore[return-value]

    def coroutine_type() -> Coroutine[Any, Any, int]:
        return coroutine()  # type: ignore[return-value]

    def flags(function: Any) -> tuple[bool, ...]:
        spec = tool(function)
        return (spec.is_async, spec.is_generator, spec.is_async_generator, spec.wraps_async)

    assert flags(coroutine) == (True, False, False, False)
    assert flags(generator) == flags(untyped_generator) == (False, True, False, False)
    assert flags(async_generator) == (False, False, True, False)
    assert flags(awaitable) == flags(coroutine_type) == (False, False, False, True)
    assert tool(awaitable).result.encode(3)[1] == b'{"result":3}'
    assert tool(coroutine_type).result.wrapped
    numbers = tool(generator)
    assert numbers.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    }
    assert numbers.result.encode(list(numbers.function()))[1] == b'{"result":[1]}'
    assert tool(async_generator).result.kind is ResultKind.BLOCKS
    assert tool(untyped_generator).result.kind is ResultKind.DYNAMIC

    def not_a_generator() -> Iterator[int]:
        return iter([1])

    with raises(SignatureError):
        tool(not_a_generator)


# -- parameters -----------------------------------------------------------------------------------


def test_stars_are_refused() -> None:
    def many(a: int, *rest: int) -> None: ...
    def named(**options: int) -> None: ...

    with raises(SignatureError):
        tool(many)
    with raises(SignatureError):
        tool(named)


def test_order_of_the_call() -> None:
    def f(a: int, /, b: int, ctx: Context, c: int = 3, *, d: int, e: int = 5) -> Any:
        return a, b, ctx, c, d, e

    spec = tool(f)
    assert (spec.fields, spec.positional) == (("a", "b", "c", "d", "e"), ("a", "b", "c"))
    assert (spec.context_param, spec.context_index, spec.kwnames) == ("ctx", 2, ("d", "e"))
    assert spec.input_schema["required"] == ["a", "b", "d"]
    assert run(spec, {"d": 4, "b": 2, "a": 1}) == (1, 2, CONTEXT, 3, 4, 5)


def test_context_in_every_place_and_form() -> None:
    def first(ctx: Context, a: int) -> Any:
        return ctx, a

    def optional(a: int, ctx: Context | None = None) -> Any:
        return ctx, a

    def old_optional(a: int, ctx: Optional[Context] = None) -> Any:  # noqa: UP045
        return ctx, a

    def keyword(a: int, *, z: int = 0, ctx: Context, y: int = 1) -> Any:
        assert (z, y) == (0, 1)
        return ctx, a

    def special(a: int, ctx: SpecialContext) -> Any:
        return ctx, a

    def annotated(a: int, ctx: Annotated[Context, "the context"]) -> Any:
        return ctx, a

    for function in (first, optional, old_optional, keyword, special, annotated):
        spec = tool(function)
        assert spec.context_param == "ctx"
        assert "ctx" not in spec.input_schema["properties"]
        assert run(spec, {"a": 1}) == (CONTEXT, 1)
    assert tool(keyword).kwnames == ("z", "ctx", "y")
    assert (tool(first).context_index, tool(keyword).context_index) == (0, 2)

    def two(a: Context, b: Context) -> None: ...

    with raises(SignatureError):
        tool(two)
    with raises(SignatureError):
        inspect_tool(first)

    def mixed(a: Context | int) -> None: ...

    with raises(SignatureError):
        tool(mixed)


def test_context_known_to_type_checkers_only() -> None:
    namespace: dict[str, Any] = {}
    code = "def f(ctx: {0}, a: int) -> int: return a"
    for text in (
        '"Context"',
        '"Context | None"',
        '"Optional[Context]"',
        '"wirespeed.Context"',
        '"typing.Optional[wirespeed.Context]"',
    ):
        exec(code.format(text), namespace)
        spec = tool(namespace["f"])
        assert (spec.context_param, run(spec, {"a": 2})) == ("ctx", 2)
    for text in ('"Contexts"', '"MyContext"', '"list[Context]"'):
        exec(code.format(text), namespace)
        with raises(SignatureError):
            tool(namespace["f"])


@dataclass
class Left:
    x: int


def test_string_annotations() -> None:
    class Local(msgspec.Struct):
        n: int

    def uses_closure(a: Local, b: list[Left]) -> tuple[Local, list[Left]]:
        assert Local is not None
        return a, b

    spec = tool(uses_closure)
    assert spec.input_schema["$defs"].keys() == {"Local", "Left"}
    assert run(spec, {"a": {"n": 1}, "b": [{"x": 2}]}) == (Local(1), [Left(2)])

    def hidden(a: OnlyForCheckers) -> None: ...

    with raises(SignatureError):
        tool(hidden)
    assert tool(hidden, localns={"OnlyForCheckers": int}).input_schema["properties"]["a"] == {
        "type": "integer"
    }

    def nested(a) -> None: ...  # type: ignore[no-untyped-def]

    nested.__annotations__["a"] = list["Missing"]  # type: ignore[name-defined]  # noqa: F821
    with raises(SignatureError):
        tool(nested)

    def uses_later(a: int) -> None:
        later_name.append(a)

    assert tool(uses_later).fields == ("a",)  # its closure has a cell with nothing in it yet
    later_name: list[int] = []

    def hidden_result() -> OnlyForCheckers: ...

    with raises(SignatureError):
        tool(hidden_result)
    assert tool(hidden_result, returns=str).result.kind is ResultKind.TEXT


class Colour(enum.Enum):
    RED = "red"


class Odd:
    def __repr__(self) -> str:
        return "odd"


def test_defaults() -> None:
    odd = Odd()

    def f(
        a: list[int] = [1],  # noqa: B006
        b: dict[str, list[int]] = {"k": [1]},  # noqa: B006
        c: set[int] = {1},  # noqa: B006
        d: tuple[list[int], ...] = ([1],),  # type: ignore[assignment]
        e: Colour = Colour.RED,
        g: Any = odd,
        h: float = math.inf,
        i: Left | None = None,
        j: tuple[int, int] = (1, 2),
    ) -> Any:
        return [a, b, c, d, e, g, h, i, j]

    spec = tool(f)
    properties = spec.input_schema["properties"]
    assert "required" not in spec.input_schema
    assert {k: v["default"] for k, v in properties.items() if "default" in v} == {
        "a": [1],
        "b": {"k": [1]},
        "c": [1],
        "d": [[1]],
        "e": "red",
        "i": None,
        "j": [1, 2],
    }
    one, two = run(spec), run(spec)
    assert one == two == [[1], {"k": [1]}, {1}, ([1],), Colour.RED, odd, math.inf, None, (1, 2)]
    one[0].append(2)
    one[1]["k"].append(2)
    one[3][0].append(2)
    assert run(spec) == two  # what a call does to its default stays in that call
    assert one[5] is odd and one[4] is Colour.RED


@every(
    "name",
    [
        "_private",
        "__dict__",
        "__class__",
        "__slots__",
        "__post_init__",
        "__struct_fields__",
        "__init__",
        "__weakref__",
        "__module__",
        "arg__dict__",
        "self",
        "cls",
        "été",
    ],
)
def test_any_parameter_name_works(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(
        f"def f({name}: int, arg__init__: int = 7, *, arg__dict___: int = 8): return {name}",
        namespace,
    )
    spec = tool(namespace["f"])
    assert next(iter(spec.input_schema["properties"])) == name
    assert run(spec, {name: 5}) == 5
    with pytest.raises(msgspec.ValidationError) as info:
        spec.decoder.decode(json.dumps({name: "x"}))
    assert describe_validation_error(info.value) == f"argument '{name}': Expected `int`, got `str`"
    with pytest.raises(msgspec.ValidationError) as info:
        spec.decoder.decode(b"{}")
    assert describe_validation_error(info.value) == f"missing required argument '{name}'"


def test_renamed_parameters_do_not_clash() -> None:
    def f(__init__: int, arg__init__: int, arg__init___: int) -> list[int]:
        return [__init__, arg__init__, arg__init___]

    values = {"__init__": 1, "arg__init__": 2, "arg__init___": 3}
    assert run(tool(f), values) == [1, 2, 3]


class Size(enum.Enum):
    SMALL = 1
    BIG = 2


def test_arguments_marked_for_header_fields() -> None:
    def f(
        a: Annotated[str, HeaderParam("A"), "what it is"],
        b: Annotated[int, msgspec.Meta(ge=1), HeaderParam("B")],
        c: Annotated[bool, HeaderParam("C")] = False,
        d: Annotated[Literal["x", "y"], HeaderParam("D")] = "x",
        e: Annotated[Size, HeaderParam("E")] = Size.BIG,
        g: Annotated[Decimal, HeaderParam("G")] = Decimal(0),
    ) -> list[Any]:
        return [a, b, c, d, e, g]

    spec = tool(f)
    assert spec.header_params == tuple(
        ParamField(f"Mcp-Param-{name.upper()}", (name,), kind)
        for name, kind in [
            ("a", "string"), ("b", "integer"), ("c", "boolean"), ("d", "string"), ("e", "integer"),
            ("g", "string"),
        ]
    )  # fmt: skip
    properties = spec.input_schema["properties"]
    assert properties["a"] == {
        "type": "string", "description": "what it is", "x-mcp-header": "A",
    }  # fmt: skip
    assert properties["b"] == {"type": "integer", "minimum": 1, "x-mcp-header": "B"}
    assert properties["d"] == {
        "type": "string", "enum": ["x", "y"], "default": "x", "x-mcp-header": "D",
    }  # fmt: skip
    assert run(spec, {"a": "A", "b": 2, "e": 1}) == ["A", 2, False, "x", Size.SMALL, Decimal(0)]
    assert tool(add).header_params is None


class Zone(msgspec.Struct, rename="camel"):
    zone_name: Annotated[str, HeaderParam("Zone")] = "z"
    size: Size = Size.SMALL


class Area(msgspec.Struct):
    zone: Zone
    size: Annotated[Size, HeaderParam("Size")]


@dataclass
class Region:
    name: Annotated[Literal["us", "eu"], HeaderParam("Region")]


@attrs.define
class Country:
    code: Annotated[str, HeaderParam("Country")]


class Planet(TypedDict):
    number: NotRequired[Annotated[int, HeaderParam("Planet")]]


class Model(pydantic.BaseModel):
    region: Annotated[str, HeaderParam("Model")] = pydantic.Field(alias="modelRegion")


@pydantic.dataclasses.dataclass
class Checked:
    region: Annotated[str, HeaderParam("Checked")]


RegionAlias = NewType("RegionAlias", Region)


@every(
    ("tp", "value", "expected"),
    [
        (
            Area,
            {"zone": {"zoneName": "a"}, "size": 2},
            [("Zone", ("zone", "zoneName"), "string"), ("Size", ("size",), "integer")],
        ),
        (Region, {"name": "us"}, [("Region", ("name",), "string")]),
        (RegionAlias, {"name": "us"}, [("Region", ("name",), "string")]),
        (Country, {"code": "fr"}, [("Country", ("code",), "string")]),
        (Planet, {}, [("Planet", ("number",), "integer")]),
        (Model, {"modelRegion": "us"}, [("Model", ("modelRegion",), "string")]),
        (Checked, {"region": "us"}, [("Checked", ("region",), "string")]),
        (Annotated[Checked, "said"], {"region": "us"}, [("Checked", ("region",), "string")]),
    ],
)
def test_fields_of_classes_marked_for_header_fields(
    tp: Any, value: dict[str, Any], expected: list[tuple[str, tuple[str, ...], str]]
) -> None:
    def f(a: Any, b: int = 1) -> None: ...

    f.__annotations__["a"] = tp
    spec = tool(f)
    assert spec.header_params == tuple(
        ParamField(f"Mcp-Param-{name}", ("a", *path), kind) for name, path, kind in expected
    )
    assert spec.input_schema["required"] == ["a"]
    assert spec.input_schema["properties"]["a"]["type"] == "object"
    assert spec.decoder.decode(msgspec.json.encode({"a": value})).b == 1


def test_a_class_with_marked_fields_is_described_at_its_place() -> None:
    def f(a: Annotated[Area, "what it is"], b: Size, c: Region = Region("eu")) -> None: ...  # noqa: B008

    schema = tool(f).input_schema
    assert schema["properties"]["a"]["description"] == "what it is"
    assert schema["properties"]["c"]["default"] == {"name": "eu"}
    assert schema["properties"]["c"]["properties"]["name"] == {
        "type": "string", "enum": ["eu", "us"], "x-mcp-header": "Region",
    }  # fmt: skip
    assert "$defs" not in schema  # what nothing refers to is left out


def test_a_class_without_marks_stays_shared() -> None:
    def f(a: Plain, b: Plain, c: Region) -> None: ...

    schema = tool(f).input_schema
    assert schema["properties"]["a"] == schema["properties"]["b"] == {"$ref": "#/$defs/Plain"}
    assert list(schema["$defs"]) == ["Plain"]


class Plain(msgspec.Struct):
    x: int


def test_pydantic_fields() -> None:
    def f(
        a: int = pydantic.Field(ge=1),
        b: int = pydantic.Field(3, le=9),
        c: list[int] = pydantic.Field(default_factory=lambda: [1]),  # noqa: B008
        d: int | None = pydantic.Field(None, gt=0, alias="dd"),
        e: Annotated[int, pydantic.Field(default=4)] = 5,
        g: Annotated[str, pydantic.AfterValidator(str.upper)] = "x",
    ) -> Any:
        return [a, b, c, d, e, g]

    spec = tool(f)
    properties = spec.input_schema["properties"]
    assert list(properties) == ["a", "b", "c", "dd", "e", "g"]
    assert spec.input_schema["required"] == ["a"]
    assert properties["a"] == {"type": "integer", "minimum": 1}
    assert properties["b"] == {"type": "integer", "maximum": 9, "default": 3}
    assert "default" not in properties["c"]
    assert properties["e"]["default"] == 5
    assert run(spec, {"a": 1}) == [1, 3, [1], None, 5, "x"]
    assert run(spec, {"a": 1, "dd": 2, "g": "abc"}) == [1, 3, [1], 2, 5, "ABC"]
    for bad in ({}, {"a": 0}, {"a": 1, "dd": 0}, {"a": 1, "b": 10}):
        with pytest.raises(msgspec.ValidationError):
            run(spec, bad)

    def marked(
        a: Annotated[str, pydantic.AfterValidator(str.upper), HeaderParam("A")],
        b: str = pydantic.Field(json_schema_extra={"x-mcp-header": "B"}),
    ) -> str:
        return a + b

    spec = tool(marked)
    assert spec.header_params == (
        ParamField("Mcp-Param-A", ("a",), "string"), ParamField("Mcp-Param-B", ("b",), "string"),
    )  # fmt: skip
    assert run(spec, {"a": "x", "b": "y"}) == "Xy"

    def digits(a: Decimal = pydantic.Field(Decimal(3), max_digits=2)) -> str:  # noqa: B008
        return str(a)

    assert run(tool(digits)) == "3"  # a constraint that only pydantic knows
    assert run(tool(digits), {"a": "12"}) == "12"
    with pytest.raises(msgspec.ValidationError):
        run(tool(digits), {"a": "123"})

    def clash(a: int, b: int = pydantic.Field(alias="a")) -> None: ...

    with raises(SignatureError):
        tool(clash)

    def required(a: Annotated[int, pydantic.Field(default=4)]) -> int:
        return a

    assert run(tool(required)) == 4


def test_refusals_name_function_and_parameter() -> None:
    def f(a: int, b: complex | Left | set[int] | list[str] | Odd) -> None: ...

    with raises(SignatureError):
        tool(f)

    def g() -> bytes:
        return b""

    with raises(SignatureError):
        tool(g)


@pytest.mark.parametrize(
    "options", [{"name": "a\ud800"}, {"title": "a\ud800"}, {"description": "a\ud800"}]
)
def test_texts_that_cannot_be_sent_are_refused(options: Any) -> None:
    with raises(SignatureError):
        tool(add, **options)


def test_content_results() -> None:
    def picture() -> Image:
        return Image(b"", "image/png")

    def choice(kind: Literal["a", "b"]) -> str:
        return kind

    assert tool(picture).output_schema is None
    assert tool(choice, structured=True).output_schema is not None
    assert tool(choice).input_schema["properties"]["kind"] == {
        "type": "string",
        "enum": ["a", "b"],
    }


# -- properties -----------------------------------------------------------------------------------

_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    list[int]: st.lists(st.integers()),
    dict[str, bool]: st.dictionaries(st.text(st.characters(codec="utf-8")), st.booleans()),
    int | None: st.none() | st.integers(),
    bytes: st.binary(),
    Colour: st.just(Colour.RED),
    Left: st.builds(Left, st.integers()),
}
_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


@st.composite
def _calls(draw: st.DrawFn) -> tuple[inspect.Signature, dict[str, Any]]:
    parameters = []
    given_values = {}
    count = draw(st.integers(0, 5))
    first_keyword = draw(st.integers(0, count))
    context_at = draw(st.integers(-1, count - 1))
    optional = False
    for index in range(count):
        kind = _POSITIONAL if index < first_keyword else _KEYWORD
        if index == context_at:
            parameters.append(
                inspect.Parameter(
                    f"p{index}",
                    kind,
                    annotation=Context,
                    default=None if optional and kind is _POSITIONAL else inspect.Parameter.empty,
                )
            )
            continue
        tp = draw(st.sampled_from(list(_TYPES)))
        default = inspect.Parameter.empty
        if (optional and kind is _POSITIONAL) or draw(st.booleans()):
            optional = True
            default = draw(_TYPES[tp])
        parameters.append(inspect.Parameter(f"p{index}", kind, annotation=tp, default=default))
        if default is inspect.Parameter.empty or draw(st.booleans()):
            given_values[f"p{index}"] = draw(_TYPES[tp])
    return inspect.Signature(parameters), given_values


@given(_calls())
@examples(150)
def test_encoded_arguments_give_the_direct_call(call: Any) -> None:
    signature, values = call

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    function.__signature__ = signature  # type: ignore[attr-defined]
    spec = tool(function)
    expected = {
        name: CONTEXT if p.annotation is Context else values.get(name, p.default)
        for name, p in signature.parameters.items()
    }
    decoded = spec.decoder.decode(msgspec.json.encode(values))
    assert spec.call(decoded, CONTEXT) == expected


def test_registering_needs_no_pydantic() -> None:
    code = """
import sys
from wirespeed.server.tools.signature import inspect_tool
def f(a: int, b: list[str] | None = None) -> dict[str, int]: ...
inspect_tool(f)
assert not {"pydantic", "pydantic_core", "annotated_types"} & set(sys.modules)
print("done")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("done\n", "")
