"""Tasks: calls that outlive their request, kept in a store.

`Task` is the state machine, `TaskStore` the interface of stores. `MemoryTaskStore` loses its tasks
with the process, `SQLiteTaskStore` keeps them in a file. The messages about tasks are in
`wirespeed.server` and `wirespeed.client`.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
