"""What the client has to know about the tools that its server listed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wirespeed.client.validation.checks import MAX_TOOLS
from wirespeed.protocol.results import WRAP_MARKER

if TYPE_CHECKING:
    from wirespeed.client.results.tools import ToolInfo
    from wirespeed.protocol.results import CallToolResult

__all__ = ["ListedTools"]


class ListedTools:
    """The listed tools of one server.

    Attributes:
        task_only: Tools that only run as tasks (2025-11-25, ``taskSupport: "required"``).
        wrapped: Tools whose structured content is ``{"result": value}``, as the output schema says
            by `WRAP_MARKER`.
        known: All tools.
    """

    __slots__ = ("known", "task_only", "wrapped")

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.task_only: set[str] = set()
        self.wrapped: set[str] = set()

    def learn(self, tools: Iterable[ToolInfo]) -> None:
        """A page of tools arrived."""
        if len(self.known) > MAX_TOOLS:
            for names in (self.known, self.task_only, self.wrapped):
                names.clear()
        for tool in tools:
            self.known.add(tool.name)
            task_only = (tool.execution or {}).get("taskSupport") == "required"
            wrapped = (tool.output_schema or {}).get(WRAP_MARKER) is True
            for names, belongs in ((self.task_only, task_only), (self.wrapped, wrapped)):
                (names.add if belongs else names.discard)(tool.name)

    def mark(self, name: str | None, result: CallToolResult) -> CallToolResult:
        """Mark a result of a tool as wrapped, if it is."""
        if name in self.wrapped:
            result.wrapped = True
        return result
