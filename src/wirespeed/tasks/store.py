"""What keeps tasks: the interface that stores implement."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from wirespeed.tasks.model import Task

MAX_TASKS = 10_000
MAX_TASKS_PER_OWNER = 100
MAX_BYTES = 256 * 1024 * 1024
# What a change may add however full the store is: so that a task can always be ended.
SMALL = 4096


def now_ms() -> int:
    """Milliseconds since 1970, by the wall clock: tasks may outlive the process."""
    return time.time_ns() // 1_000_000


class Page(msgspec.Struct):
    """Some tasks of one owner, the oldest first; ``next`` is what to ask for more with, None at
    the end."""

    tasks: list[Task]
    next: int | None


class TaskStore(ABC):
    """Keeps tasks. What a method did is done when it returns: a task that was created is found by
    every `get` that starts later. A server that runs on several event loops calls them on each,
    in as many threads.

    Args:
        max_tasks: How many tasks there may be at once.
        max_tasks_per_owner: How many of them may have the same owner.
        max_bytes: How many bytes of outcomes, questions and answers are kept in all. What adds at
            most 4 KiB always finds room, so that a task can be ended however full the store is.

    Tasks that are over count until their time to live is over too: their owners were promised so.
    But those of an owner that is gone for good (`leave`) make room when the store is full, those of
    the owner that has most of them first, of these the oldest, perhaps several at a time.
    """

    shared: bool = False
    """Whether somebody else may change tasks of this store, so that whoever waits for a change has
    to look now and then."""

    def __init__(
        self,
        *,
        max_tasks: int = MAX_TASKS,
        max_tasks_per_owner: int = MAX_TASKS_PER_OWNER,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if min(max_tasks, max_tasks_per_owner, max_bytes) < 1:
            raise ValueError("the limits of a store of tasks must be at least 1")
        self.max_tasks = max_tasks
        self.max_tasks_per_owner = max_tasks_per_owner
        self.max_bytes = max_bytes

    # -- what a store implements -------------------------------------------------------------------

    async def open(self) -> None:  # noqa: B027 - nothing to do for most
        """Be ready. Called before anything else, and again after it failed; a second time does
        nothing."""

    async def close(self) -> None:  # noqa: B027
        """Let go of files and threads. Called once nothing else is under way; a second time does
        nothing. Owners without a principal are gone with it."""

    @abstractmethod
    async def create(self, task: Task) -> None:
        """Keep a new task. TaskLimit: there are too many; OwnerTaskLimit: of this owner.
        ValueError: there is one of this id."""

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """A task, expired or not; None if there is none of this id."""

    @abstractmethod
    async def replace(self, old: Task, new: Task) -> bool:
        """Put `new` in the place of `old`, if the task is still as `old` has it (the same
        ``revision``); whether it was. TaskLimit: `new` is too much to keep."""

    @abstractmethod
    async def page(self, owner: bytes, after: int = 0, limit: int = 100) -> Page:
        """Tasks of an owner, the oldest first: those behind the place that an earlier page's
        ``next`` names, at most `limit` of them."""

    @abstractmethod
    async def delete(self, task_id: str) -> bool:
        """Forget a task; whether there was one."""

    @abstractmethod
    async def expire(self, now: int) -> list[str]:
        """Forget all tasks whose time to live is over; their ids."""

    async def leave(self, owner: bytes) -> None:  # noqa: B027 - a store may keep what it has
        """An owner without a principal is gone, and nobody comes again by this name. Whoever knows
        the id of one of its tasks may still ask for it; but what is over, now or later, may be
        forgotten when there is no room left."""

    # -- what follows from it ----------------------------------------------------------------------

    async def update(self, task_id: str, change: Callable[[Task], Task]) -> Task | None:
        """Change a task, however many try at once; the task after that, None if there is none.

        ``change`` makes the new task of the old one; it may be called several times, and what it
        raises goes to the caller. When it gives the old task itself, nothing is written.
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
        """A task has ended with a result, the JSON text of an object. TaskStateError: it ended
        before. TaskLimit: the result is too large to keep."""
        now = now_ms()
        return await self.update(
            task_id, lambda task: task.completed(result, now, is_error=is_error)
        )

    async def put_error(self, task_id: str, error: bytes, message: str) -> Task | None:
        """A task has ended with a JSON-RPC error, the JSON text of the error object.
        TaskStateError: it ended before."""
        now = now_ms()
        return await self.update(task_id, lambda task: task.failed(error, message, now))

    async def cancel(self, task_id: str, message: str) -> Task | None:
        """A task is wanted no more. TaskStateError: it ended before."""
        now = now_ms()
        return await self.update(task_id, lambda task: task.cancelled(message, now))
