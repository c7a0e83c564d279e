"""Values of a message as header fields of HTTP: how they are written, and which arguments of a tool
are mirrored (2026-07-28 basic/transports/streamable-http, "Request Metadata")."""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

KEYWORD = "x-mcp-header"
MAX_INTEGER = 2**53 - 1  # what a double holds exactly ("Schema Extension")

# The parameter that the field Mcp-Name mirrors, by method ("Standard Request Headers"; the
# extension for tasks of 2026-07-28).
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_PREFIX, _SUFFIX = "=?base64?", "?="
_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_VALUE = re.compile(r"[\t -~]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIMAL = re.compile(r"(-?[0-9]{1,16})(?:\.0{1,16})?")
_TYPES = ("string", "integer", "boolean")

# Keywords of JSON Schema (2020-12, and those of older drafts) that hold schemas, by the form of
# their value. Elsewhere, as in "default" or "enum", the keyword is data.
_ONE_SCHEMA = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties")


# -- values ----------------------------------------------------------------------------------------


def encode(value: object) -> str | None:
    """Return the field's value for an argument; None if no field carries it.

    Fields carry strings, booleans and integers up to `MAX_INTEGER`, also those written as 42.0.
    """
    if isinstance(value, str):
        try:
            return encode_text(value)
        except UnicodeEncodeError:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    number = _integer(value)
    return None if number is None else str(number)


def encode_text(text: str) -> str:
    """Return the field's value for a text: the text, or Base64 of its UTF-8 between markers where
    readers of fields would change or misread the text. UnicodeEncodeError: a lone surrogate."""
    if _PLAIN.fullmatch(text) and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return f"{_PREFIX}{_base64(text.encode())}{_SUFFIX}"


def decode(value: str) -> str:
    """Return the text that a field's value stands for.

    Without both markers the value stands for itself.

    Raises:
        ValueError: The value has a character that fields must not have, or it has both markers and
            no canonical Base64 of UTF-8 between them.
    """
    if not _VALUE.fullmatch(value):
        raise ValueError("it has invalid characters")
    # "=?base64?=" is too short for both markers
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX, len(_PREFIX))):
        return value
    code = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = a2b_base64(code, strict_mode=True)
        if _base64(data) == code:  # no bits left over
            return data.decode()
    except ValueError:  # also binascii.Error and UnicodeDecodeError
        pass
    raise ValueError("it is not Base64 of UTF-8 text")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def same_value(value: object, text: str) -> bool:
    """Whether a decoded field has an argument's value. Integers are compared as numbers."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    number = _integer(value)
    found = _DECIMAL.fullmatch(text)
    return number is not None and found is not None and int(found[1]) == number


def _integer(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER:
        return value
    return None


# -- arguments of tools ----------------------------------------------------------------------------


class ParamField(NamedTuple):
    """An argument of a tool that is mirrored into a header field."""

    name: str  # of the field: "Mcp-Param-Region"
    path: tuple[str, ...]  # the keys of the argument, from the root of the arguments
    type: str  # in the schema: "string", "integer" or "boolean"


def param_fields(schema: object) -> tuple[ParamField, ...]:
    """Return the arguments that a tool's input schema marks with ``x-mcp-header``, in order.

    ValueError: the schema breaks a rule of the keyword, so that HTTP clients leave the tool out.
    """
    found: dict[str, ParamField] = {}
    for path, node in _schemas(schema):
        if KEYWORD not in node:
            continue
        if not path:
            raise ValueError(
                f"{KEYWORD} stands outside the properties of the root and of objects in them"
            )
        name, kind = node[KEYWORD], node.get("type")
        where = f"property {'.'.join(path)!r}"
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            said = repr(name) if isinstance(name, str) else type(name).__name__
            raise ValueError(
                f"{where}: {KEYWORD} is not the name of a header field "
                f"(letters, digits and !#$%&'*+-.^_`|~): {said}"
            )
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ValueError(
                f'{where}: {KEYWORD} needs the type "string", "integer" or "boolean" alone'
            )
        before = found.setdefault(name.lower(), ParamField(f"Mcp-Param-{name}", path, kind))
        if before.path != path:
            raise ValueError(
                f"{where}: {KEYWORD} {name!r} is the name of {'.'.join(before.path)!r} already "
                "(case does not matter)"
            )
    return tuple(found.values())


def _schemas(root: object) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """All schemas in a schema, with the keys of ``properties`` that lead there; None for those that
    are reached another way. References are not followed."""
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        yield path, node
        inside: list[tuple[tuple[str, ...] | None, Any]] = []
        for key, value in node.items():
            if key == "properties" and isinstance(value, Mapping):
                inside += [
                    (None if path is None else (*path, name), each) for name, each in value.items()
                ]
            elif key in _ONE_SCHEMA:
                inside.append((None, value))
            elif key == "items":  # a list of schemas in older drafts
                inside += [(None, each) for each in (value if isinstance(value, list) else [value])]
            elif key in _SCHEMAS and isinstance(value, list):
                inside += [(None, each) for each in value]
            elif key in _NAMED_SCHEMAS and isinstance(value, Mapping):
                inside += [(None, each) for each in value.values()]
        waiting += reversed(inside)


def value_at(arguments: object, path: Iterable[str]) -> object:
    """The value at a path of keys; None if there is none."""
    for key in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(key)
    return arguments


def values_of(
    fields: Iterable[ParamField], arguments: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The header fields of a call: names and values. An argument that is absent or null has none,
    nor has a value that no field carries."""
    for field in fields:
        value = encode(value_at(arguments, field.path))
        if value is not None:
            yield field.name, value
