"""Tasks: calls that outlive their request, kept in a store.

`Task` is the state machine, `TaskStore` the interface of stores. `MemoryTaskStore` loses its tasks
with the process, `SQLiteTaskStore` keeps them in a file. The messages about tasks are in
`wirespeed.server` and `wirespeed.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wirespeed.tasks.model import Task, TaskLimit, TaskStateError, TaskStatus
from wirespeed.tasks.store import Page, TaskStore

if TYPE_CHECKING:
    from wirespeed.tasks.memory import MemoryTaskStore
    from wirespeed.tasks.sqlite import SQLiteTaskStore

__all__ = [
    "MemoryTaskStore",
    "Page",
    "SQLiteTaskStore",
    "Task",
    "TaskLimit",
    "TaskStateError",
    "TaskStatus",
    "TaskStore",
]

_LAZY = {
    "MemoryTaskStore": "wirespeed.tasks.memory",
    "SQLiteTaskStore": "wirespeed.tasks.sqlite",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
