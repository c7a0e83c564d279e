"""Logging of what strangers can cause as often as they like."""

from __future__ import annotations

import logging
import time
from typing import Any


class Quiet:
    """Passes on so many lines in so many seconds, and says how many were left out.

    Args:
        logger: Where to.
        lines: How many.
        seconds: In how long.
    """

    def __init__(self, logger: logging.Logger, *, lines: int = 20, seconds: float = 10.0) -> None:
        self._logger = logger
        self._lines = lines
        self._seconds = seconds
        self._began = 0.0
        self._said = 0

    def log(self, level: int, text: str, *args: Any) -> None:
        """Log a line, or count it."""
        now = time.monotonic()
        if self._said == 0 or now - self._began >= self._seconds:
            if self._said > self._lines:
                left_out = self._said - self._lines
                self._logger.log(level, "%d more lines of the kind were left out", left_out)
            self._began, self._said = now, 0
        self._said += 1
        if self._said <= self._lines:
            self._logger.log(level, text, *args)
