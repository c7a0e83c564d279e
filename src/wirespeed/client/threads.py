"""Handlers that block, in worker threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from wirespeed.transport.workers import Workers

__all__ = ["MAX_THREADS", "Threads"]

# Plain handlers at once: of one client, and of all clients of the process.
MAX_THREADS = 64

_executor: Workers | None = None


class _Job:
    """A call in a thread, which cannot be stopped once it runs."""

    __slots__ = ("abandoned", "argument", "function")

    def __init__(self, function: Callable[[Any], Any], argument: Any) -> None:
        self.function = function
        self.argument = argument
        self.abandoned = False

    def __call__(self) -> Any:
        if self.abandoned:
            return None
        try:
            return self.function(self.argument)
        except StopIteration as exc:  # which no future takes
            raise RuntimeError(f"the handler raised {exc!r}") from exc


class Threads:
    """The threads of one client.

    A handler whose caller is gone keeps its place until it ends, so that a server which asks and
    cancels in turn cannot pile up work.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places: asyncio.Semaphore | None = None

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call it in a thread, in a copy of this context. After a cancellation what it gives is
        dropped, and if it has not begun, it does not."""
        global _executor
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._loop, self._places = loop, asyncio.Semaphore(MAX_THREADS)
        places = self._places
        waiter: asyncio.Future[Any] = loop.create_future()
        job = _Job(function, argument)

        def ended(future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over, future)

        def over(future: Future[Any]) -> None:
            places.release()
            exc = future.exception()
            if waiter.done():
                return
            if exc is not None:
                waiter.set_exception(exc)
            else:
                waiter.set_result(future.result())

        await places.acquire()
        if _executor is None:
            _executor = Workers(MAX_THREADS)
        _executor.submit(contextvars.copy_context().run, job).add_done_callback(ended)
        try:
            return await waiter
        except asyncio.CancelledError:
            job.abandoned = True
            raise
