"""Participants in tasks on one event loop: handlers that work, requests that wait, listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator

from wirespeed.tasks.model import Task
from wirespeed.tasks.store import now_ms


class TaskWorker:
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
        self._working: dict[str, TaskWorker] = {}
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

    def begin(self, task: Task, cancel: Callable[[], object]) -> TaskWorker:
        """Return the worker of a handler that begins to work on a task. If the worker is
        ``stopped``, the task ended before this call, and the handler must not begin."""
        worker = TaskWorker(task.id, cancel, self._loop.create_future())
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

    def end(self, worker: TaskWorker) -> bool:
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

    def _remove(self, worker: TaskWorker) -> None:
        del self._working[worker.task_id]
        if worker.expiry is not None:
            worker.expiry.cancel()

    def _expire_later(self, worker: TaskWorker, task: Task) -> None:
        if task.expires is not None:
            worker.expiry = self._loop.call_later(
                seconds_until(task.expires), self._check_expiry, worker, task
            )

    def _check_expiry(self, worker: TaskWorker, task: Task) -> None:
        if task.expired(now_ms()):
            self._expired(task)
        else:
            self._expire_later(worker, task)


def seconds_until(time: int) -> float:
    """Return the seconds until a time (milliseconds since 1970), but at most a day: the wall clock
    may be set, so callers look at it again."""
    return min(max(0.001, (time - now_ms()) / 1000), 86_400.0)


class TaskListener:
    """A function that is called after each change of one task."""

    __slots__ = ("_group", "task_id", "tell")

    def __init__(
        self, task_id: str, tell: Callable[[Task], object], group: set[TaskListener]
    ) -> None:
        self.task_id = task_id
        self.tell = tell
        self._group = group
        group.add(self)

    def leave_group(self) -> None:
        """Remove the listener from its group."""
        self._group.discard(self)


class TaskListeners:
    """Waiters wake at any change. Listeners are called after changes that clients can see."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._listeners: dict[str, dict[TaskListener, None]] = {}
        self._told: dict[str, Task] = {}  # by task: the last state that its listeners were told

    # -- waiting ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def waiting(self, task_id: str) -> Iterator[asyncio.Future[None]]:
        """Yield a future that is done when the task changes or is forgotten."""
        waiter = self._loop.create_future()
        waiters = self._waiters.setdefault(task_id, set())
        waiters.add(waiter)
        try:
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiters.get(task_id) is waiters:
                del self._waiters[task_id]

    def wake(self, task_id: str) -> None:
        """Wake the waiters of a task."""
        for waiter in self._waiters.pop(task_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    @property
    def waited(self) -> set[str]:
        """The tasks that have waiters."""
        return set(self._waiters)

    # -- listening -------------------------------------------------------------------------------

    @property
    def listened(self) -> set[str]:
        """The tasks that have listeners."""
        return set(self._listeners)

    def add(
        self, task: Task, tell: Callable[[Task], object], group: set[TaskListener]
    ) -> TaskListener:
        """Call ``tell`` with the task after each change from this state on, until the task ends or
        `remove`. ``group`` contains the listener for the same time."""
        listener = TaskListener(task.id, tell, group)
        self._listeners.setdefault(task.id, {})[listener] = None
        told = self._told.get(task.id)
        if told is None or told.revision > task.revision:
            self._told[task.id] = task
        return listener

    def remove(self, listener: TaskListener) -> None:
        """Remove a listener. A second call does nothing."""
        listener.leave_group()
        listeners = self._listeners.get(listener.task_id)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                self.remove_all(listener.task_id)

    def is_new(self, task: Task) -> bool:
        """Whether a task has listeners that were not told this state."""
        told = self._told.get(task.id)
        return told is not None and told.revision < task.revision

    def tell(self, task: Task) -> None:
        """A task has changed: wake its waiters and call its listeners."""
        self.wake(task.id)
        if not self.is_new(task):
            return  # no listener, or a later change was told first
        told, self._told[task.id] = self._told[task.id], task
        if (task.status, task.message, task.requests.keys()) != (
            told.status,
            told.message,
            told.requests.keys(),
        ):
            for listener in list(self._listeners[task.id]):
                listener.tell(task)
        if task.status.terminal:
            self.remove_all(task.id)

    def end(self, task_id: str, end: Callable[[Task], Task]) -> None:
        """A task has ended that cannot be read any more: wake its waiters, and tell its listeners
        what ``end`` makes of the state that they know."""
        known = self._told.get(task_id)
        if known is None:
            self.wake(task_id)
        else:
            self.tell(end(known))

    def remove_all(self, task_id: str) -> None:
        """Remove the listeners of a task."""
        for listener in self._listeners.pop(task_id, ()):
            listener.leave_group()
        self._told.pop(task_id, None)
