"""Whole numbers that JSON text writes as floats: ``1.0``, ``1e3``, ``-0.0``. Loaded by the first
arguments that are refused.

JSON Schema calls them integers ("integer" is any number with a zero fractional part, 2020-12
validation 6.1.1), and clients that know only doubles write them so. msgspec takes digits alone for
an ``int``. `WholeNumbers` writes those that stand where a schema has an integer as digits, exactly,
and leaves everything else as it is: where a schema also has a number, or any value, a float stays
a float.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from wirespeed.schema.json_schema import DEFS

# Digits of a whole number that is not written in digits: ``1e999999999`` must not fill the memory.
# The integers of 128 bits have at most 39.
MAX_DIGITS = 40
# Numbers in float notation of one text: each costs about 2 µs.
MAX_NUMBERS = 100_000

_PARTS = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]+))?")
# The strings of a valid JSON text, to be skipped, and its numbers that are not digits alone.
_TOKENS = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++))',
    re.DOTALL,
)
# A text that is a number in float notation.
_FLOAT_TEXT = re.compile(
    r"[ \t\n\r]*(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[ \t\n\r]*"
)
_ANY: Mapping[str, Any] = {}
_KINDS = {int: "integer", float: "number"}
_NUMBERS = frozenset(_KINDS.values())


def digits_of(literal: str) -> str | None:
    """The digits of a JSON number in float notation; None if it is a fraction, or has more than
    `MAX_DIGITS` digits."""
    if literal.endswith(".0") and len(literal) <= MAX_DIGITS and literal != "-0.0":
        digits = literal[:-2]
        if digits.isdigit() or digits[1:].isdigit():  # not 1e0.0, which is not JSON
            return digits
    found = _PARTS.fullmatch(literal)
    if found is None:
        return None
    sign, whole, fraction, minus, exponent = found.groups("")
    mantissa = (whole + fraction).rstrip("0")
    digits = mantissa.lstrip("0")
    if not digits:
        return "0"
    if len(exponent) > 9:
        return None
    power = int(minus + (exponent or "0")) + len(whole) - len(mantissa)
    if power < 0 or len(digits) + power > MAX_DIGITS:
        return None
    return sign + digits + "0" * power


class _Whole:
    """A whole number in a decoded text. ``otherwise``: its value where no schema has an integer.
    ``text``: it is a string there. ``integer``: a schema has an integer there."""

    __slots__ = ("digits", "integer", "otherwise", "text")

    def __init__(self, digits: str, otherwise: Any, text: bool = False) -> None:
        self.digits = digits
        self.otherwise = otherwise
        self.text = text
        self.integer = False


_LOOKED_AT = (_Whole, dict, list)


class WholeNumbers:
    """Finds the integers of a JSON Schema in texts.

    Args:
        schema: The schema, of `wirespeed.schema.json_schema` or of pydantic.
        defs: Its definitions; its own ``$defs`` by default.
    """

    def __init__(self, schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._defs = schema.get("$defs", {}) if defs is None else defs
        self._known: dict[int, list[Mapping[str, Any]]] = {}

    def in_digits(self, text: bytes) -> bytes | None:
        """The text with whole numbers as digits where the schema has an integer; None where it
        has no such number, cannot be decoded, or has more than `MAX_NUMBERS` floats."""
        floats: list[_Whole | None] = []

        def note(literal: str) -> Any:
            if len(floats) == MAX_NUMBERS:
                raise msgspec.DecodeError("too many numbers")
            digits = digits_of(literal)
            floats.append(None if digits is None else _Whole(digits, 0.5))
            return floats[-1] or 0.5

        try:
            value = msgspec.json.Decoder(float_hook=note).decode(text)
            if any(floats):
                self._find(self._leaves(self._schema), value)
        except (msgspec.DecodeError, RecursionError):
            return None
        if not any(number is not None and number.integer for number in floats):
            return None
        numbers = iter(floats)

        def written(token: re.Match[bytes]) -> bytes:
            number = next(numbers) if token[1] else None
            return token[0] if number is None or not number.integer else number.digits.encode()

        return _TOKENS.sub(written, text)

    def in_digits_of_texts(self, text: bytes) -> bytes:
        """The text with whole numbers as digits where the schema has an integer, also those that
        are strings, where it has no string. The text itself where it cannot be decoded, or has more
        than `MAX_NUMBERS` such numbers."""
        known: list[_Whole] = []

        def note(literal: str, otherwise: Any, text: bool = False) -> Any:
            digits = digits_of(literal)
            if digits is None:
                return otherwise
            if len(known) == MAX_NUMBERS:
                raise msgspec.DecodeError("too many numbers")
            known.append(_Whole(digits, otherwise, text))
            return known[-1]

        def note_float(literal: str) -> Any:
            return note(literal, msgspec.Raw(literal.encode()))

        def note_text(item: Any) -> Any:
            number = _FLOAT_TEXT.fullmatch(item) if type(item) is str else None
            return item if number is None else note(number[1], item, text=True)

        def written(item: Any) -> Any:
            if type(item) is not _Whole:
                return item
            return msgspec.Raw(item.digits.encode()) if item.integer else item.otherwise

        try:
            value = _mapped(msgspec.json.Decoder(float_hook=note_float).decode(text), note_text)
            self._find(self._leaves(self._schema), value)
            whole = any(number.integer for number in known)
            return msgspec.json.encode(_mapped(value, written)) if whole else text
        except (msgspec.DecodeError, RecursionError):
            return text

    def _find(self, schemas: list[Mapping[str, Any]], value: Any) -> None:
        """Mark the numbers of a value that are integers by one of its schemas."""
        if type(value) is _Whole:
            value.integer = _is_integer(schemas) and not (value.text and _has_strings(schemas))
        elif type(value) is dict:
            fitting = [schema for schema in schemas if _fits(schema, value)]
            for name, item in value.items():
                if type(item) in _LOOKED_AT:
                    self._find(self._all(_members(fitting, name)), item)
        elif type(value) is list:
            schemas = [schema for schema in schemas if _may_be(schema, "array")]
            lead = max((len(schema.get("prefixItems", ())) for schema in schemas), default=0)
            rest = self._all(_items(schemas, lead))
            integer, strings = _is_integer(rest), _has_strings(rest)  # once for a long list
            for index, item in enumerate(value):
                if type(item) is _Whole and index >= lead:
                    item.integer = integer and not (item.text and strings)
                elif type(item) in _LOOKED_AT:
                    items = self._all(_items(schemas, index)) if index < lead else rest
                    self._find(items, item)

    def _all(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        return [leaf for schema in schemas for leaf in self._leaves(schema)]

    def _leaves(self, schema: Any) -> list[Mapping[str, Any]]:
        """A schema as alternatives that are neither references nor unions."""
        if not isinstance(schema, Mapping):
            return [] if schema is False else [_ANY]
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = []  # of a reference to itself
            ref = schema.get("$ref")
            if isinstance(ref, str):
                known += self._leaves(self._defs.get(ref.removeprefix(DEFS), _ANY))
            elif parts := [
                part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, ())
            ]:
                known += self._all(parts)
            else:
                known.append(schema)
        return known


def _is_integer(schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a number is an integer by all alternatives that have numbers."""
    return {kind for schema in schemas for kind in _kinds(schema)} == {"integer"}


