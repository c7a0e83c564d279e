"""The tasks of one server while it runs: what changes them, who waits for that, who is told.

The store keeps tasks; here is what cannot be kept: handlers under way, requests that wait for a
task's end, connections that want to hear of it. Both forms of tasks (`tasks_legacy`,
`tasks_extension`) are views of the same book.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.tasks.model import Task, TaskLimit, TaskStateError, new_task_id
from wirespeed.tasks.store import TaskStore, now_ms

if TYPE_CHECKING:
    from wirespeed.server.connection import ServerConnection

logger = logging.getLogger("wirespeed.server")

# How often a store that others may change is looked at while something waits for a change, and
# how long a store may keep what is over before it is told to forget; seconds.
LOOK_EVERY = 0.5
SWEEP_EVERY = 10.0

CANCELLED = "The task was cancelled by request"
EXPIRED = "The task's time to live is over"
TOO_LARGE = "The result is too large to keep"
SHUT_DOWN = "The server was shut down"

# Seconds before a store that could not take the end of a task is asked again.
END_PAUSES = (0.1, 1.0, 10.0)

# Seconds that handlers have to end when the server does.
LAST_WAIT = 1.0

# In front of an answer that is an error object: no JSON text begins so.
REFUSAL = b"!"

_encode = msgspec.json.Encoder().encode
_error = msgspec.json.Decoder(dict[str, Any]).decode


class TaskSettings(msgspec.Struct, frozen=True):
    """How long tasks live and how often they are to be asked for; milliseconds.

    Attributes:
        ttl: Of a task whose client wishes nothing; None for no end.
        max_ttl: The longest that a client may wish for; None for any.
        poll: What clients are told to let pass between two looks.
    """

    ttl: int | None
    max_ttl: int | None
    poll: int

    def lifetime(self, wished: float | None) -> int | None:
        """The time to live of a task whose client wishes for so many milliseconds."""
        ttl = self.ttl if wished is None else max(1, int(min(wished, 1 << 52)))
        if self.max_ttl is None:
            return ttl
        return self.max_ttl if ttl is None else min(ttl, self.max_ttl)


class Worker:
    """A handler that works on a task in this process.

    Attributes:
        cancel: Ends it.
        expiry: Of the task's time to live.
        ended: Done when the handler is.
    """

    __slots__ = ("cancel", "ended", "expiry", "task_id")

    def __init__(
        self, task_id: str, cancel: Callable[[], object], ended: asyncio.Future[None]
    ) -> None:
        self.task_id = task_id
        self.cancel = cancel
        self.ended = ended
        self.expiry: asyncio.TimerHandle | None = None


class TaskBook:
    """The tasks of one server. To be used on one event loop."""

    def __init__(self, store: TaskStore, settings: TaskSettings) -> None:
        self.store = store
        self.settings = settings
        self._workers: dict[str, Worker] = {}
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._listeners: dict[str, list[Callable[[Task], bool]]] = {}
        self._told: dict[str, Task] = {}  # what listeners heard last, where others change tasks too
        self._ending: set[asyncio.Future[None]] = set()  # of handlers under way
        self._jobs: set[asyncio.Task[Any]] = set()
        self._names: dict[ServerConnection, bytes] = {}
        self._sending: set[tuple[str, str]] = set()
        self._swept = -SWEEP_EVERY
        self._watching: asyncio.Task[None] | None = None

    # -- whose a task is -------------------------------------------------------------------------

    def owner(self, connection: ServerConnection) -> tuple[bytes, bool]:
        """Whose the tasks of a connection are; and whether that is a principal. A client without
        credentials owns what it made over this one connection."""
        principal: bytes | None = connection.principal
        if principal is not None:
            return principal, True
        name = self._names.get(connection)
        if name is None:
            name = self._names[connection] = os.urandom(16)
            connection.closed.add_done_callback(lambda _: self._names.pop(connection, None))
        return name, False

    async def find(self, connection: ServerConnection, task_id: str) -> Task:
        """A task for whoever is behind a connection. ProtocolError -32602: there is none that it
        may see, or not any more; which of these is not told."""
        await self.sweep()
        task = await self.store.get(task_id)
        if task is None or not task.visible_to(*self.owner(connection)):
            raise not_found()
        if task.expired(now_ms()):
            raise not_found(expired=True)
        return task

    # -- changes ---------------------------------------------------------------------------------

    async def create(
        self, connection: ServerConnection, name: str, ttl: float | None = None
    ) -> Task:
        """Keep a new task for this connection's client. ProtocolError: there are too many, or the
        store failed."""
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
        try:
            await self.sweep()
            await self.store.create(task)
        except TaskLimit as exc:
            raise ProtocolError(codes.OVERLOADED, f"Too many tasks: {exc}") from None
        except asyncio.CancelledError:
            # it may be kept nevertheless, and nobody would know of it
            self.spawn(self.store.delete(task.id))
            raise
        except Exception:
            logger.exception("the store of tasks failed")
            raise ProtocolError(codes.INTERNAL_ERROR, "Internal error") from None
        logger.info("task %s of tool %s was created", _short(task.id), name)
        return task

    async def change(self, task_id: str, change: Callable[[Task], Task]) -> Task | None:
        """Change a task in the store, then tell whoever wants to know. Errors as of
        `TaskStore.update`."""
        before: list[Task] = []

        def changing(task: Task) -> Task:
            before[:] = [task]
            return change(task)

        task = await self.store.update(task_id, changing)
        if task is not None and before != [task]:
            self.tell(task, before[0])
        return task

    def tell(self, task: Task, before: Task | None = None) -> None:
        """A task has changed."""
        if task.status.terminal and (before is None or not before.status.terminal):
            logger.info("task %s of tool %s: %s", _short(task.id), task.name, task.status)
        for waiter in self._waiters.pop(task.id, ()):
            if not waiter.done():
                waiter.set_result(None)
        listeners = self._listeners.pop(task.id, None)
        if listeners is None:
            return
        told = self._told.get(task.id)
        seen = told is not None and (task.status, task.message, task.requests.keys()) == (
            told.status,
            told.message,
            told.requests.keys(),
        )
        listening = [tell for tell in listeners if seen or tell(task)]
        if listening and not task.status.terminal:
            self._listeners[task.id] = listening
            self._told[task.id] = task
        else:
            self._told.pop(task.id, None)

    def listen(self, task: Task, tell: Callable[[Task], bool]) -> None:
        """Call ``tell`` with the task after each change, from this state on, that can be seen from
        outside, until it is over or ``tell`` gives False."""
        self._listeners.setdefault(task.id, []).append(tell)
        told = self._told.get(task.id)
        if told is None or told.revision > task.revision:
            self._told[task.id] = task
        self._watch()

    def _unlisten(self, task_id: str) -> None:
        self._listeners.pop(task_id, None)
        self._told.pop(task_id, None)

    async def cancel(self, task: Task) -> Task:
        """Cancel a task, and then the handler that works on it. TaskStateError: it is over."""
        now = now_ms()
        after = await self.change(task.id, lambda task: task.cancelled(CANCELLED, now))
        if after is None:
            raise not_found()
        self._stop(task.id)
        return after

    async def answer(self, task_id: str, answers: Mapping[str, bytes]) -> Task | None:
        """Answers to what a task asked; those that it does not wait for are ignored. ProtocolError:
        they are too much to keep."""
        now = now_ms()
        try:
            return await self.change(task_id, lambda task: task.answered(answers, now))
        except TaskLimit as exc:
            raise ProtocolError(codes.OVERLOADED, f"Too much to keep: {exc}") from None

    # -- handlers --------------------------------------------------------------------------------

    def work(self, task: Task, cancel: Callable[[], object]) -> Worker:
        """A handler works on a task from now on; ``cancel`` ends it."""
        ended = asyncio.get_running_loop().create_future()
        worker = self._workers[task.id] = Worker(task.id, cancel, ended)
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        self._expire_later(worker, task)
        self._watch()
        return worker

    def _expire_later(self, worker: Worker, task: Task) -> None:
        if task.expires is not None:
            # the clock may be set meanwhile, and timers do not reach far: it is looked at again
            seconds = min(max(0.0, (task.expires - now_ms()) / 1000), 86_400.0)
            loop = asyncio.get_running_loop()
            worker.expiry = loop.call_later(seconds, self._expired, worker, task)

    def _expired(self, worker: Worker, task: Task) -> None:
        """Its time to live is over while its handler works: nobody can get the result any more."""
        if not task.expired(now_ms()):
            self._expire_later(worker, task)
            return
        logger.warning("task %s of tool %s: %s", _short(task.id), task.name, EXPIRED)
        self._stop(task.id)
        self.spawn(self._forget(task.id))

    async def _forget(self, task_id: str) -> None:
        await self.store.delete(task_id)
        self._unlisten(task_id)
        for waiter in self._waiters.pop(task_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _stop(self, task_id: str) -> None:
        worker = self._workers.pop(task_id, None)
        if worker is not None:
            if worker.expiry is not None:
                worker.expiry.cancel()
            worker.cancel()

    def done(self, worker: Worker, end: Callable[[Task, int], Task] | None) -> None:
        """A handler has ended; ``end`` makes the task's end of it, which is then stored. None: it
        was cancelled, because its task is over already."""
        if not worker.ended.done():
            worker.ended.set_result(None)
        if end is None or self._workers.get(worker.task_id) is not worker:
            return
        del self._workers[worker.task_id]
        if worker.expiry is not None:
            worker.expiry.cancel()
        self.spawn(self._store_end(worker.task_id, end))

    async def _store_end(self, task_id: str, end: Callable[[Task, int], Task]) -> None:
        """A store that is busy or full for a moment must not cost a result."""
        for pause in END_PAUSES:
            try:
                await self._put_end(task_id, end)
                return
            except Exception:
                logger.exception("task %s: its end cannot be stored yet", _short(task_id))
                await asyncio.sleep(pause)
        await self._put_end(task_id, end)

    async def _put_end(self, task_id: str, end: Callable[[Task, int], Task]) -> None:
        now = now_ms()
        with contextlib.suppress(TaskStateError):  # cancelled meanwhile: it stays so
            try:
                await self.change(task_id, lambda task: end(task, now))
            except TaskLimit as exc:
                logger.warning("task %s: its result cannot be kept: %s", _short(task_id), exc)
                error = _encode({"code": codes.INTERNAL_ERROR, "message": TOO_LARGE})
                await self.change(task_id, lambda task: task.failed(error, TOO_LARGE, now))

    def _watch(self) -> None:
        """Where other processes may change tasks: look at those that matter here now and then."""
        if self.store.shared and self._watching is None:
            self._watching = self.spawn(self._watch_others())

    async def _watch_others(self) -> None:
        try:
            while watched := self._workers.keys() | self._listeners.keys():
                await asyncio.sleep(LOOK_EVERY)
                for task_id in watched:
                    task = await self.store.get(task_id)
                    if task is None:
                        self._stop(task_id)
                        self._unlisten(task_id)
                        continue
                    if task.status.terminal:
                        self._stop(task_id)
                    before = self._told.get(task_id)
                    if task.status.terminal or (before and task.revision > before.revision):
                        self.tell(task, before)
        finally:
            self._watching = None

    # -- waiting ---------------------------------------------------------------------------------

    async def changes(
        self, connection: ServerConnection, task_id: str
    ) -> AsyncGenerator[Task, None]:
        """The task now, and after each change until it is over. ProtocolError: it is gone."""
        while True:
            waiter = asyncio.get_running_loop().create_future()
            waiters = self._waiters.setdefault(task_id, set())
            waiters.add(waiter)
            try:
                task = await self.find(connection, task_id)
                yield task
                if task.status.terminal:
                    return
                await asyncio.wait([waiter], timeout=self._patience(task))
            finally:
                waiters.discard(waiter)
                if not waiters and self._waiters.get(task_id) is waiters:
                    del self._waiters[task_id]

    def _patience(self, task: Task) -> float | None:
        """Seconds after which to look again though nobody told of a change."""
        left = None if task.expires is None else max(0.001, (task.expires - now_ms()) / 1000)
        if self.store.shared:
            return LOOK_EVERY if left is None else min(LOOK_EVERY, left)
        return left

    # -- asking ----------------------------------------------------------------------------------

    async def ask(self, connection: ServerConnection, task_id: str, request: bytes) -> bytes:
        """Ask the task's client something, and wait for the answer: JSON text of the result.
        `request` is the JSON text of ``{"method", "params"}``. RemoteError: it refused."""
        key = ""

        def asking(task: Task) -> Task:
            nonlocal key
            after, key = task.asking(request, now_ms())
            return after

        if await self.change(task_id, asking) is None:
            raise not_found()
        try:
            async with contextlib.aclosing(self.changes(connection, task_id)) as changes:
                async for task in changes:
                    text = task.answers.get(key)
                    if text is not None:
                        return _taken(text)
            raise asyncio.CancelledError(CANCELLED)
        finally:
            # answered or not, nobody wants this any more; the task may be over or gone
            self.spawn(self._withdraw(task_id, key))

    async def _withdraw(self, task_id: str, key: str) -> None:
        now = now_ms()
        with contextlib.suppress(TaskStateError):
            await self.change(
                task_id,
                lambda task: task if task.status.terminal else task.withdrawing(key, now),
            )

    def claim(self, task_id: str, key: str) -> bool:
        """Whether the caller is the one to send this question to a client; `release` it then."""
        if (task_id, key) in self._sending:
            return False
        self._sending.add((task_id, key))
        return True

    def release(self, task_id: str, key: str) -> None:
        self._sending.discard((task_id, key))

    # -- keeping house ---------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that nobody waits for; what it raises is logged."""
        job = asyncio.get_running_loop().create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and job.exception() is not None:
            logger.error("the store of tasks failed", exc_info=job.exception())

    async def settled(self) -> None:
        """Wait until all ends of handlers are stored."""
        while jobs := self._jobs - {self._watching, asyncio.current_task()}:
            await asyncio.wait(jobs)

    async def sweep(self) -> None:
        """Now and then: let the store forget what is over; the first time, open it."""
        now = asyncio.get_running_loop().time()
        if now - self._swept < SWEEP_EVERY:
            return
        first, self._swept = self._swept < 0, now
        if first:
            await self.store.open()
        for task_id in await self.store.expire(now_ms()):
            self._stop(task_id)
            self._unlisten(task_id)

    async def close(self) -> None:
        """End what works, with its tasks, and close the store; errors are logged. The book may be
        used again."""
        now = now_ms()
        error = _encode({"code": codes.SHUTTING_DOWN, "message": SHUT_DOWN})
        for task_id in list(self._workers):
            try:
                with contextlib.suppress(TaskStateError):
                    await self.change(task_id, lambda task: task.failed(error, SHUT_DOWN, now))
            except Exception:
                logger.exception("the store of tasks failed")
            self._stop(task_id)
        self._listeners.clear()
        self._told.clear()
        if self._watching is not None:
            self._watching.cancel()
        if self._ending:
            await asyncio.wait(self._ending, timeout=LAST_WAIT)
        await self.settled()
        try:
            await self.store.close()
        except Exception:
            logger.exception("the store of tasks failed")
        self._swept = -SWEEP_EVERY


def not_found(*, expired: bool = False) -> ProtocolError:
    """-32602, as both forms have it for an id that means nothing (to this client)."""
    reason = "Task has expired" if expired else "Task not found"
    return ProtocolError(codes.INVALID_PARAMS, f"Failed to retrieve task: {reason}")


def refusal(exc: RemoteError | ProtocolError) -> bytes:
    """An error as an answer that the handler's side turns into `RemoteError` again."""
    error: dict[str, Any] = {"code": exc.code, "message": exc.message}
    if exc.data is not None:
        error["data"] = exc.data
    return REFUSAL + _encode(error)


def _taken(text: bytes) -> bytes:
    if not text.startswith(REFUSAL):
        return text
    error = _error(text[1:])
    raise RemoteError(error["code"], error["message"], error.get("data"))


def _short(task_id: str) -> str:
    """As much of an id as a log may have: whoever knows the whole may ask for the task."""
    return task_id[:6] + "…"
