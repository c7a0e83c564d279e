"""The tasks of a server: their lookup, creation and changes, and the notification of listeners.

The store keeps the tasks. A `TaskRuntime` holds what a store cannot keep
(`wirespeed.server.tasks.participants`): the handlers that work on tasks, the requests that wait for
a change, the connections that listen. Both forms of tasks
(`server.tasks.legacy`, `server.tasks.extension`) use the same book.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.protocol import codes
from wirespeed.server.tasks.participants import (
    TaskListener,
    TaskListeners,
    TaskWorker,
    TaskWorkers,
    seconds_until,
)
from wirespeed.tasks.model import Task, TaskLimit, TaskStateError, new_task_id
from wirespeed.tasks.store import TaskStore, now_ms
from wirespeed.tasks.views import CANCELLED, not_found
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Serving

logger = logging.getLogger("wirespeed.server")

# Seconds between two looks at a store that other processes may change, and between two calls of
# `TaskStore.expire`.
LOOK_EVERY = 0.5
SWEEP_EVERY = 10.0

EXPIRED = "The task's time to live is over"
TOO_LARGE = "The result is too large to keep"
NOT_KEPT = "The result cannot be kept"
UNKNOWN = not_found().message
SHUT_DOWN = "The server was shut down: the task was cut off, and may have taken effect"

# Seconds before each further attempt to store the end of a task.
END_PAUSES = (0.1, 1.0, 10.0)

# Seconds that handlers have to end when the server closes, and that a store has to close.
HANDLER_GRACE = 1.0
CLOSE_TIMEOUT = 15.0

_encode = msgspec.json.Encoder().encode

_TOO_LARGE = _encode({"code": codes.INTERNAL_ERROR, "message": TOO_LARGE})
_NOT_KEPT = _encode({"code": codes.INTERNAL_ERROR, "message": NOT_KEPT})
_SHUT_DOWN = _encode({"code": codes.CUT_OFF, "message": SHUT_DOWN})
_UNKNOWN = _encode({"code": not_found().code, "message": UNKNOWN})


class TaskSettings(msgspec.Struct, frozen=True):
    """Times of tasks, in milliseconds.

    Attributes:
        ttl: The time to live of a task whose client requests none; None for no end.
        max_ttl: The longest time to live that a client may request; None for any.
        poll: The interval at which clients are told to poll.
    """

    ttl: int | None
    max_ttl: int | None
    poll: int

    def lifetime(self, requested: float | None) -> int | None:
        """Return the time to live of a task for which the client requests ``requested``, or no
        time (None)."""
        ttl = self.ttl if requested is None else max(1, int(min(requested, 1 << 52)))
        if self.max_ttl is None:
            return ttl
        return self.max_ttl if ttl is None else min(ttl, self.max_ttl)


class TaskService:
    """The tasks of one server: its store, its settings and the book of its event loop."""

    def __init__(self, store: TaskStore, settings: TaskSettings) -> None:
        self.store = store
        self.settings = settings
        self._book: TaskRuntime | None = None

    def book(self, loop: asyncio.AbstractEventLoop) -> TaskRuntime:
        """Return the book of an event loop. A server runs on one event loop at a time; each loop
        has a book of its own."""
        book = self._book
        if book is None or book.loop is not loop:
            book = self._book = TaskRuntime(self.store, self.settings, loop)
        return book

    def replace_store(self, store: TaskStore) -> None:
        """Keep tasks in another store. RuntimeError: the server works on tasks already."""
        if self._book is not None:
            raise RuntimeError("the server works on tasks already: choose their store before")
        self.store = store

    async def close(self) -> None:
        """End all work on tasks and close the store."""
        if self._book is not None:
            await self._book.close()
            self._book = None


# Owns the tasks that clients without credentials create over HTTP: their ids cannot be guessed.
ANYONE = b"\0" * 16


class _Client:
    """The state of one connection in a book."""

    __slots__ = ("listeners", "name")

    def __init__(self) -> None:
        self.name = os.urandom(16)  # the owner of its tasks, if it has no principal
        self.listeners: set[TaskListener] = set()


class TaskRuntime:
    """The tasks of one server on one event loop.

    Args:
        look_every: Seconds between two looks at a shared store.
        close_timeout: Seconds that the store has to close.
    """

    def __init__(
        self,
        store: TaskStore,
        settings: TaskSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        look_every: float = LOOK_EVERY,
        close_timeout: float = CLOSE_TIMEOUT,
    ) -> None:
        self._look_every = look_every
        self._close_timeout = close_timeout
        self.loop = loop
        self.store = store
        self.settings = settings
        self.listeners = TaskListeners(loop)
        self.workers = TaskWorkers(loop, self._expired)
        self._jobs: set[asyncio.Task[Any]] = set()
        self._clients: dict[Serving, _Client] = {}
        self._asking: set[tuple[str, str]] = set()  # task and key of questions sent to a client
        self._failures = RateLimitedLog(logger, lines=1, seconds=60.0)
        self._open = False
        self._closing = False
        self._opening: asyncio.Task[Any] | None = None
        self._swept = -SWEEP_EVERY
        self._watching: asyncio.Task[None] | None = None
        self._looked: dict[str, int] = {}  # revisions at the last look

    # -- owners ----------------------------------------------------------------------------------

    def owner(self, connection: Serving) -> tuple[bytes, bool]:
        """Return the owner of a connection's tasks, and whether the owner is a principal. A client
        without credentials owns the tasks that it creates over this connection; over HTTP, where
        requests have no connection of their own, who knows the task's id may ask for it. The store
        must be open."""
        principal: bytes | None = connection.principal
        if principal is not None:
            return self.store.owner_of(principal), True
        if connection.shared:
            return ANYONE, False
        return self._client(connection).name, False

    def _client(self, connection: Serving) -> _Client:
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = _Client()
            connection.closed.add_done_callback(lambda _: self._gone(connection))
        return client

    def _gone(self, connection: Serving) -> None:
        for listener in list(self._clients.pop(connection).listeners):
            self.listeners.remove(listener)

    async def find(self, connection: Serving, task_id: str) -> Task:
        """Return a task that the client of a connection may see. ProtocolError -32602: the client
        may see no such task. The error does not say whether another client has the task."""
        await self.ready()
        task = await self.store.get(task_id)
        if task is None or not task.visible_to(*self.owner(connection)):
            raise not_found()
        if task.expired(now_ms()):
            raise not_found(expired=True)
        return task

    # -- changes ---------------------------------------------------------------------------------

    async def create(self, connection: Serving, name: str, ttl: float | None = None) -> Task:
        """Store a new task of this connection's client. The caller must `begin` or `drop` the task.
        ProtocolError: there are too many tasks, or the store failed."""
        await self.ready()
        owner, principal = self.owner(connection)
        now = now_ms()
        task = Task(
            id=new_task_id(),
            owner=owner,
            principal=principal,
            name=name,
            created=now,
            updated=now,
            ttl=self.settings.lifetime(ttl),
            poll=self.settings.poll,
        )
        self.workers.reserve(task.id)
        try:
            await self.store.create(task)
        except BaseException as exc:
            self.workers.release(task.id)
            if isinstance(exc, TaskLimit):
                raise ProtocolError(codes.OVERLOADED, f"Too many tasks: {exc}") from None
            if not isinstance(exc, Exception) or isinstance(exc, StoreUnavailable):
                self.drop(task)  # the store may have kept it
                raise
            logger.exception("the task store failed")
            raise ProtocolError(codes.INTERNAL_ERROR, "Internal error") from None
        logger.info("task %s of tool %s was created", _short(task.id), name)
        return task

    def drop(self, task: Task) -> None:
        """Forget a new task that no handler will work on."""
        self.workers.release(task.id)
        self.spawn(self.store.delete(task.id))

    async def change(self, task_id: str, change: Callable[[Task], Task]) -> Task | None:
        """Change a task in the store, then wake its waiters and tell its listeners. Returns the
        changed task; None if the task is unknown or the store is closed. Errors are those of
        `TaskStore.update`."""
        if not self._open:
            return None  # a handler outlived the server
        before: list[Task] = []

        def changing(task: Task) -> Task:
            before[:] = [task]
            return change(task)

        task = await self.store.update(task_id, changing)
        if task is not None and before != [task]:
            if task.status.terminal:
                logger.info("task %s of tool %s: %s", _short(task.id), task.name, task.status)
            self.listeners.tell(task)
        return task

    def listen(
        self, connection: Serving, task: Task, tell: Callable[[Task], object]
    ) -> TaskListener:
        """Call ``tell`` with the task after each visible change from this state on, until the task
        ends, the connection is closed, or `TaskListeners.remove` is called."""
        listener = self.listeners.add(task, tell, self._client(connection).listeners)
        self._watch()
        return listener

    async def cancel(self, task: Task) -> Task:
        """Cancel a task, then its handler. TaskStateError: the task has ended."""
        now = now_ms()
        after = await self.change(task.id, lambda task: task.cancelled(CANCELLED, now))
        if after is None:
            raise not_found()
        self.workers.stop(task.id)
        return after

    async def answer(self, task_id: str, answers: Mapping[str, bytes]) -> Task | None:
        """Store answers to a task's questions. Answers to other questions are ignored.
        ProtocolError: the answers are too large to keep."""
        now = now_ms()
        try:
            return await self.change(task_id, lambda task: task.answered(answers, now))
        except TaskLimit as exc:
            raise ProtocolError(codes.OVERLOADED, f"Too much to keep: {exc}") from None

    # -- handlers --------------------------------------------------------------------------------

    def begin(self, task: Task, cancel: Callable[[], object]) -> TaskWorker:
        """See `TaskWorkers.begin`."""
        worker = self.workers.begin(task, cancel)
        self._watch()
        return worker

    def _expired(self, task: Task) -> None:
        """Stop the handler of a task whose time to live has ended: no client can fetch its
        result."""
        logger.warning("task %s of tool %s: %s", _short(task.id), task.name, EXPIRED)
        self.workers.stop(task.id)
        self.spawn(self._forget(task.id))

    async def _forget(self, task_id: str) -> None:
        await self.store.delete(task_id)
        self._forgotten(task_id)

    def _forgotten(self, task_id: str) -> None:
        """The store does not have a task any more. Its listeners hear what `find` says."""
        self.workers.stop(task_id)
        self.listeners.end(task_id, lambda task: task.failed(_UNKNOWN, UNKNOWN, now_ms()))

    def done(self, worker: TaskWorker, end: Callable[[Task, int], Task] | None) -> None:
        """A handler has ended. ``end`` returns the ended task, which is then stored. None: the
        handler was cancelled because its task had ended."""
        if self.workers.end(worker) and end is not None:
            self.spawn(self._store_end(worker.task_id, end))

    async def _store_end(self, task_id: str, end: Callable[[Task, int], Task]) -> None:
        """Store the end of a task. A store that fails is tried again, so that the result is not
        lost when the store is busy or full for a moment, and as long as it is away."""
        pauses = iter(END_PAUSES)
        while (pause := next(pauses, None)) is not None:
            try:
                await self._put_end(task_id, end)
                return
            except StoreUnavailable:
                if self._closing:
                    return
                pauses = iter(END_PAUSES[1:])
            except Exception:
                logger.exception("task %s: its end cannot be stored yet", _short(task_id))
            await asyncio.sleep(pause)
        try:
            await self._put_end(task_id, end)
        except Exception:
            logger.exception("task %s: its end cannot be stored", _short(task_id))
            await self._put_end(task_id, lambda task, now: task.failed(_NOT_KEPT, NOT_KEPT, now))

    async def _put_end(self, task_id: str, end: Callable[[Task, int], Task]) -> None:
        now = now_ms()
        with contextlib.suppress(TaskStateError):  # the task was cancelled meanwhile
            try:
                await self.change(task_id, lambda task: end(task, now))
            except TaskLimit as exc:
                logger.warning("task %s: its result cannot be kept: %s", _short(task_id), exc)
                await self.change(task_id, lambda task: task.failed(_TOO_LARGE, TOO_LARGE, now))

    # -- changes by other processes ----------------------------------------------------------------

    def _watch(self) -> None:
        """Poll a shared store while this book has workers, listeners or waiters of its tasks."""
        if self.store.shared and self._watching is None:
            self._watching = self.spawn(self._watch_others())

    async def _watch_others(self) -> None:
        try:
            while watched := {
                *self.workers.task_ids, *self.listeners.listened, *self.listeners.waited
            }:  # fmt: skip
                await asyncio.sleep(self._look_every)
                self._looked = {key: at for key, at in self._looked.items() if key in watched}
                for task_id in watched:
                    try:
                        await self._look(task_id)
                    except Exception as exc:
                        self._failing(exc)
        finally:
            self._watching = None

    async def _look(self, task_id: str) -> None:
        task = await self.store.get(task_id)
        if task is None:
            self._forgotten(task_id)
            return
        if task.status.terminal or self.listeners.is_new(task):
            if task.status.terminal:
                self.workers.stop(task_id)
            self.listeners.tell(task)
        elif self._looked.get(task_id) != task.revision:
            self.listeners.wake(task_id)
        self._looked[task_id] = task.revision

    def _failing(self, exc: Exception) -> None:
        """Log, at most once a minute, a failure of the store at work that is tried again. What
        finds out that a store is away has logged it."""
        if not isinstance(exc, StoreUnavailable):
            self._failures.log(logging.ERROR, "the task store fails: %r", exc)

    # -- waiting ---------------------------------------------------------------------------------

    async def changes(self, connection: Serving, task_id: str) -> AsyncGenerator[Task, None]:
        """Yield the task now, and after each change until it has ended. ProtocolError: the task is
        unknown. A store that fails after the first task is read again."""
        begun = False
        while True:
            with self.listeners.waiting(task_id) as waiter:
                pause: float | None = self._look_every
                try:
                    task = await self.find(connection, task_id)
                except Exception as exc:
                    away = isinstance(exc, StoreUnavailable)
                    if not begun or (isinstance(exc, ProtocolError) and not away):
                        raise
                    self._failing(exc)
                else:
                    begun = True
                    yield task
                    if task.status.terminal:
                        return
                    pause = None if task.expires is None else seconds_until(task.expires)
                self._watch()
                await asyncio.wait([waiter], timeout=pause)

    def claim(self, task_id: str, key: str) -> bool:
        """Return whether the caller may send a question of a task to a client. If so, the caller
        must `unclaim` the question after that."""
        if (task_id, key) in self._asking:
            return False
        self._asking.add((task_id, key))
        return True

    def unclaim(self, task_id: str, key: str) -> None:
        """A claimed question was answered or could not be sent. Another waiter may `claim` it
        now."""
        self._asking.discard((task_id, key))
        self.listeners.wake(task_id)

    # -- opening and closing ---------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work as an asyncio task. Its exceptions are logged."""
        job = self.loop.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        exc = None if job.cancelled() else job.exception()
        if exc is not None and not isinstance(exc, StoreUnavailable):
            logger.error("the task store failed", exc_info=exc)

    async def settled(self) -> None:
        """Wait until the ends of all handlers are stored."""
        while jobs := self._jobs - {self._watching, asyncio.current_task()}:
            await asyncio.wait(jobs)

    async def ready(self) -> None:
        """Open the store if it is not open, and delete expired tasks, at most every `SWEEP_EVERY`
        seconds. ProtocolError -32603, StoreUnavailable: the store cannot be opened. The next call
        tries again."""
        if not self._open:
            if self._opening is None:
                # a task of its own: the other callers need it even if this one is cancelled
                self._opening = self.spawn(self._open_store())
            try:
                await asyncio.shield(self._opening)
            except StoreUnavailable:
                raise StoreUnavailable from None
            except Exception:  # `_job_done` logs it
                raise ProtocolError(codes.INTERNAL_ERROR, "Internal error") from None
        now = self.loop.time()
        if now - self._swept < SWEEP_EVERY:
            return
        self._swept = now
        try:
            for task_id in await self.store.expire(now_ms()):
                self._forgotten(task_id)
        except Exception as exc:
            self._failing(exc)

    async def _open_store(self) -> None:
        try:
            await self.store.open()
            self._open = True
        finally:
            self._opening = None

    async def close(self) -> None:
        """End the handlers and their tasks, then close the store. Errors are logged."""
        self._closing = True
        now = now_ms()
        for task_id in list(self.workers.task_ids):
            try:
                with contextlib.suppress(TaskStateError, StoreUnavailable):
                    await self.change(task_id, lambda task: task.failed(_SHUT_DOWN, SHUT_DOWN, now))
            except Exception:
                logger.exception("the task store failed")
            self.workers.stop(task_id)
        for task_id in self.listeners.listened:
            self.listeners.remove_all(task_id)
        if self._watching is not None:
            self._watching.cancel()
        await self.workers.wait(HANDLER_GRACE)
        for work in (self.settled, self._close_store):
            try:
                async with asyncio.timeout(self._close_timeout):
                    await work()
            except TimeoutError:
                seconds = self._close_timeout
                logger.error("the task store needs more than %g s to close", seconds)
            except Exception:
                logger.exception("the task store failed")

    async def _close_store(self) -> None:
        if self._open:
            self._open = False
            await self.store.close()


def _short(task_id: str) -> str:
    """Return the part of a task's id for the log. The whole id is enough to access the task."""
    return task_id[:6] + "…"
