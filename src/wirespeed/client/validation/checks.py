"""Structured output, checked against the ``outputSchema`` of its tool.

server/tools ("Output Schema") of 2025-06-18 and later asks clients to check it.
`wirespeed.client.validation.schema` checks one value, with ``jsonschema-rs`` of the extra
``wirespeed[validate]``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET

from wirespeed.errors import InvalidResponse, WirespeedError

if TYPE_CHECKING:
    from wirespeed.client.results.tools import ToolInfo
    from wirespeed.protocol.results import CallToolResult

__all__ = ["Check", "OutputChecks", "Validate", "check_of"]

Validate: TypeAlias = Literal["auto", True, False]

Fetch: TypeAlias = Callable[[float], Awaitable[object]]

Check: TypeAlias = "Callable[[CallToolResult], None]"
"""Raises InvalidResponse for a result that breaks the tool's schema."""

logger = logging.getLogger("wirespeed.client")

MAX_TOOLS = 100_000


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
    from wirespeed.client.validation.schema import SchemaCheck, Unusable

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
