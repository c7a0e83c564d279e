"""Return values -> content and structured content."""

from __future__ import annotations

import base64
import datetime as dt
import enum
import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Never, NewType, TypedDict

import msgspec
import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed.errors import SignatureError
from wirespeed.protocol.blocks import (
    Annotations,
    Audio,
    Block,
    EmbeddedResource,
    Icon,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
)
from wirespeed.server.tools.results import (
    EMPTY_CONTENT,
    TEXT_HEAD,
    TEXT_TAIL,
    ResultError,
    ResultKind,
    ToolResult,
    error_content,
    plan_result,
)


def plan(annotation: Any = msgspec.UNSET, structured: bool | None = None) -> Any:
    return plan_result(annotation, "tool 'f': return value", structured)


def encode(value: Any, annotation: Any = msgspec.UNSET, *args: Any, **options: Any) -> Any:
    """(content, structured content or UNSET), decoded by the standard library."""
    content, structured, is_error, meta = plan(annotation, **options).encode(value, *args)
    assert is_error is False and meta is None
    return json.loads(content), msgspec.UNSET if structured is None else json.loads(structured)


def texts(*values: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value} for value in values]


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclass
class Place:
    name: str
    point: Point


class Movie(TypedDict):
    title: str


class Pair(NamedTuple):
    a: int
    b: str


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    n: int


class Opaque:
    pass


PNG = Image(b"\x89PNG", "image/png")
WAV = Audio(b"RIFF", "audio/wav")
LINK = ResourceLink("file:///a", "a", mime_type="text/plain", size=3)


# -- blocks on the wire ---------------------------------------------------------------------------


