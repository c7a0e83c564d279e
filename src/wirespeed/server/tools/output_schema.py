"""Output schemas: how they are made from return annotations, and how results are checked by them.

`Output` is made when a tool is registered. `Output.check_class`, `Output.check_value` and
`Output.check_content` are called with each result (`wirespeed.server.tools.results`). An output
schema that is given to `Server.tool_raw` is announced, not checked.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from wirespeed.protocol.results import WRAP_MARKER
from wirespeed.schema.json_schema import (
    DEFS,
    build_schemas,
    describe_validation_error,
    may_keep,
    prepare_type,
)
from wirespeed.schema.python_types import adapter_of, dec_hook, is_model, is_path

# Found out before, as in `wirespeed.schema.json_schema`.
_outputs: dict[tuple[Any, str], Output] = {}


class ResultError(ValueError):
    """A tool returned what cannot be sent; the text is fit for the caller (``isError``)."""


class Output:
    """What a return annotation promises.

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
