"""How many calls of one tool (prompt, resource, completion) run at a time, and how many may wait.

``max_concurrency=8, queue=100``: eight run, a hundred wait in the order of their arrival, and
further calls are refused at once: a tool's call with a result that has ``isError`` and says that
the tool is busy, so that a model can try again later; any other request with error -31000. Waiting
counts towards ``timeout=``. A call that is cancelled while it waits leaves the line. A plain
function keeps its place until its thread ends, also after a timeout or a cancellation. The limit
holds for all connections of the process; with ``workers`` each process has its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.requests import launchers

T = TypeVar("T")
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
        token = launchers.jobs.set(jobs)
        try:
            return await work
        finally:
            launchers.jobs.reset(token)
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

    async def launcher(
        function: Callable[..., Any], values: list[Any], names: launchers.Names
    ) -> Any:
        if not await limiter.enter():
            raise ProtocolError(codes.OVERLOADED, limiter.refusal)
        return await limiter.run(inner(function, values, names))

    return launcher
