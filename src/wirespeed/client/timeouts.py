"""The time limits of requests, and the delays of a client that are no options."""

from __future__ import annotations

import enum
import math
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from wirespeed.errors import CallTimeout
from wirespeed.transport.backoff import RESTARTS, SETTLED, Backoff

__all__ = [
    "CLIENT_DEFAULT",
    "Delays",
    "RestOfLimit",
    "Timeout",
    "limit_of",
    "seconds_of",
    "shown",
    "timed_out",
]


class _Default(enum.Enum):
    CLIENT_DEFAULT = "CLIENT_DEFAULT"

    def __repr__(self) -> str:
        return self.value


CLIENT_DEFAULT: Final = _Default.CLIENT_DEFAULT
"""The time limit of the client."""

Timeout: TypeAlias = "float | Literal[_Default.CLIENT_DEFAULT] | None"
"""Seconds; None for no limit. A limit of 0 or below is over at once: nothing is sent."""


class RestOfLimit(float):
    """The seconds that are left of a time limit, for one of the requests that share it.

    Attributes:
        limit: The time limit, in seconds. Errors name it.
    """

    limit: float

    def __new__(cls, seconds: float, limit: float) -> Self:
        """``seconds``: what is left of the limit."""
        rest = super().__new__(cls, seconds)
        rest.limit = limit
        return rest


def limit_of(seconds: float) -> float:
    """The time limit that errors name."""
    return seconds.limit if isinstance(seconds, RestOfLimit) else seconds


def seconds_of(timeout: Timeout, default: float | None, what: str = "timeout") -> float:
    """A limit in seconds; infinity for none. TypeError, ValueError: not a number."""
    if timeout is CLIENT_DEFAULT:
        timeout = default
    if timeout is None:
        return math.inf
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"{what} must be a number of seconds or None, not {type(timeout).__name__}")
    if timeout != timeout:
        raise ValueError(f"{what} must be a number of seconds or None, not NaN")
    return timeout


def shown(seconds: float) -> str:
    """A text for a number of seconds."""
    return f"{seconds:.2g} s" if seconds < 1 else f"{round(seconds, 2):g} s"


def timed_out(what: str, seconds: float, note: str = "") -> CallTimeout:
    """The error of a request whose time limit is over.

    Args:
        what: The name of the request in errors, such as ``tool add``.
        seconds: The time limit.
        note: A further fact for the error, with its punctuation.
    """
    seconds = limit_of(seconds)
    if seconds <= 0:
        return CallTimeout(f"{what}: the time limit was over before the request was sent")
    return CallTimeout(f"{what}: no answer within {shown(seconds)}{note}")


class Delays(NamedTuple):
    """The pauses of a client between two attempts, the time after which these count anew, and the
    time that it gives a peer.

    Attributes:
        first_reconnect: The longest pause before the first reconnect in a row. It is random, as
            many clients may lose one server at the same moment.
        reconnects: The pauses from the second reconnect on.
        restarts: The pauses before a child process that has ended twice in a row is started again.
        settled: Seconds after which the loss of a connection is the first in a row.
        rounds: The pauses between the rounds of a call that ask nothing.
        listens: The pauses before the callbacks subscribe again.
        listened: Seconds after which the end of their subscription is the first in a row.
        fetches: The pauses between requests for a changed list that fail.
        answer: Seconds in which a process must answer that has the pipes of a server whose program
            has exited.
        first_answer: The same where the server has said nothing before.
        control: Seconds between two allowances for control frames of a WebSocket server, where no
            pings are sent.
    """

    first_reconnect: float = 0.1
    reconnects: Backoff = Backoff(0.25, 30.0, jitter=True)
    restarts: Backoff = RESTARTS
    settled: float = SETTLED
    rounds: Backoff = Backoff(0.05, 2.0, jitter=True)
    listens: Backoff = Backoff(0.25, 30.0, jitter=True)
    listened: float = 10.0
    fetches: Backoff = Backoff(0.25, 30.0)
    answer: float = 5.0
    first_answer: float = 30.0
    control: float = 20.0


DELAYS = Delays()
