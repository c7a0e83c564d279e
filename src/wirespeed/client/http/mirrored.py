"""The arguments of tools that a request repeats in header fields (2026-07-28
basic/transports/streamable-http, "Custom Headers from Tool Parameters")."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.protocol.header_values import ParamField, param_fields, values_of

if TYPE_CHECKING:
    from wirespeed.client.results.tools import ToolInfo

logger = logging.getLogger("wirespeed.client")

# Tools with such arguments, and tools that were left out, that are kept.
MAX_MIRRORED = 10_000


class MirroredArguments:
    """The mirrored arguments of one server's tools, as far as the tools were listed."""

    def __init__(self) -> None:
        self._fields: dict[str, tuple[ParamField, ...]] = {}
        self._left_out: set[tuple[str, str]] = set()

    def learn(self, tools: Iterable[ToolInfo]) -> list[ToolInfo]:
        """A page of tools arrived. Returns the tools whose schemas keep the rules of
        ``x-mcp-header``; the others are left out, which is logged once for each reason."""
        kept = []
        for tool in tools:
            try:
                fields = param_fields(tool.input_schema)
            except ValueError as exc:
                self._fields.pop(tool.name, None)
                self._leave_out(tool.name, str(exc))
                continue
            kept.append(tool)
            if fields and (tool.name in self._fields or len(self._fields) < MAX_MIRRORED):
                self._fields[tool.name] = fields
            elif not fields:
                self._fields.pop(tool.name, None)
        return kept

    def _leave_out(self, name: str, why: str) -> None:
        if (name, why) in self._left_out or len(self._left_out) >= MAX_MIRRORED:
            return
        self._left_out.add((name, why))
        logger.warning("the tool %.128r is left out of the list: %.500s", name, why)

    def lines(self, name: str, arguments: Any) -> bytes:
        """The header fields of a call, whole lines. ``arguments``: JSON text, or None."""
        fields = self._fields.get(name)
        if fields is None or arguments is None:
            return b""
        try:
            values = values_of(fields, msgspec.json.decode(arguments))
        except (ValueError, RecursionError):  # numbers too long, levels too many for Python
            return b""
        return "".join(f"{field}: {value}\r\n" for field, value in values).encode("ascii")
