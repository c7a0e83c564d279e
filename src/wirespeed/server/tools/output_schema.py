"""Return annotations as output schemas; `wirespeed.server.tools.results` checks results by them."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from wirespeed.schema.json_schema import (
    DEFS,
    adapter_of,
    build_schemas,
    dec_hook,
    is_model,
    is_path,
    may_keep,
    prepare_type,
)

# Found out before, as in `wirespeed.schema.json_schema`.
_outputs: dict[tuple[Any, str], Output] = {}


class Output:
    """What a return annotation promises.

    `schema` is the ``outputSchema``; `wrapped` says that values go out as ``{"result": value}``.
    `check` and `check_whole` raise `msgspec.ValidationError` for JSON of a value, or of the whole
    structured content, that breaks the promise; None where a check would run the author's code
    (``__post_init__``, validators) a second time.  Then `cls`, if set, is the class that a value
    must be of.  `dump`, if set, turns the value into what msgspec encodes; pydantic's refuses a
    value that does not fit.
    """

    __slots__ = ("check", "check_whole", "cls", "dump", "schema", "wrapped")

    def __init__(self, tp: Any, where: str) -> None:
        tp = prepare_type(tp, where, "serialization")
        (schema,), components = build_schemas([tp], "serialization")
        target, name = schema, None
        if "$ref" in schema:
            name = schema["$ref"][len(DEFS) :]
            target = components[name]
        self.wrapped = target.get("type") != "object"
        if self.wrapped:
            root = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
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
        self.check: Callable[[bytes], Any] | None = None
        self.check_whole: Callable[[bytes], Any] | None = None
        if not _runs_user_code(msgspec.inspect.type_info(tp), set()):
            self.cls = None
            self.check = self.check_whole = msgspec.json.Decoder(tp, dec_hook=dec_hook).decode
            if self.wrapped:
                whole = msgspec.defstruct("Result", [("result", tp)])
                self.check_whole = msgspec.json.Decoder(whole, dec_hook=dec_hook).decode


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
