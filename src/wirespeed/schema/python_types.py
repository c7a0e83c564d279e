"""Python types as msgspec reads and writes them: hooks for types that it does not know, metadata of
``Annotated``, and `HeaderParam`, the mark of an argument that HTTP clients repeat in a header field
(2026-07-28 server/tools, "x-mcp-header")."""

import enum
import os
import sys
import types
import typing
from collections.abc import Coroutine, Iterable
from typing import Annotated, Any, Literal, Union

import msgspec

from wirespeed._exports import set_public_home

_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}
_UNIONS = (Union, types.UnionType)
_encode = msgspec.json.Encoder().encode


class HeaderParam(msgspec.Struct, frozen=True):
    """Marks an argument of a tool that HTTP clients repeat in a header field, so that proxies and
    load balancers can route by its value::

        @server.tool
        async def query(sql: str, region: Annotated[str, HeaderParam("Region")]) -> str: ...

    A client of 2026-07-28 sends the argument in the body and in ``Mcp-Param-Region``. A request
    whose field is missing or has another value is refused with -32020. Other transports and older
    revisions have no such fields.

    The argument is a string, an integer or a boolean, and not None; a default makes it optional.
    Integers have at most 2**53 - 1. A field of an argument's class may have the mark, too, at any
    depth of classes. A mark in a list, a mapping, a union (``T | None``, too) or a class that
    refers to itself raises `SignatureError`. Header fields are visible to every proxy and in its
    logs: mark no secrets (2026-07-28 basic/transports/streamable-http, "Custom Headers from Tool
    Parameters").

    Attributes:
        name: What follows ``Mcp-Param-`` in the name of the field: letters, digits and
            ``!#$%&'*+-.^_`|~``. Each name occurs once in a tool, whatever its case.
    """

    name: str


def note_of(param: HeaderParam, tp: Any) -> msgspec.Meta:
    """The note of the mark in an argument's schema. The keyword needs a type, and the schemas of
    literals and enumerations have none."""
    said: dict[str, Any] = {"x-mcp-header": param.name}
    values: tuple[Any, ...] = ()
    if typing.get_origin(tp) is Literal:
        values = typing.get_args(tp)
    elif isinstance(tp, type) and issubclass(tp, enum.Enum):
        values = tuple(member.value for member in tp)
    kinds = {_JSON_TYPES.get(type(value)) for value in values}
    if len(kinds) == 1 and None not in kinds:
        said["type"] = kinds.pop()
    return msgspec.Meta(extra_json_schema=said)


# -- hooks: the types that msgspec hands back to us -----------------------------------------------


class _AcceptsAll(type):
    """msgspec checks the result of a `dec_hook` with isinstance; an adapter may return anything."""

    adapter: Any
    described: Any  # the type that the adapter is of

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def adapter_of(tp: Any) -> Any:
    """Return the pydantic adapter of a prepared type; None if msgspec reads the type itself."""
    return tp.adapter if type(tp) is _AcceptsAll else None


def is_model(tp: Any) -> bool:
    """Whether a class is a pydantic model, told by its members, without importing pydantic."""
    return (
        isinstance(tp, type)
        and hasattr(tp, "__pydantic_validator__")
        and hasattr(tp, "model_validate_json")
    )


def is_path(tp: Any) -> bool:
    """Whether a class is one of `pathlib`, or resembles one."""
    return (
        isinstance(tp, type)
        and issubclass(tp, os.PathLike)
        and tp.__module__.partition(".")[0] == "pathlib"
    )


def dec_hook(tp: Any, obj: Any) -> Any:
    """Decode the types that msgspec does not know: pydantic models and adapters, paths."""
    adapter = adapter_of(tp)
    # pydantic gets JSON, as arguments are JSON: its strict mode differs for Python objects.
    if adapter is not None:
        return adapter.validate_json(_encode(obj))
    if is_model(tp):
        return tp.model_validate_json(_encode(obj))
    if not isinstance(obj, str):
        raise ValueError(f"Expected `str`, got `{_json_type(obj)}`")
    return tp(obj)


