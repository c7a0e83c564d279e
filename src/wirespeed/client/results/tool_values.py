"""Values of tools: those that a server wraps, and those that a caller wants as a type of its own
(``call_tool(…, type=T)``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wirespeed.errors import InvalidResponse, WirespeedError
from wirespeed.protocol.results import WRAP_MARKER, CallToolResult, is_wrap

if TYPE_CHECKING:
    from wirespeed.client.results.features import ToolInfo

__all__ = ["ListedTools", "ResultType"]

logger = logging.getLogger("wirespeed.client")

# The most tools that are remembered.
MAX_TOOLS = 100_000

_FAULTS = (msgspec.DecodeError, RecursionError)


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


class ResultType:
    """A type for values of tools: what msgspec decodes, pydantic models, paths. TypeError: the type
    has no JSON form."""

    __slots__ = ("_hook", "_name", "_type")

    def __init__(self, tp: Any) -> None:
        from wirespeed.schema.json_schema import prepare_type
        from wirespeed.schema.python_types import dec_hook, type_name

        self._hook = dec_hook
        self._name = type_name(tp)
        self._type = prepare_type(tp, "the type of the result")

    async def of(self, tool: str, call: Awaitable[CallToolResult]) -> Any:
        """Wait for a call of a tool, and return its value. See `Client.call_tool`."""
        return self._read(tool, (await call).raise_for_error())

    def _read(self, tool: str, result: CallToolResult) -> Any:
        """The value of a result. InvalidResponse: the value does not fit the type; the text names
        the tool and the place.

        A value that does not fit is tried in two other forms: the only text as JSON, because a
        server before 2025-06-18 has no structured content, and the value of ``{"result": …}``,
        because some servers wrap values without a marker in the schema.
        """
        data, content = result.data, result.structured_content
        try:
            return self._convert(data)
        except _FAULTS as exc:
            fault = exc
        with contextlib.suppress(*_FAULTS):
            if content is UNSET and isinstance(data, str):
                return msgspec.json.decode(data, type=self._type, dec_hook=self._hook)
            if is_wrap(content) and not result.wrapped:
                return self._convert(content["result"])
        from wirespeed.schema.json_schema import describe_validation_error

        reason = describe_validation_error(fault, "result")
        raise InvalidResponse(f"tool {tool} did not return {self._name}: {reason}") from fault

    def _convert(self, data: Any) -> Any:
        return msgspec.convert(data, self._type, dec_hook=self._hook, str_keys=True)
