"""Typed values from strings: arguments of prompts, variables of resource templates, LiteMCP.

Types are those of `wirespeed.schema.json_schema`. What may be text gets the string as it is;
anything else gets what the string says of its type (``5``, ``true``, ``null``, a date, a member of
an enum), or what its JSON is (lists and objects). ``1.0`` and ``1e3`` are integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.schema.json_schema import describe_validation_error, one_line
from wirespeed.schema.python_types import dec_hook, is_model, lax_dec_hook

if TYPE_CHECKING:
    from wirespeed.schema.whole_numbers import WholeNumbers

_SHOWN = 80  # characters of an argument that an error quotes
_DEPTH = 3  # levels of a type that its text shows
_FLOAT = re.compile(r"[0-9][.eE]")
_MISMATCH = re.compile(r"Expected `[^`]+`, got `\w+`")


class ArgumentError(ValueError):
    """An argument is not valid. The text is for the caller."""


class Parameters(Protocol):
    """The parameters of a function, as a `ToolSpec` has them."""

    input_schema: dict[str, Any]
    struct: type[msgspec.Struct]
    fields: tuple[str, ...]


class TextSlot:
    """One parameter of a function, and its conversion of a string.

    name        what callers call it
    attribute   its field in the spec's struct
    type        what it takes; ``shown`` says it in words
    default     makes the default; None without one
    schema      its JSON Schema; ``defs``: what that refers to
    takes_text  whether any string is a value
    is_json     whether a value may have to be written as JSON
    """

    __slots__ = (
        "_whole", "attribute", "default", "defs", "is_json", "name", "schema", "shown",
        "takes_text", "text_as_it_is", "type",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        tp: Any,
        shown: str,
        default: Callable[[], Any] | None,
        *,
        attribute: str = "",
        schema: dict[str, Any] | None = None,
        defs: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.type = tp
        self.shown = shown
        self.default = default
        self.attribute = attribute or name
        self.schema = schema or {}
        self.defs = defs or {}
        self._whole: WholeNumbers | None = None
        info = msgspec.inspect.type_info(tp)
        self.takes_text = _takes_text(info)
        self.is_json = _is_json(info)
        # nothing to check
        self.text_as_it_is = info == msgspec.inspect.StrType() or isinstance(
            info, msgspec.inspect.AnyType
        )

    def parse(self, text: str) -> Any:
        """Return the value of a string. ArgumentError: the type has no such value."""
        if self.text_as_it_is:
            return text
        text = self.in_digits(text)
        fault: BaseException | None = None
        for candidate in (text,) if self.takes_text else dict.fromkeys((text, text.strip())):
            try:
                return msgspec.convert(
                    candidate, self.type, strict=self.takes_text, dec_hook=dec_hook
                )
            except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as exc:
                fault = exc
        if not self.takes_text:
            try:
                return msgspec.json.decode(text, type=self.type, dec_hook=dec_hook)
            except (msgspec.ValidationError, RecursionError) as exc:
                fault = exc  # it is JSON, so that this says more
            except (msgspec.DecodeError, UnicodeEncodeError):
                pass
        assert fault is not None
        raise ArgumentError(self._complaint(text, fault)) from fault

    @property
    def is_list(self) -> bool:
        """Whether the values are lists, or other collections of one type."""
        return _is_list(msgspec.inspect.type_info(self.type))

    def parse_list(self, texts: list[str]) -> Any:
        """Return the collection of the values of strings. ArgumentError: it does not fit."""
        try:
            return msgspec.convert(texts, self.type, strict=False, dec_hook=lax_dec_hook)
        except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as exc:
            raise ArgumentError(self._complaint(str(texts), exc)) from exc

    def in_digits(self, text: str) -> str:
        """Return JSON with whole numbers as digits where the type has integers (see
        `wirespeed.schema.whole_numbers`); any other text unchanged."""
        if self.takes_text or not _FLOAT.search(text):
            return text
        if self._whole is None:
            from wirespeed.schema.whole_numbers import WholeNumbers

            self._whole = WholeNumbers(self.schema, self.defs)
        found = self._whole.in_digits(text.encode("utf-8", "replace"))
        return text if found is None else found.decode()

    def _complaint(self, text: str, fault: BaseException) -> str:
        what = f"argument '{self.name}'"
        if isinstance(fault, UnicodeEncodeError) or _MISMATCH.fullmatch(str(fault)):
            # the types are JSON's, but here everything is a string
            shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
            return one_line(f"{what}: expected {self.shown}, got {shown!r}")
        return f"{what}: {describe_validation_error(fault, 'at').removeprefix('at: ')}"


def _takes_text(info: msgspec.inspect.Type) -> bool:
    if isinstance(info, msgspec.inspect.UnionType):
        return any(_takes_text(member) for member in info.types)
    if isinstance(info, msgspec.inspect.Metadata):
        return _takes_text(info.type)
    return isinstance(info, (msgspec.inspect.StrType, msgspec.inspect.AnyType))


def _is_list(info: msgspec.inspect.Type) -> bool:
    if isinstance(info, msgspec.inspect.UnionType):
        return any(_is_list(member) for member in info.types)
    if isinstance(info, msgspec.inspect.Metadata):
        return _is_list(info.type)
    return isinstance(info, msgspec.inspect.CollectionType)


def _is_json(info: msgspec.inspect.Type) -> bool:
    if isinstance(info, msgspec.inspect.UnionType):
        return any(_is_json(member) for member in info.types)
    if isinstance(info, msgspec.inspect.Metadata):
        return _is_json(info.type)
    if isinstance(info, msgspec.inspect.CustomType):
        return is_model(info.cls)
    return isinstance(info, _JSON_TYPES)


_JSON_TYPES = (
    msgspec.inspect.CollectionType,
    msgspec.inspect.TupleType,
    msgspec.inspect.DictType,
    msgspec.inspect.StructType,
    msgspec.inspect.TypedDictType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.DataclassType,
)


def slots_of(spec: Parameters) -> list[TextSlot]:
    """The parameters of a function, in order."""
    properties = spec.input_schema["properties"]
    defs = spec.input_schema.get("$defs", {})
    slots = []
    fields = {field.name: field for field in msgspec.structs.fields(spec.struct)}
    for name in spec.fields:
        field = fields[name]
        schema = properties[field.encode_name]
        default: Callable[[], Any] | None = None
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory
        elif field.default is not msgspec.NODEFAULT:
            default = _constant(field.default)
        slots.append(
            TextSlot(
                field.encode_name,
                field.type,
                type_text(schema, defs),
                default,
                attribute=name,
                schema=schema,
                defs=defs,
            )
        )
    return slots


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def decode_strings(slots: list[TextSlot], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each parameter by its attribute. Other names are ignored.

    ArgumentError: one is missing that has no default, or does not fit.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    for slot in slots:
        text = given.get(slot.name)
        if text is not None:
            values[slot.attribute] = slot.parse(text)
        elif slot.default is not None:
            values[slot.attribute] = slot.default()
        else:
            missing.append(slot.name)
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise ArgumentError(f"missing argument{plural}: {', '.join(missing)}")
    return values


# -- types in words -------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a JSON value as an argument: a string unchanged, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def type_text(schema: Any, defs: dict[str, Any], depth: int = _DEPTH) -> str:
    """A JSON Schema in a few words: ``integer``, ``"a" or "b"``, ``array of number``,
    ``object {"x": number}``."""
    if not isinstance(schema, dict):
        return "any"
    ref = schema.get("$ref")
    if isinstance(ref, str):
        return type_text(defs.get(ref.rpartition("/")[2]), defs, depth)
    if "const" in schema:
        return msgspec.json.encode(schema["const"]).decode()
    if isinstance(schema.get("enum"), list):
        return _either(msgspec.json.encode(value).decode() for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _either(type_text(part, defs, depth) for part in schema[key])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _either(type_text({**schema, "type": one}, defs, depth) for one in kind)
    if kind == "array":
        items = schema.get("items")
        return f"array of {type_text(items, defs, depth - 1)}" if items and depth else "array"
    if kind == "object":
        return _object_text(schema, defs, depth)
    if kind == "string" and isinstance(schema.get("format"), str):
        return f"string ({schema['format']})"
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return "string (base64)"
    return kind if isinstance(kind, str) else "any"


def _object_text(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> str:
    properties = schema.get("properties")
    if not depth or not isinstance(properties, dict) or not properties:
        return "object"
    required = schema.get("required", ())
    parts = [
        f'"{name}"{"" if name in required else " (optional)"}: {type_text(part, defs, depth - 1)}'
        for name, part in properties.items()
    ]
    return f"object {{{', '.join(parts)}}}"


def _either(parts: Any) -> str:
    return " or ".join(dict.fromkeys(parts))