def lax_dec_hook(tp: Any, obj: Any) -> Any:
    """As `dec_hook`, where texts may stand for other values. Models keep their own settings."""
    adapter = adapter_of(tp)
    if adapter is not None:
        return adapter.validate_json(_encode(obj), strict=False)
    return dec_hook(tp, obj)


def enc_hook(obj: Any) -> Any:
    """Encode the types that msgspec does not know. TypeError names a type without a JSON form."""
    tp = type(obj)
    if is_model(tp):
        return obj.model_dump(mode="json", by_alias=True, warnings="error")
    if is_path(tp):
        return os.fspath(obj)
    if isinstance(obj, str):
        return str.__str__(obj)  # of a class of its own, such as `wirespeed.User`
    if tp.__module__.partition(".")[0] == "pydantic":
        return sys.modules["pydantic_core"].to_jsonable_python(obj)
    if isinstance(obj, Coroutine):
        obj.close()  # else Python warns of it, too
        name = getattr(obj, "__qualname__", "")
        raise TypeError(f"the coroutine {name}() has no JSON form: was its await forgotten?")
    raise TypeError(f"{type_name(tp)} has no JSON form")


def _json_type(obj: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", list: "array", dict: "object"}
    return names.get(type(obj), "null")


def type_name(tp: Any) -> str:
    """The name of a type in errors."""
    return tp.__qualname__ if isinstance(tp, type) else str(tp)


# -- Annotated metadata ---------------------------------------------------------------------------

_BOUNDS = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}


_NOTES = ("title", "description", "examples", "extra_json_schema", "extra")


def _bounds(meta: msgspec.Meta) -> dict[str, Any]:
    keys = (*_BOUNDS.values(), "pattern", "tz")
    return {key: value for key in keys if (value := getattr(meta, key)) is not None}


def is_field_info(obj: object) -> bool:
    """Whether a value is the result of pydantic's ``Field(...)``."""
    return type(obj).__name__ == "FieldInfo" and type(obj).__module__ == "pydantic.fields"


def _constraint(meta: Any) -> dict[str, Any] | None:
    """Return constraints as keywords for `msgspec.Meta`; None if it has no such keywords."""
    name, module = type(meta).__name__, type(meta).__module__
    if module == "annotated_types":
        if name in _BOUNDS:
            return {_BOUNDS[name]: getattr(meta, _BOUNDS[name])}
        if name in ("Interval", "Len"):
            found: dict[str, Any] = {}
            for part in meta:
                found.update(_constraint(part) or {})
            return found
        if name == "Timezone" and meta.tz in (None, ...):
            return {"tz": meta.tz is not None}
    elif name == "Strict" and module == "pydantic.types" and meta.strict:
        return {}  # decoding is strict anyway
    elif name == "_PydanticGeneralMetadata" and vars(meta).keys() == {"pattern"}:
        return {"pattern": getattr(meta.pattern, "pattern", meta.pattern)}
    return None


