"""The smallest JSON Schema that means the same: hosts make forms and values of a ``type``.

A host that shows a form, or that converts texts, looks at the ``type`` of a parameter. Few of them
read a union, and none needs to where one alternative has all values of another:

* ``int | float`` is a number: every integer is one. The same holds for any alternative whose values
  another one has, such as ``str | Literal["a"]``. What was listed remains as ``examples``.
* The values of ``Literal["a"] | Literal["b"]`` are one list.
* A list of values has the type of its values. null is an alternative of its own.
* An enumeration stands where it is used, without the name of its class: hosts do not follow
  references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["smallest"]

# Members of a schema that say nothing about its values.
_NOTES = frozenset(("title", "description", "default", "examples", "deprecated"))
# Members whose values are schemas, lists of schemas, and objects of schemas.
_ONE = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def smallest(schema: Any, enums: Mapping[str, dict[str, Any]]) -> Any:
    """Return a schema that accepts the same values.

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
