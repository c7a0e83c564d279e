"""The tasks of a server on one event loop: what changes them, who waits for that, who is told.

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

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.task_news import Listener, TaskNews
from wirespeed.tasks.model import (
    OwnerTaskLimit,
    Task,
    TaskLimit,
    TaskStateError,
    new_task_id,
)
from wirespeed.tasks.store import now_ms
from wirespeed.transport.quiet import Quiet

if TYPE_CHECKING:
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.task_books import TaskBooks

logger = logging.getLogger("wirespeed.server")

# How often a store that others may change is looked at while something waits for a change, and
# how long a store may keep what is over before it is told to forget; seconds.
LOOK_EVERY = 0.5
SWEEP_EVERY = 10.0

CANCELLED = "The task was cancelled by request"
EXPIRED = "The task's time to live is over"
TOO_LARGE = "The result is too large to keep"
NOT_KEPT = "The result cannot be kept"
SHUT_DOWN = "The server was shut down"

# Seconds before a store that could not take the end of a task is asked again.
END_PAUSES = (0.1, 1.0, 10.0)

# Seconds that handlers have to end when the server does.
LAST_WAIT = 1.0

_encode = msgspec.json.Encoder().encode

_TOO_LARGE = _encode({"code": codes.INTERNAL_ERROR, "message": TOO_LARGE})
_NOT_KEPT = _encode({"code": codes.INTERNAL_ERROR, "message": NOT_KEPT})
_SHUT_DOWN = _encode({"code": codes.SHUTTING_DOWN, "message": SHUT_DOWN})


class Worker:
    """A handler that works on a task in this process.

    Attributes:
        cancel: Ends it.
        expiry: Of the task's time to live.
        ended: Done when the handler is.
    """

    __slots__ = ("cancel", "client", "ended", "expiry", "task_id")

    def __init__(
        self,
        task_id: str,
        client: _Client,
        cancel: Callable[[], object],
        ended: asyncio.Future[None],
    ) -> None:
        self.task_id = task_id
        self.client = client
        self.cancel = cancel
        self.ended = ended
        self.expiry: asyncio.TimerHandle | None = None


class _Client:
    """What there is of one connection; but for the workers, nothing once it was closed.

    Attributes:
        name: What owns its tasks; of its own where it has no principal.
        made: Whether it made tasks by that name.
        workers: Handlers that work on its tasks, the oldest first, unless it has a principal.
    """

    __slots__ = ("listeners", "made", "name", "workers")

    def __init__(self, principal: bytes | None) -> None:
        self.name = os.urandom(16) if principal is None else principal
        self.made = False
        self.listeners: set[Listener] = set()
        self.workers: dict[str, Worker] = {}


class TaskBook:
    """The tasks of one server on one event loop; `TaskBooks` makes it."""

    def __init__(self, books: TaskBooks, loop: asyncio.AbstractEventLoop) -> None:
        self.books = books
        self.loop = loop
        self.store = books.store
        self.settings = books.settings
        self._workers: dict[str, Worker] = {}
        self.news = TaskNews(loop)
        self._ending: set[asyncio.Future[None]] = set()  # of handlers under way
        self._jobs: set[asyncio.Task[Any]] = set()
        self._clients: dict[ServerConnection, _Client] = {}
        self._fetched: dict[str, bytes] = {}  # owners of tasks whose end they know
        self._absent: dict[_Client, None] = {}  # gone, without a principal, but their handlers work
        self._failures = Quiet(logger, lines=1, seconds=60.0)
        self._given_up = Quiet(logger, lines=1, seconds=60.0)
        self._open = False
        self._opening: asyncio.Task[Any] | None = None
        self._swept = -SWEEP_EVERY
        self._watching: asyncio.Task[None] | None = None
        self._looked: dict[str, int] = {}  # revisions at the last look

    # -- whose a task is -------------------------------------------------------------------------

    def owner(self, connection: ServerConnection) -> tuple[bytes, bool]:
        """Whose the tasks of a connection are; and whether that is a principal. A client without
        credentials owns what it made over this one connection."""
        principal: bytes | None = connection.principal
        if principal is not None:
            return principal, True
        return self._client(connection).name, False

    def _client(self, connection: ServerConnection) -> _Client:
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = _Client(connection.principal)
            connection.closed.add_done_callback(lambda _: self._gone(connection))
        return client

    def _gone(self, connection: ServerConnection) -> None:
        """A connection was closed: nobody listens there, nor makes tasks by its name, any more."""
        client = self._clients.pop(connection)
        for listener in list(client.listeners):
            self.news.unlisten(listener)
        if client.workers:
            self._absent[client] = None
        self._leave(client)

    def _leave(self, client: _Client) -> None:
        """Nobody comes again by its name."""
        if client.made and self._open:
            client.made = False
            self.spawn(self.store.leave(client.name))

    async def find(self, connection: ServerConnection, task_id: str) -> Task:
        """A task for whoever is behind a connection. ProtocolError -32602: there is none that it
        may see, or not any more; which of these is not told."""
        await self.ready()
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
        client = self._client(connection)
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
        await self.ready()
        try:
            try:
                await self.store.create(task)
            except OwnerTaskLimit:
                if not await self._forget_fetched(owner):
                    raise
                await self.store.create(task)
            except TaskLimit:
                if not await self._give_up():
                    raise
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
        finally:
            client.made = not principal
            if connection not in self._clients:
                self._leave(client)  # it went meanwhile
        logger.info("task %s of tool %s was created", _short(task.id), name)
        return task

    def fetched(self, task: Task) -> None:
        """A client was given what came of a task: it may be forgotten when its owner has too
        many."""
        if task.status.terminal:
            self._fetched.setdefault(task.id, task.owner)
            if len(self._fetched) > self.store.max_tasks:
                del self._fetched[next(iter(self._fetched))]

    async def _forget_fetched(self, owner: bytes) -> bool:
        """Make room among an owner's own tasks; whether there was any."""
        for task_id in [key for key, known in self._fetched.items() if known == owner]:
            del self._fetched[task_id]
            if await self.store.delete(task_id):
                self._forgotten(task_id)
                return True
        return False

    async def _give_up(self) -> bool:
        """The store is full, so a handler must end that works for a client without a principal that
        is gone: of those, the oldest of who left most at work. Whether there was one."""
        if not self._absent:
            return False
        client = max(self._absent, key=lambda client: len(client.workers))
        task_id = next(iter(client.workers))
        self._given_up.log(
            logging.WARNING, "task %s: given up, its client is gone, to make room", _short(task_id)
        )
        self._stop(task_id)
        await self._forget(task_id)
        return True

    async def change(self, task_id: str, change: Callable[[Task], Task]) -> Task | None:
        """Change a task in the store, then tell whoever wants to know. Errors as of
        `TaskStore.update`."""
        if not self._open:
            return None  # a handler that outlived the end of the server
        before: list[Task] = []

        def changing(task: Task) -> Task:
            before[:] = [task]
            return change(task)

        task = await self.store.update(task_id, changing)
        if task is not None and before != [task]:
            if task.status.terminal:
                logger.info("task %s of tool %s: %s", _short(task.id), task.name, task.status)
            self.news.tell(task)
            self.books.elsewhere(self, lambda book: book.heard(task))
        return task

    def heard(self, task: Task) -> None:
        """Somebody else has changed a task."""
        if task.status.terminal:
            self._stop(task.id)
        self.news.tell(task)

    def listen(
        self, connection: ServerConnection, task: Task, tell: Callable[[Task], object]
    ) -> Listener:
        """Call ``tell`` with the task after each change, from this state on, that can be seen from
        outside, until it is over, the connection is closed, or `TaskNews.unlisten`."""
        listener = self.news.listen(task, tell, self._client(connection).listeners)
        self._watch()
        return listener

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

    def work(
        self, connection: ServerConnection, task: Task, cancel: Callable[[], object]
    ) -> Worker:
        """A handler works on a task from now on; ``cancel`` ends it."""
        ended = self.loop.create_future()
        client = self._client(connection)
        worker = self._workers[task.id] = Worker(task.id, client, cancel, ended)
        if not task.principal:
            client.workers[task.id] = worker
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        self._expire_later(worker, task)
        self._watch()
        return worker

    def _expire_later(self, worker: Worker, task: Task) -> None:
        if task.expires is not None:
            worker.expiry = self.loop.call_later(
                _seconds_until(task.expires), self._expired, worker, task
            )

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
        self._forgotten(task_id)

    def _forgotten(self, task_id: str) -> None:
        self._over(task_id)
        self.books.elsewhere(self, lambda book: book._over(task_id))

    def _over(self, task_id: str) -> None:
        """A task was forgotten."""
        self._fetched.pop(task_id, None)
        self._stop(task_id)
        self.news.hush(task_id)
        self.news.wake(task_id)

    def _stop(self, task_id: str) -> None:
        worker = self._workers.get(task_id)
        if worker is not None:
            self._release(worker)
            worker.cancel()

    def _release(self, worker: Worker) -> None:
        del self._workers[worker.task_id]
        if worker.expiry is not None:
            worker.expiry.cancel()
        client = worker.client
        client.workers.pop(worker.task_id, None)
        if not client.workers:
            self._absent.pop(client, None)

    def done(self, worker: Worker, end: Callable[[Task, int], Task] | None) -> None:
        """A handler has ended; ``end`` makes the task's end of it, which is then stored. None: it
        was cancelled, because its task is over already."""
        if not worker.ended.done():
            worker.ended.set_result(None)
        if end is None or self._workers.get(worker.task_id) is not worker:
            return
        self._release(worker)
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
        try:
            await self._put_end(task_id, end)
        except Exception:
            logger.exception("task %s: its end cannot be stored", _short(task_id))
            await self._put_end(task_id, lambda task, now: task.failed(_NOT_KEPT, NOT_KEPT, now))

    async def _put_end(self, task_id: str, end: Callable[[Task, int], Task]) -> None:
        now = now_ms()
        with contextlib.suppress(TaskStateError):  # cancelled meanwhile: it stays so
            try:
                await self.change(task_id, lambda task: end(task, now))
            except TaskLimit as exc:
                logger.warning("task %s: its result cannot be kept: %s", _short(task_id), exc)
                await self.change(task_id, lambda task: task.failed(_TOO_LARGE, TOO_LARGE, now))

    def _watch(self) -> None:
        """Where other processes may change tasks: look at those that matter here now and then."""
        if self.store.shared and self._watching is None:
            self._watching = self.spawn(self._watch_others())

    async def _watch_others(self) -> None:
        try:
            while watched := self._workers.keys() | self.news.listened | self.news.waited:
                await asyncio.sleep(LOOK_EVERY)
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
            self._over(task_id)
            return
        if task.status.terminal or self.news.is_news(task):
            self.heard(task)
        elif self._looked.get(task_id) != task.revision:
            self.news.wake(task_id)
        self._looked[task_id] = task.revision

    def _failing(self, exc: Exception) -> None:
        """The store failed at what will be tried again: said once a minute."""
        self._failures.log(logging.ERROR, "the store of tasks fails: %r", exc)

    # -- waiting ---------------------------------------------------------------------------------

    async def changes(
        self, connection: ServerConnection, task_id: str
    ) -> AsyncGenerator[Task, None]:
        """The task now, and after each change until it is over. ProtocolError: it is gone. A store
        that fails later than at the first look is asked again."""
        begun = False
        while True:
            with self.news.waiting(task_id) as waiter:
                patience: float | None = LOOK_EVERY
                try:
                    task = await self.find(connection, task_id)
                except Exception as exc:
                    if not begun or isinstance(exc, ProtocolError):
                        raise
                    self._failing(exc)
                else:
                    begun = True
                    yield task
                    if task.status.terminal:
                        return
                    patience = None if task.expires is None else _seconds_until(task.expires)
                self._watch()
                await asyncio.wait([waiter], timeout=patience)

    def unclaim(self, task_id: str, key: str) -> None:
        """A question is not on its way to a client any more (`TaskBooks.claim`): if it has no
        answer, who else waits for the result is to send it."""
        self.books.unclaim(task_id, key)
        self.news.wake(task_id)
        self.books.elsewhere(self, lambda book: book.news.wake(task_id))

    # -- keeping house ---------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that nobody waits for; what it raises is logged."""
        job = self.loop.create_task(work)
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

    async def ready(self) -> None:
        """The store is open after this; and now and then it is made to forget what is over.
        ProtocolError -32603: it cannot be opened; the next call has that tried again."""
        if not self._open:
            if self._opening is None:
                # of its own, for it is for everybody who waits
                self._opening = self.spawn(self._open_store())
            try:
                await asyncio.shield(self._opening)
            except Exception:  # which is in the log
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
            await self.books.hold(self)
            self._open = True
        finally:
            self._opening = None

    async def close(self) -> None:
        """End what works, with its tasks, and need the store no longer; errors are logged. The book
        may be used again."""
        now = now_ms()
        for task_id in list(self._workers):
            try:
                with contextlib.suppress(TaskStateError):
                    await self.change(task_id, lambda task: task.failed(_SHUT_DOWN, SHUT_DOWN, now))
            except Exception:
                logger.exception("the store of tasks failed")
            self._stop(task_id)
        for task_id in self.news.listened:
            self.news.hush(task_id)
        if self._watching is not None:
            self._watching.cancel()
        if self._ending:
            await asyncio.wait(self._ending, timeout=LAST_WAIT)
        for client in self._clients.values():
            self._leave(client)  # no connection outlives its loop
        await self.settled()
        self._open = False
        self._swept = -SWEEP_EVERY
        await self.books.release(self)


def _seconds_until(time: int) -> float:
    """How long to wait before a look at the clock: it may be set meanwhile, and timers do not
    reach far."""
    return min(max(0.001, (time - now_ms()) / 1000), 86_400.0)


def not_found(*, expired: bool = False) -> ProtocolError:
    """-32602, as both forms have it for an id that means nothing (to this client)."""
    reason = "Task has expired" if expired else "Task not found"
    return ProtocolError(codes.INVALID_PARAMS, f"Failed to retrieve task: {reason}")


def _short(task_id: str) -> str:
    """As much of an id as a log may have: whoever knows the whole may ask for the task."""
    return task_id[:6] + "…"
