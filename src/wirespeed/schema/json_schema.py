"""Python types as JSON Schema and as validating decoders.

msgspec does most of the work; this module adds the rest.  The rules, type -> schema:

* Every type msgspec decodes is accepted: scalars, ``bytes`` (base64 text), collections, unions,
  ``Literal``, ``Enum``, dates, ``Decimal`` (text), ``UUID``, structs (tagged unions too),
  dataclasses, attrs classes, ``TypedDict``, ``NamedTuple`` (an array), ``NewType``, ``Annotated``;
  and ``pathlib`` paths (text).  ``object`` means ``Any``.
* Decoding is strict: ``"5"`` and ``1.5`` are not an ``int``; ``1`` is a ``float``.  ``1.0`` and
  ``1e3`` are an ``int`` for tools (`wirespeed.schema.whole_numbers`).
* ``Annotated`` metadata that counts, at any depth of the annotation itself: ``msgspec.Meta``;
  ``annotated_types`` bounds and lengths; pydantic's ``Field``; a plain string or ``Doc`` as the
  description; `HeaderParam`.  Constraints on ``T | None`` apply to ``T``.  Other metadata is
  ignored.  Only msgspec (or pydantic) reads the fields of classes, except for `HeaderParam`
  (`wirespeed.schema.marked_fields`).
* pydantic models are validated by pydantic, from JSON, with the model's own settings.  A strict
  ``TypeAdapter`` takes a whole type that msgspec refuses, or that has pydantic metadata without a
  counterpart in msgspec, but only in a process that has imported pydantic: this module never does.
* Anything else is refused when the tool is registered (`SignatureError`).

The root of a tool's schema is an object (MCP server/tools, "Tool": ``inputSchema`` is a JSON Schema
object; the dialect is 2020-12), self-contained: shared types are in ``$defs``.  Its
``additionalProperties`` are false, unless the tool ignores unknown arguments; those of nested types
follow from the types.  An output whose own schema is not an
object is wrapped as ``{"result": value}``, because ``structuredContent`` is an object before
revision 2026-07-28.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

import msgspec

from wirespeed.errors import SignatureError
from wirespeed.schema.header_param import HeaderParam, note_of
from wirespeed.schema.smallest import smallest

__all__ = [
    "DEFS",
    "adapter_of",
    "build_schemas",
    "dec_hook",
    "default_form",
    "describe_validation_error",
    "enc_hook",
    "input_schema",
    "is_field_info",
    "is_model",
    "is_path",
    "lax_dec_hook",
    "may_keep",
    "nonfinite",
    "nonfinite_in",
    "one_line",
    "prepare_type",
    "type_name",
]

_encode = msgspec.json.Encoder().encode
DEFS = "#/$defs/"
_PLACEHOLDER = DEFS + "\0"  # no class is named so: replaced before a schema leaves this module
# The members of a definition that is only a list of values.
_ENUM = {"title", "description", "type", "enum"}
_MAX_ERROR = 500  # characters of one error text; a message may quote the caller's own data
_MAX_COMPARED = 64  # characters of a name that is compared with known ones
_MAX_PROBLEMS = 8  # problems listed for one invalid pydantic model
_UNIONS = (Union, types.UnionType)
_PLAIN = frozenset((Any, bool, int, float, str, type(None)))
# A cache of schemas of types that several tools have in common. By the type and
# how it is written: two literals of another order are equal.
_MAX_KNOWN = 1024
_prepared: dict[tuple[Any, str, str], Any] = {}
_alone: dict[tuple[Any, str], dict[str, Any] | None] = {}
# What msgspec, typing and pydantic raise for a type; RuntimeError: pydantic's, and RecursionError.
_REFUSALS = (TypeError, ValueError, RuntimeError, NameError, AttributeError)


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


class _Normaliser:
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


def prepare_type(
    tp: Any, where: str, mode: str = "validation", metadata: Sequence[Any] = ()
) -> Any:
    """Return the type for msgspec to decode (mode "validation") or to describe ("serialization").

    *metadata* is applied as if it stood in ``Annotated``.  `SignatureError`, beginning with
    *where*, if neither msgspec nor (where imported) pydantic can do it.
    """
    if not metadata:
        try:
            if tp in _PLAIN:
                return tp
            known = _prepared.get((tp, repr(tp), mode))
        except TypeError:  # an unhashable annotation, such as a list
            raise SignatureError(f"{where}: {tp!r} is not a type") from None
        if known is not None:
            return known
    normaliser = _Normaliser()
    cause: Exception | None = None
    try:
        normal = normaliser.run(tp)
        if metadata:
            normal = normaliser.annotated(normal, metadata)
        if not normaliser.needs_pydantic:
            build_schemas([normal], mode)
            if not metadata and may_keep(tp, _prepared):
                _prepared[tp, repr(tp), mode] = normal
            return normal
    except RecursionError:
        cause = TypeError("the type refers to itself without end")
    except _REFUSALS as exc:
        cause = exc
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and not normaliser.only_msgspec:
        for meta in metadata:
            for part in meta.metadata if is_field_info(meta) else (meta,):
                tp = Annotated[tp, part]
        try:
            adapted = _adapt(pydantic, tp)
            for part in getattr(tp, "__metadata__", ()):
                if isinstance(part, HeaderParam):  # which pydantic ignores
                    adapted = Annotated[adapted, note_of(part, tp)]
            build_schemas([adapted], mode)
        except _REFUSALS as exc:
            cause = cause or exc
        else:
            return adapted
    reason = str(cause).strip().partition("\n")[0] if cause else "unsupported"
    raise SignatureError(f"{where}: {reason}") from cause


def _adapt(pydantic: Any, tp: Any) -> Any:
    try:
        adapter = pydantic.TypeAdapter(tp, config=pydantic.ConfigDict(strict=True))
    except pydantic.errors.PydanticUserError as exc:
        # Models, dataclasses and TypedDicts bring their own settings.
        if exc.code != "type-adapter-config-unused":
            raise
        adapter = pydantic.TypeAdapter(tp)
    return _AcceptsAll("Adapted", (), {"adapter": adapter, "described": tp})


# -- schemas --------------------------------------------------------------------------------------


class _Foreign:
    """Schemas by pydantic: each is a bundle with its own ``$defs``. `merge` joins them."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.bundles: dict[Any, tuple[str | None, dict[str, Any]]] = {}
        self.refs: dict[str, dict[str, Any]] = {}

    def hook(self, cls: Any) -> dict[str, Any]:
        if is_path(cls):
            return {"type": "string", "format": "path"}
        if cls not in self.bundles:
            options = {"mode": self.mode, "ref_template": DEFS + "{model}"}
            if (adapter := adapter_of(cls)) is not None:
                self.bundles[cls] = (None, adapter.json_schema(**options))
            elif is_model(cls):
                self.bundles[cls] = (cls.__name__, cls.model_json_schema(**options))
            else:
                raise TypeError(f"type `{type_name(cls)}` has no JSON form")
        return {"$ref": f"{_PLACEHOLDER}{list(self.bundles).index(cls)}"}

    def merge(self, components: dict[str, Any]) -> None:
        """Move every bundle into *components*. The name of another schema is changed."""
        for index, (name, root) in enumerate(self.bundles.values()):
            defs: dict[str, Any] = root.pop("$defs", {})
            if name is not None and root.keys() != {"$ref"}:
                while name in defs:
                    name += "_"
                defs[name] = root
                root = {"$ref": DEFS + name}
            renamed: dict[str, str] = {}
            if any(key in components and components[key] != defs[key] for key in defs):
                # All of them: a definition that looks the same may refer to one that is not.
                for key in defs:
                    number = 2
                    while (new := f"{key}_{number}") in components or new in defs:
                        number += 1
                    renamed[DEFS + key] = DEFS + new
            root, defs = _rename((root, defs), renamed) if renamed else (root, defs)
            for key, schema in defs.items():
                components[renamed.get(DEFS + key, DEFS + key)[len(DEFS) :]] = schema
            self.refs[f"{_PLACEHOLDER}{index}"] = root

    def resolve(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        out = {key: self.resolve(value) for key, value in node.items()}
        ref = out.get("$ref")
        if isinstance(ref, str) and ref in self.refs:
            del out["$ref"]
            out = {**self.refs[ref], **out}
        return out


def _rename(node: Any, renamed: dict[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _rename(value, renamed) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_rename(item, renamed) for item in node]
    return renamed.get(node, node) if isinstance(node, str) else node


def build_schemas(
    tps: Sequence[Any], mode: str = "validation"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a schema for each type, and the shared definitions. TypeError: a type is unknown."""
    foreign = _Foreign(mode)
    schemas, components = msgspec.json.schema_components(
        tps, schema_hook=foreign.hook, ref_template=DEFS + "{name}"
    )
    found = list(schemas)
    if foreign.bundles:
        foreign.merge(components)
        found, components = [foreign.resolve(one) for one in found], foreign.resolve(components)
    enums = {
        DEFS + name: smallest({key: one[key] for key in one if key != "title"}, {})
        for name, one in components.items()
        if "enum" in one and one.keys() <= _ENUM
    }
    rest = {name: one for name, one in components.items() if DEFS + name not in enums}
    return [smallest(one, enums) for one in found], smallest({"$defs": rest}, enums)["$defs"]


def default_form(value: Any) -> Any:
    """Return *value* as the "default" of a schema; `msgspec.UNSET` if it has no JSON form."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
        decoded = msgspec.json.decode(_encode(plain))
    except Exception:  # any encoder, the author's too, may fail; then the schema just says less
        return msgspec.UNSET
    return decoded if nonfinite(plain) is None else msgspec.UNSET


_pack = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode
# A float that is not finite, in MessagePack. Other bytes may look like one.
_PACKED = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def nonfinite_in(value: Any) -> str | None:
    """The same as `nonfinite` for any value that can be encoded. It is for a value whose JSON has
    a null: that is what encoders write for a number that is not finite."""
    with contextlib.suppress(Exception):  # what MessagePack cannot hold
        if _PACKED.search(_pack(value)) is None:
            return None
    with contextlib.suppress(Exception):  # what is no builtin is no number
        value = msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
    return nonfinite(value)


def nonfinite(value: Any) -> str | None:
    """Return what JSON cannot hold in a tree of builtins and where: ``NaN at a[0].b``. None: each
    number is finite."""
    found = _nonfinite(value, "")
    return None if found is None else " at ".join(part for part in found if part)


def _nonfinite(value: Any, place: str) -> tuple[str, str] | None:
    if isinstance(value, float):
        if value - value == 0.0:
            return None
        return ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity"), place
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        inner = ((f"{place}.{key}".lstrip("."), item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = ((f"{place}[{i}]", item) for i, item in enumerate(value))
    return next(filter(None, (_nonfinite(item, where) for where, item in inner)), None)


def may_keep(tp: Any, known: Mapping[Any, Any]) -> bool:
    """Whether a cache may keep a type. A class that belongs to one function is not kept alive."""
    is_class = isinstance(tp, type) and typing.get_origin(tp) is None
    return len(known) < _MAX_KNOWN and (not is_class or tp in _PLAIN)


def _schema_alone(tp: Any) -> dict[str, Any] | None:
    """Return the schema of a type, shared with other callers; None if it needs definitions."""
    key = tp, repr(tp)
    if key in _alone:
        return _alone[key]
    (schema,), components = build_schemas([tp])
    found = None if components else schema
    if may_keep(tp, _alone):
        _alone[key] = found
    return found


def _schemas_of(tps: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Do the work of `build_schemas`, which is slow, with the cached schemas of known types."""
    schemas = []
    for tp in tps:
        try:
            schema = _schema_alone(tp)
        except TypeError:  # it cannot be hashed
            schema = None
        if schema is None:
            return build_schemas(tps)
        schemas.append(dict(schema))
    return schemas, {}


def input_schema(
    fields: Sequence[tuple[str, Any, Any, str | None]], *, closed: bool = False
) -> dict[str, Any]:
    """Return the root of a tool's input, from (name, type, default or NODEFAULT, description).
    A *closed* one has no other members."""
    schemas, components = _schemas_of([field[1] for field in fields])
    required = []
    properties = {}
    for (name, _, default, description), schema in zip(fields, schemas, strict=True):
        if description is not None:
            schema.setdefault("description", description)
        if default is msgspec.NODEFAULT:
            required.append(name)
        elif (form := default_form(default)) is not msgspec.UNSET:
            schema["default"] = form
        properties[name] = schema
    root: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        root["required"] = required
    if closed:
        root["additionalProperties"] = False
    if components:
        root["$defs"] = components
    return root


# -- error texts ----------------------------------------------------------------------------------


def describe_validation_error(
    exc: BaseException, what: str = "argument", known: Iterable[str] = ()
) -> str:
    """Return one line about invalid arguments for the caller, often a model.

    An argument that does not exist is compared with the *known* names.

    Takes what ``decoder.decode`` raises: `msgspec.ValidationError`, `msgspec.DecodeError`
    (malformed JSON) or RecursionError (nested too deeply).  The text names the argument, never our
    classes: ``argument 'a[0].x': Expected `int`, got `str```.  Any other exception from the decoder
    is the author's own validation code failing.
    """
    if isinstance(exc, RecursionError):
        return f"{_whole(what)}: nested too deeply"
    text, path = str(exc), ""
    head, found, tail = text.rpartition(" - at `")
    if found and tail.endswith("`"):  # the last one: the text before may quote the caller's data
        text = head
        _, within, path = tail[:-1].rpartition("key` in `$")
        if within:
            text = f"key: {text}"
        else:
            path = tail[:-1].removeprefix("$")
    if not isinstance(exc, msgspec.ValidationError):
        return one_line(f"{_whole(what)}: malformed JSON or string escape: {text}")
    problems = getattr(exc.__cause__, "errors", None)
    if problems is not None and type(exc.__cause__).__module__.startswith("pydantic"):
        listed = problems(include_url=False, include_context=False, include_input=False)
        lines = [_problem(what, path + _loc(p["loc"]), p["msg"]) for p in listed[:_MAX_PROBLEMS]]
        if len(listed) > _MAX_PROBLEMS:
            lines.append(f"and {len(listed) - _MAX_PROBLEMS} more")
        return one_line("; ".join(lines))
    return one_line(_problem(what, path, text, known))


def _problem(what: str, path: str, text: str, known: Iterable[str] = ()) -> str:
    path = path.removeprefix(".")
    unknown = "Object contains unknown field `"
    if text.startswith(unknown):
        name = text[len(unknown) : -1]
        if path:
            return f"{what} '{path}': unknown field '{name}'"
        return f"unknown {what if what == 'argument' else 'field'} '{name}'{_nearest(name, known)}"
    missing = "Object missing required field `"
    if text.startswith(missing):
        name = text[len(missing) : -1]
        if path:
            return f"{what} '{path}': missing required field '{name}'"
        return f"missing required {what if what == 'argument' else 'field'} '{name}'"
    return f"{what} '{path}': {text}" if path else f"{_whole(what)}: {text}"


def _nearest(name: str, known: Iterable[str]) -> str:
    if len(name) > _MAX_COMPARED:
        return ""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _whole(what: str) -> str:
    return "arguments" if what == "argument" else what


def _loc(loc: Iterable[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)


def one_line(text: str) -> str:
    """Return *text* in a form for error messages: one line, bounded, encodable."""
    text = " ".join(text.split()).encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_ERROR else text[: _MAX_ERROR - 1] + "…"
