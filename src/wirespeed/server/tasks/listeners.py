"""The waiters and listeners for changes of tasks on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from wirespeed.tasks.model import Task


class Listener:
    """A function that is called after each change of one task."""

    __slots__ = ("_group", "task_id", "tell")

    def __init__(self, task_id: str, tell: Callable[[Task], object], group: set[Listener]) -> None:
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
        self._listeners: dict[str, dict[Listener, None]] = {}
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

    def add(self, task: Task, tell: Callable[[Task], object], group: set[Listener]) -> Listener:
        """Call ``tell`` with the task after each change from this state on, until the task ends or
        `remove`. ``group`` contains the listener for the same time."""
        listener = Listener(task.id, tell, group)
        self._listeners.setdefault(task.id, {})[listener] = None
        told = self._told.get(task.id)
        if told is None or told.revision > task.revision:
            self._told[task.id] = task
        return listener

    def remove(self, listener: Listener) -> None:
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

    def remove_all(self, task_id: str) -> None:
        """Remove the listeners of a task."""
        for listener in self._listeners.pop(task_id, ()):
            listener.leave_group()
        self._told.pop(task_id, None)
