"""The interface of task stores."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.tasks.model import Task

MAX_TASKS = 10_000
MAX_TASKS_PER_OWNER = 100
MAX_BYTES = 256 * 1024 * 1024
# The bytes that a change may add to a full store, so that a task can always be ended.
SMALL = 4096


def now_ms() -> int:
    """Milliseconds since 1970, by the wall clock: tasks may outlive the process."""
    return time.time_ns() // 1_000_000


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


set_public_home(globals())
