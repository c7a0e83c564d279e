"""The last messages of this process's clients, with the time of each answer."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from wirespeed.cli.trace import LINE

MAX_MESSAGES = 100  # that are kept
_MAX_OPEN = 1000  # requests whose answers are awaited
_METHOD = re.compile(r'"method":"([^"\\]{1,200})"')
_ID = re.compile(r'"id":("[^"\\]{0,200}"|-?[0-9]{1,30})')


class WireMessage(NamedTuple):
    """A message as the trace shows it: without the values of secrets, and cut if it is long.

    Attributes:
        number: Its number in this process.
        time: The time of the day.
        sent: Whether the client sent it.
        title: The method of the request or notification; of an answer, the method of its request.
        kind: request, notification, result, error, or other.
        seconds: The time from the request to this answer; None for other messages.
        text: The message.
    """

    number: int
    time: str
    sent: bool
    title: str
    kind: str
    seconds: float | None
    text: str


class WireLog:
    """The messages of the wire, the oldest first.

    Args:
        changed: Called for each new message.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self.messages: deque[WireMessage] = deque(maxlen=MAX_MESSAGES)
        self._changed = changed
        self._numbers = count(1)
        self._open: dict[tuple[bool, str], tuple[str, float]] = {}

    def start(self) -> None:
        """Take the messages of this process from now on, except those of the page itself."""
        from wirespeed._core.wire import Wire, set_tap
        from wirespeed.transport import link, wire_trace  # noqa: F401  # link starts a trace, too

        trace = wire_trace.WireTrace(self.write)

        def tap(wire: Wire, event: Any, data: bytes) -> None:
            if type(wire).__name__ != "HttpWire":  # a server's end of HTTP
                trace(wire, event, data)

        set_tap(tap)

    def write(self, line: str) -> None:
        """Take a line of the trace. Only those of clients are kept."""
        found = LINE.match(line)
        if found is None or not found[3].startswith("client#"):
            return
        text, sent = found[5], found[4] == "->"
        method, number = _METHOD.search(text), _ID.search(text)
        seconds = None
        if method is not None:
            title, kind = method[1], "notification" if number is None else "request"
            if number is not None:
                self._open[sent, number[1]] = title, time.perf_counter()
                if len(self._open) > _MAX_OPEN:
                    del self._open[next(iter(self._open))]
        elif number is not None and text.startswith(("{", "data: {")):
            title, began = self._open.pop((not sent, number[1]), ("", 0.0))
            kind = "error" if '"error":' in text and '"result":' not in text else "result"
            seconds = time.perf_counter() - began if began else None
        else:
            title, kind = text[:60], "other"
        self.messages.append(
            WireMessage(next(self._numbers), found[1][:-3], sent, title, kind, seconds, text)
        )
        self._changed()
