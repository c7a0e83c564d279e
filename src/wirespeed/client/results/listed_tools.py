"""What the client has to know about the tools that its server listed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from wirespeed.client.validation.checks import MAX_TOOLS
from wirespeed.errors import WirespeedError
from wirespeed.protocol.results import WRAP_MARKER, is_wrap

if TYPE_CHECKING:
    from wirespeed.client.results.tools import ToolInfo
    from wirespeed.protocol.results import CallToolResult

__all__ = ["ListedTools"]

logger = logging.getLogger("wirespeed.client")


class ListedTools:
    """The listed tools of one server.

    Attributes:
        task_only: Tools that only run as tasks (2025-11-25, ``taskSupport: "required"``).
        wrapped: Tools whose structured content is ``{"result": value}``, as the output schema says
            by `WRAP_MARKER`.
        known: All tools, and those that a list did not have.
        fetch: Lists the tools.
        spawn: Starts a task that ends with the client.
    """

    __slots__ = ("_fetching", "fetch", "known", "spawn", "task_only", "wrapped")

    fetch: Callable[[], Awaitable[object]]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Future[None]]

    def __init__(self) -> None:
        self._fetching: asyncio.Future[None] | None = None
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

    async def mark(
        self, name: str | None, result: CallToolResult, until: float = math.inf
    ) -> CallToolResult:
        """Mark a result of a tool as wrapped, if it is.

        The tools are listed, up to the time *until* of the event loop, if the result may be a
        wrapped value and the tool is not known. All calls share one list.
        """
        if name is not None and name not in self.known and is_wrap(result.structured_content):
            if self._fetching is None:
                self._fetching = self.spawn(self._fetch())
            fetching = self._fetching
            left = None if until == math.inf else until - asyncio.get_running_loop().time()
            await asyncio.wait((fetching,), timeout=left)
            if fetching.done():
                self.known.add(name)
        if name in self.wrapped:
            result.wrapped = True
        return result

    async def _fetch(self) -> None:
        try:
            await self.fetch()
        except WirespeedError as exc:  # the call succeeded: its result is read as it is
            logger.warning("which tools wrap their values is not known: %s", exc)
        finally:
            self._fetching = None
