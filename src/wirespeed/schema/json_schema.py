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
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from wirespeed.errors import SignatureError
from wirespeed.schema.python_types import (
    HeaderParam,
    Normaliser,
    adapted_by,
    adapter_of,
    enc_hook,
    is_field_info,
    is_model,
    is_path,
    note_of,
    type_name,
)

_encode = msgspec.json.Encoder().encode
DEFS = "#/$defs/"
_PLACEHOLDER = DEFS + "\0"  # no class is named so: replaced before a schema leaves this module
# The members of a definition that is only a list of values.
_ENUM = {"title", "description", "type", "enum"}
_MAX_ERROR = 500  # characters of one error text; a message may quote the caller's own data
_MAX_COMPARED = 64  # characters of a name that is compared with known ones
_MAX_CHOICES = 20  # values listed for one argument
_STEPS = re.compile(r"\[[^\]]*\]|[^.\[\]]+")  # of the path of an error
_MAX_PROBLEMS = 8  # problems listed for one invalid pydantic model
_PLAIN = frozenset((Any, bool, int, float, str, type(None)))
# A cache of schemas of types that several tools have in common. By the type and
# how it is written: two literals of another order are equal.
_MAX_KNOWN = 1024
_prepared: dict[tuple[Any, str, str], Any] = {}
_alone: dict[tuple[Any, str], dict[str, Any] | None] = {}
# What msgspec, typing and pydantic raise for a type; RuntimeError: pydantic's, and RecursionError.
_REFUSALS = (TypeError, ValueError, RuntimeError, NameError, AttributeError)


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
    normaliser = Normaliser()
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
            adapted = adapted_by(pydantic, tp)
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
    exc: BaseException, what: str = "argument", schema: Mapping[str, Any] | None = None
) -> str:
    """Return one line about invalid arguments for the caller, often a model.

    *schema* is that of the object: an argument that does not exist is compared with its names, and
    the values that an argument may have are listed from it.

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
        lines = [
            _problem(what, path + _loc(p["loc"]), p["msg"], {}) for p in listed[:_MAX_PROBLEMS]
        ]
        if len(listed) > _MAX_PROBLEMS:
            lines.append(f"and {len(listed) - _MAX_PROBLEMS} more")
        return one_line("; ".join(lines))
    return one_line(_problem(what, path, text, schema or {}))


def _problem(what: str, path: str, text: str, schema: Mapping[str, Any]) -> str:
    path = path.removeprefix(".")
    if text.startswith("Invalid enum value"):
        text += choices(schema, path)
    unknown = "Object contains unknown field `"
    if text.startswith(unknown):
        name = text[len(unknown) : -1]
        if path:
            return f"{what} '{path}': unknown field '{name}'"
        near = _nearest(name, schema.get("properties", ()))
        return f"unknown {what if what == 'argument' else 'field'} '{name}'{near}"
    missing = "Object missing required field `"
    if text.startswith(missing):
        name = text[len(missing) : -1]
        if path:
            return f"{what} '{path}': missing required field '{name}'"
        return f"missing required {what if what == 'argument' else 'field'} '{name}'"
    return f"{what} '{path}': {text}" if path else f"{_whole(what)}: {text}"


def choices(schema: Mapping[str, Any], path: str) -> str:
    """The end of an error about a value that is not one of an enumeration: the values that the
    schema lists at the path of the error; "" if it lists none, or many."""
    nodes: list[Any] = [schema]
    for step in _STEPS.findall(path):
        found = (
            one.get("items") or one.get("additionalProperties")
            if step[0] == "["
            else one.get("properties", {}).get(step)
            for one in _variants(nodes, schema)
        )
        nodes = [node for node in found if isinstance(node, dict)]
    values = next((one["enum"] for one in _variants(nodes, schema) if "enum" in one), ())
    if not 0 < len(values) <= _MAX_CHOICES:
        return ""
    return "; expected one of " + ", ".join(msgspec.json.encode(one).decode() for one in values)


def _variants(nodes: list[Any], schema: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas of which a value fits one: members of unions, and what references name."""
    for node in nodes:
        for one in (node, *node.get("anyOf", ())):
            name = one.get("$ref", "").removeprefix("#/$defs/")
            yield schema.get("$defs", {}).get(name, {}) if name else one


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


# Members of a schema that say nothing about its values.
_NOTES = frozenset(("title", "description", "default", "examples", "deprecated"))
# Members whose values are schemas, lists of schemas, and objects of schemas.
_ONE = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


# -- the smallest schema that means the same ------------------------------------------------------


