"""The handlers that work on tasks in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from wirespeed.tasks.model import Task
from wirespeed.tasks.store import now_ms

__all__ = ["TaskWorkers", "Worker", "seconds_until"]


class Worker:
    """A handler that works on one task.

    Attributes:
        task_id: The task.
        cancel: Cancels the handler.
        ended: Done when the handler has ended.
        stopped: Whether the task ended before the handler began.
    """

    __slots__ = ("cancel", "ended", "expiry", "stopped", "task_id")

    def __init__(
        self, task_id: str, cancel: Callable[[], object], ended: asyncio.Future[None]
    ) -> None:
        self.task_id = task_id
        self.cancel = cancel
        self.ended = ended
        self.stopped = False
        self.expiry: asyncio.TimerHandle | None = None


class TaskWorkers:
    """The handlers of one event loop, by task.

    Args:
        loop: The event loop.
        expired: Called with a task whose time to live ended while its handler works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[Task], object]) -> None:
        self._loop = loop
        self._expired = expired
        self._reserved: dict[str, bool] = {}  # tasks being stored: whether they have ended already
        self._working: dict[str, Worker] = {}
        self._ending: set[asyncio.Future[None]] = set()  # of all handlers, also cancelled ones

    @property
    def task_ids(self) -> Iterable[str]:
        """The tasks that handlers work on."""
        return self._working.keys()

    def reserve(self, task_id: str) -> None:
        """A task is being stored. The caller will `begin` to work on it, or `release` it."""
        self._reserved[task_id] = False

    def release(self, task_id: str) -> None:
        """No handler will work on a reserved task."""
        self._reserved.pop(task_id, None)

    def begin(self, task: Task, cancel: Callable[[], object]) -> Worker:
        """Return the worker of a handler that begins to work on a task. If the worker is
        ``stopped``, the task ended before this call, and the handler must not begin."""
        worker = Worker(task.id, cancel, self._loop.create_future())
        worker.stopped = self._reserved.pop(task.id, False)
        if not worker.stopped:
            self._working[task.id] = worker
            self._expire_later(worker, task)
        self._ending.add(worker.ended)
        worker.ended.add_done_callback(self._ending.discard)
        return worker

    def stop(self, task_id: str) -> None:
        """A task has ended: cancel its handler."""
        if task_id in self._reserved:
            self._reserved[task_id] = True
        worker = self._working.get(task_id)
        if worker is not None:
            self._remove(worker)
            worker.cancel()

    def end(self, worker: Worker) -> bool:
        """A handler has ended by itself. Returns False if its task had ended before."""
        if not worker.ended.done():
            worker.ended.set_result(None)
        if self._working.get(worker.task_id) is not worker:
            return False
        self._remove(worker)
        return True

    async def wait(self, timeout: float) -> None:
        """Wait until every handler has ended, at most ``timeout`` seconds."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=timeout)

    def _remove(self, worker: Worker) -> None:
        del self._working[worker.task_id]
        if worker.expiry is not None:
            worker.expiry.cancel()

    def _expire_later(self, worker: Worker, task: Task) -> None:
        if task.expires is not None:
            worker.expiry = self._loop.call_later(
                seconds_until(task.expires), self._check_expiry, worker, task
            )

    def _check_expiry(self, worker: Worker, task: Task) -> None:
        if task.expired(now_ms()):
            self._expired(task)
        else:
            self._expire_later(worker, task)


def seconds_until(time: int) -> float:
    """Return the seconds until a time (milliseconds since 1970), but at most a day: the wall clock
    may be set, so callers look at it again."""
    return min(max(0.001, (time - now_ms()) / 1000), 86_400.0)
