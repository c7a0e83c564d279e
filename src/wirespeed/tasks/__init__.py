"""Tasks: calls that outlive their request, kept in a store.

`Task` is the state machine, `TaskStore` the interface of stores. `MemoryTaskStore` loses its tasks
with the process, `SQLiteTaskStore` keeps them in a file. The messages about tasks are in
`wirespeed.server` and `wirespeed.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.tasks.memory import MemoryTaskStore as MemoryTaskStore
    from wirespeed.tasks.model import (
        Task as Task,
        TaskLimit as TaskLimit,
        TaskStateError as TaskStateError,
        TaskStatus as TaskStatus,
    )
    from wirespeed.tasks.sqlite import SQLiteTaskStore as SQLiteTaskStore
    from wirespeed.tasks.store import Page as Page, TaskStore as TaskStore
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)
