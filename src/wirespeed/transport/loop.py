"""The event loop: uvloop where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wirespeed.transport.workers import Workers

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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop.

    Unlike `asyncio.run`, this ends even if tasks ignore their cancellation or threads of
    `asyncio.to_thread` are busy.
    """
    _fill_standard_descriptors()
    try:
        factory = loop_factory()
    except ValueError:
        main.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(Workers())
        try:
            return runner.run(main)
        finally:
            _end_tasks(loop)


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each standard descriptor that is closed. Otherwise one of the loop's own
    descriptors gets its number, and libuv aborts the process."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are left, and wait `LAST_WAIT` for their end."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    _, stubborn = loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_WAIT))
    for task in stubborn:
        forget_task(task)


def forget_task(task: asyncio.Task[Any]) -> None:
    """Remove a task from `asyncio.all_tasks`, so that the end of its loop does not wait for it."""
    asyncio.tasks._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
