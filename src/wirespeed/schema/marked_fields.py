"""Fields of classes that are marked with `HeaderParam`: their place in the schema of a tool.

The keyword ``x-mcp-header`` counts where ``properties`` alone lead to it from the root, and never
behind a ``$ref`` (2026-07-28 basic/transports/streamable-http, "Schema Extension"). msgspec and
pydantic describe a class in ``$defs`` and ignore the mark. So the description of a class with marks
is copied to the property of that class, and the marks are written into the copy.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Union

import msgspec

from wirespeed.errors import SignatureError
from wirespeed.schema.json_schema import DEFS
from wirespeed.schema.python_types import HeaderParam, adapter_of, note_of

# A part of a TypedDict's field, of the same type as the field.
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly"}


def place_marks(schema: dict[str, Any], arguments: Iterable[tuple[str, Any]], label: str) -> None:
    """Write the marks of fields into a tool's input schema, whose *arguments* are pairs of a name
    and a prepared type. SignatureError, beginning with *label*: header fields do not reach a marked
    field."""
    inputs = _Inputs(schema, label)
    for name, tp in arguments:
        schema["properties"][name] = inputs.placed(tp, schema["properties"][name], (name,), ())
    inputs.drop_unused()


class _Inputs:
    """The schema of a tool's arguments."""

    def __init__(self, schema: dict[str, Any], label: str) -> None:
        self.schema = schema
        self.definitions: dict[str, Any] = schema.get("$defs", {})
        self.label = label
        self.copied: list[str] = []  # names of definitions, each before those in it

    def placed(
        self, tp: Any, node: dict[str, Any], path: tuple[str, ...], around: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return the schema of a property with the marks in its type. ``around``: the classes that
        the property is in."""
        tp = _bare(tp)
        mark = next(_marks(tp, []), None)
        if mark is None:
            return node
        fields = _fields(tp)
        if fields is None:
            raise self.refusal(path, mark, f"is inside of {_name(tp)}")
        if tp in around:
            raise self.refusal(path, mark, f"is in {_name(tp)}, which refers to itself")
        name = node.get("$ref", "").removeprefix(DEFS)
        if name:
            self.copied.append(name)
            node = {**self.definitions[name], **node}
            del node["$ref"]
        properties = dict(node.get("properties", ()))
        for wire, each in fields:
            mark = next(_marks(each, []), None)
            if mark is None:
                continue
            if wire not in properties:
                raise self.refusal((*path, wire), mark, f"is in {_name(tp)}, which is no object")
            properties[wire] = self.field(each, properties[wire], (*path, wire), (*around, tp))
        return {**node, "properties": properties}

    def field(
        self, tp: Any, node: dict[str, Any], path: tuple[str, ...], around: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return the schema of a field of a class, with its own marks and those in its type."""
        bare = _bare(tp)
        node = self.placed(bare, node, path, around)
        for mark in _own_marks(tp):
            node = {**node, **(note_of(mark, bare).extra_json_schema or {})}
        return node

    def refusal(self, path: tuple[str, ...], mark: HeaderParam, why: str) -> SignatureError:
        return SignatureError(
            f"{self.label}: parameter '{'.'.join(path)}': HeaderParam({mark.name!r}) {why}; header "
            "fields repeat arguments, and fields of objects in arguments: not what is in a list, "
            "a mapping, a union or an array"
        )

    def drop_unused(self) -> None:
        """Remove the definitions that were copied to their only places."""
        for name in self.copied:
            if (kept := self.definitions.pop(name, None)) is None:
                continue
            quoted = msgspec.json.encode(DEFS + name)
            if quoted in msgspec.json.encode(self.schema):
                self.definitions[name] = kept
        if self.copied and not self.definitions:
            del self.schema["$defs"]


# -- types -----------------------------------------------------------------------------------------


def _bare(tp: Any) -> Any:
    """Return a type without what is said of it, and without other names for it."""
    while True:
        origin = typing.get_origin(tp)
        if origin is Annotated:
            tp = tp.__origin__
        elif getattr(origin, "_name", None) in _QUALIFIERS:
            (tp,) = typing.get_args(tp)
        elif hasattr(tp, "__supertype__"):  # NewType
            tp = tp.__supertype__
        elif type(tp).__name__ == "TypeAliasType":
            tp = tp.__value__
        elif adapter_of(tp) is not None:
            tp = tp.described
        else:
            return tp


def _own_marks(tp: Any) -> Iterator[HeaderParam]:
    """The marks on a type itself."""
    while (inner := _inner(tp)) is not None:
        yield from (m for m in getattr(tp, "__metadata__", ()) if isinstance(m, HeaderParam))
        tp = inner


def _inner(tp: Any) -> Any:
    if typing.get_origin(tp) is Annotated:
        return tp.__origin__
    if getattr(typing.get_origin(tp), "_name", None) in _QUALIFIERS:
        return typing.get_args(tp)[0]
    return None


def _marks(tp: Any, seen: list[Any]) -> Iterator[HeaderParam]:
    """The marks on a type and inside of it, however deep."""
    yield from _own_marks(tp)
    tp = _bare(tp)
    if tp in seen:
        return
    seen.append(tp)
    fields = _fields(tp)
    if fields is None and typing.get_origin(tp) is not Literal:
        fields = [("", each) for each in typing.get_args(tp)]
    for _, each in fields or ():
        yield from _marks(each, seen)


def _fields(tp: Any) -> list[tuple[str, Any]] | None:
    """Return the names in JSON and the types of a class's fields; None for another type."""
    cls = typing.get_origin(tp) or tp
    if not isinstance(cls, type):
        return None
    known = getattr(cls, "__pydantic_fields__", None)
    if known is not None:
        return [(_alias(name, field), _annotated(field)) for name, field in known.items()]
    if issubclass(cls, msgspec.Struct):
        return [(field.encode_name, field.type) for field in msgspec.structs.fields(tp)]
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls) if field.init]
    elif hasattr(cls, "__attrs_attrs__"):
        names = [field.name for field in cls.__attrs_attrs__ if field.init]
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = list(cls._fields)
    elif issubclass(cls, dict) and hasattr(cls, "__total__"):
        names = []
    else:
        return None
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError:  # pydantic also knows the names in the function that defines a class
        return None
    return [(name, hints[name]) for name in names or hints if name in hints]


def _alias(name: str, field: Any) -> str:
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name


def _annotated(field: Any) -> Any:
    tp = field.annotation
    for meta in field.metadata:
        if isinstance(meta, HeaderParam):
            tp = Annotated[tp, meta]
    return tp


def _name(tp: Any) -> str:
    if typing.get_origin(tp) in (Union, types.UnionType):
        return "a union"
    cls = typing.get_origin(tp) or tp
    return f"`{getattr(cls, '__qualname__', cls)}`"
