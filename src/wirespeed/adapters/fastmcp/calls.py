"""Awaiting inside FastMCP without a task for each await."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any


def gather(stock: Any) -> Any:
    """Make a `gather` that awaits a single awaitable itself: most servers have one provider."""

    async def gather(
        awaitables: Iterable[Awaitable[Any]], *, return_exceptions: bool = False
    ) -> list[Any]:
        rest = iter(awaitables)
        first = next(rest, None)
        if first is None:
            return []
        second = next(rest, None)
        if second is not None:
            found: list[Any] = await stock(
                itertools.chain((first, second), rest), return_exceptions=return_exceptions
            )
            return found
        try:
            return [await first]
        except Exception as exc:
            if not return_exceptions:
                raise
            return [exc]

    return gather


def await_monitored(stock: Any) -> Any:
    """Make an await that ends with the session, which cancels the task of the caller as a timeout
    does."""

    async def _await_with_session_monitoring(self: Any, coro: Coroutine[Any, Any, Any]) -> Any:
        session_task = self._session_state.session_task
        task = asyncio.current_task()
        if session_task is None or session_task.done() or task is None:
            return await stock(self, coro)
        ended = False
        asked = task.cancelling()

        def on_end(_: object) -> None:
            nonlocal ended
            ended = True
            task.cancel()

        session_task.add_done_callback(on_end)
        try:
            return await coro
        except asyncio.CancelledError:
            if not ended or task.uncancel() > asked:
                raise
            failure = None if session_task.cancelled() else session_task.exception()
            if failure is not None:
                raise failure from None
            raise RuntimeError("Session task completed unexpectedly") from None
        finally:
            session_task.remove_done_callback(on_end)

    return _await_with_session_monitoring
