"""One ``outputSchema``, compiled by ``jsonschema-rs``. `validation.checks` imports this module for
the first tool that has one.

A schema comes from the server, so it is not trusted (basic, "JSON Schema Usage", of 2026-07-28): no
other document is fetched, and a schema that is too large is refused before it is compiled. A schema
may refer to itself, but not without a step into the value. A value whose check may take too long is
not checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import msgspec

from wirespeed.errors import InvalidResponse

__all__ = ["DIALECTS", "MAX_VALUE", "SchemaCheck", "Unusable"]

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""The validator of ``jsonschema-rs`` by ``$schema``, without an empty fragment at its end."""

# Members that hold subschemas of what is inside of a value, and those whose subschemas apply only
# where they are referred to.
_INNER = frozenset(
    {
        "$defs",
        "additionalItems",
        "additionalProperties",
        "contains",
        "definitions",
        "items",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"

# Limits of a schema: bytes, levels of JSON, and subschemas with every reference expanded.
MAX_SCHEMA = 64 * 1024
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 1000
# Limits of a value, in bytes: a larger value is not checked; for one above MAX_EXPLAINED the error
# does not name the place. To find the place, the library collects all errors of a union.
MAX_VALUE = 1024 * 1024
MAX_EXPLAINED = 16 * 1024
# Limit of the work of a recursive schema: the levels of a value times the binary logarithm of the
# number of its references to itself.
MAX_RECURSION = 20.0
# Limits of a regular expression: bytes when compiled, and backtracking steps of a lookaround.
_PATTERN_BYTES = 1 << 20
_BACKTRACKING = 100

_SHOWN = 200  # characters of a text that an error shows

# Members whose value is data, and members that map names to subschemas.
_DATA = frozenset({"const", "enum", "default", "examples"})
_MAPS = frozenset(
    {
        "properties",
        "patternProperties",
        "dependentSchemas",
        "dependencies",
        "$defs",
        "definitions",
    }
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_encode = msgspec.json.Encoder().encode


class Unusable(InvalidResponse):
    """A schema cannot be used, or a value cannot be checked. The value may still be valid."""


class SchemaCheck:
    """A compiled schema. `Unusable`: the schema exceeds a limit, or cannot be compiled."""

    def __init__(self, what: str, schema: Any) -> None:
        self._what = what
        dialect = schema.get("$schema", _DEFAULT) if isinstance(schema, dict) else _DEFAULT
        known = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
        if known is None:
            raise Unusable(f"{what} has a dialect that is not supported: {dialect!r:.{_SHOWN}}")
        bounds = _Bounds(what, schema)
        bounds.check()
        self._branches = bounds.n_recursions
        compiler = getattr(jsonschema_rs, known)
        engines: tuple[Any, ...] = (
            jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES),
            jsonschema_rs.FancyRegexOptions(_BACKTRACKING, _PATTERN_BYTES),
        )
        for engine in engines:
            try:
                self._compiled = compiler(schema, retriever=_refuse, pattern_options=engine)
            except ValueError as exc:  # the library's ValidationError is a ValueError
                failure = _short(getattr(exc, "message", str(exc)))
            else:
                return
        raise Unusable(f"{what} cannot be used: {failure}")

    def fault(self, value: Any) -> str | None:
        """The first fault of a value; None: the value is valid. `Unusable`: it is too large."""
        try:
            size = len(_encode(value))
        except RecursionError:
            size = MAX_VALUE + 1
        if size > MAX_VALUE:
            raise Unusable(f"the value is too large to be checked by {self._what}")
        if self._branches > 1 and _depth(value) * math.log2(self._branches) > MAX_RECURSION:
            raise Unusable(f"the value is nested too deep to be checked by {self._what}")
        if self._compiled.is_valid(value):
            return None
        if size > MAX_EXPLAINED:
            return "structuredContent is not valid; it is too large to name the place"
        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as exc:
            return f"{_path(exc.instance_path)}: {_short(exc.message)}"
        except ValueError:  # the value is nested too deep for the library's error
            pass
        return "structuredContent is not valid"


class _Bounds:
    """Checks one schema against the limits, before it is compiled."""

    def __init__(self, what: str, schema: Any) -> None:
        self._what = what
        self._root = schema
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[int, int] = {}  # by the id() of a subschema; 0 while it is counted
        self._steps: dict[int, int] = {}  # of these: the steps into the value before it
        self.n_recursions = 0  # references of a schema to itself

    def check(self) -> None:
        """Check the schema. `Unusable`: it exceeds a limit."""
        if not isinstance(self._root, (dict, bool)):
            raise self._fault("is neither an object nor a boolean")
        if len(_encode(self._root)) > MAX_SCHEMA:
            raise self._fault(f"has more than {MAX_SCHEMA} bytes")
        self._look(self._root, 1)
        self._size(self._root, 0)

    def _fault(self, text: str) -> Unusable:
        return Unusable(f"{self._what} {text}")

    def _look(self, node: Any, depth: int) -> None:
        """Check the depth, and collect the anchors."""
        if depth > MAX_DEPTH:
            raise self._fault(f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, dict):
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := node.get(name), str):
                    self._anchors[anchor] = node
            node = node.values()
        elif not isinstance(node, list):
            return
        for inner in node:
            self._look(inner, depth + 1)

    def _size(self, node: Any, steps: int) -> int:
        """The number of subschemas of a schema, with every reference to another one expanded.
        ``steps``: Into the value, before this schema applies."""
        size = self._sizes.get(id(node))
        if size == 0:
            if steps == self._steps[id(node)]:
                raise self._fault("refers to itself, so the work of a check has no bound")
            self.n_recursions += 1
            return 1
        if size is not None:
            return size
        before = self.n_recursions
        self._sizes[id(node)], self._steps[id(node)] = 0, steps
        size = 1
        for one, is_step in self._inner(node):
            size += self._size(one, steps + is_step)
            if size > MAX_SUBSCHEMAS:
                raise self._fault(f"has more than {MAX_SUBSCHEMAS} subschemas")
        if self.n_recursions == before:
            self._sizes[id(node)] = size
        else:
            del self._sizes[id(node)]  # elsewhere it may refer to itself without a step
        return size

    def _inner(self, node: Any) -> Iterator[tuple[Any, bool]]:
        """The subschemas of a schema, and the schemas that it refers to; and of each whether it is
        for what is inside of the value."""
        if not isinstance(node, dict):
            return
        if node is not self._root and isinstance(node.get("$id", node.get("id")), str):
            raise self._fault("contains another document ($id)")
        for name, value in node.items():
            if name in _REFERENCES:
                if isinstance(value, str):
                    yield self._target(value), False
            elif name in _MAPS:
                found: Iterable[Any] = value.values() if isinstance(value, dict) else ()
                yield from ((one, name in _INNER) for one in found)
            elif name not in _DATA:
                found = value if isinstance(value, list) else (value,)
                yield from ((one, name in _INNER) for one in found if isinstance(one, dict))

    def _target(self, reference: str) -> Any:
        """The subschema that a reference names."""
        if not reference.startswith("#"):
            raise self._fault(f"refers to another document ({reference:.{_SHOWN}})")
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            if pointer in self._anchors:
                return self._anchors[pointer]
            raise self._fault(f"refers to nothing ({reference:.{_SHOWN}})")
        node = self._root
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (KeyError, IndexError, TypeError, ValueError):
                raise self._fault(f"refers to nothing ({reference:.{_SHOWN}})") from None
        return node


def _depth(value: Any) -> int:
    """How many levels of objects and arrays a value has."""
    depth, level = 0, [value]
    while level:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        depth, level = depth + 1, inner
    return depth


def _refuse(uri: str) -> Any:
    """Refuse to fetch a document."""
    raise LookupError(f"references to other documents are not followed ({uri:.{_SHOWN}})")


def _path(parts: Iterable[str | int]) -> str:
    """The place of a value, such as ``structuredContent.rows[3].name``."""
    path = "structuredContent"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if part.isidentifier() else f"[{part!r}]"
    return path


def _short(text: str) -> str:
    """Shorten an error in its middle: its beginning shows the value, and its end the fault."""
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}…{text[-half:]}"
