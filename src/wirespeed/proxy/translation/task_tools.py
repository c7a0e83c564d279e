"""Which tools of a legacy server only run as tasks (2025-11-25 basic/utilities/tasks, "Tool-Level
Negotiation")."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import WirespeedError
from wirespeed.proxy.translation.asking import ask
from wirespeed.proxy.translation.results import encode

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.translation.kept_tasks import KeptTasks
    from wirespeed.proxy.translation.translator import Translator

# Pages of a list of tools, and seconds between two such lists.
MAX_PAGES = 100
LIST_EVERY = 1.0


class _Execution(msgspec.Struct, frozen=True):
    taskSupport: str = ""  # noqa: N815


class _Tool(msgspec.Struct):
    name: str
    execution: _Execution = _Execution()


class _Tools(msgspec.Struct):
    tools: list[_Tool] = []
    nextCursor: str | None = None  # noqa: N815


_tools = msgspec.json.Decoder(_Tools).decode


class TaskTools:
    """The tools of one server, as far as clients have listed them, or were refused.

    Args:
        client: The client whose connection is asked.
        kept: Where the names are kept, for all clients.
    """

    def __init__(self, client: Translator, kept: KeptTasks) -> None:
        self._client = client
        self._kept = kept
        self._listing: asyncio.Task[None] | None = None
        self._listed = 0.0

    def requires(self, call: Message) -> bool:
        """Whether a tool is known to run only as a task. Its name is not decoded if none is."""
        return bool(self._kept.required) and call.text("params.name") in self._kept.required

    def learn(self, result: Any) -> None:
        """Learn from a list of tools that passes."""
        if b'"taskSupport"' in bytes(result):
            with contextlib.suppress(msgspec.DecodeError):
                self._learn(_tools(result))

    def _learn(self, page: _Tools) -> None:
        for tool in page.tools:
            if tool.execution.taskSupport == "required":
                self._kept.require(tool.name)
            else:
                self._kept.required.discard(tool.name)

    async def refresh(self) -> None:
        """List the tools, unless they were listed a moment ago. All callers wait for one list."""
        now = self._client.front.loop.time()
        if self._listing is None or (self._listing.done() and now >= self._listed + LIST_EVERY):
            self._listing, self._listed = asyncio.ensure_future(self._list()), now
        await asyncio.wait((self._listing,))

    async def _list(self) -> None:
        params: dict[str, Any] = {}
        with contextlib.suppress(WirespeedError, msgspec.DecodeError):
            for _ in range(MAX_PAGES):
                page = _tools(await ask(self._client.backend, "tools/list", encode(params)))
                self._learn(page)
                if page.nextCursor is None or page.nextCursor == params.get("cursor"):
                    return
                params["cursor"] = page.nextCursor

    def close(self) -> None:
        """The client has left, or the server is gone."""
        if self._listing is not None:
            self._listing.cancel()
