"""Queues of calls of the user's callbacks, in order.

A plain function is called at once, where its value arrives. A coroutine function may take time:
meanwhile the next values wait, in order, so that a callback never runs twice at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["MAX_WAITING", "CallbackQueue", "finish", "start"]

# The most values that wait for a busy callback; the oldest are dropped first.
MAX_WAITING = 1000

logger = logging.getLogger("wirespeed.client")


class CallbackQueue:
    """One callback. Its exceptions are logged.

    Args:
        function: The user's function; may be a coroutine function.
        name: The name of the option, for the log.
        spawn: Runs a task that ends with the client; values that wait then are dropped.
        once: Whether a value is dropped when an equal value waits.
    """

    __slots__ = ("_busy", "_dropped", "_function", "_name", "_once", "_spawn", "_waiting")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        spawn: Callable[[Awaitable[Any]], asyncio.Future[Any]],
        *,
        once: bool = False,
    ) -> None:
        self._function = function
        self._name = name
        self._spawn = spawn
        self._once = once
        self._waiting: dict[object, tuple[Any, ...]] = {}  # in order
        self._busy = False
        self._dropped = False

    def __call__(self, *values: Any) -> None:
        """Call the function, now or when its earlier calls have ended."""
        if self._busy:
            self._wait(values)
            return
        outcome = start(self._function, values, self._name)
        if outcome is not None:
            self._busy = True
            self._spawn(self._work(outcome)).add_done_callback(
                lambda task: self._ended(outcome) if task.cancelled() or task.exception() else None
            )

    def forget(self) -> None:
        """Drop all values that wait."""
        self._waiting.clear()

    def _wait(self, values: tuple[Any, ...]) -> None:
        key = values if self._once else object()
        if key in self._waiting:
            return
        if len(self._waiting) == MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            if not self._dropped:
                self._dropped = True
                logger.warning(
                    "%s is slower than the server: %d calls of it wait, and the oldest are left "
                    "out from now on",
                    self._name,
                    MAX_WAITING,
                )
        self._waiting[key] = values

    async def _work(self, outcome: Awaitable[Any] | None) -> None:
        while True:
            if outcome is not None:
                await finish(outcome, self._name)
            if not self._waiting:
                self._busy = False
                return
            values = self._waiting.pop(next(iter(self._waiting)))
            outcome = start(self._function, values, self._name)

    def _ended(self, outcome: Awaitable[Any]) -> None:
        """The task was cancelled, or failed: the client is closed, or the process ends."""
        self._busy = False
        self.forget()
        if inspect.iscoroutine(outcome):
            outcome.close()  # it has not begun if the task was cancelled before its first step


def start(
    function: Callable[..., Any], values: tuple[Any, ...], name: str
) -> Awaitable[Any] | None:
    """Call a callback. Returns its awaitable, or None. Its exceptions are logged."""
    try:
        outcome = function(*values)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        logger.exception("%s failed", name)
        return None
    return outcome if inspect.isawaitable(outcome) else None


async def finish(outcome: Awaitable[Any], name: str) -> None:
    """Wait for the awaitable that a callback returned. Its exceptions are logged."""
    try:
        await outcome
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        logger.exception("%s failed", name)
    except Exception:
        logger.exception("%s failed", name)
