"""Classes and schemas as forms that a client shows to its user (client/elicitation, "Form Mode").

A form is a flat object. Types and their fields:

=======================================  ==========================================================
``str``, ``UUID``, ``Decimal``, ``time`` text; `Email` and `Uri` with their format; ``date`` and
                                         ``datetime`` with theirs
``int``, ``float``                       a number, with its bounds
``bool``                                 yes or no
``Literal`` or ``Enum`` of strings       one choice; `titles` adds titles to the options
``list``, ``set``, ``tuple[T, ...]``     several choices (2025-11-25 on)
of those
``T | None``                             the same, and may be left empty
=======================================  ==========================================================

The class is a struct, dataclass, attrs class, ``TypedDict`` or pydantic model. A single type of
the table is a form with the one field "value". None is a form without fields, which only asks for
consent.

Titles, descriptions, lengths, bounds and defaults are sent with the form. Rules that a form cannot
express (a pattern for clients before 2025-11-25, ``multiple_of``, validators) are checked against
the answer. Other types are refused: `SignatureError` names the field.

A JSON Schema, as a dict, is a form if it is what the specification calls a requested schema: an
object whose properties are strings, numbers, booleans, choices of strings (``enum``, also with
``enumNames``, or ``oneOf``), or arrays of choices. It is sent as it is, and to clients of
2025-06-18 in that revision's form. Answers are dicts, checked by type, options, lengths, bounds and
formats, not by ``pattern``: the expression may be another server's.
"""

from __future__ import annotations

import datetime
import enum
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Generic, Literal, TypeGuard, TypeVar, Union

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import InvalidResponse, SignatureError
from wirespeed.protocol.meta import check_json
from wirespeed.schema.form_answers import check
from wirespeed.schema.json_schema import (
    build_schemas,
    describe_validation_error,
    nonfinite,
    prepare_type,
)
from wirespeed.schema.python_types import dec_hook

T = TypeVar("T")

Email = Annotated[
    str, msgspec.Meta(pattern=r"^[^@\s]+@[^@\s]+$", extra_json_schema={"format": "email"})
]
"""A mail address in a form. The answer must look like one."""

Uri = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$", extra_json_schema={"format": "uri"})
]
"""A URI in a form. The answer must look like one."""

_DEFS = "#/$defs/"
_FORMATS = ("email", "uri", "date", "date-time")
_MAX_FORMS = 256  # forms in the cache


def titles(names: Mapping[str, str]) -> msgspec.Meta:
    """Titles of options, for ``Annotated`` beside a ``Literal`` or ``Enum``::

        size: Annotated[Literal["s", "m"], titles({"s": "Small", "m": "Medium"})]

    Every option needs a title. For a field of a pydantic model, pass the ``extra_json_schema`` of
    the returned value as ``json_schema_extra``.
    """
    options = [{"const": option, "title": title} for option, title in names.items()]
    return msgspec.Meta(extra_json_schema={"oneOf": options})


