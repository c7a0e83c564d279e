"""Tools whose calls may become tasks: the part of tasks that every server loads.

Two forms of tasks share this part: `server.tasks.legacy` (2025-11-25 basic/utilities/tasks, where
the client requests a task) and `server.tasks.extension` (``io.modelcontextprotocol/tasks`` of
2026-07-28, where the server decides). `wirespeed.protocol.revisions` names the form of each
revision.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.extensions import ExtensionCatalog
    from wirespeed.server.requests.call import Call
    from wirespeed.server.tasks.book import TaskService
    from wirespeed.tasks.store import TaskStore

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]

# From a call and the coroutine of its handler: a coroutine that runs the handler as a task.
AsTask: TypeAlias = Callable[["Call", Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]

# Seconds after which a modern server makes a call of a tool with `task="optional"` a task.
TASK_AFTER = 2.0

_CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


class TaskTool:
    """The rules by which calls of one tool become tasks. ``required``: a call must be a task.
    ``after``: seconds after which a modern server makes a call a task."""

    __slots__ = ("after", "required")

    def __init__(self, required: bool, after: float) -> None:
        self.required = required
        self.after = after


class Tasks:
    """The tasks of a server. ``service`` keeps and runs them; it is None until `use`."""

    service: TaskService | None

    def __init__(self, discovery: ServerDiscovery, extensions: ExtensionCatalog) -> None:
        self._extensions = extensions
        self._new_store: Callable[[], TaskStore] | None = None  # None: one in memory
        self._chosen = False  # whether the author chose the store
        self.service = None
        discovery.offers["tasks"] = lambda: None if self.service is None else _CAPABILITY

    def use(
        self,
        store: TaskStore | None = None,
        *,
        ttl: float | None = 3600.0,
        max_ttl: float | None = 86_400.0,
        poll_interval: float = 1.0,
    ) -> None:
        """See `Server.use_tasks`."""
        if self.service is not None:
            raise RuntimeError("tasks are in use already: call use_tasks before the first tool")
        for what, seconds in (("ttl", ttl), ("max_ttl", max_ttl), ("poll_interval", poll_interval)):
            if seconds is not None and not 0 < seconds < 1e10:
                raise ValueError(f"{what} must be seconds above 0, not {seconds!r}")
        from wirespeed.server.tasks.book import TaskService, TaskSettings
        from wirespeed.server.tasks.extension import tasks_extension
        from wirespeed.tasks.store import MemoryTaskStore

        self._chosen = store is not None
        if store is None:
            store = MemoryTaskStore() if self._new_store is None else self._new_store()
        settings = TaskSettings(_ms(ttl), _ms(max_ttl), _ms(poll_interval) or 1)
        service = TaskService(store, settings)
        self._extensions.add(tasks_extension(service))
        self.service = service

    def share(self, new_store: Callable[[], TaskStore]) -> None:
        """Keep tasks in a store that other hosts share, where `use` names no store. RuntimeError:
        the server works on tasks already."""
        self._new_store = new_store
        if self.service is not None and not self._chosen:
            self.service.replace_store(new_store())

    def plan(
        self, name: str, support: TaskSupport, after: float | None, inline: bool
    ) -> TaskTool | None:
        """Return how calls of a new tool become tasks; None if they never do. ValueError: the
        options are not valid."""
        if support == "forbidden":
            if after is not None:
                raise ValueError(f'tool {name!r}: task_after needs task="optional"')
            return None
        if support not in ("optional", "required"):
            raise ValueError(f'tool {name!r}: task is "forbidden", "optional" or "required"')
        if inline:
            raise ValueError(f"tool {name!r}: an inline tool cannot be a task")
        if after is not None and (support == "required" or not after >= 0):
            raise ValueError(f'tool {name!r}: task_after must be seconds and needs task="optional"')
        if self.service is None:
            self.use()
        return TaskTool(support == "required", TASK_AFTER if after is None else after)

    def as_task(self, call: Call, message: Message) -> AsTask | None:
        """Return how a call of a tool becomes a task; None if it does not. It is called for tools
        whose calls may be tasks, and for calls that request a task. ProtocolError: the tool needs a
        task that the call cannot become, or cannot be the task that the call requests."""
        if self.service is None:
            return None  # the server declared no tasks, so `task` is ignored
        book = self.service.book(call.connection.loop)
        tool: Any = call.operation
        support: TaskTool | None = tool.tasks
        offered = call.revision.capabilities
        if "tasks" in offered:
            wish = None if call.input is None else call.input.task
            if wish is None:
                if support is not None and support.required:
                    raise _refused(f"Tool {tool.name} only runs as a task")
                return None
            if support is None:
                raise _refused(f"Tool {tool.name} does not run as a task")
            from wirespeed.server.tasks.legacy import as_task

            return as_task(book, wish)
        if support is None:
            return None
        if "extensions" in offered:
            from wirespeed.server.tasks.extension import as_task_if_declared

            return as_task_if_declared(book, support, message)
        if support.required:
            raise _refused(
                f"Tool {tool.name} only runs as a task, and {call.revision.version} has no tasks"
            )
        return None


def _refused(text: str) -> ProtocolError:
    """Return the error -32601 (2025-11-25 basic/utilities/tasks, "Tool-Level Negotiation")."""
    return ProtocolError(codes.METHOD_NOT_FOUND, text)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
