"""Results of tools: from a return value to ``content`` and ``structuredContent``, and its schema.

The rules, return annotation -> result (MCP server/tools, "Tool Result"):

================================  ====================  =========================  ================
annotation                        ``content``           ``structuredContent``      ``outputSchema``
================================  ====================  =========================  ================
``str``                           the text              none                       none
``None``                          empty                 none                       none
content classes, lists of them    the blocks            none                       none
`ToolResult`, `CallToolResult`    as given              as given                   none
an object: struct, dataclass,     its JSON              the object                 its schema
TypedDict, dict, pydantic model
any other type                    its JSON              ``{"result": value}``      the same, wrapped
none, or ``Any``                  by run-time type      objects only               none
================================  ====================  =========================  ================

* ``structured=True`` wraps ``str`` and ``None`` as a structured result; ``structured=False``
  takes structured content and output schema away from every type.
* "Its JSON" is compact.  A value whose JSON is a string (enum, date, UUID) is shown without quotes.
* A list that holds a content block is a list of blocks; strings in it are text blocks, anything
  else is a text block of its JSON.
* A structured result must conform to its schema, so its JSON is decoded again as the annotation
  says before it leaves (`Output`); one that does not fit is a
  `ResultError`, never a false promise.  Classes with code of their own (``__post_init__``, attrs,
  pydantic) are checked by class, or by pydantic.
* In dictionaries and lists an ``orjson.Fragment`` is JSON text that is sent as it is.
* JSON has no NaN and no Infinity: they are a `ResultError`, wherever in the result they are.
* Top-level ``bytes`` are refused: they have no media type.  Return `Image`, `Audio` or
  `EmbeddedResource`.  Inside objects ``bytes`` are base64 text.
* A lone surrogate cannot be sent as UTF-8: `ResultError`.

Availability: audio from 2025-03-26; ``structuredContent`` and resource links from 2025-06-18; a
``structuredContent`` that is not an object from 2026-07-28.  For an older peer a newer block
becomes a text block that says what it was; newer members of blocks (`wirespeed.protocol.revisions`)
and newer structured content are left out.
"""

import types
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from wirespeed._exports import set_public_home
from wirespeed.errors import SignatureError
from wirespeed.protocol.blocks import BYTES, Block, ContentBlock, Text, UnknownContent, fit_block
from wirespeed.protocol.meta import passed_on
from wirespeed.protocol.results import WRAP_MARKER, CallToolResult
from wirespeed.protocol.structs import ExplainedStruct
from wirespeed.schema.json_schema import (
    DEFS,
    build_schemas,
    describe_validation_error,
    may_keep,
    nonfinite_in,
    one_line,
    prepare_type,
)
from wirespeed.schema.python_types import adapter_of, dec_hook, enc_hook, is_model, is_path
from wirespeed.server.tools.encode import fast_json, text_content

# Found out before, as in `wirespeed.schema.json_schema`.
_outputs: dict[tuple[Any, str], "Output"] = {}


class ResultError(ValueError):
    """A tool returned what cannot be sent; the text is fit for the caller (``isError``)."""