class Form(Generic[T]):
    """A form, and the class of its answers.

    Attributes:
        name: The name of the form in messages.
        schema: ``requestedSchema`` for 2025-11-25 and later.
        plain_schema: The same for 2025-06-18; None if that revision cannot express the field that
            ``unplain`` names.
    """

    def __init__(self, tp: Any) -> None:
        self.name = getattr(tp, "__name__", None) or str(tp)
        where = f"form {self.name}"
        self._wrapped = False
        self._decode: Callable[[bytes], Any] | None = None
        root: dict[str, Any] | None = _NO_FIELDS
        if tp is not None and tp is not type(None):
            prepared = prepare_type(tp, where)
            root = _root(prepared)
            if root is None:
                self._wrapped = True
                prepared = msgspec.defstruct("value", [("value", prepared)])
                root = _root(prepared)
            self._decode = msgspec.json.Decoder(prepared, dec_hook=dec_hook).decode
        hints = {"value": tp} if self._wrapped else _hints(tp)
        self._nullable: list[str] = []
        self._integers: list[str] = []
        properties: dict[str, Any] = {}
        if root is None or "properties" not in root:
            raise SignatureError(f"{where}: a form needs named fields, not an open object")
        defs, required = root.get("$defs", {}), set(root.get("required", ()))
        for name, source in root["properties"].items():
            field = _Field(source, defs, f"{where}: field {name!r}", hints.get(name))
            properties[name] = field.schema
            if field.nullable and name in required:
                required.discard(name)
                self._nullable.append(name)
            if field.schema["type"] == "integer":
                self._integers.append(name)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if names := [name for name in properties if name in required]:
            schema["required"] = names
        self._show(schema)

    def _show(self, schema: dict[str, Any]) -> None:
        properties = schema["properties"]
        self.schema = schema
        self.unplain: str | None = next(
            (name for name, s in properties.items() if s["type"] == "array"), None
        )
        self.plain_schema: dict[str, Any] | None = None
        if self.unplain is None:
            plain = {name: _plain(field) for name, field in properties.items()}
            self.plain_schema = schema | {"properties": plain}

    def decode(self, content: Mapping[str, Any] | None) -> T:
        """The content of an accepted form as the class. `InvalidResponse`: it is not valid; the
        text names the field. Members that the form does not have are ignored."""
        if self._decode is None:
            return None  # type: ignore[return-value]
        values = _whole(content or {}, self._integers)
        for name in self._nullable:
            values.setdefault(name, None)
        try:
            decoded = self._decode(msgspec.json.encode(values))
        except (msgspec.DecodeError, RecursionError) as exc:
            fault = describe_validation_error(exc, "field")
            raise InvalidResponse(f"the answer does not fit the form {self.name}: {fault}") from exc
        return decoded.value if self._wrapped else decoded  # type: ignore[no-any-return]


class SchemaForm(Form[dict[str, Any]]):
    """A form from a JSON Schema; its answers are dicts. `SignatureError`: it is not a form."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.name = "form"
        if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
            raise SignatureError('form: its schema has the type "object", and properties')
        try:
            check_json("form", {"schema": schema})
        except (ValueError, TypeError) as exc:
            raise SignatureError(str(exc)) from None
        for name, field in schema["properties"].items():
            _check_field(field, f"form: field {name!r}")
        self._show(dict(schema))
        fields = schema["properties"].items()
        self._integers = [name for name, field in fields if field["type"] == "integer"]

    def decode(self, content: Mapping[str, Any] | None) -> dict[str, Any]:
        """The content of an accepted form. `InvalidResponse`: it is not valid; the text names the
        field. Members that the form does not have are left out."""
        try:
            return check(self.schema, _whole(content or {}, self._integers))
        except ValueError as exc:
            raise InvalidResponse(f"the answer does not fit the form: {exc}") from exc


def form_of(tp: Any) -> Form[Any]:
    """The `Form` of a class, cached, or of a JSON Schema. `SignatureError`: it is not a form."""
    if isinstance(tp, Mapping):
        return SchemaForm(tp)
    try:
        hash(tp)
    except TypeError:
        raise SignatureError(f"form: {tp!r} is not a type") from None
    return _form(tp)


@functools.lru_cache(maxsize=_MAX_FORMS)
def _form(tp: Any) -> Form[Any]:
    return Form(tp)


def _whole(content: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The content, with whole numbers in fields of integers: 5.0 is an integer to JSON Schema."""
    values = dict(content)
    for name in names:
        value = values.get(name)
        if type(value) is float and value.is_integer():
            values[name] = int(value)
    return values


