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
        wraps: Whether the structured content of a tool is ``{"result": value}``, as the output
            schema says by `WRAP_MARKER`; for listed tools, and for others that were called.
        fetch: Lists the tools.
        spawn: Starts a task that ends with the client.
    """

    __slots__ = ("_fetching", "fetch", "spawn", "task_only", "wraps")

    fetch: Callable[[], Awaitable[object]]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Future[None]]

    def __init__(self) -> None:
        self.task_only: set[str] = set()
        self.wraps: dict[str, bool] = {}
        self._fetching: asyncio.Future[None] | None = None

    def learn(self, tools: Iterable[ToolInfo]) -> None:
        """A page of tools arrived."""
        self._make_room()
        for tool in tools:
            task_only = (tool.execution or {}).get("taskSupport") == "required"
            (self.task_only.add if task_only else self.task_only.discard)(tool.name)
            self.wraps[tool.name] = (tool.output_schema or {}).get(WRAP_MARKER) is True

    async def mark(
        self, name: str | None, result: CallToolResult, until: float = math.inf
    ) -> CallToolResult:
        """Mark a result of a tool as wrapped, if it is.

        The tools are listed, up to the time *until* of the event loop, if the result may be a
        wrapped value and the tool is not known. All calls share one list.
        """
        if name is None:
            return result
        if name not in self.wraps and not result.is_error:
            known = True
            if is_wrap(result.structured_content):
                if self._fetching is None or self._fetching.done():
                    self._fetching = self.spawn(self._fetch())
                fetching = self._fetching
                left = None if until == math.inf else until - asyncio.get_running_loop().time()
                await asyncio.wait((fetching,), timeout=left)
                known = fetching.done()
            if known:
                self._make_room()
                self.wraps.setdefault(name, False)
        if self.wraps.get(name):
            result.wrapped = True
        return result

    def _make_room(self) -> None:
        if len(self.wraps) > MAX_TOOLS:
            self.wraps.clear()
            self.task_only.clear()

    async def _fetch(self) -> None:
        try:
            await self.fetch()
        except WirespeedError as exc:  # the call succeeded: its result is read as it is
            logger.warning("which tools wrap their values is not known: %s", exc)