class Output:
    """The promise of a return annotation.

    `schema` is the ``outputSchema``; `wrapped` says that values go out as ``{"result": value}``,
    which the schema tells clients by `WRAP_MARKER`.
    `dump`, if set, turns the value into what msgspec encodes; pydantic's refuses a value that does
    not fit. The checks decode JSON as the annotation says; where that would run the author's code
    (``__post_init__``, validators) a second time, a value must be of the class `cls` instead.
    """

    __slots__ = ("_decode", "_decode_content", "cls", "dump", "schema", "wrapped")

    def __init__(self, tp: Any, where: str) -> None:
        tp = prepare_type(tp, where, "serialization")
        (schema,), components = build_schemas([tp], "serialization")
        target, name = schema, None
        if "$ref" in schema:
            name = schema["$ref"][len(DEFS) :]
            target = components[name]
        self.wrapped = target.get("type") != "object"
        if self.wrapped:
            root = {
                "type": "object",
                "properties": {"result": schema},
                "required": ["result"],
                WRAP_MARKER: True,
            }
        else:
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            root = {**target, **siblings}
            if name is not None and not _refers(components, DEFS + name):
                components = {key: value for key, value in components.items() if key != name}
        if components:
            root["$defs"] = components
        self.schema: dict[str, Any] = root
        adapter = adapter_of(tp)
        self.cls = tp if isinstance(tp, type) and adapter is None else None
        if typing.is_typeddict(self.cls):
            self.cls = dict  # a TypedDict is not for isinstance
        self.dump: Callable[[Any], Any] | None = None
        if adapter is not None:
            self.dump = _adapter_dump(adapter)
        elif is_model(tp):
            self.cls, self.dump = None, _model_dump(tp)
        self._decode: Callable[[bytes], Any] | None = None
        self._decode_content: Callable[[bytes], Any] | None = None
        if not _runs_user_code(msgspec.inspect.type_info(tp), set()):
            self.cls = None
            self._decode = self._decode_content = msgspec.json.Decoder(tp, dec_hook=dec_hook).decode
            if self.wrapped:
                whole = msgspec.defstruct("Result", [("result", tp)])
                self._decode_content = msgspec.json.Decoder(whole, dec_hook=dec_hook).decode

    def check_class(self, value: Any) -> None:
        """ResultError: the value is not of the class that was promised."""
        if self.cls is not None and not isinstance(value, self.cls):
            raise _mismatch(f"expected {self.cls.__name__}, got {type(value).__name__}")

    def check_value(self, data: bytes, value: Any) -> None:
        """ResultError: a value, whose JSON *data* is, does not fit the output schema."""
        if self._decode is not None:
            _check(self._decode, data, value, "result")
        elif not self.wrapped and data[0] != 0x7B:
            raise _mismatch("not an object")

    def check_content(self, data: bytes, content: Any) -> None:
        """The same of a whole ``structuredContent``."""
        if self._decode_content is not None:
            _check(self._decode_content, data, content, "structured content")


def _check(decode: Callable[[bytes], Any], data: bytes, value: Any, what: str) -> None:
    try:
        decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise _mismatch(describe_validation_error(exc, what)) from exc


def _mismatch(reason: str) -> ResultError:
    return ResultError(f"the result does not fit the tool's return annotation: {reason}")


def output_for(tp: Any, where: str) -> Output:
    """The `Output` of a return annotation; `SignatureError` if it has no JSON form."""
    try:
        output = _outputs.get((tp, repr(tp)))
    except TypeError:  # it cannot be hashed
        return Output(tp, where)
    if output is None:
        output = Output(tp, where)
        if may_keep(tp, _outputs):
            _outputs[tp, repr(tp)] = output
    return output


def _adapter_dump(adapter: Any) -> Callable[[Any], Any]:
    return lambda value: adapter.dump_python(value, mode="json", by_alias=True, warnings="error")


def _model_dump(cls: Any) -> Callable[[Any], Any]:
    def dump(value: Any) -> Any:
        if not isinstance(value, cls):
            value = cls.model_validate(value)
        return value.model_dump(mode="json", by_alias=True, warnings="error")

    return dump


