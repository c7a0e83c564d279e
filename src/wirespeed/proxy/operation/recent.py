"""The last warnings and errors of a proxy, for people who look at it."""

from __future__ import annotations

import logging
from collections import deque

import msgspec

MAX_EVENTS = 50
MAX_TEXT = 500
LOGGERS = ("wirespeed.proxy", "wirespeed.server")


class Event(msgspec.Struct, array_like=True):
    """A warning or an error.

    Attributes:
        at: When it was last logged, in Unix seconds.
        times: How often in a row.
    """

    at: float
    level: str
    text: str
    times: int = 1


def _short(text: str) -> str:
    """The first line of a text, and the last one if the first one promises it."""
    first, _, rest = text.strip().partition("\n")
    if first.endswith(":") and rest:
        first += f" {rest.rpartition(chr(10))[2].strip()}"
    return first if len(first) <= MAX_TEXT else f"{first[: MAX_TEXT - 1]}…"


class Recent(logging.Filter):
    """Keeps what the loggers of the proxy say. It is a filter that lets everything through, because
    a further handler would silence the one that `logging` has for programs without any."""

    def __init__(self) -> None:
        super().__init__()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a record."""
        if record.levelno >= logging.WARNING:
            try:
                text = _short(record.getMessage())
            except Exception:  # the handlers will tell
                return True
            last = self.events[-1] if self.events else None
            if last is not None and last.text == text:
                last.at, last.times = record.created, last.times + 1
            else:
                self.events.append(Event(record.created, record.levelname.lower(), text))
        return True

    def start(self) -> None:
        """Begin to listen."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def stop(self) -> None:
        """Listen no more."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)