class Normaliser:
    """Rewrites foreign `Annotated` metadata as msgspec's. Notes metadata that needs pydantic."""

    def __init__(self) -> None:
        self.needs_pydantic = False
        self.only_msgspec = False  # has constraints in msgspec's terms, which pydantic ignores

    def run(self, tp: Any) -> Any:
        if tp is object:
            return Any
        if tp is typing.LiteralString:
            return str
        origin = typing.get_origin(tp)
        if origin is None:
            if isinstance(tp, type) and "__is_pydantic_dataclass__" in vars(tp):
                self.needs_pydantic = True  # msgspec would bypass its validators
            return tp
        if origin is Annotated:
            return self.annotated(self.run(tp.__origin__), tp.__metadata__)
        if origin is Literal:
            return tp
        args = typing.get_args(tp)
        new = tuple(a if a is ... or isinstance(a, list) else self.run(a) for a in args)
        if origin in _UNIONS:
            new = _without_listed(new)
        if len(args) == len(new) and all(a is b for a, b in zip(args, new, strict=True)):
            return tp
        if origin in _UNIONS:
            return Union[new]  # noqa: UP007
        return tp.copy_with(new) if hasattr(tp, "copy_with") else origin[new]

    def annotated(self, tp: Any, metadata: Iterable[Any]) -> Any:
        keep: list[Any] = []
        bounds: dict[str, Any] = {}
        notes: dict[str, Any] = {}
        for meta in metadata:
            if isinstance(meta, str):
                notes.setdefault("description", meta)
            elif is_field_info(meta):
                self._field(meta, bounds, notes)
            elif isinstance(meta, HeaderParam):
                keep.append(note_of(meta, tp))
            elif type(meta).__name__ == "Doc" and isinstance(
                doc := getattr(meta, "documentation", None), str
            ):
                notes.setdefault("description", doc)
            elif (found := _constraint(meta)) is not None:
                bounds.update(found)
            elif type(meta).__module__.partition(".")[0] == "pydantic":
                self.needs_pydantic = True
            elif isinstance(meta, msgspec.Meta) and (own := _bounds(meta)):
                self.only_msgspec = True
                bounds.update(own)
                if said := {k: v for k in _NOTES if (v := getattr(meta, k)) is not None}:
                    keep.append(msgspec.Meta(**said))
            elif meta is not None:
                keep.append(meta)
        if bounds:
            tp = _constrain(tp, msgspec.Meta(**bounds))
        if notes:
            keep.insert(0, msgspec.Meta(**notes))  # the author's own Meta has the last word
        for meta in keep:
            tp = Annotated[tp, meta]
        return tp

    def _field(self, info: Any, bounds: dict[str, Any], notes: dict[str, Any]) -> None:
        for meta in info.metadata:
            if (found := _constraint(meta)) is not None:
                bounds.update(found)
            else:
                self.needs_pydantic = True
        for key in ("title", "description", "examples"):
            value = getattr(info, key, None)
            if value is not None:
                notes.setdefault(key, value)
        if isinstance(info.json_schema_extra, dict):
            notes.setdefault("extra_json_schema", info.json_schema_extra)


def _without_listed(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """The members of a union without each `Literal` whose values another one has: msgspec would
    take no others. They become examples of that one."""
    examples: dict[Any, list[Any]] = {}
    kept = list(members)
    for member in members:
        if typing.get_origin(member) is not Literal:
            continue
        values = typing.get_args(member)
        kinds = {type(value) for value in values}
        wider = [one for one in (*kinds, float) if one in members]
        if len(kinds) == 1 and wider and (kinds == {int} or wider[0] in kinds):
            examples.setdefault(wider[0], []).extend(values)
            kept.remove(member)
    return tuple(
        Annotated[one, msgspec.Meta(examples=examples[one])] if one in examples else one
        for one in kept
    )


def _constrain(tp: Any, meta: msgspec.Meta) -> Any:
    if typing.get_origin(tp) in _UNIONS:
        members = typing.get_args(tp)
        bounded = tuple(m if m is type(None) else Annotated[m, meta] for m in members)
        return Union[bounded]  # noqa: UP007
    return Annotated[tp, meta]


def adapted_by(pydantic: Any, tp: Any) -> Any:
    """Return a type whose values a strict adapter of pydantic reads."""
    try:
        adapter = pydantic.TypeAdapter(tp, config=pydantic.ConfigDict(strict=True))
    except pydantic.errors.PydanticUserError as exc:
        # Models, dataclasses and TypedDicts bring their own settings.
        if exc.code != "type-adapter-config-unused":
            raise
        adapter = pydantic.TypeAdapter(tp)
    return _AcceptsAll("Adapted", (), {"adapter": adapter, "described": tp})


set_public_home(globals())
