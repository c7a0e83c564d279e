"""Changes that several servers of a pool tell a subscription of: each is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.protocol.revisions import CHANGES
from wirespeed.proxy.own_requests import params_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.side import Route, Side
    from wirespeed.proxy.upstream import Upstream

# Changes that wait at once; further ones do not.
MAX_GATHERED = 1000


class _Change:
    """A change that waits, as the first server has told of it."""

    def __init__(
        self, upstream: Upstream, message: Message, route: Route, timer: asyncio.TimerHandle
    ) -> None:
        self.upstream = upstream
        self.message = message
        self.route = route
        self.timer = timer
        self.servers: set[Upstream] = set()


class GatheredChanges:
    """The changes of one pool. Each is told when all servers have told of it, or after a while: a
    client that reads again then reads from no server that does not know of the change yet.

    Args:
        n_servers: Returns how many servers have the subscriptions.
        seconds: How long that is.
    """

    def __init__(self, n_servers: Callable[[], int], seconds: float) -> None:
        self.seconds = seconds
        self._n_servers = n_servers
        self._waiting: dict[tuple[Side, int, str, str], _Change] = {}

    def gathers(self, upstream: Upstream, message: Message, route: Route) -> bool:
        """Return whether a change was taken, to be told once."""
        method = message.method or ""
        n_servers = self._n_servers()
        if n_servers < 2 or method not in CHANGES:  # the state of a task is of one server
            return False
        uri = params_of(message).get("uri")
        key = route.asker, route.ref, method, uri if isinstance(uri, str) else ""
        change = self._waiting.get(key)
        if change is None:
            if len(self._waiting) >= MAX_GATHERED:
                return False
            timer = upstream.loop.call_later(self.seconds, self._tell, key)
            change = self._waiting[key] = _Change(upstream, message, route, timer)
        change.servers.add(upstream)
        if len(change.servers) >= n_servers:
            change.timer.cancel()
            self._tell(key)
        return True

    def _tell(self, key: tuple[Side, int, str, str]) -> None:
        change = self._waiting.pop(key)
        change.upstream.pass_change(change.message, change.route)
