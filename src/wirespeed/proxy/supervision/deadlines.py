"""The time that a server has for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Backend


class Deadlines:
    """Fails requests that a server has not answered in time. The server gets cancellations.

    All requests have the same time. So none that comes after a look can end before that time, and
    the next look is exact.
    """

    def check(self, backend: Backend, now: float) -> float:
        """Fail the requests whose time is over."""
        if backend.expire(now):
            backend.owner.failed()
        due = backend.session.next_deadline()
        return backend.deadline if due is None else due - now
