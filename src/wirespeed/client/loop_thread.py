"""Asynchronous clients on a thread with its own event loop, for code without a loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterator,
)
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
)

from wirespeed.errors import ConnectionClosed
from wirespeed.transport.loop import loop_factory

if TYPE_CHECKING:
    from types import TracebackType


P = ParamSpec("P")
T = TypeVar("T")

LONGEST_WAIT = 0.5  # seconds; see `_result_of`
_FROM_A_CALLBACK = "a callback cannot block its own client: call from another thread"


def like(
    template: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Copy the parameters of a method of the asynchronous client to a method."""
    return functools.wraps(template)


class AsyncClient(Protocol):
    """The methods of an asynchronous client that `Blocking` needs."""

    async def __aenter__(self) -> Any: ...

    async def close(self) -> None:
        """End it."""


C = TypeVar("C", bound=AsyncClient)


class Blocking(Generic[C]):
    """A client on a loop in a thread of its own.

    Its methods block, may be called from several threads at once (the calls are multiplexed on the
    one link), and an interrupt (Ctrl-C) in one cancels that call. Callbacks run in the loop's
    thread.
    """

    def __init__(self, client: C) -> None:
        self._client = client
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None  # of the previous loop
        # Held while work is handed to the loop. `close` ends the work that was handed over before;
        # no work is handed over afterwards. Reentrant: a signal handler may use the client while
        # its own thread holds the lock.
        self._lock = threading.RLock()
        # Generators in use. A reference keeps the garbage collector from closing a generator and
        # the generators that it reads from in arbitrary order.
        self._walked: set[AsyncGenerator[Any, None]] = set()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_process(self) -> None:
        """RuntimeError in a forked child: the thread of the loop does not exist there, and the
        lock may be held."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this client belongs to the process that forked: make a new client after the fork"
            )

    def open(self) -> None:
        """As `Client.open`."""
        self._check_process()
        if self._ending is not None:
            self._ending.join()
        with self._lock:
            if self._loop is None:
                loop = loop_factory()()
                thread = threading.Thread(
                    target=self._serve, args=(loop,), name="wirespeed-client", daemon=True
                )
                thread.start()
                self._loop, self._thread = loop, thread
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            if threading.current_thread() is not self._thread:
                self.close()
            raise

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            _end_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            _end_tasks(loop)  # tasks that close abandoned generators
            loop.close()

    def close(self) -> None:
        """As `Client.close`. Does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if threading.current_thread() is self._thread:
                raise RuntimeError(_FROM_A_CALLBACK)
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            self._loop = self._thread = None
            self._ending = thread
            future = asyncio.run_coroutine_threadsafe(self._client.close(), loop)
        try:
            _result_of(future)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._pid:
            work.close()
            self._check_process()
        # created before the work is handed over, so that an interrupt can always cancel it
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            with self._lock:
                loop = self._loop
                if loop is None:
                    work.close()
                    raise ConnectionClosed(
                        'the client is not open: use "with SyncClient(…) as client:", or open()'
                    )
                if threading.current_thread() is self._thread:
                    work.close()
                    raise RuntimeError(_FROM_A_CALLBACK)
                try:
                    loop.call_soon_threadsafe(_begin, loop, work, done)
                except RuntimeError:  # a signal handler has just closed the client
                    work.close()
                    raise ConnectionClosed("the client was closed") from None
            return _result_of(done)
        except concurrent.futures.CancelledError:
            raise ConnectionClosed("the client was closed") from None
        except BaseException:
            done.cancel()
            raise

    def _leave(self, items: AsyncGenerator[Any, None]) -> None:
        """Close a generator whose iteration has ended."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and closed the generator
                loop.call_soon_threadsafe(_close_generator, loop, items)
        self._walked.discard(items)


def _result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for a future's result.

    A signal that arrives just before the wait for a lock does not end that wait, and its handler
    (Ctrl-C) runs only afterwards. So no wait is long.
    """
    while True:
        try:
            return future.result(LONGEST_WAIT)
        except TimeoutError:
            if future.done():  # it may be the future's own
                return future.result()


def walk(client: Blocking[Any], items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over an asynchronous generator, blocking for each item.

    An abandoned iteration closes the generator without waiting for it: the garbage collector may
    end this generator in any thread, also in the loop's, and while the client's lock is held.
    """
    client._walked.add(items)
    try:
        while (item := client._run(_next(items))) is not _END:
            yield item  # type: ignore[misc]
    finally:
        client._leave(items)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    while pending := asyncio.all_tasks(loop):
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))


def _begin(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    done: concurrent.futures.Future[T],
) -> None:
    """Run the work in a task, on the loop's thread. Another thread waits for `done`."""
    if done.cancelled():
        work.close()
        return
    task = loop.create_task(work)

    def given_up(done: concurrent.futures.Future[T]) -> None:
        if done.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task ended
                loop.call_soon_threadsafe(task.cancel)

    def ended(task: asyncio.Task[T]) -> None:
        exc = None if task.cancelled() else task.exception()
        if task.cancelled():
            done.cancel()
        elif not done.set_running_or_notify_cancel():
            return  # `done` has just been cancelled
        elif exc is not None:
            done.set_exception(exc)
        else:
            done.set_result(task.result())

    done.add_done_callback(given_up)
    task.add_done_callback(ended)


_END: Final = object()


def _close_generator(loop: asyncio.AbstractEventLoop, items: AsyncGenerator[Any, None]) -> None:
    async def close() -> None:
        # RuntimeError: a step of the generator is being cancelled, which ends the generator, too
        with contextlib.suppress(RuntimeError):
            await items.aclose()

    loop.create_task(close())


async def _next(items: AsyncGenerator[T, None]) -> T | object:
    return await anext(items, _END)
