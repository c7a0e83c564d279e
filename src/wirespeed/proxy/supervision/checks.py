"""Checks of a connection to a server: health, deadlines, recycling, idleness. One timer asks all of
them in turn."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from wirespeed.proxy.backend_config import HealthConfig, RecycleConfig
    from wirespeed.proxy.upstream import Upstream

logger = logging.getLogger("wirespeed.proxy")

_LEAST = 0.01  # seconds between two looks
_AGAIN = 30.0  # seconds after which a check that failed, or a replacement, is tried again


class Check(Protocol):
    """One thing to look at."""

    def check(self, upstream: Upstream, now: float) -> float:
        """Act if it is time to. Returns the seconds until the next look."""


class CheckTimer:
    """Asks its checks in turn until `stop`. If there are no checks, no timer is set."""

    def __init__(self, upstream: Upstream, checks: Sequence[Check]) -> None:
        self._upstream = upstream
        self._checks = checks
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def _look(self) -> None:
        self._timer = None
        upstream = self._upstream
        now = upstream.loop.time()
        delays = []
        for one in self._checks:
            if upstream.link is None:  # the last one has ended it
                return
            try:
                delays.append(one.check(upstream, now))
            except Exception:  # the others look on
                logger.exception("internal error while watching a server")
                delays.append(_AGAIN)
        if delays:
            self._timer = upstream.loop.call_later(max(min(delays), _LEAST), self._look)

    def stop(self) -> None:
        """Look no more."""
        self._checks = ()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# Looks in an interval. So a server is asked after 1.25 intervals of silence at most, and no message
# has to be noted when it comes.
_LOOKS = 4


class LivenessCheck:
    """Sends a server that is silent while requests wait a `ping`, or `server/discover`, and gives
    it up if it stays silent (`Upstream.silent`). Any message counts as an answer, an error too. A
    server over HTTP is asked while no request waits, too: no connection tells that it has ended.
    One that was given up and goes on is not asked again until it has said something."""

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._seen = -1  # messages that had come at the last look
        self._silent_since = 0.0
        self._asked: asyncio.Future[Any] | None = None
        self._asked_at = 0.0
        self._given_up = False

    def check(self, upstream: Upstream, now: float) -> float:
        """Ask, or give up the server that was asked."""
        seen = upstream.session.messages_in
        idle = upstream.session.pending.live == 0 and not upstream.ends_unreachable
        if seen != self._seen or idle:
            self._seen, self._silent_since, self._asked = seen, now, None
            self._given_up = False
        elif self._given_up:
            return self._config.interval / _LOOKS
        elif self._asked is None and now >= self._silent_since + self._config.interval:
            self._asked, self._asked_at = upstream.probe(), now
        elif self._asked is not None and now >= self._asked_at + self._config.timeout:
            self._asked, self._given_up = None, True
            upstream.silent(f"it did not answer a ping within {self._config.timeout:g} s")
        due = self._silent_since + self._config.interval
        if self._asked is not None:
            due = self._asked_at + self._config.timeout
        return min(due - now, self._config.interval / _LOOKS)


class Deadlines:
    """Fails requests that a server has not answered in time. The server gets cancellations.

    All requests have the same time. So none that comes after a look can end before that time, and
    the next look is exact.
    """

    def check(self, upstream: Upstream, now: float) -> float:
        """Fail the requests whose time is over."""
        if upstream.expire(now):
            upstream.owner.failed()
        due = upstream.session.next_deadline()
        return upstream.deadline if due is None else due - now


_LOOK = 1.0  # seconds between two looks
_LOOK_AT_MEMORY = 5.0
_MAX_PROCESSES = 100  # of one server, whose memory is added


class Recycling:
    """Has a process replaced that is too old, too large, or has answered enough.

    Args:
        config: What is too much.
        replace: Called with the reason.
        pid: Returns the process, or None.
    """

    def __init__(
        self,
        config: RecycleConfig,
        replace: Callable[[str], None],
        pid: Callable[[], int | None],
    ) -> None:
        self._config = config
        self._replace = replace
        self._pid = pid
        self._memory_at = 0.0

    def check(self, upstream: Upstream, now: float) -> float:
        """Look, and ask for a replacement."""
        if upstream.retired:
            return _AGAIN
        reason = self._reason(upstream, now)
        if reason is not None:
            self._replace(reason)
            return _AGAIN
        return _LOOK

    def _reason(self, upstream: Upstream, now: float) -> str | None:
        config = self._config
        if config.max_age is not None and now >= upstream.began + config.max_age:
            return f"it is {config.max_age:g} s old"
        if config.max_requests is not None and upstream.n_answered >= config.max_requests:
            return f"it has answered {upstream.n_answered} requests"
        if config.max_memory is not None and now >= self._memory_at:
            self._memory_at = now + _LOOK_AT_MEMORY
            pid = self._pid()
            used = 0 if pid is None else resident(pid)
            if used > config.max_memory:
                return f"it takes {used >> 20} MiB of memory"
        return None


class Idle:
    """Has a server stopped that had nothing to do for some time.

    Args:
        timeout: The seconds.
        is_needed: Whether there are clients that need it even if they ask nothing.
        stop: Called then.
    """

    def __init__(
        self, timeout: float, is_needed: Callable[[], bool], stop: Callable[[], None]
    ) -> None:
        self._timeout = timeout
        self._is_needed = is_needed
        self._stop = stop
        self._seen = -1
        self._since = 0.0

    def check(self, upstream: Upstream, now: float) -> float:
        """Look at what it has done."""
        if upstream.retired:
            return self._timeout
        seen = upstream.n_answered + upstream.n_given_up
        if seen != self._seen or upstream.session.pending.live or self._is_needed():
            self._seen, self._since = seen, now
        elif now >= self._since + self._timeout:
            self._stop()
        return max(self._since + self._timeout - now, _LOOK)


def resident(pid: int) -> int:
    """The bytes in memory of a process and of those that it has started; 0 where the system does
    not tell."""
    total = 0
    found = [pid]
    for one in found:
        try:
            with open(f"/proc/{one}/statm", "rb") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{one}/task/{one}/children", "rb") as file:
                found += map(int, file.read().split())
        except (OSError, ValueError, IndexError):
            continue
        if len(found) > _MAX_PROCESSES:
            break
    return total
