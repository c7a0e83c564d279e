"""The interface of task stores, and the store in this process's memory."""

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypedDict, Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol import codes
from wirespeed.tasks.model import Task, TaskLimit

MAX_TASKS = 10_000
MAX_TASKS_PER_OWNER = 100
MAX_BYTES = 256 * 1024 * 1024
# The bytes that a change may add to a full store, so that a task can always be ended.
SMALL = 4096

INTERRUPTED = "The server ended while it worked on this task, which may have taken effect"
_INTERRUPTED_ERROR = msgspec.json.encode({"code": codes.CUT_OFF, "message": INTERRUPTED})


def now_ms() -> int:
    """Milliseconds since 1970, by the wall clock: tasks may outlive the process."""
    return time.time_ns() // 1_000_000


def interrupted(task: Task, now: int) -> Task:
    """The task, ended because the process that worked on it is gone."""
    return task.failed(_INTERRUPTED_ERROR, INTERRUPTED, now)


class Page(msgspec.Struct):
    """Some tasks of one owner, the oldest first. ``next`` is the place to continue from; None at
    the end."""

    tasks: list[Task]
    next: int | None


class StoreLimits(TypedDict, total=False):
    """Options of every store; `TaskStore` describes them."""

    max_tasks: int
    max_tasks_per_owner: int
    max_bytes: int


class TaskStore(ABC):
    """Keeps the tasks of one server. When a method returns, its change is done: every later `get`
    finds a task that `create` has stored. A server calls the methods on its event loop.

    Args:
        max_tasks: The most tasks that the store keeps.
        max_tasks_per_owner: The most tasks of one owner.
        max_bytes: The most bytes of results, errors, questions and answers, over all tasks. A
            change that adds at most 4 KiB is always accepted, so that a full store can still end a
            task.

    At a limit the store forgets finished tasks, in the order of their end: tasks of the same owner
    at ``max_tasks_per_owner``, tasks of all owners at the other two limits. The store refuses a new
    task or a change when no finished task is left to forget.
    """

    shared: bool = False
    """Whether other processes may change tasks of this store. The server then polls for
    changes."""

    def __init__(
        self,
        *,
        max_tasks: int = MAX_TASKS,
        max_tasks_per_owner: int = MAX_TASKS_PER_OWNER,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if min(max_tasks, max_tasks_per_owner, max_bytes) < 1:
            raise ValueError("the limits of a task store must be at least 1")
        self.max_tasks = max_tasks
        self.max_tasks_per_owner = max_tasks_per_owner
        self.max_bytes = max_bytes

    # -- what a store implements -------------------------------------------------------------------

    async def open(self) -> None:  # noqa: B027 - most stores do nothing here
        """Prepare the store. Called before every other method, and again after a failure. A second
        call does nothing."""

    async def close(self) -> None:  # noqa: B027
        """Release files and threads. Called when no other call is under way. A second call does
        nothing."""

    def owner_of(self, principal: bytes) -> bytes:
        """The ``owner`` of the tasks of an authenticated client, given the digest of its
        credential. Called after `open`. A store on disk replaces the digest, so that the disk does
        not name the client."""
        return principal

    @abstractmethod
    async def create(self, task: Task) -> None:
        """Store a new task. TaskLimit: a limit is reached and no finished task can be forgotten.
        ValueError: a task with this id exists."""

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """The task with this id, expired or not; None for an unknown id."""

    @abstractmethod
    async def replace(self, old: Task, new: Task) -> bool:
        """Replace `old` by `new`, unless the task has changed since `old` (another ``revision``).
        Returns whether `old` was replaced. TaskLimit: `new` is too large to keep."""

    @abstractmethod
    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        """At most `limit` tasks of an owner, the oldest first, from the place `after` on, which an
        earlier page returned as ``next``."""

    @abstractmethod
    async def delete(self, task_id: str) -> bool:
        """Forget a task. Returns whether the store had the task."""

    @abstractmethod
    async def expire(self, now: int) -> list[str]:
        """Forget all tasks whose time to live is over, and return their ids."""

    # -- built on the methods above ----------------------------------------------------------------

    async def update(self, task_id: str, change: Callable[[Task], Task]) -> Task | None:
        """Change a task, and try again after a concurrent change. Returns the changed task; None
        for an unknown id.

        ``change`` returns the new task for the old one. It may be called several times, and its
        exceptions are raised here. When it returns the old task itself, nothing is written.
        """
        while True:
            old = await self.get(task_id)
            if old is None:
                return None
            new = change(old)
            if new is old or await self.replace(old, new):
                return new

    async def put_result(
        self, task_id: str, result: bytes, *, is_error: bool = False
    ) -> Task | None:
        """End a task with a result, the JSON text of an object. TaskStateError: the task has
        already ended. TaskLimit: the result is too large to keep."""
        now = now_ms()
        return await self.update(
            task_id, lambda task: task.completed(result, now, is_error=is_error)
        )

    async def put_error(self, task_id: str, error: bytes, message: str) -> Task | None:
        """End a task with a JSON-RPC error, the JSON text of the error object. TaskStateError: the
        task has already ended."""
        now = now_ms()
        return await self.update(task_id, lambda task: task.failed(error, message, now))

    async def cancel(self, task_id: str, message: str) -> Task | None:
        """Cancel a task. TaskStateError: the task has already ended."""
        now = now_ms()
        return await self.update(task_id, lambda task: task.cancelled(message, now))


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
