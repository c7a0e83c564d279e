"""Structured output, checked against the ``outputSchema`` of its tool.

server/tools ("Output Schema") of 2025-06-18 and later asks clients to check it. `SchemaCheck`
checks one value, with ``jsonschema-rs`` of the extra ``wirespeed[validate]``, which is imported for
the first tool that has a schema.

A schema comes from the server, so it is not trusted (basic, "JSON Schema Usage", of 2026-07-28): no
other document is fetched, and a schema that is too large is refused before it is compiled. A schema
may refer to itself, but not without a step into the value. A value whose check may take too long is
not checked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from wirespeed.client.results.tool_values import MAX_TOOLS
from wirespeed.errors import InvalidResponse, WirespeedError

if TYPE_CHECKING:
    from wirespeed.client.results.features import ToolInfo
    from wirespeed.protocol.results import CallToolResult

__all__ = [
    "DIALECTS",
    "MAX_VALUE",
    "Check",
    "OutputChecks",
    "SchemaCheck",
    "Unusable",
    "Validate",
    "check_of",
]

Validate: TypeAlias = Literal["auto", True, False]

Fetch: TypeAlias = Callable[[float], Awaitable[object]]

Check: TypeAlias = "Callable[[CallToolResult], None]"
"""Raises InvalidResponse for a result that breaks the tool's schema."""

logger = logging.getLogger("wirespeed.client")


def available() -> bool:
    """Whether jsonschema-rs is installed."""
    from importlib.util import find_spec

    return find_spec("jsonschema_rs") is not None


class OutputChecks:
    """The output schemas of one server's tools.

    A schema may change with its tool, and not every server sends list_changed. Before a schema or a
    result is refused, the tools are therefore listed again, and the new schema applies.

    Args:
        validate: "auto" checks the results of tools that were listed, and logs a warning for a
            result that it cannot check. True also lists the tools when a schema is missing, and
            refuses a result that it cannot check.
        fetch: Lists all tools without the cache, until the given time of the event loop, and calls
            `learn`.

    ValueError: *validate* is not valid. ImportError: *validate* is True, and jsonschema-rs is not
    installed.
    """

    def __init__(self, validate: Validate, fetch: Fetch) -> None:
        if not (validate is True or (isinstance(validate, str) and validate == "auto")):
            raise ValueError(f'validate must be "auto", True or False, not {validate!r}')
        self._strict = validate is True
        self._available = available()
        self._warned = False
        if self._strict and not self._available:
            raise ImportError(
                "checking structured output needs jsonschema-rs: pip install 'wirespeed[validate]'"
            )
        self._fetch = fetch
        self._schemas: dict[str, Any] = {}  # None: the tool has no schema
        self._checks: dict[str, Check] = {}

    def learn(self, tools: Iterable[ToolInfo]) -> None:
        """Keep the schemas of tools that the server listed."""
        if not self._available:
            if not self._warned and any(tool.output_schema is not None for tool in tools):
                self._warned = True
                logger.warning(
                    "structured output is not checked: jsonschema-rs is not installed "
                    "(pip install 'wirespeed[validate]')"
                )
            return
        self._make_room()
        for tool in tools:
            if self._schemas.get(tool.name, self) != tool.output_schema:
                self._schemas[tool.name] = tool.output_schema
                self._checks.pop(tool.name, None)

    def _make_room(self) -> None:
        if len(self._schemas) > MAX_TOOLS:
            self._schemas.clear()
            self._checks.clear()

    async def of(self, name: str, until: float = math.inf) -> Check | None:
        """The check of a tool's results; None: no schema is known. Lists the tools if necessary, up
        to the time *until* of the event loop. InvalidResponse: the schema cannot be used, so the
        tool should not be called."""
        check = self._checks.get(name)
        if check is not None:
            return check
        if name not in self._schemas:
            if not self._strict:
                return None
            await self._fetch(until)
            if name not in self._schemas:
                return self._unlisted(name)
        try:
            return self._known(name)
        except InvalidResponse:
            if await self._unchanged(name, self._schemas[name], until):
                raise
        return self._known(name)

    def _unlisted(self, name: str) -> Check:
        """The check for a tool that the server does not list. After a call that succeeded, the
        tools are not listed for it again."""

        def check(result: CallToolResult) -> None:
            if not result.is_error:
                self._make_room()
                self._schemas.setdefault(name, None)

        return check

    async def verify(
        self, name: str, check: Check, result: CallToolResult, until: float = math.inf
    ) -> None:
        """Check a result. InvalidResponse: the result breaks the tool's schema."""
        schema = self._schemas.get(name)
        try:
            check(result)
        except InvalidResponse:
            if await self._unchanged(name, schema, until):
                raise
            newer = self._known(name)
            if newer is not None:
                newer(result)

    def _known(self, name: str) -> Check | None:
        schema = self._schemas.get(name)
        if schema is None:
            return None
        check = self._checks.get(name)
        if check is None:
            check = self._checks[name] = check_of(name, schema, self._strict)
        return check

    async def _unchanged(self, name: str, schema: Any, until: float) -> bool:
        """Whether a tool still has this schema; True as well if the tools cannot be listed."""
        try:
            await self._fetch(until)
        except WirespeedError as exc:
            logger.warning("the tools cannot be listed again: %s", exc)
        now: bool = self._schemas.get(name) == schema
        return now


def check_of(name: str, schema: Any, strict: bool = True) -> Check:
    """The check of a tool's results.

    With *strict*, a schema that cannot be used and a result that is too large raise
    InvalidResponse. Otherwise the result is not checked, and the first failure is logged.
    """
    warned = False

    def unchecked(exc: Unusable) -> None:
        nonlocal warned
        if strict:
            raise exc
        if not warned:
            warned = True
            logger.warning("results of %s are not checked: %s", name, exc)

    schema_check: SchemaCheck | None = None
    try:
        schema_check = SchemaCheck(f"the outputSchema of {name}", schema)
    except Unusable as exc:
        unchecked(exc)

    def check(result: CallToolResult) -> None:
        if result.is_error or schema_check is None:
            return
        value = result.structured_content
        if value is UNSET:
            raise InvalidResponse(
                f"the result of {name} has no structuredContent, which its outputSchema requires"
            )
        try:
            fault = schema_check.fault(value)
        except Unusable as exc:
            unchecked(exc)
            return
        if fault is not None:
            raise InvalidResponse(f"the result of {name} breaks its outputSchema: {fault}")

    return check


# -- one schema ------------------------------------------------------------------------------------

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
        import jsonschema_rs  # of an extra

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
        import jsonschema_rs

        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as exc:
            return f"{_path(exc.instance_path)}: {_short(exc.message)}"
        except ValueError:  # the value is nested too deep for the library's error
            pass
        return "structuredContent is not valid"


class _Bounds:
    """The check of one schema against the limits, before it is compiled."""

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
    """Count the levels of objects and arrays of a value."""
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