def _check_field(field: Any, where: str) -> None:
    """SignatureError: a property of a schema is not a field of a form."""
    kind = field.get("type") if isinstance(field, Mapping) else None
    if kind == "array":
        items = field.get("items")
        if not isinstance(items, Mapping) or not _are_choices(items):
            raise _refusal(where, "a list of anything but choices")
        return
    if kind not in ("string", "number", "integer", "boolean"):
        raise _refusal(where, "an object" if kind == "object" else f"the type {kind!r}")
    if field.keys() & {"enum", "enumNames", "oneOf"} and not (
        kind == "string" and _are_choices(field)
    ):
        raise _refusal(where, "other choices")


def _are_choices(field: Mapping[str, Any]) -> bool:
    """Whether a property offers choices of strings: ``enum``, and ``enumNames`` of the same length,
    or ``oneOf`` (``anyOf`` for items) with titles."""
    titled = field.get("oneOf", field.get("anyOf"))
    if titled is not None:
        return isinstance(titled, list) and all(
            isinstance(option, Mapping) and _are_texts([option.get("const"), option.get("title")])
            for option in titled
        )
    options = field.get("enum")
    names = field.get("enumNames", options)
    return _are_texts(options) and _are_texts(names) and len(options) == len(names)


def _are_texts(values: Any) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _refusal(where: str, what: str) -> SignatureError:
    return SignatureError(
        f"{where}: a form is flat, it holds text, numbers, booleans and choices of strings, not "
        f"{what}"
    )


_NO_FIELDS: dict[str, Any] = {"type": "object", "properties": {}}


def _root(tp: Any) -> dict[str, Any] | None:
    """The schema of an object with its definitions; None for another type."""
    (schema,), components = build_schemas([tp])
    if "$ref" in schema:
        schema = components[schema["$ref"][len(_DEFS) :]]
    return {**schema, "$defs": components} if schema.get("type") == "object" else None


def _hints(tp: Any) -> dict[str, Any]:
    """Annotations by the names of fields on the wire, for facts that the schema lacks: the order
    of options, and that a text is a time. Empty if the annotations cannot be resolved."""
    try:
        found = typing.get_type_hints(tp, include_extras=True)
        fields = getattr(msgspec.inspect.type_info(tp), "fields", ())
    except Exception:  # names of the author's local scope
        return {}
    return {field.encode_name: found.get(field.name) for field in fields}


