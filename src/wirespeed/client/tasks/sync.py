"""The handle of one task for code without an event loop: see `SyncClient.start_tool`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from wirespeed._exports import set_public_home
from wirespeed.client.loop_thread import walk
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout

if TYPE_CHECKING:
    from wirespeed.client.sync import SyncClient
    from wirespeed.client.tasks.messages import TaskState
    from wirespeed.client.tasks.task import ToolTask
    from wirespeed.protocol.results import CallToolResult

__all__ = ["BlockingTask"]


class BlockingTask:
    """A call of a tool as a task: a `ToolTask` with blocking methods. ``for`` iterates over its
    states."""

    def __init__(self, client: SyncClient, task: ToolTask) -> None:
        self._client = client
        self._task = task

    def __repr__(self) -> str:
        return f"<BlockingTask {self.id}: {self.state.status}>"

    @property
    def id(self) -> str | None:
        """As `ToolTask.id`."""
        return self._task.id

    @property
    def tool(self) -> str | None:
        """As ``ToolTask.tool``."""
        return self._task.tool

    @property
    def state(self) -> TaskState:
        """As ``ToolTask.state``."""
        return self._task.state

    def status(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """As `ToolTask.status`."""
        return self._client._run(self._task.status(timeout=timeout))

    def result(self, *, timeout: Timeout = None) -> CallToolResult:
        """As `ToolTask.result`."""
        return self._client._run(self._task.result(timeout=timeout))

    def cancel(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """As `ToolTask.cancel`."""
        return self._client._run(self._task.cancel(timeout=timeout))

    def answer(self, answers: Mapping[str, Any], *, timeout: Timeout = CLIENT_DEFAULT) -> None:
        """As `ToolTask.answer`."""
        self._client._run(self._task.answer(answers, timeout=timeout))

    def __iter__(self) -> Iterator[TaskState]:
        return walk(self._client, cast("AsyncGenerator[TaskState, None]", aiter(self._task)))


set_public_home(globals())
