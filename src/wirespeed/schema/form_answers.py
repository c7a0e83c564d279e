"""Answers to forms that are JSON Schemas: defaults and checks.

A form is a flat JSON Schema (client/elicitation of 2025-06-18 on, "Request Schema"): strings,
numbers, booleans, choices, and lists of choices. Other keywords are ignored. So is ``pattern``,
because a malicious expression takes any time; the form's author checks it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, TypeGuard

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\Z")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+\Z")
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a form, without those that break a rule of their field."""
    values: dict[str, Any] = {}
    for name, field in _fields(schema):
        if "default" in field and _fault(field, field["default"]) is None:
            values[name] = field["default"]
    return values


def check(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The members of *content* that are fields, in the form's order. ValueError, which names the
    field: it is required and missing, or breaks a rule of the form."""
    found: dict[str, Any] = {}
    for name, field in _fields(schema):
        if name in content:
            fault = _fault(field, content[name])
            if fault is not None:
                raise ValueError(f"{name!r} {fault}")
            found[name] = content[name]
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in content:
            raise ValueError(f"{name!r} is required")
    return found


def fill(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content to send: *content*, and defaults of the other fields, in the form's order.

    None stands for an empty field. ValueError, which names the field: as of `check`, or it is not a
    field of the form.
    """
    given = {name: value for name, value in content.items() if value is not None}
    filled = check(schema, defaults(schema) | given)
    others = {name: value for name, value in given.items() if name not in filled}
    if others and schema.get("additionalProperties") is not True:
        raise ValueError(f"{next(iter(others))!r} is not a field of the form")
    for name, value in others.items():
        if not _is_plain(value):
            raise ValueError(f"{name!r} is not a string, number, boolean or list of strings")
        filled[name] = value
    return filled


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    return [(n, field if isinstance(field, dict) else {}) for n, field in properties.items()]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_plain(value: object) -> bool:
    """Whether ``content`` may have a member with this value."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int, bool))


def _fault(field: Mapping[str, Any], value: Any) -> str | None:
    """Return the fault of a value; None if it is valid. As in JSON Schema, a keyword applies to
    values of its kind, independently of ``type``."""
    if not _is_plain(value):
        return "is not a string, number, boolean or list of strings"
    fault = _type_fault(field.get("type"), value)
    if fault is not None:
        return fault
    options = _options(field)
    if options is not None and not any(_same(value, option) for option in options):
        return f"must be one of {', '.join(map(repr, options[:20]))}"
    if isinstance(value, str):
        return _string_fault(field, value)
    if isinstance(value, list):
        return _list_fault(field, value)
    return _number_fault(field, value) if _is_number(value) else None


def _type_fault(kind: Any, value: Any) -> str | None:
    """``type`` may be a list of alternatives. Types that forms do not have are ignored."""
    kinds = kind if isinstance(kind, list) else [kind]
    wanted = [_TYPES.get(kind) if isinstance(kind, str) else None for kind in kinds]
    faults = [None if one is None or one[1](value) else one[0] for one in wanted]
    return None if None in faults or not faults else f"must be {' or '.join(map(str, faults))}"


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "number": ("a number", _is_number),
    "integer": ("a whole number", lambda value: _is_number(value) and value == math.floor(value)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
}


def _same(value: Any, option: Any) -> bool:
    """Equality in JSON: true is not 1."""
    return isinstance(value, bool) == isinstance(option, bool) and bool(value == option)


def _string_fault(field: Mapping[str, Any], value: str) -> str | None:
    least, most = field.get("minLength"), field.get("maxLength")
    if _is_number(least) and len(value) < least:
        return f"must have at least {least} characters"
    if _is_number(most) and len(value) > most:
        return f"must have at most {most} characters"
    kind = field.get("format")
    check = _FORMATS.get(kind) if isinstance(kind, str) else None
    return f"is not a valid {kind}" if check is not None and not check(value) else None


def _number_fault(field: Mapping[str, Any], value: float) -> str | None:
    least, most = field.get("minimum"), field.get("maximum")
    if _is_number(least) and value < least:
        return f"must be at least {least}"
    if _is_number(most) and value > most:
        return f"must be at most {most}"
    return None


def _items(count: float) -> str:
    return "item" if count == 1 else "items"


def _list_fault(field: Mapping[str, Any], value: list[Any]) -> str | None:
    least, most = field.get("minItems"), field.get("maxItems")
    if _is_number(least) and len(value) < least:
        return f"must have at least {least} {_items(least)}"
    if _is_number(most) and len(value) > most:
        return f"must have at most {most} {_items(most)}"
    items = field.get("items")
    for item in value:
        fault = _fault(items if isinstance(items, dict) else {}, item)
        if fault is not None:
            return f"has an item that {fault}"
    return None


def _options(field: Mapping[str, Any]) -> list[Any] | None:
    """The options of a choice; None for other fields. Other alternatives are ignored."""
    if isinstance(options := field.get("enum"), list):
        return options
    for keyword in ("oneOf", "anyOf"):
        titled = field.get(keyword)
        if isinstance(titled, list) and all(
            isinstance(option, dict) and "const" in option for option in titled
        ):
            return [option["const"] for option in titled]
    return None


def _is_date(text: str) -> bool:
    try:
        return _DATE.match(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        # a leap second is valid (RFC 3339 section 5.6)
        plain = text[:17] + "59" + text[19:] if text[17:19] == "60" else text
        return _TIME.match(text) is not None and datetime.fromisoformat(plain.upper()) is not None
    except ValueError:
        return False


_FORMATS = {
    "email": lambda text: _EMAIL.match(text) is not None,
    "uri": lambda text: _URI.match(text) is not None,
    "date": _is_date,
    "date-time": _is_time,
}
