"""Handlers that block, in worker threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from wirespeed.errors import LimitExceeded
from wirespeed.transport.workers import Workers

__all__ = ["MAX_THREADS", "in_thread", "wait_for"]

T = TypeVar("T")

# Plain handlers at once, of all clients of the process; others wait in line.
MAX_THREADS = 64
# Seconds that one waits for handlers which all wait themselves.
PATIENCE = 10.0

_executor: Workers | None = None
_here = threading.local()  # .handler: whether this thread runs one


async def in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call it in a thread, in a copy of this context.

    After a cancellation what it gives is dropped, and if it has not begun, it does not. One that
    has begun keeps its place until it ends, so that a server which asks and cancels in turn cannot
    pile up work.

    LimitExceeded: every thread has a handler that waits for a call of a client, and none has ended
    for a while. They may wait for each other: a handler that calls a tool may be asked again by it,
    and so on, as deep as the server likes.
    """
    job = _Job(function, argument)
    _line.enter(job)
    try:
        while _line.waits(job):
            ended = _line.ended
            await asyncio.wait((job.waiter,), timeout=PATIENCE)
            if _line.stuck and _line.ended == ended and _line.waits(job):
                raise LimitExceeded(
                    f"{MAX_THREADS} handlers wait for calls of their own, so there is no thread "
                    "for another one: they are nested too deep (handlers that are coroutine "
                    "functions take no threads)"
                )
        return await job.waiter
    except BaseException:
        _line.leave(job)
        raise


def wait_for(done: Future[T]) -> T:
    """The result of a call that another thread works on."""
    if not getattr(_here, "handler", False):
        return done.result()
    with _line.blocked():
        return done.result()


class _Job:
    """A call in a thread, which cannot be stopped once it runs."""

    __slots__ = ("abandoned", "argument", "context", "function", "loop", "waiter")

    def __init__(self, function: Callable[[Any], Any], argument: Any) -> None:
        self.function = function
        self.argument = argument
        self.abandoned = False
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[Any] = self.loop.create_future()

    def work(self) -> None:
        """In the thread."""
        value: Any = None
        failure: BaseException | None = None
        _here.handler = True
        try:
            if not self.abandoned:
                value = self.context.run(self.function, self.argument)
        except StopIteration as exc:  # which no future takes
            failure = RuntimeError(f"the handler raised {exc!r}")
        except BaseException as exc:
            failure = exc
        _here.handler = False
        _line.over()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._settle, value, failure)

    def _settle(self, value: Any, failure: BaseException | None) -> None:
        if self.waiter.done():
            return
        if failure is not None:
            self.waiter.set_exception(failure)
        else:
            self.waiter.set_result(value)


class _Line:
    """Who runs and who waits, in the whole process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may use a client in any thread
        self._waiting: dict[_Job, None] = {}  # in order
        self._running = 0
        self._blocked = 0  # of those that run
        self.ended = 0

    def enter(self, job: _Job) -> None:
        """Run a job now, or when there is a thread for it."""
        with self._lock:
            if self._running < MAX_THREADS:
                self._start(job)
                self._running += 1
            else:
                self._waiting[job] = None

    def leave(self, job: _Job) -> None:
        """Nobody wants it any more."""
        job.abandoned = True
        with self._lock:
            self._waiting.pop(job, None)

    def over(self) -> None:
        """A job has ended: the next one takes its place."""
        with self._lock:
            self.ended += 1
            if self._waiting:
                job = next(iter(self._waiting))
                del self._waiting[job]
                self._start(job)
            else:
                self._running -= 1

    def waits(self, job: _Job) -> bool:
        """Whether it has no thread yet."""
        return job in self._waiting

    @property
    def stuck(self) -> bool:
        """Whether all that run wait themselves."""
        return self._blocked >= self._running >= MAX_THREADS

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """While the handler of this thread waits."""
        with self._lock:
            self._blocked += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def _start(self, job: _Job) -> None:
        global _executor
        if _executor is None:
            _executor = Workers(MAX_THREADS)
        _executor.submit(job.work)


_line = _Line()
