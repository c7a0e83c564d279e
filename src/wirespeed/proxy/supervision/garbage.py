"""Invalid messages of a server: they are counted by kind, and too many of them end the
server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Backend

logger = logging.getLogger("wirespeed.proxy")

# A server that writes more than `MAX_GARBAGE` of them within `WINDOW` seconds is ended.
MAX_GARBAGE = 1000
WINDOW = 10.0

BAD_MESSAGE = "bad message"  # not JSON, not a message, too long, or cut off by the end
UNKNOWN_ID = "unknown id"  # an answer to what was not asked, or a second answer


class Garbage:
    """Counts the garbage of one server.

    Attributes:
        counts: How much there was, by kind.
    """

    def __init__(self) -> None:
        self.counts = {BAD_MESSAGE: 0, UNKNOWN_ID: 0}
        self._quiet = RateLimitedLog(logger)
        self._window = 0.0
        self._n = 0

    def add(self, backend: Backend, kind: str, text: str) -> None:
        """Count and log one, and end the server if there is too much."""
        self.counts[kind] += 1
        self._quiet.log(logging.WARNING, "%s: %s: %s", backend.name, kind, text)
        now = backend.loop.time()
        if now >= self._window + WINDOW:
            self._window, self._n = now, 0
        self._n += 1
        if self._n > MAX_GARBAGE:
            self._n = 0
            backend.end(f"it wrote more than {MAX_GARBAGE} bad messages within {WINDOW:g} s")
