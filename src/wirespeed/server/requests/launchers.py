"""Handlers that are not coroutine functions, made into coroutines.

Each launcher takes the function, the values of the call in order and the names of those at the end
that are keyword arguments (None: none).
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from wirespeed.transport.loop import DEFAULT_SIZE, Workers

if TYPE_CHECKING:
    from wirespeed.server.tools.signature import ToolSpec

Names = tuple[str, ...] | None

# The jobs of threads that the calls of this context started, for code that must know when they end.
jobs: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar(
    "jobs", default=None
)


def call(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
    """Call it here and now."""
    if not names:
        return function(*values)
    split = len(values) - len(names)
    return function(*values[:split], **dict(zip(names, values[split:], strict=True)))


async def coroutine(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
    """Await the coroutine that a coroutine function returns."""
    return await call(function, values, names)


async def at_once(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
    """Call a plain function on the loop's thread."""
    return call(function, values, names)


class Threads:
    """The worker threads of one server, for functions that block, and the launchers that use them.

    Threads are started when they are needed. They end with this object.

    Args:
        size: The most that work at a time; further functions wait.

    ValueError: the size is below 1.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise ValueError(f"threads must be at least 1, not {size!r}")
        self.size = size
        self._workers: Workers | None = None

    def begin(self, function: Callable[..., Any], *values: Any) -> Future[Any]:
        """Run a function in a thread, in the context of the caller, which notes it in `jobs`."""
        job = self.submit(contextvars.copy_context().run, function, *values)
        started = jobs.get()
        if started is not None:
            started.append(job)
        return job

    def submit(self, function: Callable[..., Any], *values: Any) -> Future[Any]:
        """Run a function in a thread."""
        if self._workers is None:
            self._workers = Workers(self.size)
            # what is queued still runs; threads at work are not waited for
            weakref.finalize(self, self._workers.shutdown).atexit = False
        return self._workers.submit(function, *values)

    async def in_thread(self, function: Callable[..., Any], values: list[Any], names: Names) -> Any:
        """Run a blocking function in a worker thread, in this request's context.

        A thread cannot be stopped: after a cancellation its result is dropped. What the function
        queued on the loop (progress, logs) runs before its end is known.
        """
        ended = asyncio.wrap_future(self.begin(call, function, values, names))
        if ended.done():  # at once, if the thread was quick (since Python 3.14)
            ended.exception()  # marked as retrieved, if the next line is cancelled
            await asyncio.sleep(0)
        return await ended

    async def generator(
        self, function: Callable[..., Any], values: list[Any], names: Names
    ) -> list[Any]:
        """Run a generator to its end in a worker thread: the list of what it yields."""
        result: list[Any] = await self.in_thread(_exhaust, [function, values, names], None)
        return result


# For functions that no server owns.
SHARED = Threads()


def launcher_of(spec: ToolSpec) -> Callable[..., Coroutine[Any, Any, Any]]:
    """What runs the function of a spec as a coroutine."""
    if spec.is_async:
        return coroutine
    if spec.is_async_generator:
        return async_generator
    if spec.wraps_async:
        return awaitable
    return spec.threads.generator if spec.is_generator else spec.threads.in_thread


def _exhaust(function: Callable[..., Any], values: list[Any], names: Names) -> list[Any]:
    return list(call(function, values, names))


async def async_generator(
    function: Callable[..., Any], values: list[Any], names: Names
) -> list[Any]:
    """Run an async generator to its end: the list of what it yields."""
    items = call(function, values, names)
    try:
        return [item async for item in items]
    finally:
        await items.aclose()


async def awaitable(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
    """A plain function around an async one: call it on the loop, await what it returns."""
    value = call(function, values, names)
    return await value if isinstance(value, Awaitable) else value
