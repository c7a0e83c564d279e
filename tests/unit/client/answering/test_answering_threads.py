"""Handlers in worker threads: how many, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest
from lab.client import FOREVER, Run, turns, until

from wirespeed.client.answering.answerer import HandlerThreads, handler_threads


async def test_it_runs_in_the_callers_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("caller")
    assert await handler_threads.call(lambda x: (name.get(), x), 7) == ("caller", 7)


@pytest.mark.parametrize("exc", [ZeroDivisionError("mine"), StopIteration(3)])
async def test_what_it_raises_is_raised(once: Run, exc: Exception) -> None:
    def fail(_: Any) -> None:
        raise exc

    with pytest.raises((ZeroDivisionError, RuntimeError), match=r"mine|StopIteration\(3\)"):
        await handler_threads.call(fail, None)


class Blocking:
    """A handler that blocks until it is let on."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, _: Any) -> str:
        with self._lock:
            self.begun += 1
        assert self.go.wait(FOREVER)
        return "done"


async def test_abandoned_work_keeps_its_place() -> None:
    threads = HandlerThreads(2)
    handler = Blocking()
    kept: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(20):  # a peer that asks and cancels in turn
        argument = Blocking()
        kept.add(argument)
        task = asyncio.create_task(threads.call(handler, argument))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: handler.begun == 2)
    late = asyncio.create_task(threads.call(handler, None))
    await turns()
    assert not late.done()
    assert handler.begun == 2
    del task, argument
    gc.collect()
    assert len(kept) == 2  # nothing piles up
    handler.go.set()
    assert await late == "done"
    assert handler.begun == 3
    threads.workers.shutdown()


async def test_what_has_not_begun_does_not_begin(once: Run) -> None:
    threads = HandlerThreads(1)
    first, second = Blocking(), Blocking()
    running = asyncio.create_task(threads.call(first, None))
    await until(lambda: first.begun)
    queued = asyncio.create_task(threads.call(second, None))  # another client has the thread
    await turns()
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    first.go.set()
    assert await running == "done"
    assert await threads.call(lambda _: "next", None) == "next"
    assert second.begun == 0
    threads.workers.shutdown()


def test_a_client_may_move_to_another_loop(once: Run) -> None:
    threads = HandlerThreads(1)

    async def main() -> None:
        each = [threads.call(lambda x: x, n) for n in range(5)]
        assert await asyncio.gather(*each) == [0, 1, 2, 3, 4]

    once(main())
    once(main())
    threads.workers.shutdown()


def test_work_that_outlives_its_loop_is_harmless(once: Run) -> None:
    handler = Blocking()

    async def main() -> None:
        task = asyncio.create_task(handler_threads.call(handler, None))
        await until(lambda: handler.begun)
        task.cancel()
        await asyncio.wait((task,))

    once(main())
    handler.go.set()
    once(main())
