"""Which tools' structured output is checked against their ``outputSchema``, and when.

server/tools ("Output Schema") of 2025-06-18 and later asks clients to check it. The work is done in
`wirespeed.client.schema_check`, by ``jsonschema-rs``, which comes with the extra
``wirespeed[validate]``.

A schema that is refused is found out before its tool is called. A result that is too large for its
schema is an error only if the check was insisted on (``validate=True``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from wirespeed.errors import InvalidResponse, WirespeedError

if TYPE_CHECKING:
    from wirespeed.client.results import ToolInfo
    from wirespeed.protocol.results import CallToolResult

__all__ = ["Check", "Checks", "Validate", "available"]

Validate: TypeAlias = Literal["auto", True, False]

Fetch: TypeAlias = Callable[[float], Awaitable[object]]

Check: TypeAlias = "Callable[[CallToolResult], None]"
"""Raises InvalidResponse for a result that its tool should not have given."""

logger = logging.getLogger("wirespeed.client")

MAX_TOOLS = 100_000


def available() -> bool:
    """Whether jsonschema-rs is installed."""
    from importlib.util import find_spec

    return find_spec("jsonschema_rs") is not None


class Checks:
    """What is known of the tools of one client's server.

    Schemas change with their tools, which not every server tells: before a schema or a result is
    refused, the tools are listed again, and what they say now counts.

    Args:
        fetch: Lists all tools, as the server has them now, until a time of the loop, and lets
            `learn` know.
        eager: Whether a tool that was never listed is looked for.

    ImportError: jsonschema-rs is not installed.
    """

    def __init__(self, fetch: Fetch, eager: bool) -> None:
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
        """The check for results of a tool, which may be found out until a time of the loop; None:
        there is nothing to check. InvalidResponse: its schema is not to be used, so the tool
        should not be called."""
        check = self._checks.get(name)
        if check is not None:
            return check
        if name not in self._schemas:
            if not self._eager:
                return None
            await self._fetch(until)
            if name not in self._schemas:
                return self._unlisted(name)
        try:
            return self._known(name)
        except InvalidResponse:
            if await self._still(name, self._schemas[name], until):
                raise
        return self._known(name)

    def _unlisted(self, name: str) -> Check:
        """For a tool that is not listed: if it is there all the same, it is looked for no more."""

        def check(result: CallToolResult) -> None:
            if not result.is_error:
                self._make_room()
                self._schemas.setdefault(name, None)

        return check

    async def verify(
        self, name: str, check: Check, result: CallToolResult, until: float = math.inf
    ) -> None:
        """InvalidResponse: the result breaks the tool's schema."""
        schema = self._schemas.get(name)
        try:
            check(result)
        except InvalidResponse:
            if await self._still(name, schema, until):
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
            check = self._checks[name] = check_of(name, schema, self._eager)
        return check

    async def _still(self, name: str, schema: Any, until: float) -> bool:
        """Whether a tool has this schema now; if that cannot be found out, it has."""
        try:
            await self._fetch(until)
        except WirespeedError as exc:
            logger.warning("the tools cannot be listed again: %s", exc)
        now: bool = self._schemas.get(name) == schema
        return now


def check_of(name: str, schema: Any, strict: bool = True) -> Check:
    """The check of a tool's results. InvalidResponse: the schema is broken, refers to other
    documents, is of an unknown dialect, or costs too much. ``strict``: so is a value that is too
    large to be checked; otherwise a warning is logged, once."""
    from wirespeed.client.schema_check import SchemaCheck, TooLarge

    warned = False
    schema_check = SchemaCheck(f"the outputSchema of {name}", schema)

    def check(result: CallToolResult) -> None:
        if result.is_error:
            return
        nonlocal warned
        value = result.structured_content
        try:
            fault = schema_check.fault(value)
        except TooLarge:
            text = f"the result of {name} is too large to be checked against its outputSchema"
            if strict:
                raise InvalidResponse(text) from None
            if not warned:
                warned = True
                logger.warning("%s, as may others be; that is not told again", text)
            return
        if fault is None:
            return
        if value is None:
            fault = f"it has no structuredContent, which the tool's outputSchema asks for ({fault})"
        raise InvalidResponse(f"the result of {name} breaks its outputSchema: {fault}")

    return check


class Validating:
    """The part of a client that checks structured output."""

    _checks: Checks | None = None
    _validate: Validate = "auto"
    _list_again: Fetch

    def _set_up_validation(self, validate: Validate, list_again: Fetch) -> None:
        """ValueError, ImportError: that is not possible."""
        if not (isinstance(validate, bool) or (isinstance(validate, str) and validate == "auto")):
            raise ValueError(f'validate must be "auto", True or False, not {validate!r}')
        self._validate = validate
        self._list_again = list_again
        if validate is True:
            self._checks = Checks(list_again, True)

    def _listed(self, tools: list[ToolInfo]) -> None:
        if self._checks is None:
            if self._validate is False or all(tool.output_schema is None for tool in tools):
                return
            if not available():
                self._validate = False
                return
            self._checks = Checks(self._list_again, False)
        self._checks.learn(tools)