def smallest(schema: Any, enums: Mapping[str, dict[str, Any]]) -> Any:
    """Return the smallest schema that accepts the same values.

    A host that shows a form, or that converts texts, looks at the ``type`` of a parameter. Few of
    them read a union, and none needs to where one alternative has all values of another:

    * ``int | float`` is a number: every integer is one. The same holds for any alternative whose
      values another one has, such as ``str | Literal["a"]``. What was listed remains as
      ``examples``.
    * The values of ``Literal["a"] | Literal["b"]`` are one list.
    * A list of values has the type of its values. null is an alternative of its own.
    * An enumeration stands where it is used, without the name of its class: hosts do not follow
      references.

    Args:
        schema: A schema; it is not changed.
        enums: The definitions that list values, by their references.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for key in _ONE:
        if key in found:
            found[key] = smallest(found[key], enums)
    for key in _SEVERAL:
        if isinstance(found.get(key), list):
            found[key] = [smallest(part, enums) for part in found[key]]
    for key in _NAMED:
        if isinstance(found.get(key), dict):
            found[key] = {name: smallest(part, enums) for name, part in found[key].items()}
    if found.get("$ref") in enums:
        found = {**enums[found.pop("$ref")], **found}
    if isinstance(found.get("enum"), list):
        return _typed(found)
    return _united(found) if isinstance(found.get("anyOf"), list) else found


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    """A list of values with its type; null apart."""
    values = schema["enum"]
    rest = [value for value in values if value is not None]
    if "type" in schema or "anyOf" in schema or not rest:
        return schema
    types = {_TYPES.get(type(value)) for value in rest}
    if types == {"integer", "number"}:
        types = {"number"}
    if len(types) != 1 or None in types:
        return schema
    typed = {"type": types.pop(), "enum": rest}
    others = {key: value for key, value in schema.items() if key != "enum"}
    if len(rest) == len(values):
        return {**{k: others.pop(k) for k in ("title",) if k in others}, **typed, **others}
    return {"anyOf": [typed, {"type": "null"}], **others}


def _united(schema: dict[str, Any]) -> dict[str, Any]:
    """A union without the alternatives whose values another one has."""
    parts: list[Any] = []
    for part in schema["anyOf"]:
        nested = isinstance(part, dict) and part.keys() == {"anyOf"}
        parts += part["anyOf"] if nested else [part]
    kept: list[Any] = []
    for part in _listed(parts):
        if any(_within(part, other) for other in kept):
            _exemplify(kept, part)
            continue
        inner = [other for other in kept if _within(other, part)]
        kept = [other for other in kept if other not in inner]
        kept.append(part)
        for other in inner:
            _exemplify(kept, other)
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(kept) == 1 and isinstance(kept[0], dict) and not others.keys() & kept[0].keys() - _NOTES:
        return {**kept[0], **others}
    return {"anyOf": kept, **others}


def _listed(parts: list[Any]) -> list[Any]:
    """The alternatives, with one list of values for each type."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, dict) and part.keys() == {"type", "enum"}:
            for at, other in enumerate(found):
                same = isinstance(other, dict) and other.keys() == {"type", "enum"}
                if same and other["type"] == part["type"]:
                    more = [value for value in part["enum"] if value not in other["enum"]]
                    found[at] = {**other, "enum": other["enum"] + more}
                    break
            else:
                found.append(part)
        else:
            found.append(part)
    return found


def _within(part: Any, other: Any) -> bool:
    """Whether another alternative has all values of one, and all that is said of it."""
    if part is other or not isinstance(part, dict) or not isinstance(other, dict):
        return bool(part == other)
    kind, wider = part.get("type"), other.get("type")
    if not isinstance(kind, str) or not (kind == wider or (kind, wider) == ("integer", "number")):
        return False
    limits = {key: value for key, value in other.items() if key not in _NOTES and key != "type"}
    notes = [key for key in part.keys() & _NOTES if part[key] != other.get(key)]
    return not notes and all(key in part and part[key] == value for key, value in limits.items())


def _exemplify(kept: list[Any], part: dict[str, Any]) -> None:
    """Keep the values that an alternative listed as examples of the one that has them."""
    if not isinstance(part.get("enum"), list):
        return
    at = next(n for n, other in enumerate(kept) if _within(part, other))
    wider = kept[at]
    if "enum" not in wider:
        known = wider.get("examples", [])
        more = [value for value in part["enum"] if value not in known]
        kept[at] = {**wider, "examples": [*known, *more]}
