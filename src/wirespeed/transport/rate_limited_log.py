"""Log lines with a limit, for events that a peer can cause as often as it likes."""

from __future__ import annotations

import logging
import time
from typing import Any


class RateLimitedLog:
    """Logs at most ``lines`` lines in ``seconds`` seconds, then the number of lines left out.

    Args:
        logger: The logger that gets the lines.
        lines: The lines that are logged in one period.
        seconds: The length of a period.
    """

    def __init__(self, logger: logging.Logger, *, lines: int = 20, seconds: float = 10.0) -> None:
        self._logger = logger
        self._lines = lines
        self._seconds = seconds
        self._began = 0.0
        self._said = 0

    def log(self, level: int, text: str, *args: Any, exc_info: BaseException | None = None) -> None:
        """Log a line; count it only, if the period has had its lines."""
        if not self._logger.isEnabledFor(level):
            return
        now = time.monotonic()
        if self._said == 0 or now - self._began >= self._seconds:
            if self._said > self._lines:
                left_out = self._said - self._lines
                self._logger.log(level, "%d similar lines were left out", left_out)
            self._began, self._said = now, 0
        self._said += 1
        if self._said <= self._lines:
            self._logger.log(level, text, *args, exc_info=exc_info)
