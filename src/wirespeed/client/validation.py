"""Structured output of tools, checked against their ``outputSchema``.

server/tools ("Output Schema") of 2025-06-18 and later asks clients to check it. The work is done by
``jsonschema-rs``, which comes with the extra
``wirespeed[validate]``.

Schemas are their server's, so they are not trusted (basic, "JSON Schema Usage", of 2026-07-28):

* No reference to another document is followed, whether it is on a network or in a file; a schema
  that has one is refused.
* The dialects are `DIALECTS`; a schema that names none is of 2020-12, one of another is refused.
* The size of a schema is bounded by `MAX_SUBSCHEMAS` and `MAX_DEPTH`, with references written out
  by `MAX_WORK`; regular expressions may backtrack for `MAX_BACKTRACKING` steps. What a schema that
  refers to itself makes of a deep value is not bounded: there is ``validate=False``.

What is refused is found out before the tool is called.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from wirespeed.errors import InvalidResponse, WirespeedError

if TYPE_CHECKING:
    from wirespeed.client.results import CallToolResult, ToolInfo

__all__ = ["DIALECTS", "Check", "Checks", "Validate", "available"]

Validate: TypeAlias = Literal["auto", True, False]

Check: TypeAlias = "Callable[[CallToolResult], None]"
"""Raises InvalidResponse for a result that its tool should not have given."""

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""By ``$schema``, without an empty fragment at its end."""

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"

logger = logging.getLogger("wirespeed.client")

MAX_TOOLS = 100_000
MAX_SUBSCHEMAS = 10_000
MAX_DEPTH = 128
MAX_WORK = 100_000
MAX_BACKTRACKING = 100_000

_SHOWN = 200  # characters of a value that an error shows

# Keywords whose schemas are about the same value, and those about its parts.
_SAME_ONE = ("not", "if", "then", "else")
_SAME_MANY = ("allOf", "anyOf", "oneOf")
_SAME_MAPS = ("dependentSchemas", "dependencies")
_PART_ONE = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
)
_PART_MANY = ("prefixItems", "items")
_PART_MAPS = ("properties", "patternProperties")


def available() -> bool:
    """Whether jsonschema-rs is installed."""
    from importlib.util import find_spec

    return find_spec("jsonschema_rs") is not None


class Checks:
    """What is known of the tools of one client's server.

    Schemas change with their tools, which not every server tells: before a schema or a result is
    refused, the tools are listed again, and what they say now counts.

    Args:
        fetch: Lists all tools, and lets `learn` know.
        eager: Whether a tool that was never listed is looked for.

    ImportError: jsonschema-rs is not installed.
    """

    def __init__(self, fetch: Callable[[], Awaitable[object]], eager: bool) -> None:
        if not available():
            raise ImportError(
                "checking structured output needs jsonschema-rs: pip install 'wirespeed[validate]'"
            )
        self._fetch = fetch
        self._eager = eager
        self._schemas: dict[str, Any] = {}  # None: the tool has none
        self._checks: dict[str, Check] = {}

    def learn(self, tools: Iterable[ToolInfo]) -> None:
        """Tools as the server lists them now."""
        if len(self._schemas) > MAX_TOOLS:
            self._schemas.clear()
            self._checks.clear()
        for tool in tools:
            if self._schemas.get(tool.name, self) != tool.output_schema:
                self._schemas[tool.name] = tool.output_schema
                self._checks.pop(tool.name, None)

    async def of(self, name: str) -> Check | None:
        """The check for results of a tool; None: there is nothing to check. InvalidResponse: its
        schema is not to be used, so the tool should not be called."""
        check = self._checks.get(name)
        if check is not None:
            return check
        if name not in self._schemas:
            if not self._eager:
                return None
            await self._fetch()
            self._schemas.setdefault(name, None)  # it is not listed
        try:
            return self._known(name)
        except InvalidResponse:
            if await self._still(name, self._schemas[name]):
                raise
        return self._known(name)

    async def verify(self, name: str, check: Check, result: CallToolResult) -> None:
        """InvalidResponse: the result breaks the tool's schema."""
        schema = self._schemas.get(name)
        try:
            check(result)
        except InvalidResponse:
            if await self._still(name, schema):
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
            check = self._checks[name] = check_of(name, schema)
        return check

    async def _still(self, name: str, schema: Any) -> bool:
        """Whether a tool has this schema now; if that cannot be found out, it has."""
        try:
            await self._fetch()
        except WirespeedError as exc:
            logger.warning("the tools cannot be listed again: %s", exc)
        now: bool = self._schemas.get(name) == schema
        return now


def check_of(name: str, schema: Any) -> Check:
    """The check of a tool's results. InvalidResponse: the schema is broken, refers to other
    documents, is of an unknown dialect, or too large."""
    validate = _compiled(f"the outputSchema of {name}", schema)

    def check(result: CallToolResult) -> None:
        if result.is_error:
            return
        fault = validate(result.structured_content)
        if fault is None:
            return
        if result.structured_content is None:
            fault = f"it has no structuredContent, which the tool's outputSchema asks for ({fault})"
        raise InvalidResponse(f"the result of {name} breaks its outputSchema: {fault}")

    return check