def _parts(hint: Any) -> Iterator[Any]:
    """The types inside an annotation, and their metadata."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        yield from _parts(hint.__origin__)
        yield from hint.__metadata__
    elif origin in (Union, types.UnionType, list, set, frozenset, tuple):
        for part in typing.get_args(hint):
            yield from _parts(part)
    else:
        yield hint


class _Field:
    """One property of a form, from one of a full JSON Schema."""

    def __init__(self, source: Any, defs: dict[str, Any], where: str, hint: Any) -> None:
        self.where, self.defs, self.hints = where, defs, list(_parts(hint))
        self.nullable = False
        source = self._resolve(source)
        for key in ("anyOf", "oneOf"):
            branches = source.get(key)
            if branches and {"type": "null"} in branches:
                self.nullable = True
                rest = [branch for branch in branches if branch != {"type": "null"}]
                if len(rest) != 1:
                    raise _refusal(self.where, "a choice of types")
                siblings = {k: v for k, v in source.items() if k != key}
                source = {**self._resolve(rest[0]), **siblings}
                break
        self.schema = self._convert(source)
        for key in ("title", "description"):
            if isinstance(source.get(key), str):
                self.schema[key] = source[key]
        default = source.get("default")
        if default is not None and nonfinite(default) is None:
            self.schema["default"] = default

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Follow references. Title and description of a definition are not those of the field."""
        resolved: dict[str, Any] = dict(schema)
        while "$ref" in resolved:
            target = self.defs[resolved.pop("$ref")[len(_DEFS) :]]
            own = {k: v for k, v in target.items() if k not in ("title", "description")}
            resolved = {**own, **resolved}
        return resolved

    def _convert(self, source: dict[str, Any]) -> dict[str, Any]:
        options = self._options(source)
        if options is not None:
            return {"type": "string", **options}
        kind = source.get("type")
        if kind == "boolean":
            return {"type": "boolean"}
        if kind == "string":
            return self._text(source)
        if kind in ("integer", "number"):
            return _number(source)
        if kind == "array":
            return self._choices(source)
        if kind == "object":
            raise _refusal(self.where, "an object")
        raise _refusal(self.where, "a choice of types" if "anyOf" in source else "any value")

    def _options(self, source: dict[str, Any]) -> dict[str, Any] | None:
        named = source.get("oneOf")
        if isinstance(named, list) and all("const" in option for option in named):
            values = [option["const"] for option in named]
            plain = source.get("enum")
            if plain is not None and set(plain) != set(values):
                raise SignatureError(f"{self.where}: titles for {values}, but options {plain}")
            named = [{"const": v, "title": o.get("title", v)} for v, o in zip(values, named)]  # noqa: B905
            result: dict[str, Any] = {"oneOf": named}
        elif "const" in source:
            values = [source["const"]]
            result = {"enum": values}
        elif "enum" in source:
            values = self._ordered(source["enum"])
            result = {"enum": values}
        else:
            return None
        if not all(isinstance(value, str) for value in values):
            raise _refusal(self.where, "choices of other values")
        return result

    def _ordered(self, values: list[Any]) -> list[Any]:
        """Options in the order of the class; msgspec sorts them."""
        declared: list[Any] = []
        for part in self.hints:
            if typing.get_origin(part) is Literal:
                declared += typing.get_args(part)
            elif isinstance(part, type) and issubclass(part, enum.Enum):
                declared += [member.value for member in part]
        declared = [value for value in declared if value is not None]
        return declared if sorted(map(str, declared)) == sorted(map(str, values)) else values

    def _text(self, source: dict[str, Any]) -> dict[str, Any]:
        if "contentEncoding" in source:
            raise _refusal(self.where, "bytes")
        schema = {"type": "string"}
        for key in ("minLength", "maxLength"):
            if key in source:
                schema[key] = source[key]
        form = source.get("format")
        if form is None and datetime.datetime in self.hints and not self._naive():
            form = "date-time"  # msgspec only writes it if a time zone is required
        if form in _FORMATS:
            schema["format"] = form
        elif "pattern" in source:
            schema["pattern"] = source["pattern"]
        return schema

    def _naive(self) -> bool:
        return any(isinstance(part, msgspec.Meta) and part.tz is False for part in self.hints)

    def _choices(self, source: dict[str, Any]) -> dict[str, Any]:
        items = source.get("items")
        options = self._options(self._resolve(items)) if isinstance(items, dict) else None
        if options is None:
            raise _refusal(self.where, "a list of anything but choices")
        if "oneOf" in options:
            schema = {"type": "array", "items": {"anyOf": options["oneOf"]}}
        else:
            schema = {"type": "array", "items": {"type": "string", **options}}
        for key in ("minItems", "maxItems"):
            if key in source:
                schema[key] = source[key]
        return schema


def _number(source: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": source["type"]}
    whole = source["type"] == "integer"
    for key, exclusive, step in (
        ("minimum", "exclusiveMinimum", 1),
        ("maximum", "exclusiveMaximum", -1),
    ):
        if key in source:
            schema[key] = source[key]
        elif exclusive in source and whole:
            schema[key] = source[exclusive] + step
    return schema


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """One property in 2025-06-18: ``enumNames``, and defaults of booleans only."""
    plain = dict(schema)
    if named := plain.pop("oneOf", None):
        plain["enum"] = [option["const"] for option in named]
        plain["enumNames"] = [option["title"] for option in named]
    if plain["type"] != "boolean":
        plain.pop("default", None)
    plain.pop("pattern", None)
    return plain


set_public_home(globals())