def _refers(node: Any, ref: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == ref or any(_refers(value, ref) for value in node.values())
    return isinstance(node, list) and any(_refers(item, ref) for item in node)


def _runs_user_code(info: Any, seen: set[int]) -> bool:
    """Whether decoding this type calls what its author wrote."""
    if id(info) in seen:
        return False
    seen.add(id(info))
    cls = getattr(info, "cls", None)
    if isinstance(info, msgspec.inspect.CustomType):
        return not is_path(cls)
    origin = typing.get_origin(cls) or cls
    if hasattr(origin, "__post_init__") or hasattr(origin, "__attrs_attrs__"):
        return True
    inner = [getattr(info, key, None) for key in ("type", "item_type", "key_type", "value_type")]
    inner += [field.type for field in getattr(info, "fields", ())]
    inner += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return any(_runs_user_code(part, seen) for part in inner if part is not None)


LATEST = "2026-07-28"
STRUCTURED_SINCE = "2025-06-18"
ANY_STRUCTURED_SINCE = "2026-07-28"
# Around the JSON of a string: the content of a result that is one text block.
TEXT_HEAD = b'[{"type":"text","text":'
TEXT_TAIL = b"}]"
EMPTY_CONTENT = b"[]"

# (content, structuredContent or None, isError, _meta or None): JSON, ready to be spliced.
Encoded = tuple[bytes, bytes | None, bool, bytes | None]

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode
_DYNAMIC = (dict, list)
_BLOCKS = (ContentBlock, UnknownContent)
_PLAIN = frozenset({str, int, float, bool, dict})  # known at once to be none of these


# -- results that are given whole ------------------------------------------------------------------


class ToolResult(msgspec.Struct, metaclass=ExplainedStruct, kw_only=True):
    """A whole result, for full control.

    *content* is a block, a string, or a list of both; left out, it is the JSON of
    *structured_content*.  *structured_content* is left out unless given: ``None`` is JSON's null,
    which only 2026-07-28 can carry.  *is_error* marks a failure; then no output schema applies.
    *meta* is the result's ``_meta``.
    """

    content: Block | UnknownContent | str | Sequence[Block | UnknownContent | str] | None = None
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = None


class RawResult:
    """A whole result of any tool as JSON text (UTF-8): one object, in 2026-07-28 with its
    ``resultType``. It is checked and sent as it is, but for newlines, which become spaces."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


# -- encoding -------------------------------------------------------------------------------------


_WHOLE = (ToolResult, CallToolResult)


def _failure(exc: BaseException, value: Any) -> ResultError:
    if isinstance(exc, UnicodeEncodeError):
        code = ord(exc.object[exc.start])
        return ResultError(f"the result holds a lone surrogate (U+{code:04X}): not valid text")
    if isinstance(exc, RecursionError):
        return ResultError("the result is nested too deeply, or contains itself")
    problems = getattr(exc, "errors", None)
    if problems is not None and type(exc).__module__.startswith("pydantic"):
        kind = type(value).__name__
        return ResultError(f"the result does not fit the tool's return annotation: it is a {kind}")
    return ResultError(
        f"the result cannot be sent as JSON: {one_line(str(exc))}; "
        "return JSON values, dataclasses or content"
    )


def _dumps(value: Any, dump: Callable[[Any], Any] | None = None) -> bytes:
    try:
        if dump is not None:
            value = dump(value)
        data = fast_json(value) if type(value) in _DYNAMIC else None
        if data is None:
            data = _encode(value)
    except Exception as exc:  # the author's classes may raise anything when they are read
        raise _failure(exc, value) from exc
    if data.find(b"null") >= 0:  # `in` takes twice as long
        check_finite(value)
    return data


def check_finite(value: Any) -> None:
    """ResultError: a value whose JSON has a null holds a number that is not finite."""
    if found := nonfinite_in(value):
        raise ResultError(f"the result holds {found}: JSON has no NaN and no Infinity")


def to_json(value: Any) -> bytes:
    """Anything as JSON; `ResultError` for what has no JSON form."""
    return _dumps(value)


def error_content(message: str) -> bytes:
    """The ``content`` of an ``isError`` result with this text; never fails."""
    text = message.encode("utf-8", "backslashreplace").decode()
    return b"%b%b%b" % (TEXT_HEAD, _encode(text), TEXT_TAIL)


def as_block(item: Any, revision: str) -> ContentBlock:
    """Anything as a content block as this revision has it: strings and JSON are text."""
    if type(item) is Text and item.annotations is None and item.meta is None:
        return item  # the commonest, which all revisions have
    if isinstance(item, _BLOCKS):
        return fit_block(item, revision)
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, BYTES):
        raise _bytes_error()
    data = _dumps(item)
    return Text(msgspec.json.decode(data) if data[0] == 0x22 else data.decode())


def _blocks(items: Iterable[Any], revision: str) -> bytes:
    return _dumps([as_block(item, revision) for item in items])


def _bytes_error() -> ResultError:
    return ResultError(
        "the tool returned bytes, which have no media type: return Image, Audio or EmbeddedResource"
    )


def _encode_whole(
    result: ToolResult | CallToolResult, revision: str, plan: "ResultPlan"
) -> Encoded:
    structured: bytes | None = None
    given = result.meta
    if isinstance(result, CallToolResult):
        given = passed_on(given)
    if result.structured_content is not UNSET:
        structured = _dumps(result.structured_content)
    output = plan.output
    if output is not None and not result.is_error:
        if structured is None:
            raise ResultError("the tool has an output schema, but its result is not structured")
        output.check_content(structured, result.structured_content)
    content = result.content
    if content is None:
        encoded = EMPTY_CONTENT if structured is None else text_content(structured)
    elif isinstance(content, (str, *_BLOCKS)):
        encoded = _blocks((content,), revision)
    else:
        encoded = _blocks(content, revision)
    if structured is not None:
        since = STRUCTURED_SINCE if structured[0] == 0x7B else ANY_STRUCTURED_SINCE
        if revision < since:
            structured = None
    meta = None if given is None else _dumps(given)
    if meta is not None and meta[0] != 0x7B:
        raise ResultError(f"meta is an object, not {type(result.meta).__name__}")
    return encoded, structured, bool(result.is_error), meta


# -- plans ----------------------------------------------------------------------------------------


class ResultKind(IntEnum):
    """The kinds of return annotations: the rows of the table above."""

    DYNAMIC = 0
    TEXT = 1
    NONE = 2
    BLOCKS = 3
    WRAPPED = 4
    OBJECT = 5


class ResultPlan:
    """The encoding of one tool's results; made once, when the tool is registered.

    ``encode(value, revision=LATEST)`` returns an `Encoded` tuple or raises `ResultError`.  It is an
    attribute, not a method: the caller may keep it.  A caller that wants no call at all for the
    commonest case tests ``kind == ResultKind.TEXT and type(value) is str`` and writes `TEXT_HEAD`,
    the JSON of the string and `TEXT_TAIL`.
    """

    __slots__ = ("dump", "encode", "kind", "output")

    def __init__(
        self,
        kind: ResultKind,
        output: Output | None = None,
        dump: Callable[[Any], Any] | None = None,
    ) -> None:
        self.kind = kind
        self.output = output
        self.dump = dump  # for text only: how pydantic turns the value into JSON's types
        self.encode: Callable[..., Encoded] = _ENCODERS[kind](self)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The tool's ``outputSchema``."""
        return None if self.output is None else self.output.schema

    @property
    def wrapped(self) -> bool:
        """Whether values go out as ``{"result": value}``."""
        return self.output is not None and self.output.wrapped


def _dynamic_encoder(plan: ResultPlan) -> Callable[..., Encoded]:
    dump = plan.dump

    def encode(value: Any, revision: str = LATEST) -> Encoded:
        if value is None:
            return EMPTY_CONTENT, None, False, None
        if type(value) not in _PLAIN:
            if isinstance(value, _WHOLE):
                return _encode_whole(value, revision, plan)
            if isinstance(value, _BLOCKS):
                return _blocks((value,), revision), None, False, None
            if isinstance(value, (list, tuple)) and any(
                type(item) not in _PLAIN and isinstance(item, _BLOCKS) for item in value
            ):
                return _blocks(value, revision), None, False, None
            if isinstance(value, BYTES):
                raise _bytes_error()
        data = _dumps(value, dump)
        structured = data if data[0] == 0x7B and plan.kind is ResultKind.DYNAMIC else None
        if revision < STRUCTURED_SINCE:
            structured = None
        return text_content(data), structured, False, None

    return encode


def _text_encoder(plan: ResultPlan) -> Callable[..., Encoded]:
    dynamic = _dynamic_encoder(plan)
    dumps, head, tail = _encode, TEXT_HEAD, TEXT_TAIL

    def encode(value: Any, revision: str = LATEST) -> Encoded:
        if type(value) is not str:
            return dynamic(value, revision)
        try:
            return head + dumps(value) + tail, None, False, None
        except UnicodeEncodeError as exc:
            raise _failure(exc, value) from exc

    return encode


def _blocks_encoder(plan: ResultPlan) -> Callable[..., Encoded]:
    dynamic = _dynamic_encoder(plan)

    def encode(value: Any, revision: str = LATEST) -> Encoded:
        if isinstance(value, (list, tuple)):
            return _blocks(value, revision), None, False, None
        return dynamic(value, revision)

    return encode


def _structured_encoder(plan: ResultPlan) -> Callable[..., Encoded]:
    output = plan.output
    assert output is not None
    check_class = None if output.cls is None else output.check_class
    check_value, dump, wrapped = output.check_value, output.dump, output.wrapped

    def encode(value: Any, revision: str = LATEST) -> Encoded:
        kind = type(value)
        if kind is ToolResult or kind is CallToolResult:
            return _encode_whole(value, revision, plan)
        if check_class is not None:
            check_class(value)
        data = _dumps(value, dump)
        check_value(data, value)
        content = text_content(data)
        if revision < STRUCTURED_SINCE:
            return content, None, False, None
        return content, b'{"result":%b}' % data if wrapped else data, False, None

    return encode


_ENCODERS: dict[ResultKind, Callable[[ResultPlan], Callable[..., Encoded]]] = {
    ResultKind.DYNAMIC: _dynamic_encoder,
    ResultKind.TEXT: _text_encoder,
    ResultKind.NONE: _dynamic_encoder,
    ResultKind.BLOCKS: _blocks_encoder,
    ResultKind.WRAPPED: _structured_encoder,
    ResultKind.OBJECT: _structured_encoder,
}


def _bare(tp: Any) -> Any:
    """The type under `Annotated` and `NewType`."""
    while True:
        if typing.get_origin(tp) is Annotated:
            tp = tp.__origin__
        elif hasattr(tp, "__supertype__"):
            tp = tp.__supertype__
        else:
            return tp


def _members(tp: Any) -> Iterable[Any]:
    """The type, or if it is a union, its members, bare."""
    tp = _bare(tp)
    if typing.get_origin(tp) in (typing.Union, types.UnionType):
        for member in typing.get_args(tp):
            yield from _members(member)
    else:
        yield tp


def _holds_blocks(tp: Any) -> bool:
    for member in _members(tp):
        if isinstance(member, type) and issubclass(member, (*_BLOCKS, *_WHOLE)):
            return True
        origin = typing.get_origin(member)
        if (
            isinstance(origin, type)
            and issubclass(origin, Sequence)
            and any(_holds_blocks(arg) for arg in typing.get_args(member) if arg is not ...)
        ):
            return True
    return False


def plan_result(annotation: Any, where: str, structured: bool | None = None) -> ResultPlan:
    """The plan for a return annotation (`msgspec.UNSET`: none); *where* begins an error's text.

    *structured*: see the module's rules.  `SignatureError` for a type that cannot be sent.
    """
    if annotation in (typing.NoReturn, typing.Never):
        annotation = None
    bare = _bare(annotation)
    if bare is UNSET or bare is Any or bare is object:
        if structured:
            raise SignatureError(f"{where}: structured=True needs a return annotation")
        kind = ResultKind.DYNAMIC if structured is None else ResultKind.TEXT
        return ResultPlan(kind, None)
    if _holds_blocks(annotation):
        if structured:
            raise SignatureError(f"{where}: content blocks have no structured form")
        return ResultPlan(ResultKind.BLOCKS, None)
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BYTES):
            raise SignatureError(
                f"{where}: bytes have no media type: return Image, Audio or EmbeddedResource"
            )
    if not structured:
        if bare is str:
            return ResultPlan(ResultKind.TEXT, None)
        if bare is None or bare is type(None):
            return ResultPlan(ResultKind.NONE, None)
    output = output_for(annotation, where)  # where unused, too: no type without JSON
    if structured is False:
        return ResultPlan(ResultKind.TEXT, dump=output.dump)
    return ResultPlan(ResultKind.WRAPPED if output.wrapped else ResultKind.OBJECT, output)


set_public_home(globals())
