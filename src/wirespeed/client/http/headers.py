"""Values of header fields of a request: Mcp-Name, and arguments of tools (2026-07-28
basic/transports/streamable-http, "Custom Headers from Tool Parameters")."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.protocol.header_values import (
    NAMED_BY,
    ParamField,
    encode_text,
    param_fields,
    values_of,
)

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.results.features import ToolInfo

logger = logging.getLogger("wirespeed.client")

# Tools with such arguments, and tools that were left out, that are kept.
MAX_MIRRORED = 10_000


def field_value(text: str) -> str:
    """The value of a header field. A lone surrogate has none: the server refuses what stands for
    it."""
    return encode_text(text.encode("utf-8", "replace").decode())


def name_value(method: str, message: Message) -> str:
    """The value of Mcp-Name; "" for a method without."""
    member = NAMED_BY.get(method)
    if member is None:
        return ""
    if member == "taskId":
        params = message.params
        found = {} if params is None else msgspec.json.decode(params)
        return str(found.get(member, ""))
    return message.text(f"params.{member}") or ""


class MirroredArguments:
    """The mirrored arguments of one server's tools, as far as the tools were listed.

    Attributes:
        fields: The header fields of each tool that has any.
    """

    def __init__(self) -> None:
        self.fields: dict[str, tuple[ParamField, ...]] = {}
        self._left_out: set[tuple[str, str]] = set()

    def learn(self, tools: Iterable[ToolInfo]) -> list[ToolInfo]:
        """A page of tools arrived. Returns the tools whose schemas keep the rules of
        ``x-mcp-header``; the others are left out, which is logged once for each reason."""
        kept = []
        for tool in tools:
            try:
                fields = param_fields(tool.input_schema)
            except ValueError as exc:
                self.fields.pop(tool.name, None)
                self._leave_out(tool.name, str(exc))
                continue
            kept.append(tool)
            if fields and (tool.name in self.fields or len(self.fields) < MAX_MIRRORED):
                self.fields[tool.name] = fields
            elif not fields:
                self.fields.pop(tool.name, None)
        return kept

    def _leave_out(self, name: str, why: str) -> None:
        if (name, why) in self._left_out or len(self._left_out) >= MAX_MIRRORED:
            return
        self._left_out.add((name, why))
        logger.warning("the tool %.128r is left out of the list: %.500s", name, why)

    def lines(self, name: str, arguments: Any) -> bytes:
        """The header fields of a call, whole lines. ``arguments``: JSON text, or None."""
        fields = self.fields.get(name)
        if fields is None or arguments is None:
            return b""
        try:
            values = values_of(fields, msgspec.json.decode(arguments))
        except (ValueError, RecursionError):  # numbers too long, levels too many for Python
            return b""
        return "".join(f"{field}: {value}\r\n" for field, value in values).encode("ascii")
