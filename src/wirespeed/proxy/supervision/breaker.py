"""A server that fails again and again gets no requests for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend_config import BreakerConfig
    from wirespeed.proxy.front import Front


class Breaker:
    """Counts failures in a row. An answer of the server ends the row.

    After too many the breaker is open: nothing passes. After a pause it is half open: one request
    passes at a time, until one was answered.

    Args:
        config: How many, and how long.
        loop: The event loop.
        changed: Called when the state has changed.

    Attributes:
        state: The state.
        opened: How often it was opened.
    """

    def __init__(
        self,
        config: BreakerConfig,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._changed = changed
        self.state: Literal["closed", "open", "half open"] = "closed"
        self.opened = 0
        self._failures = 0
        self._answered = 0
        self._trial: tuple[Front, Message] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, n_answered: int) -> None:
        """Count a failure. ``n_answered``: what the server has answered so far."""
        if n_answered != self._answered and self.state == "closed":
            self._failures = 0
        self._answered = n_answered
        self._failures += 1
        self._trial = None
        if self.state == "half open" or (
            self.state == "closed" and self._failures >= self._config.failures
        ):
            self.opened += 1
            self._timer = self._loop.call_later(self._config.pause, self._half)
            self._become("open")

    def _half(self) -> None:
        self._become("half open")

    def _become(self, state: Literal["closed", "open", "half open"]) -> None:
        self.state = state
        self._changed()

    def is_free(self, n_answered: int) -> bool:
        """Whether a request may pass now."""
        if self.state == "half open" and n_answered != self._answered:
            self._answered, self._failures, self._trial = n_answered, 0, None
            self._become("closed")
        if self.state != "half open":
            return self.state == "closed"
        return self._trial is None or not self._trial[0].is_open(self._trial[1])

    def passes(self, front: Front, message: Message) -> None:
        """A request passes."""
        if self.state == "half open":
            self._trial = front, message

    @property
    def reason(self) -> str:
        """Why requests are refused."""
        return (
            f"it failed {self._failures} times in a row, so it gets no requests for "
            f"{self._config.pause:g} s"
        )

    def close(self) -> None:
        """Forget all, at the end of the server."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._trial, self.state, self._failures = None, None, "closed", 0
