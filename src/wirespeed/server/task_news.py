"""Who wants to know of changes of tasks on one event loop: those who wait, those who listen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from wirespeed.tasks.model import Task


class Listener:
    """Somebody who is told of each change of one task."""

    __slots__ = ("_among", "task_id", "tell")

    def __init__(self, task_id: str, tell: Callable[[Task], object], among: set[Listener]) -> None:
        self.task_id = task_id
        self.tell = tell
        self._among = among
        among.add(self)

    def forget(self) -> None:
        """It is told nothing any more."""
        self._among.discard(self)


class TaskNews:
    """Waiters wake at any change; listeners hear of what can be seen from outside."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._listeners: dict[str, dict[Listener, None]] = {}
        self._told: dict[str, Task] = {}  # what the listeners of a task heard last

    # -- waiting ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def waiting(self, task_id: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when the task changes, or is forgotten."""
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
        """Whoever waits is to look."""
        for waiter in self._waiters.pop(task_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    @property
    def waited(self) -> set[str]:
        """The tasks that somebody waits for."""
        return set(self._waiters)

    # -- listening -------------------------------------------------------------------------------

    @property
    def listened(self) -> set[str]:
        """The tasks that somebody listens to."""
        return set(self._listeners)

    def listen(self, task: Task, tell: Callable[[Task], object], among: set[Listener]) -> Listener:
        """Call ``tell`` with the task after each change, from this state on, until it is over or
        `unlisten`. ``among`` has the listener for as long."""
        listener = Listener(task.id, tell, among)
        self._listeners.setdefault(task.id, {})[listener] = None
        told = self._told.get(task.id)
        if told is None or told.revision > task.revision:
            self._told[task.id] = task
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Tell it nothing more; a second time does nothing."""
        listener.forget()
        listeners = self._listeners.get(listener.task_id)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                self.hush(listener.task_id)

    def is_news(self, task: Task) -> bool:
        """Whether somebody listens to a task and has not heard of this state."""
        told = self._told.get(task.id)
        return told is not None and told.revision < task.revision

    def tell(self, task: Task) -> None:
        """A task has changed."""
        self.wake(task.id)
        if not self.is_news(task):
            return  # nobody listens, or later news overtook these
        told, self._told[task.id] = self._told[task.id], task
        if (task.status, task.message, task.requests.keys()) != (
            told.status,
            told.message,
            told.requests.keys(),
        ):
            for listener in list(self._listeners[task.id]):
                listener.tell(task)
        if task.status.terminal:
            self.hush(task.id)

    def hush(self, task_id: str) -> None:
        """There is nothing more to tell of a task."""
        for listener in self._listeners.pop(task_id, ()):
            listener.forget()
        self._told.pop(task_id, None)
