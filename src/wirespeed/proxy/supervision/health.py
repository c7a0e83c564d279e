"""A server that hangs is found by a question that it does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.backend_config import HealthConfig


# Looks in an interval. So a server is asked after 1.25 intervals of silence at most, and no message
# has to be noted when it comes.
_LOOKS = 4


class Health:
    """Sends a server that is silent while requests wait a `ping`, or `server/discover`, and ends it
    if it stays silent. Any message counts as an answer, an error too. A server over HTTP is asked
    while no request waits, too: no connection tells that it has ended."""

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._seen = -1  # messages that had come at the last look
        self._silent_since = 0.0
        self._asked: asyncio.Future[Any] | None = None
        self._asked_at = 0.0

    def check(self, backend: Backend, now: float) -> float:
        """Ask, or end the server that was asked."""
        seen = backend.session.messages_in
        idle = backend.session.pending.live == 0 and not backend.ends_unreachable
        if seen != self._seen or idle:
            self._seen, self._silent_since, self._asked = seen, now, None
        elif self._asked is None and now >= self._silent_since + self._config.interval:
            self._asked, self._asked_at = backend.probe(), now
        elif self._asked is not None and now >= self._asked_at + self._config.timeout:
            self._asked = None
            backend.end(f"it did not answer a ping within {self._config.timeout:g} s")
        due = self._silent_since + self._config.interval
        if self._asked is not None:
            due = self._asked_at + self._config.timeout
        return min(due - now, self._config.interval / _LOOKS)
