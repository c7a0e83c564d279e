"""The task pool that a loop gets, and the end of that pool.

`PooledTasks` reuses tasks, which relies on how CPython implements them. It is taken on versions of
CPython that are tested, if a short trial succeeds. Elsewhere each request gets a task of its own:
slower, with the same behaviour. A version on which reuse saves less than a tenth of a call is not
in `TESTED`.

Instructions of a call with a new task, and with one that is used again (the guard's server of
2025-11-25, other handlers in 2026-07-28; 64 calls in flight):

| CPython | the handler ends at once | awaits `sleep(0)` | awaits a future |
|---|---|---|---|
| 3.11 | 39,100, 9,500 (-76 %) | 56,600, 29,300 (-48 %) | 66,200, 39,300 (-41 %) |
| 3.13 | 19,100, 10,900 (-43 %) | 50,700, 32,800 (-35 %) | 63,000, 45,200 (-28 %) |
| 3.14 | 15,400, 9,400 (-39 %) | 37,100, 25,800 (-30 %) | 46,500, 35,400 (-24 %) |

Microseconds of user and system time for a handler that ends at once (medians of nine interleaved
runs at a UNIX socket; in brackets the quartiles), with 64 calls in flight, and with one:

| CPython | 64: new task | used again | 1: new task | used again |
|---|---|---|---|---|
| 3.11 | 3.5 (3.0, 4.1) | 1.4 (1.3, 1.8) | 13.1 (12.4, 15.4) | 7.9 (7.6, 9.5) |
| 3.13 | 2.1 (2.0, 2.9) | 1.3 (1.1, 1.3) | 10.8 (9.2, 12.5) | 9.3 (8.3, 11.5) |
| 3.14 | 2.1 (1.5, 2.5) | 1.2 (0.9, 1.5) | 11.8 (8.6, 12.4) | 9.3 (7.7, 10.3) |
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
import threading
from typing import Any

from wirespeed._exports import set_public_home
from wirespeed.transport.taskpool import TaskPool

logger = logging.getLogger("wirespeed.transport")

TESTED = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
KINDS = ("pooled", "eager")
TRIAL_TIME = 5.0  # seconds: the trial takes about one millisecond
LAST_WAIT = 0.25  # seconds that handlers get after their cancellation


def open_pool(loop: asyncio.AbstractEventLoop, *, max_idle: int = 256) -> TaskPool:
    """A task pool for the loop. ValueError: WIRESPEED_TASKS names no kind of pool."""
    if pool_kind() == "eager":
        return TaskPool(loop, max_idle=max_idle)
    from wirespeed.transport.pooled_tasks import PooledTasks

    return PooledTasks(loop, max_idle=max_idle)


def pool_kind() -> str:
    """Return ``"pooled"`` or ``"eager"``: by WIRESPEED_TASKS, else by the interpreter."""
    wanted = os.environ.get("WIRESPEED_TASKS")
    if not wanted:
        return _fitting_kind()
    if wanted not in KINDS:
        raise ValueError(f"WIRESPEED_TASKS={wanted!r} is neither pooled nor eager")
    return wanted


@functools.cache
def _fitting_kind() -> str:
    if (
        sys.implementation.name != "cpython"
        or sys.version_info[:2] not in TESTED
        or "t" in sys.abiflags  # free-threaded; `sysconfig` takes 2 ms
    ):
        logger.info("tasks are not reused: this Python is not a tested one")
        return "eager"
    if not reuse_works():
        logger.warning("tasks are not reused: the trial failed on this Python")
        return "eager"
    return "pooled"


def reuse_works() -> bool:
    """Park, run, suspend, cancel and reuse tasks on a loop of their own, and compare.

    The trial runs in a thread of its own, for the caller's thread may be running a loop.
    """
    passed: list[bool] = []
    thread = threading.Thread(target=_try, args=(passed,), name="wirespeed-trial", daemon=True)
    thread.start()
    thread.join(TRIAL_TIME)
    return passed == [True]


def _try(passed: list[bool]) -> None:
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            passed.append(runner.run(_trial()))
    except BaseException:
        logger.debug("the trial of reused tasks failed", exc_info=True)


async def _trial() -> bool:
    from wirespeed.transport.pooled_tasks import PooledTasks

    loop = asyncio.get_running_loop()
    pool = PooledTasks(loop)
    kept: list[Any] = []

    async def run(*, waits: bool = False, cancelled: bool = False, keeps: bool = False) -> Any:
        outcome = loop.create_future()
        future = loop.create_future()

        async def handler() -> tuple[str, int]:
            task = asyncio.current_task()
            assert task is not None
            if waits or cancelled:
                await future
            if task is not asyncio.current_task():
                raise RuntimeError("the current task has changed")
            if keeps:
                kept.append(task)
            return task.get_name(), task.cancelling()

        def begin() -> None:
            running = pool.start(handler(), lambda *args: outcome.set_result(args))
            if (running is None) is (waits or cancelled):
                raise RuntimeError("the first step did not run at once")
            if running is not None:
                loop.call_soon(running.cancel if cancelled else future.set_result, None)

        loop.call_soon(begin)
        result, exc = await outcome
        await asyncio.sleep(0)
        if exc is not None and not (cancelled and type(exc) is asyncio.CancelledError):
            raise exc
        return result

    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first = await run()
    same = [first == await run(), first == await run(waits=True), first == await run()]
    ended = await run(cancelled=True) is None
    next_one = await run()
    clean = next_one is not None and next_one[1] == 0
    left = [await run(keeps=True, waits=waits) for waits in (False, True)]
    fresh = len({next_one, *left, await run()}) == 3  # the first keeper had `next_one`'s task
    await pool.aclose()
    alone = asyncio.all_tasks() == {asyncio.current_task()}
    return all((*same, ended, clean, fresh, alone, pool.tasks == 0))


async def close_pool(pool: TaskPool) -> None:
    """Cancel the handlers; those that ignore their cancellation are left behind."""
    closing = asyncio.ensure_future(pool.aclose())
    await asyncio.wait([closing], timeout=LAST_WAIT)
    if not closing.done():
        closing.cancel()
        await asyncio.wait([closing])
        logger.warning("%d handlers ignore their cancellation and are left behind", pool.abandon())


set_public_home(globals())