def _compiled(what: str, schema: Any) -> Callable[[Any], str | None]:
    """A function that says what is wrong with a value; None: nothing."""
    import jsonschema_rs

    if not isinstance(schema, (dict, bool)):
        raise InvalidResponse(f"{what} is neither an object nor a boolean")
    dialect = schema.get("$schema", _DEFAULT) if isinstance(schema, dict) else _DEFAULT
    known = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
    if known is None:
        raise InvalidResponse(
            f"{what} is of a dialect that is not supported: {dialect!r:.{_SHOWN}}"
        )
    fault = _Size(schema).fault()
    if fault is not None:
        raise InvalidResponse(f"{what} {fault}")
    try:
        validator = getattr(jsonschema_rs, known)(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKING),
        )
    except ValueError as exc:  # its ValidationError is one
        raise InvalidResponse(
            f"{what} cannot be used: {_short(getattr(exc, 'message', str(exc)))}"
        ) from None

    def fault_of(value: Any) -> str | None:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as exc:
            return f"{_path(exc.instance_path)}: {_short(exc.message)}"
        except ValueError as exc:  # a value that it does not take, such as one that is too deep
            return f"structuredContent cannot be checked: {_short(str(exc))}"
        return None

    return fault_of


def _refuse(uri: str) -> Any:
    """Nothing is fetched."""
    raise LookupError(f"references to other documents are not followed ({uri:.{_SHOWN}})")


def _path(parts: Iterable[str | int]) -> str:
    """Where a value is, such as ``structuredContent.rows[3].name``."""
    path = "structuredContent"
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if part.isidentifier() else f"[{part!r}]"
    return path


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class _Size:
    """How large a schema is, and how much work it can make of one value.

    A small schema may pass a value through the same subschema a billion times, by references that
    double at each step. So the work is counted as if each reference were written out; one back to
    a schema that is being counted counts once.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._work: dict[int, int] = {}
        self._open: set[int] = set()
        self._named: dict[str, Any] = {}  # by anchor, or the end of an id
        self._count = 0

    def fault(self) -> str | None:
        """What is wrong with it; None: nothing."""
        fault = self._extent(self._root)
        if fault is not None:
            return fault
        try:
            if self._of(self._root) > MAX_WORK:
                return "makes more work than is allowed (MAX_WORK)"
        except RecursionError:
            return f"is nested deeper than {MAX_DEPTH} levels"
        return None

    def _extent(self, schema: Any) -> str | None:
        refs: list[str] = []
        stack = [(schema, 0)]
        while stack:
            value, depth = stack.pop()
            if not isinstance(value, (dict, list)):
                continue
            self._count += 1
            if self._count > MAX_SUBSCHEMAS:
                return f"has more than {MAX_SUBSCHEMAS} parts"
            if depth > MAX_DEPTH:
                return f"is nested deeper than {MAX_DEPTH} levels"
            if isinstance(value, dict):
                for keyword, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", "")):
                    if isinstance(name := value.get(keyword), str):
                        self._named[prefix + _end(name)] = value
                refs += [ref for word in _REFS if isinstance(ref := value.get(word), str)]
            parts = value.values() if isinstance(value, dict) else value
            stack += [(part, depth + 1) for part in parts]
        for ref in refs:
            # what is behind any other could not be counted
            if "#/" in ref and not ref.startswith("#/"):
                return f"has a reference by way of an $id: {ref[:100]!r}"
        return None

    def _of(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        known = self._work.get(key)
        if known is not None:
            return known
        if key in self._open:
            return 1
        self._open.add(key)
        total = 1 + sum(self._of(target) for target in self._same(schema))
        total += sum(self._of(part) for part in self._parts(schema))
        self._open.discard(key)
        total = min(total, MAX_WORK + 1)
        self._work[key] = total
        return total

    def _same(self, schema: dict[str, Any]) -> Iterable[Any]:
        for keyword in _REFS:
            target = self._target(schema.get(keyword))
            if target is not None:
                yield target
        for keyword in _SAME_ONE:
            if keyword in schema:
                yield schema[keyword]
        for keyword in _SAME_MANY:
            if isinstance(several := schema.get(keyword), list):
                yield from several
        for keyword in _SAME_MAPS:
            if isinstance(several := schema.get(keyword), dict):
                yield from several.values()

    def _parts(self, schema: dict[str, Any]) -> Iterable[Any]:
        for keyword in _PART_ONE:
            if isinstance(one := schema.get(keyword), dict):
                yield one
        for keyword in _PART_MANY:
            if isinstance(several := schema.get(keyword), list):
                yield from several
        for keyword in _PART_MAPS:
            if isinstance(several := schema.get(keyword), dict):
                yield from several.values()

    def _target(self, ref: Any) -> Any:
        """What a reference inside the document points at; None: nothing that is followed here."""
        if not isinstance(ref, str):
            return None
        if ref == "#":
            return self._root
        if not ref.startswith("#/"):
            return self._named.get(_end(ref))
        from urllib.parse import unquote

        value = self._root
        for part in ref[2:].split("/"):
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value


_REFS = ("$ref", "$dynamicRef", "$recursiveRef")


def _end(uri: str) -> str:
    return uri.rsplit("/", 1)[-1]


class Validating:
    """The part of a client that checks structured output."""

    _checks: Checks | None = None
    _validate: Validate = "auto"
    _list_again: Callable[[], Awaitable[object]]

    def _set_up_validation(
        self, validate: Validate, list_tools: Callable[[], Awaitable[object]]
    ) -> None:
        """ValueError, ImportError: that is not possible."""
        if validate not in ("auto", True, False):
            raise ValueError(f'validate must be "auto", True or False, not {validate!r}')
        self._validate = validate
        self._list_again = list_tools
        if validate is True:
            self._checks = Checks(list_tools, True)

    def _listed(self, tools: list[ToolInfo]) -> None:
        if self._checks is None:
            if self._validate is False or all(tool.output_schema is None for tool in tools):
                return
            if not available():
                self._validate = False
                return
            self._checks = Checks(self._list_again, False)
        self._checks.learn(tools)