@every(
    ("block", "wire"),
    [
        (Text("hi"), {"type": "text", "text": "hi"}),
        (
            Text("hi", annotations=Annotations(audience=["user"], priority=0.5), meta={"k": 1}),
            {
                "type": "text",
                "text": "hi",
                "annotations": {"audience": ["user"], "priority": 0.5},
                "_meta": {"k": 1},
            },
        ),
        (
            Text("", annotations=Annotations(last_modified="2025-05-03T14:30:00Z")),
            {"type": "text", "text": "", "annotations": {"lastModified": "2025-05-03T14:30:00Z"}},
        ),
        (PNG, {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}),
        (WAV, {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}),
        (
            Image(memoryview(b"ab"), "image/gif"),
            {"type": "image", "data": "YWI=", "mimeType": "image/gif"},
        ),
        (
            EmbeddedResource(ResourceContents("file:///a", "text/plain", text="")),
            {
                "type": "resource",
                "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": ""},
            },
        ),
        (
            EmbeddedResource(ResourceContents("file:///a", blob=b"ab", meta={"k": None})),
            {
                "type": "resource",
                "resource": {"uri": "file:///a", "blob": "YWI=", "_meta": {"k": None}},
            },
        ),
        (
            LINK,
            {
                "type": "resource_link",
                "uri": "file:///a",
                "name": "a",
                "mimeType": "text/plain",
                "size": 3,
            },
        ),
        (
            ResourceLink("u:", "n", icons=[Icon("https://x/i.png", "image/png", ["48x48"])]),
            {
                "type": "resource_link",
                "uri": "u:",
                "name": "n",
                "icons": [{"src": "https://x/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
            },
        ),
    ],
)
def test_wire_form_of_blocks(block: Any, wire: dict[str, Any]) -> None:
    assert encode(block) == ([wire], msgspec.UNSET)
    again = msgspec.json.decode(json.dumps(wire), type=Block)
    assert type(again) is type(block)
    assert msgspec.to_builtins(again) == wire


@every(
    ("make", "text"),
    [
        (lambda: Image("iVBORw==", "image/png"), "Image takes bytes, not str"),
        (lambda: Audio(None, "audio/wav"), "Audio takes bytes, not NoneType"),
        (lambda: Text(3), "Text takes str, not int"),
        (lambda: ResourceContents("u:"), "exactly one of text and blob"),
        (lambda: ResourceContents("u:", text="a", blob=b""), "exactly one of text and blob"),
        (lambda: ResourceContents("u:", blob="a"), "ResourceContents takes bytes, not str"),
        (lambda: Annotations(priority=1.5), "between 0 and 1, not 1.5"),
        (lambda: Annotations(priority=math.nan), "between 0 and 1, not nan"),
    ],
)
def test_wrong_blocks_are_refused_where_they_are_made(make: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        make()


# -- the table of rules ---------------------------------------------------------------------------


@every(
    ("annotation", "value", "content", "structured", "kind"),
    [
        (str, 'hé\n"x"', texts('hé\n"x"'), msgspec.UNSET, ResultKind.TEXT),
        (Annotated[str, "said"], "a", texts("a"), msgspec.UNSET, ResultKind.TEXT),
        (NewType("Name", str), "a", texts("a"), msgspec.UNSET, ResultKind.TEXT),
        (None, None, [], msgspec.UNSET, ResultKind.NONE),
        (type(None), None, [], msgspec.UNSET, ResultKind.NONE),
        (Never, None, [], msgspec.UNSET, ResultKind.NONE),
        (int, 3, texts("3"), {"result": 3}, ResultKind.WRAPPED),
        (int, 2**70, texts(str(2**70)), {"result": 2**70}, ResultKind.WRAPPED),
        (float, 1.5, texts("1.5"), {"result": 1.5}, ResultKind.WRAPPED),
        (float, 2, texts("2"), {"result": 2}, ResultKind.WRAPPED),
        (bool, True, texts("true"), {"result": True}, ResultKind.WRAPPED),
        (list[str], ["a"], texts('["a"]'), {"result": ["a"]}, ResultKind.WRAPPED),
        (list, [], texts("[]"), {"result": []}, ResultKind.WRAPPED),
        (Literal["a"], "a", texts("a"), {"result": "a"}, ResultKind.WRAPPED),
        (Colour, Colour.RED, texts("red"), {"result": "red"}, ResultKind.WRAPPED),
        (str | int, "a", texts("a"), {"result": "a"}, ResultKind.WRAPPED),
        (str | None, None, texts("null"), {"result": None}, ResultKind.WRAPPED),
        (
            dt.date,
            dt.date(2026, 7, 28),
            texts("2026-07-28"),
            {"result": "2026-07-28"},
            ResultKind.WRAPPED,
        ),
        (pathlib.Path, pathlib.Path("a/b"), texts("a/b"), {"result": "a/b"}, ResultKind.WRAPPED),
        (Pair, Pair(1, "b"), texts('[1,"b"]'), {"result": [1, "b"]}, ResultKind.WRAPPED),
        (
            Point | None,
            Point(1),
            texts('{"x":1,"y":0.0}'),
            {"result": {"x": 1, "y": 0.0}},
            ResultKind.WRAPPED,
        ),
        (Point, Point(1), texts('{"x":1,"y":0.0}'), {"x": 1, "y": 0.0}, ResultKind.OBJECT),
        (
            Place,
            Place("h", Point(1)),
            texts('{"name":"h","point":{"x":1,"y":0.0}}'),
            {"name": "h", "point": {"x": 1, "y": 0.0}},
            ResultKind.OBJECT,
        ),
        (Movie, {"title": "t"}, texts('{"title":"t"}'), {"title": "t"}, ResultKind.OBJECT),
        (dict[str, int], {"a": 1}, texts('{"a":1}'), {"a": 1}, ResultKind.OBJECT),
        (Model, Model(n=1), texts('{"n":1}'), {"n": 1}, ResultKind.OBJECT),
        (Model, {"n": 1}, texts('{"n":1}'), {"n": 1}, ResultKind.OBJECT),
        (list[Model], [Model(n=1)], texts('[{"n":1}]'), {"result": [{"n": 1}]}, ResultKind.WRAPPED),
        (Text, Text("a"), texts("a"), msgspec.UNSET, ResultKind.BLOCKS),
        (Image | None, None, [], msgspec.UNSET, ResultKind.BLOCKS),
        (str | Text, "a", texts("a"), msgspec.UNSET, ResultKind.BLOCKS),
        (list[Text | str], ["a", "b"], texts("a", "b"), msgspec.UNSET, ResultKind.BLOCKS),
        (list[Block], [], [], msgspec.UNSET, ResultKind.BLOCKS),
        (Sequence[Text], (Text("a"),), texts("a"), msgspec.UNSET, ResultKind.BLOCKS),
        (tuple[str, Text], ("a", Text("b")), texts("a", "b"), msgspec.UNSET, ResultKind.BLOCKS),
        (Any, None, [], msgspec.UNSET, ResultKind.DYNAMIC),
        (Any, "a", texts("a"), msgspec.UNSET, ResultKind.DYNAMIC),
        (object, 3, texts("3"), msgspec.UNSET, ResultKind.DYNAMIC),
        (msgspec.UNSET, ["a"], texts('["a"]'), msgspec.UNSET, ResultKind.DYNAMIC),
        (msgspec.UNSET, {"a": 1}, texts('{"a":1}'), {"a": 1}, ResultKind.DYNAMIC),
        (msgspec.UNSET, Point(1), texts('{"x":1,"y":0.0}'), {"x": 1, "y": 0.0}, ResultKind.DYNAMIC),
        (msgspec.UNSET, Model(n=1), texts('{"n":1}'), {"n": 1}, ResultKind.DYNAMIC),
        (
            msgspec.UNSET,
            ["a", Text("b"), 3, dt.date(2026, 1, 1), [None]],
            texts("a", "b", "3", "2026-01-01", "[null]"),
            msgspec.UNSET,
            ResultKind.DYNAMIC,
        ),
        # A value that is not what a schema-less annotation says goes by its run-time type.
        (str, 3, texts("3"), msgspec.UNSET, ResultKind.TEXT),
        (str, None, [], msgspec.UNSET, ResultKind.TEXT),
        (None, {"a": 1}, texts('{"a":1}'), msgspec.UNSET, ResultKind.NONE),
    ],
)
def test_rules(annotation: Any, value: Any, content: Any, structured: Any, kind: Any) -> None:
    made = plan(annotation)
    assert made.kind is kind
    assert (made.output_schema is not None) == (kind in (ResultKind.WRAPPED, ResultKind.OBJECT))
    assert made.wrapped == (kind is ResultKind.WRAPPED)
    assert encode(value, annotation) == (content, structured)


def test_structured_option() -> None:
    assert encode("a", str, structured=True) == (texts("a"), {"result": "a"})
    assert encode(None, None, structured=True) == (texts("null"), {"result": None})
    assert encode(3, int, structured=False) == (texts("3"), msgspec.UNSET)
    assert encode({"a": 1}, structured=False) == (texts('{"a":1}'), msgspec.UNSET)
    assert encode(Point(1), Point, structured=False)[1] is msgspec.UNSET
    assert plan(int, structured=False).output_schema is None
    with raises(SignatureError):
        plan(structured=True)
    with raises(SignatureError):
        plan(list[Image], structured=True)


def test_exact_bytes_to_splice() -> None:
    assert plan(str).encode("a") == (b'[{"type":"text","text":"a"}]', None, False, None)
    assert plan(str).encode("a")[0] == TEXT_HEAD + b'"a"' + TEXT_TAIL
    assert plan(None).encode(None)[0] == EMPTY_CONTENT
    assert plan(int).encode(3) == (
        b'[{"type":"text","text":"3"}]',
        b'{"result":3}',
        False,
        None,
    )
    assert plan(dict[str, str]).encode({"a": '"'})[:2] == (
        b'[{"type":"text","text":"{\\"a\\":\\"\\\\\\"\\"}"}]',
        b'{"a":"\\""}',
    )


def test_types_that_only_pydantic_knows() -> None:
    @dataclass
    class Left:
        x: int

    @dataclass
    class Right:
        y: int

    tp = int | Left | Right
    assert encode(Right(1), tp) == (texts('{"y":1}'), {"result": {"y": 1}})
    assert encode(Right(1), tp, structured=False) == (texts('{"y":1}'), msgspec.UNSET)
    assert encode(1j, complex, structured=False) == (texts("1j"), msgspec.UNSET)
    with raises(ResultError):
        plan(tp).encode("x")


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tp", [bytes, bytearray, bytes | None, Annotated[bytes, "x"], memoryview])
def test_bytes_annotations_are_refused(tp: Any) -> None:
    with raises(SignatureError):
        plan(tp)


@pytest.mark.parametrize("value", [b"a", bytearray(b"a"), memoryview(b"a"), [Text("a"), b"b"]])
def test_bytes_values_are_refused(value: Any) -> None:
    with raises(ResultError):
        plan().encode(value)


def test_bytes_inside_objects_are_base64() -> None:
    class Blob(msgspec.Struct):
        data: bytes

    structured = encode(Blob(b"ab"), Blob)[1]
    assert structured == {"data": base64.b64encode(b"ab").decode()}


def test_annotation_without_a_json_form_is_refused() -> None:
    for options in (None, False):
        with raises(SignatureError):
            plan(Opaque, structured=options)


@every(
    ("annotation", "value"),
    [
        (str, "a\ud800b"),
        (msgspec.UNSET, "a\ud800b"),
        (msgspec.UNSET, {"a\ud800b": 1}),
        (list[str], ["a\ud800b"]),
        (Text, Text("a\ud800b")),
        (msgspec.UNSET, [Text("x"), "a\ud800b"]),
        (msgspec.UNSET, ToolResult(content="a\ud800b")),
        (msgspec.UNSET, ToolResult(structured_content={"k": "a\ud800b"})),
        (msgspec.UNSET, ToolResult(meta={"k": "a\ud800b"})),
    ],
)
def test_lone_surrogates_are_a_clean_error(annotation: Any, value: Any) -> None:
    with raises(ResultError) as info:
        plan(annotation).encode(value)
    str(info.value).encode()


def test_error_content_never_fails() -> None:
    assert json.loads(error_content("bad \ud800 \n é")) == texts("bad \\ud800 \n é")


@every("annotation", [msgspec.UNSET, str, dict[str, Any], list[str], None])
def test_a_forgotten_await_is_said(annotation: Any) -> None:
    async def fetch() -> str:
        return "never"

    for value in (fetch(), {"a": fetch()}):
        with pytest.raises(ResultError, match=r"the coroutine \S*fetch\(\) has no JSON form"):
            plan_result(annotation, "result").encode(value)


def test_values_without_a_json_form() -> None:
    with raises(ResultError):
        plan().encode([Opaque()])
    with raises(ResultError):
        plan().encode({(1, 2): 3})
    loop: list[Any] = []
    loop.append(loop)
    with raises(ResultError):
        plan().encode(loop)

    async def later() -> None: ...

    coroutine = later()
    with raises(ResultError):
        plan().encode(coroutine)
    coroutine.close()


@every(
    ("annotation", "value", "reason"),
    [
        (int, "x", "result: Expected `int`, got `str`"),
        (int, True, "result: Expected `int`, got `bool`"),
        (list[int], [1, "x"], "result '[1]': Expected `int`, got `str`"),
        (Point, {"x": "a"}, "result 'x': Expected `int`, got `str`"),
        (Point, {}, "missing required field 'x'"),
        (Movie, {}, "missing required field 'title'"),
        (dict[str, int], [1], "result: Expected `object`, got `array`"),
        (Literal["a"], "b", "Invalid enum value 'b'"),
        (Model, {"n": "x"}, None),
    ],
)
def test_values_that_break_the_output_schema(annotation: Any, value: Any, reason: Any) -> None:
    with pytest.raises(ResultError) as info:
        plan(annotation).encode(value)
    if reason is None:
        assert str(info.value).endswith("fit the tool's return annotation: it is a dict")
    else:
        assert str(info.value).startswith("the result does not fit the tool's return annotation: ")
        assert str(info.value).endswith(reason)


class Measured(msgspec.Struct):
    value: float


@dataclass
class Pair:
    values: list[float | None]


@every(
    ("annotation", "value", "found"),
    [
        (msgspec.UNSET, {"a": math.nan, "b": None}, "NaN at a"),
        (msgspec.UNSET, -math.inf, "-Infinity"),
        (msgspec.UNSET, [1, {"b": [math.inf]}], "Infinity at [1].b[0]"),
        (msgspec.UNSET, Measured(math.nan), "NaN at value"),
        (msgspec.UNSET, {"big": 2**70, "a": math.nan}, "NaN at a"),
        (msgspec.UNSET, {"raw": orjson.Fragment(b"null"), "a": [math.nan]}, "NaN at a[0]"),
        (msgspec.UNSET, ToolResult(structured_content={"a": math.nan}), "NaN at a"),
        (msgspec.UNSET, ToolResult(content="x", meta={"a": math.nan}), "NaN at a"),
        (msgspec.UNSET, ["x", Text("y"), {"a": math.nan}], "NaN at a"),
        (dict, {"mean": math.nan}, "NaN at mean"),
        (float, math.nan, "NaN"),
        (float | None, math.nan, "NaN"),
        (dict[str, float], {"a": math.inf}, "Infinity at a"),
        (Pair, Pair([None, math.nan]), "NaN at values[1]"),
    ],
)
def test_nan_is_an_error_that_names_its_place(annotation: Any, value: Any, found: str) -> None:
    with pytest.raises(ResultError) as info:
        plan(annotation).encode(value)
    assert str(info.value) == f"the result holds {found}: JSON has no NaN and no Infinity"


@pytest.mark.parametrize(
    "value", [{"a": None}, {"a": "\u00cb\x7f\u00ff", "b": None}, [None, 2**70]]
)
def test_null_alone_is_no_error(value: Any) -> None:
    plan(msgspec.UNSET).encode(value)


def test_pydantic_values_in_untyped_results() -> None:
    value = {"secret": pydantic.SecretStr("x"), "model": Model(n=1)}
    assert encode(value)[1] == {"secret": "**********", "model": {"n": 1}}


def test_nan_in_a_model_is_an_error() -> None:
    class Loose(pydantic.BaseModel, ser_json_inf_nan="constants"):
        f: float

    with raises(ResultError):
        encode(Loose(f=math.nan))


def test_classes_with_validating_code_are_checked_by_class_only() -> None:
    runs = []

    @dataclass
    class Checked:
        n: int

        def __post_init__(self) -> None:
            runs.append(self.n)

    assert encode(Checked(1), Checked)[1] == {"n": 1}
    assert runs == [1]
    with raises(ResultError):
        plan(Checked).encode({"n": 1})

    class Holder(TypedDict):
        it: Checked

    globals()["Checked"] = Checked
    assert encode({"it": Checked(1)}, Holder)[1] == {"it": {"n": 1}}
    with raises(ResultError):
        plan(Holder).encode([])
    with raises(ResultError):
        plan(dict[str, Checked]).encode([Checked(1)])
    del globals()["Checked"]


def test_code_of_the_author_that_fails_while_encoding() -> None:
    class Bad(pydantic.BaseModel):
        n: int

        @pydantic.computed_field
        def boom(self) -> int:
            raise LookupError("gone")

    with raises(ResultError):
        plan(Bad).encode(Bad(n=1))


# -- ToolResult -----------------------------------------------------------------------------------


def test_tool_result() -> None:
    full = ToolResult(
        content=["a", PNG], structured_content={"k": None}, is_error=True, meta={"m": 1}
    )
    content, structured, is_error, meta = plan().encode(full)
    assert [block["type"] for block in json.loads(content)] == ["text", "image"]
    assert (structured, is_error, meta) == (b'{"k":null}', True, b'{"m":1}')
    assert plan().encode(ToolResult()) == (b"[]", None, False, None)
    assert encode(ToolResult(content="a"), ToolResult) == (texts("a"), msgspec.UNSET)
    assert encode(ToolResult(content=Text("a")))[0] == texts("a")
    assert encode(ToolResult(content=[])) == ([], msgspec.UNSET)
    assert encode(ToolResult(structured_content={"a": 1})) == (texts('{"a":1}'), {"a": 1})


def test_tool_result_without_an_object() -> None:
    for value in ([1], None, 3):
        result = ToolResult(structured_content=value)
        text = texts(json.dumps(value))
        assert encode(result, msgspec.UNSET, "2026-07-28") == (text, value)
        assert encode(result, msgspec.UNSET, "2025-11-25") == (text, msgspec.UNSET)
    with raises(ResultError):
        plan().encode(ToolResult(meta=[]))


def test_tool_result_of_a_tool_with_an_output_schema() -> None:
    made = plan(int)
    with raises(ResultError):
        made.encode(ToolResult(content="3"))
    with raises(ResultError):
        made.encode(ToolResult(structured_content={"result": "x"}))
    good = ToolResult(content="three", structured_content={"result": 3})
    assert made.encode(good)[:2] == (b'[{"type":"text","text":"three"}]', b'{"result":3}')
    failed = made.encode(ToolResult(content="no", is_error=True))
    assert failed == (b'[{"type":"text","text":"no"}]', None, True, None)
    with pytest.raises(ResultError, match="missing required field 'x'"):
        plan(Point).encode(ToolResult(structured_content={}))


# -- revisions ------------------------------------------------------------------------------------


def test_newer_blocks_become_text_for_older_peers() -> None:
    value = [WAV, LINK, PNG]

    def kinds(revision: str) -> list[str]:
        return [block["type"] for block in encode(value, msgspec.UNSET, revision)[0]]

    assert kinds("2024-11-05") == ["text", "text", "image"]
    assert kinds("2025-03-26") == ["audio", "text", "image"]
    assert kinds("2025-06-18") == ["audio", "resource_link", "image"]
    assert PNG.describe() == "[Image]"
    old = encode(value, msgspec.UNSET, "2024-11-05")[0]
    assert old[:2] == texts("[audio: audio/wav, 4 bytes]", "[resource: a] file:///a")


@pytest.mark.parametrize("annotation", [dict[str, int], msgspec.UNSET])
def test_structured_content_from_2025_06_18(annotation: Any) -> None:
    for revision in ("2024-11-05", "2025-03-26"):
        assert encode({"a": 1}, annotation, revision) == (texts('{"a":1}'), msgspec.UNSET)
    assert encode({"a": 1}, annotation, "2025-06-18")[1] == {"a": 1}
    old = encode(ToolResult(structured_content={"a": 1}), msgspec.UNSET, "2025-03-26")
    assert old == (texts('{"a":1}'), msgspec.UNSET)


@every(
    ("value", "shown"),
    [
        ({"n": 1 << 64, "m": -(1 << 70)}, '{"n":18446744073709551616,"m":-1180591620717411303424}'),
        ({"n": (1 << 64) - 1, "m": -(1 << 63)}, None),
        ({"z": -0.0, "f": 5e-324, "e": 1e300}, None),
        ({1: "one"}, '{"1":"one"}'),
        ({"at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)}, '{"at":"2026-01-02T00:00:00Z"}'),
        ({"in": [Point(1, 2)]}, '{"in":[{"x":1,"y":2}]}'),
        ({"raw": orjson.Fragment(b'{"a": 1}')}, '{"raw":{"a": 1}}'),
        ([orjson.Fragment(b"[1,\n2]")], "[[1, 2]]"),
    ],
)
def test_values_without_a_declared_type(value: Any, shown: str | None) -> None:
    (block,), _ = encode(value)
    if shown is None:
        assert repr(json.loads(block["text"])) == repr(value)
    else:
        assert block["text"] == shown


def test_a_fragment_cannot_end_the_line() -> None:
    with raises(ResultError):
        encode([orjson.Fragment(b'1]}\n{"jsonrpc":"2.0"}')])


# -- properties -----------------------------------------------------------------------------------

_keys = st.text(st.characters(codec="utf-8"), max_size=5)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(_keys, inner),
    max_leaves=8,
)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(value: str) -> None:
    assert encode(value, str) == (texts(value), msgspec.UNSET)


@given(_json)
def test_any_json_value_comes_back(value: Any) -> None:
    (block,), structured = encode([value], list)
    assert json.loads(block["text"]) == [value]
    assert structured == {"result": [value]}


@given(st.dictionaries(_keys, _json))
def test_any_object_comes_back(value: dict[str, Any]) -> None:
    (block,), structured = encode(value, dict[str, Any])
    assert json.loads(block["text"]) == value == structured
