"""Tasks in this process's memory."""

from __future__ import annotations

import heapq
from typing import Unpack

from wirespeed._exports import set_public_home
from wirespeed.tasks.model import Task, TaskLimit
from wirespeed.tasks.store import SMALL, Page, StoreLimits, TaskStore


class MemoryTaskStore(TaskStore):
    """The default store: fast, and lost with the process."""

    def __init__(self, **limits: Unpack[StoreLimits]) -> None:
        super().__init__(**limits)
        self._tasks: dict[str, Task] = {}
        self._owned: dict[bytes, dict[str, int]] = {}  # ids and numbers, in the order of creation
        self._finished: dict[str, Task] = {}  # in the order of their end
        self._expiring: list[tuple[int, str]] = []
        self._bytes = 0
        self._created = 0

    async def create(self, task: Task) -> None:
        if task.id in self._tasks:
            raise ValueError("a task with this id exists already")
        owned = self._owned.get(task.owner, {})
        if len(owned) >= self.max_tasks_per_owner:
            oldest = min(
                (kept for kept in map(self._tasks.__getitem__, owned) if kept.status.terminal),
                key=lambda kept: kept.updated,
                default=None,
            )
            if oldest is None:
                raise TaskLimit(f"this requestor has {self.max_tasks_per_owner} working tasks")
            self._forget(oldest.id)
        elif len(self._tasks) >= self.max_tasks:
            if not self._finished:
                raise TaskLimit(f"the store has {self.max_tasks} working tasks")
            self._forget(next(iter(self._finished)))
        self._make_room(task.size)
        self._created += 1
        self._owned.setdefault(task.owner, {})[task.id] = self._created
        self._put(task)
        self._expire_later(task)

    async def get(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    async def replace(self, old: Task, new: Task) -> bool:
        current = self._tasks.get(old.id)
        if current is None or current.revision != old.revision:
            return False
        self._make_room(new.size - current.size)
        self._bytes -= current.size
        self._put(new)
        if new.expires != current.expires:
            self._expire_later(new)
        return True

    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        found: list[Task] = []
        last = after
        for task_id, number in self._owned.get(owner, {}).items():
            if number <= after:
                continue
            if len(found) == limit:
                return Page(found, last)
            found.append(self._tasks[task_id])
            last = number
        return Page(found, None)

    async def delete(self, task_id: str) -> bool:
        return self._forget(task_id)

    async def expire(self, now: int) -> list[str]:
        gone: list[str] = []
        while self._expiring and self._expiring[0][0] <= now:
            _, task_id = heapq.heappop(self._expiring)
            task = self._tasks.get(task_id)
            if task is not None and task.expired(now):
                self._forget(task_id)
                gone.append(task_id)
        return gone

    def _put(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._bytes += task.size
        if task.status.terminal:
            self._finished[task.id] = task

    def _forget(self, task_id: str) -> bool:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return False
        self._finished.pop(task_id, None)
        owned = self._owned[task.owner]
        del owned[task_id]
        if not owned:
            del self._owned[task.owner]
        self._bytes -= task.size
        return True

    def _expire_later(self, task: Task) -> None:
        if task.expires is not None:
            if len(self._expiring) > 2 * len(self._tasks) + 100:  # most entries are outdated
                times = ((kept.expires, kept.id) for kept in self._tasks.values())
                self._expiring = [(time, id) for time, id in times if time is not None]
                heapq.heapify(self._expiring)
            heapq.heappush(self._expiring, (task.expires, task.id))

    def _make_room(self, more: int) -> None:
        """Make room for `more` bytes. TaskLimit: forgetting every finished task is not enough; then
        no task is forgotten."""
        excess = self._bytes + more - self.max_bytes
        if more <= SMALL or excess <= 0:
            return
        chosen: list[str] = []
        for task in self._finished.values():
            chosen.append(task.id)
            excess -= task.size
            if excess <= 0:
                break
        else:
            raise TaskLimit(f"tasks hold {self._bytes} of at most {self.max_bytes} bytes")
        for task_id in chosen:
            self._forget(task_id)


set_public_home(globals())
