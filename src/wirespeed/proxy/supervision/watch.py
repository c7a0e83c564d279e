"""What is looked at again and again while a connection to a server is open: one timer for all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from wirespeed.proxy.backend import Backend

logger = logging.getLogger("wirespeed.proxy")

_LEAST = 0.01  # seconds between two looks
_AGAIN = 30.0  # seconds after which a check that failed is asked again


class Check(Protocol):
    """One thing to look at."""

    def check(self, backend: Backend, now: float) -> float:
        """Act if it is time to. Returns the seconds until the next look."""


class Watch:
    """Asks its checks in turn until `stop`. If there are no checks, no timer is set."""

    def __init__(self, backend: Backend, checks: Sequence[Check]) -> None:
        self._backend = backend
        self._checks = checks
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def _look(self) -> None:
        self._timer = None
        backend = self._backend
        now = backend.loop.time()
        delays = []
        for one in self._checks:
            if backend.link is None:  # the last one has ended it
                return
            try:
                delays.append(one.check(backend, now))
            except Exception:  # the others look on
                logger.exception("internal error while watching a server")
                delays.append(_AGAIN)
        if delays:
            self._timer = backend.loop.call_later(max(min(delays), _LEAST), self._look)

    def stop(self) -> None:
        """Look no more."""
        self._checks = ()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
