"""Worker threads for handlers that may block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from wirespeed.transport.workers import Workers

__all__ = ["MAX_THREADS", "in_thread"]

# The most plain functions that run at once for all clients of the process; further ones wait.
MAX_THREADS = 64

_executor: Workers | None = None


async def in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a function in a thread, in a copy of this context.

    After a cancellation the result is dropped, and a function that still waits is not called. A
    running function keeps its thread until it returns, so a server that sends and cancels requests
    in turn cannot run more than `MAX_THREADS` functions at once.
    """
    job = _Job(function, argument)
    _queue.enter(job)
    try:
        return await job.waiter
    except BaseException:
        _queue.leave(job)
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
        """Call the function. Runs in the worker thread."""
        value: Any = None
        failure: BaseException | None = None
        try:
            if not self.abandoned:
                value = self.context.run(self.function, self.argument)
        except StopIteration as exc:  # a future cannot hold StopIteration
            failure = RuntimeError(f"the handler raised {exc!r}")
        except BaseException as exc:
            failure = exc
        _queue.over()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._settle, value, failure)

    def _settle(self, value: Any, failure: BaseException | None) -> None:
        if self.waiter.done():
            return
        if failure is not None:
            self.waiter.set_exception(failure)
        else:
            self.waiter.set_result(value)


class _Queue:
    """The running and the waiting jobs of the whole process."""

    def __init__(self) -> None:
        # reentrant: a finalizer may use a client in a thread that holds the lock
        self._lock = threading.RLock()
        self._waiting: dict[_Job, None] = {}  # in order
        self._running = 0

    def enter(self, job: _Job) -> None:
        """Run a job as soon as a thread is free."""
        with self._lock:
            if self._running < MAX_THREADS:
                self._start(job)
                self._running += 1
            else:
                self._waiting[job] = None

    def leave(self, job: _Job) -> None:
        """The caller of a job was cancelled: drop the job."""
        job.abandoned = True
        with self._lock:
            self._waiting.pop(job, None)

    def over(self) -> None:
        """A job has ended: start the next one."""
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


_queue = _Queue()
