"""A function's parameters as LiteMCP's, and its arguments from strings.

Types are those of `wirespeed.server.schema`. A parameter that may take text gets the string as it
is; any other one gets what the string says of its type (``5``, ``true``, ``null``, a date, a member
of an enum), or what its JSON is (lists and objects).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wirespeed.litemcp.messages import Parameter
from wirespeed.server.schema import dec_hook, describe_validation_error, one_line
from wirespeed.server.signature import ToolSpec

__all__ = [
    "ArgumentError",
    "Slot",
    "check_number",
    "decode_arguments",
    "parameter_of",
    "slots_of",
    "text_of",
    "type_text",
]

_SHOWN = 80  # characters of an argument that an error quotes
_DEPTH = 3  # levels of a type that its text shows
_MISMATCH = re.compile(r"Expected `[^`]+`, got `\w+`")
_EXAMPLE = re.compile(r"[\s(]*\b(?:Example|e\.g\.)\s*:?\s+(?P<text>.+?)[\s.)]*\Z", re.IGNORECASE)


class ArgumentError(ValueError):
    """An argument does not fit; the text is fit for the caller."""


class Slot:
    """One parameter of a tool: how it is shown, and how it takes a string."""

    __slots__ = ("default", "name", "parameter", "takes_text", "text_as_it_is", "type")

    def __init__(self, parameter: Parameter, tp: Any, default: Callable[[], Any] | None) -> None:
        self.parameter = parameter
        self.name = parameter.name
        self.type = tp
        self.default = default  # makes the default; None where there is none
        info = msgspec.inspect.type_info(tp)
        self.takes_text = _takes_text(info)
        # nothing to check
        self.text_as_it_is = info == msgspec.inspect.StrType() or isinstance(
            info, msgspec.inspect.AnyType
        )

    def parse(self, text: str) -> Any:
        """The value that a string stands for. ArgumentError: none of this type."""
        if self.text_as_it_is:
            return text
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

    def _complaint(self, text: str, fault: BaseException) -> str:
        what = f"argument '{self.name}'"
        if isinstance(fault, UnicodeEncodeError) or _MISMATCH.fullmatch(str(fault)):
            # the types are JSON's, but here everything is a string
            shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
            return one_line(f"{what}: expected {self.parameter.type}, got {shown!r}")
        return describe_validation_error(fault, what)


def _takes_text(info: msgspec.inspect.Type) -> bool:
    if isinstance(info, msgspec.inspect.UnionType):
        return any(_takes_text(member) for member in info.types)
    if isinstance(info, msgspec.inspect.Metadata):
        return _takes_text(info.type)
    return isinstance(info, (msgspec.inspect.StrType, msgspec.inspect.AnyType))


def decode_arguments(slots: Sequence[Slot], arguments: Sequence[str]) -> list[Any]:
    """The values of a call, one for each parameter, from the strings that were given.

    Arguments that are missing at the end are defaults, and so is an empty string before the last
    one given where there is a default, or where it can mean nothing else. ArgumentError: too many,
    or one does not fit, or one is missing that has no default.
    """
    given = len(arguments)
    check_number(given, len(slots))
    values: list[Any] = []
    for at, slot in enumerate(slots):
        if at < given:
            text = arguments[at]
            gap = text == "" and (at < given - 1 or not slot.takes_text)
            if not gap or slot.default is None:
                values.append(slot.parse(text))
                continue
        if slot.default is None:
            missing = [s.name for s in slots[given:] if s.default is None]
            plural = "s" if len(missing) > 1 else ""
            raise ArgumentError(f"missing argument{plural}: {', '.join(missing)}")
        values.append(slot.default())
    return values


def check_number(given: int, most: int) -> None:
    """ArgumentError when there are more arguments than parameters."""
    if given > most:
        raise ArgumentError(
            f"too many arguments: {given} were given, {most or 'none'} can be taken"
        )


# -- from a signature -----------------------------------------------------------------------------


def slots_of(spec: ToolSpec) -> list[Slot]:
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
        parameter = parameter_of(field.encode_name, schema, defs, optional=default is not None)
        slots.append(Slot(parameter, field.type, default))
    return slots


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def parameter_of(
    name: str, schema: dict[str, Any], defs: dict[str, Any], optional: bool
) -> Parameter:
    """A parameter as clients are shown it, from its JSON Schema."""
    description = schema.get("description")
    example = None
    examples = schema.get("examples")
    if examples:
        example = text_of(examples[0])
    elif description and (found := _EXAMPLE.search(description)):
        example = found["text"]
        description = description[: found.start()].rstrip(" ,;:") or None
    if optional:
        note = "Optional."
        if "default" in schema:
            note = f"Optional, {text_of(schema['default']) or 'empty'} by default."
        if description and description[-1] not in ".!?":
            description += "."
        description = f"{description} {note}" if description else note
    return Parameter(name, type_text(schema, defs), description, example)


def text_of(value: Any) -> str:
    """A JSON value as an argument: a string as it is, anything else as JSON."""
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
