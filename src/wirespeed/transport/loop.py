"""The event loop, and its threads for blocking work.

The loop is uvloop's where uvloop is installed, else asyncio's own.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits: one blocked
handler keeps a server alive after its client has gone. The threads of `Workers` are daemons, and
`Workers.shutdown` does not wait for busy ones.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

LAST_WAIT = 1.0  # seconds that cancelled tasks get at the end

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The function that makes an event loop. ``WIRESPEED_LOOP=asyncio`` chooses asyncio's own."""
    wanted = os.environ.get("WIRESPEED_LOOP", "uvloop")
    if wanted not in ("uvloop", "asyncio"):
        raise ValueError(f"WIRESPEED_LOOP={wanted!r} is neither uvloop nor asyncio")
    if wanted == "uvloop":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop
    return asyncio.new_event_loop


def run(main: Coroutine[Any, Any, T], last_wait: float = LAST_WAIT) -> T:
    """Run a coroutine to its end on a new loop.

    Unlike `asyncio.run`, this ends even if tasks ignore their cancellation or threads of
    `asyncio.to_thread` are busy. ``last_wait``: Seconds that cancelled tasks get at the end.
    """
    _fill_standard_descriptors()
    try:
        _check_that_none_runs()
        factory = loop_factory()
    except (RuntimeError, ValueError):
        main.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(Workers())
        try:
            return runner.run(main)
        finally:
            _end_tasks(loop, last_wait)


def _check_that_none_runs() -> None:
    """RuntimeError: this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("an event loop runs here already: await serve(…) in place of run(…)")


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each standard descriptor that is closed. Otherwise one of the loop's own
    descriptors gets its number, and libuv aborts the process."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _end_tasks(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Cancel the tasks that are left, and wait ``seconds`` at most for their end."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    _, stubborn = loop.run_until_complete(asyncio.wait(tasks, timeout=seconds))
    for task in stubborn:
        forget_task(task)


def forget_task(task: asyncio.Task[Any]) -> None:
    """Remove a task from `asyncio.all_tasks`, so that the end of its loop does not wait for it."""
    asyncio.tasks._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


P = ParamSpec("P")

_Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]

# The work of these threads blocks; it does not compute. The number does not follow the processors.
DEFAULT_SIZE = 40

_numbers = itertools.count(1)


def _unfit(exc: StopIteration) -> RuntimeError:
    """The exception in place of StopIteration, which a future of asyncio does not take, so that its
    awaiter would wait for ever. Coroutines replace StopIteration in the same way (PEP 479)."""
    error = RuntimeError("function raised StopIteration")
    error.__cause__ = exc
    return error


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine, also for partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


class Workers(ThreadPoolExecutor):
    """An executor of at most `max_workers` daemon threads, started when they are needed.

    It is a ``ThreadPoolExecutor`` because event loops accept no other class as their default
    executor. Of that class it uses ``map`` and the context manager alone.
    """

    def __init__(self, max_workers: int = DEFAULT_SIZE) -> None:
        super().__init__(max_workers)
        self._size = max_workers
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._free = threading.Semaphore(0)  # idle threads beyond the queued jobs
        self._started = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` in a thread. RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._jobs.put((future, fn, args, kwargs))
            if not self._free.acquire(blocking=False) and self._started < self._size:
                name = f"wirespeed-worker-{next(_numbers)}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._started += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; idle threads end. ``wait`` is ignored: see this module's docstring."""
        with self._guard:
            if self._ended:
                return
            self._ended = True
            if cancel_futures:
                self._cancel_queued()
            for _ in range(self._started):
                self._jobs.put(None)

    def _cancel_queued(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job[0].cancel()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, fn, args, kwargs = job
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except StopIteration as exc:
                    future.set_exception(_unfit(exc))
                except BaseException as exc:
                    future.set_exception(exc)
                else:
                    future.set_result(result)
                    del result
            # an idle thread keeps nothing alive
            del job, future, fn, args, kwargs
            self._free.release()
