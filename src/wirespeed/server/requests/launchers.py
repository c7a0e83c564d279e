"""Launchers: how a handler runs as a coroutine, in which thread, and how many run at a time.

Each launcher takes the function, the values of the call in order and the names of those at the end
that are keyword arguments (None: none).

``max_concurrency=8, queue=100``: eight calls of a function run, a hundred wait in the order of
their arrival, and further calls are refused at once: a tool's call with a result that has
``isError`` and says that the tool is busy, so that a model can try again later; any other request
with error -31000. Waiting counts towards ``timeout=``. A call that is cancelled while it waits
leaves the line. A plain function keeps its place until its thread ends, also after a timeout or a
cancellation. The limit holds for all connections of the process; with ``workers`` each process has
its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias, TypeVar

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.transport.loop import DEFAULT_SIZE, Workers

T = TypeVar("T")
Names = tuple[str, ...] | None

# The jobs of threads that the calls of this context started, for code that must know when they end.
_started: contextvars.ContextVar[list[Future[Any]] | None] = contextvars.ContextVar(
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


async def after(first: Callable[[], Awaitable[None]], work: Coroutine[Any, Any, T]) -> T:
    """Await what a request needs before its handler runs, then its handler."""
    try:
        await first()
    except BaseException:
        _discard(work)
        raise
    return await work


def _discard(work: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine that has not begun, and those that it would have awaited."""
    for value in inspect.getcoroutinelocals(work).values():
        if inspect.iscoroutine(value):
            _discard(value)
    work.close()


async def at_once(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
    """Call a plain function on the loop's thread."""
    return call(function, values, names)


class InspectedFunction(Protocol):
    """A function whose signature was read: see `wirespeed.server.tools.signature.ToolSpec`."""

    function: Callable[..., Any]
    name: str
    is_async: bool
    is_generator: bool
    is_async_generator: bool
    wraps_async: bool
    fields: tuple[str, ...]
    positional: tuple[str, ...]
    kwnames: tuple[str, ...]
    context_param: str | None
    context_index: int
    threads: Threads

    def replace_function(self, function: Callable[..., Any]) -> None:
        """Call another function instead."""


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
        """Run a function in a thread, in the context of the caller, which notes the job."""
        job = self.submit(contextvars.copy_context().run, function, *values)
        started = _started.get()
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


def launcher_of(spec: InspectedFunction) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Choose how the function of a spec runs as a coroutine."""
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


Launch: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

logger = logging.getLogger("wirespeed.server")

DEFAULT_QUEUE = 100


class Limiter:
    """Places for calls that run, and a line of calls that wait. `leave` is for any thread.

    Args:
        label: What is limited, for people: ``"tool crawl"``.
        max_concurrency: Calls that run at a time.
        queue: Calls that wait beyond these; `DEFAULT_QUEUE` by default, 0 for none.

    Raises:
        ValueError: A number is missing or too small.
    """

    def __init__(self, label: str, max_concurrency: int | None, queue: int | None = None) -> None:
        if max_concurrency is None:
            raise ValueError(f"{label}: queue goes with max_concurrency")
        if max_concurrency < 1:
            raise ValueError(f"{label}: max_concurrency must be at least 1")
        queue = DEFAULT_QUEUE if queue is None else queue
        if queue < 0:
            raise ValueError(f"{label}: queue must not be negative")
        self.label = label
        self.max_concurrency = max_concurrency
        self.queue = queue
        self.n_running = 0
        self.n_refused = 0
        self._line: deque[_Waiter] = deque()
        self._lock = threading.Lock()  # plain functions give places back in their threads
        self._flooded = False

    def __repr__(self) -> str:
        return (
            f"<Limiter of {self.label}: {self.n_running} of {self.max_concurrency} run, "
            f"{len(self._line)} of {self.queue} wait>"
        )

    @property
    def n_waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._line)

    async def enter(self) -> bool:
        """Wait for a place, which `leave` gives back. False: too many wait already."""
        with self._lock:
            if self.n_running < self.max_concurrency:
                self.n_running += 1
                return True
            if len(self._line) >= self.queue:
                # those that were cancelled in this turn do not know it yet
                self._line = deque(waiter for waiter in self._line if not waiter.future.done())
            if len(self._line) >= self.queue:
                self._refuse()
                return False
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            self._line.append(waiter)
        try:
            await waiter.future
        except BaseException:
            with self._lock:
                if waiter in self._line:
                    self._line.remove(waiter)
            if waiter.has_place:
                self.leave()
            raise
        return True

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, which has a place. The place is given back once the work and the threads
        that it started have ended."""
        jobs: list[Future[Any]] = []
        token = _started.set(jobs)
        try:
            return await work
        finally:
            _started.reset(token)
            self._leave_after(jobs)

    def _leave_after(self, jobs: list[Future[Any]]) -> None:
        while jobs:
            job = jobs.pop()
            if not job.done():
                job.add_done_callback(lambda _: self._leave_after(jobs))
                return
        self.leave()

    def leave(self) -> None:
        """Give a place back: the call that waits longest gets it."""
        with self._lock:
            self._flooded = self._flooded and bool(self._line)
            while self._line:
                waiter = self._line.popleft()
                future = waiter.future
                if future.done():
                    continue  # cancelled
                waiter.has_place = True
                try:
                    future.get_loop().call_soon_threadsafe(_wake, future)
                except RuntimeError:
                    waiter.has_place = False  # its loop was closed
                else:
                    return
            self.n_running -= 1

    def _refuse(self) -> None:
        self.n_refused += 1
        if not self._flooded:  # once, until the line was empty again
            self._flooded = True
            logger.warning("%s is busy: calls are refused", self.label)

    @property
    def refusal(self) -> str:
        """The text for a call that is refused."""
        return (
            f"{self.label[0].upper()}{self.label[1:]} is busy: {self.max_concurrency} calls run "
            f"and {self.queue} wait already; try again later"
        )


class _Waiter:
    __slots__ = ("future", "has_place")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.has_place = False


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def limited(limiter: Limiter, inner: Launch) -> Launch:
    """A launcher (see `wirespeed.server.requests.launchers`) that waits for a place first.

    ProtocolError -31000: the line is full.
    """

    async def launcher(function: Callable[..., Any], values: list[Any], names: Names) -> Any:
        if not await limiter.enter():
            raise ProtocolError(codes.OVERLOADED, limiter.refusal)
        return await limiter.run(inner(function, values, names))

    return launcher
