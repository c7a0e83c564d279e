"""Tasks in this process's memory."""

from __future__ import annotations

import heapq
import threading
from typing import Any

from wirespeed.tasks.model import OwnerTaskLimit, Task, TaskLimit
from wirespeed.tasks.store import SMALL, Page, TaskStore


class MemoryTaskStore(TaskStore):
    """The default store: quick, and forgotten with the process."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self._guard = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._numbers: dict[str, int] = {}
        self._owned: dict[bytes, dict[int, str]] = {}  # in the order of their numbers
        self._left: set[bytes] = set()  # owners that are gone, while there are tasks of theirs
        self._spare = _Spare()
        self._expiring: list[tuple[int, str]] = []
        self._bytes = 0
        self._created = 0

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        with self._guard:
            owners = {task.owner for task in self._tasks.values() if not task.principal}
            for owner in owners - self._left:
                self._leave(owner)

    async def create(self, task: Task) -> None:
        with self._guard:
            if task.id in self._tasks:
                raise ValueError("there is a task of this id already")
            if len(self._owned.get(task.owner, ())) >= self.max_tasks_per_owner:
                raise OwnerTaskLimit(f"this requestor has {self.max_tasks_per_owner} tasks already")
            if len(self._tasks) >= self.max_tasks and not self._spare:
                raise TaskLimit(f"there are {self.max_tasks} tasks already")
            self._check_bytes(task.size)
            while len(self._tasks) >= self.max_tasks:
                self._forget(self._spare.first())
            self._created += 1
            self._tasks[task.id] = task
            self._numbers[task.id] = self._created
            self._owned.setdefault(task.owner, {})[self._created] = task.id
            self._bytes += task.size
            self._expire_later(task)
            self._note_spare(task)

    async def get(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    async def replace(self, old: Task, new: Task) -> bool:
        with self._guard:
            current = self._tasks.get(old.id)
            if current is None or current.revision != old.revision:
                return False
            self._check_bytes(new.size - current.size)
            self._tasks[old.id] = new
            self._bytes += new.size - current.size
            if new.expires != current.expires:
                self._expire_later(new)
            self._note_spare(new)
            return True

    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        with self._guard:
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
        with self._guard:
            return self._forget(task_id)

    async def expire(self, now: int) -> list[str]:
        gone: list[str] = []
        with self._guard:
            while self._expiring and self._expiring[0][0] <= now:
                _, task_id = heapq.heappop(self._expiring)
                task = self._tasks.get(task_id)
                if task is not None and task.expired(now):
                    self._forget(task_id)
                    gone.append(task_id)
        return gone

    async def leave(self, owner: bytes) -> None:
        with self._guard:
            if owner in self._owned:
                self._leave(owner)

    # -- while the guard is held -------------------------------------------------------------------

    def _leave(self, owner: bytes) -> None:
        self._left.add(owner)
        for task_id in self._owned[owner].values():
            self._note_spare(self._tasks[task_id])

    def _note_spare(self, task: Task) -> None:
        """If it may be forgotten from now on, note that."""
        if task.owner in self._left and task.status.terminal:
            self._spare.add(self._numbers[task.id], task)

    def _forget(self, task_id: str) -> bool:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return False
        owned = self._owned[task.owner]
        number = self._numbers.pop(task_id)
        del owned[number]
        self._spare.discard(number, task)
        if not owned:
            del self._owned[task.owner]
            self._left.discard(task.owner)
        self._bytes -= task.size
        return True

    def _expire_later(self, task: Task) -> None:
        if task.expires is not None:
            if len(self._expiring) > 2 * len(self._tasks) + 100:  # most of them are forgotten
                times = ((kept.expires, kept.id) for kept in self._tasks.values())
                self._expiring = [(time, id) for time, id in times if time is not None]
                heapq.heapify(self._expiring)
            heapq.heappush(self._expiring, (task.expires, task.id))

    def _check_bytes(self, more: int) -> None:
        """Make room for so many bytes more. TaskLimit: there is none."""
        if more <= SMALL or self._bytes + more <= self.max_bytes:
            return
        if self._bytes - self._spare.bytes + more > self.max_bytes:
            raise TaskLimit(
                f"tasks may hold {self.max_bytes} bytes, and hold {self._bytes} already"
            )
        while self._bytes + more > self.max_bytes:
            self._forget(self._spare.first())


class _Spare:
    """Tasks that may be forgotten to make room."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: dict[bytes, dict[int, Task]] = {}  # by owner and number
        self._ranks: dict[int, dict[bytes, None]] = {}  # owners by how many they have

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, number: int, task: Task) -> None:
        has = self._of.setdefault(task.owner, {})
        if number not in has:
            has[number] = task
            self.bytes += task.size
            self._rank(task.owner, len(has) - 1, len(has))

    def discard(self, number: int, task: Task) -> None:
        has = self._of.get(task.owner, {})
        if has.pop(number, None) is not None:
            self.bytes -= task.size
            self._rank(task.owner, len(has) + 1, len(has))
            if not has:
                del self._of[task.owner]

    def first(self) -> str:
        """The one to go: of who has most, the oldest."""
        owner = next(iter(self._ranks[max(self._ranks)]))
        has = self._of[owner]
        return has[min(has)].id

    def _rank(self, owner: bytes, before: int, after: int) -> None:
        if before:
            del self._ranks[before][owner]
            if not self._ranks[before]:
                del self._ranks[before]
        if after:
            self._ranks.setdefault(after, {})[owner] = None
