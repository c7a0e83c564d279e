"""Tasks in this process's memory."""

from __future__ import annotations

import heapq
from typing import Any

from wirespeed.tasks.model import Task, TaskLimit
from wirespeed.tasks.store import SMALL, Page, TaskStore


class MemoryTaskStore(TaskStore):
    """The default store: quick, and forgotten with the process. For one event loop."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self._tasks: dict[str, Task] = {}
        self._numbers: dict[str, int] = {}
        self._owned: dict[bytes, dict[int, str]] = {}  # in the order of their numbers
        self._expiring: list[tuple[int, str]] = []
        self._bytes = 0
        self._created = 0

    def __len__(self) -> int:
        return len(self._tasks)

    async def create(self, task: Task) -> None:
        if task.id in self._tasks:
            raise ValueError("there is a task of this id already")
        owned = self._owned.get(task.owner, {})
        if len(self._tasks) >= self.max_tasks:
            raise TaskLimit(f"there are {self.max_tasks} tasks already")
        if len(owned) >= self.max_tasks_per_owner:
            raise TaskLimit(f"this requestor has {self.max_tasks_per_owner} tasks already")
        self._check_bytes(task.size)
        self._created += 1
        self._tasks[task.id] = task
        self._numbers[task.id] = self._created
        self._owned.setdefault(task.owner, owned)[self._created] = task.id
        self._bytes += task.size
        if task.expires is not None:
            heapq.heappush(self._expiring, (task.expires, task.id))

    async def get(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    async def replace(self, old: Task, new: Task) -> bool:
        current = self._tasks.get(old.id)
        if current is None or current.revision != old.revision:
            return False
        more = new.size - current.size
        self._check_bytes(more)
        self._tasks[old.id] = new
        self._bytes += more
        if new.expires is not None and new.expires != current.expires:
            heapq.heappush(self._expiring, (new.expires, new.id))
        return True

    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        found: list[Task] = []
        last = after
        for number, task_id in self._owned.get(owner, {}).items():
            if number <= after:
                continue
            if len(found) == limit:
                return Page(found, last)
            found.append(self._tasks[task_id])
            last = number
        return Page(found, None)

    async def delete(self, task_id: str) -> bool:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return False
        owned = self._owned[task.owner]
        del owned[self._numbers.pop(task_id)]
        if not owned:
            del self._owned[task.owner]
        self._bytes -= task.size
        return True

    async def expire(self, now: int) -> list[str]:
        gone: list[str] = []
        while self._expiring and self._expiring[0][0] <= now:
            _, task_id = heapq.heappop(self._expiring)
            task = self._tasks.get(task_id)
            if task is not None and task.expired(now) and await self.delete(task_id):
                gone.append(task_id)
        return gone

    def _check_bytes(self, more: int) -> None:
        if more > SMALL and self._bytes + more > self.max_bytes:
            raise TaskLimit(
                f"tasks may hold {self.max_bytes} bytes, and hold {self._bytes} already"
            )
