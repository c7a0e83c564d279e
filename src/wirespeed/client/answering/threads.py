"""Handlers that block, in worker threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from wirespeed.transport.workers import Workers

__all__ = ["MAX_THREADS", "in_thread"]

# The most plain handlers that run at once, of all clients of the process; further handlers wait.
MAX_THREADS = 64

_executor: Workers | None = None


async def in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a function in a thread, in a copy of this context.

    After a cancellation the result is dropped, and a function that has not begun does not begin. A
    function that has begun keeps its thread until it ends: a server that asks and cancels in turn
    cannot start more functions than there are threads.
    """
    job = _Job(function, argument)
    _line.enter(job)
    try:
        return await job.waiter
    except BaseException:
        _line.leave(job)
        raise


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
        """Runs in the thread."""
        value: Any = None
        failure: BaseException | None = None
        try:
            if not self.abandoned:
                value = self.context.run(self.function, self.argument)
        except StopIteration as exc:  # futures refuse it
            failure = RuntimeError(f"the handler raised {exc!r}")
        except BaseException as exc:
            failure = exc
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
    """The jobs that run and the jobs that wait, of the whole process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may use a client in any thread
        self._waiting: dict[_Job, None] = {}  # in order
        self._running = 0

    def enter(self, job: _Job) -> None:
        """Run a job now, or when there is a thread for it."""
        with self._lock:
            if self._running < MAX_THREADS:
                self._start(job)
                self._running += 1
            else:
                self._waiting[job] = None

    def leave(self, job: _Job) -> None:
        """The caller of a job was cancelled."""
        job.abandoned = True
        with self._lock:
            self._waiting.pop(job, None)

    def over(self) -> None:
        """A job has ended: the next one takes its place."""
        with self._lock:
            if self._waiting:
                job = next(iter(self._waiting))
                del self._waiting[job]
                self._start(job)
            else:
                self._running -= 1

    def _start(self, job: _Job) -> None:
        global _executor
        if _executor is None:
            _executor = Workers(MAX_THREADS)
        _executor.submit(job.work)


_line = _Line()