def _has_strings(schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an alternative has strings."""
    for schema in schemas:
        values = _values(schema)
        if values is None:
            if _may_be(schema, "string"):
                return True
        elif any(isinstance(value, str) for value in values):
            return True
    return False


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON value with each item that is not an object or array changed."""
    if type(value) is dict:
        return {name: _mapped(item, change) for name, item in value.items()}
    if type(value) is list:
        return [_mapped(item, change) for item in value]
    return change(value)


def _kinds(schema: Mapping[str, Any]) -> Iterable[str]:
    """The kinds of numbers that an alternative has."""
    values = _values(schema)
    if values is not None:
        return {_KINDS[type(value)] for value in values if type(value) in _KINDS}
    if schema.get("format") == "decimal":
        return ("number",)
    kinds = schema.get("type", "number")  # of any value
    return _NUMBERS.intersection((kinds,) if isinstance(kinds, str) else kinds)


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values that a schema lists; None if it lists none."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _may_be(schema: Mapping[str, Any], kind: str) -> bool:
    kinds = schema.get("type", kind)
    return (kind == kinds or kind in kinds) and _values(schema) is None


def _fits(schema: Mapping[str, Any], value: dict[str, Any]) -> bool:
    """Whether an alternative may be meant by an object: it has its tag, and what is required."""
    if not _may_be(schema, "object"):
        return False
    for name, member in schema.get("properties", {}).items():
        if name in value and isinstance(member, Mapping):
            values = _values(member)
            given = value[name]
            if values is not None and type(given) is not _Whole and given not in values:
                return False
    return all(name in value for name in schema.get("required", ()))


def _members(schemas: list[Mapping[str, Any]], name: str) -> Iterable[Any]:
    for schema in schemas:
        properties = schema.get("properties", {})
        yield properties[name] if name in properties else schema.get("additionalProperties", True)


def _items(schemas: list[Mapping[str, Any]], index: int) -> Iterable[Any]:
    for schema in schemas:
        prefix = schema.get("prefixItems", ())
        yield prefix[index] if index < len(prefix) else schema.get("items", True)
