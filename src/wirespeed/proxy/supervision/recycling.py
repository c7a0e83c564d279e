"""When a process that clients share has run long enough, and when it is needed no longer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.backend_config import RecycleConfig

_LOOK = 1.0  # seconds between two looks
_LOOK_AT_MEMORY = 5.0
_AGAIN = 30.0  # seconds after which a replacement that failed is tried again
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

    def check(self, backend: Backend, now: float) -> float:
        """Look, and ask for a replacement."""
        if backend.retired:
            return _AGAIN
        reason = self._reason(backend, now)
        if reason is not None:
            self._replace(reason)
            return _AGAIN
        return _LOOK

    def _reason(self, backend: Backend, now: float) -> str | None:
        config = self._config
        if config.max_age is not None and now >= backend.began + config.max_age:
            return f"it is {config.max_age:g} s old"
        if config.max_requests is not None and backend.n_answered >= config.max_requests:
            return f"it has answered {backend.n_answered} requests"
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

    def check(self, backend: Backend, now: float) -> float:
        """Look at what it has done."""
        if backend.retired:
            return self._timeout
        seen = backend.n_answered + backend.n_given_up
        if seen != self._seen or backend.session.pending.live or self._is_needed():
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
