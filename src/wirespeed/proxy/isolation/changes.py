"""Changes that several servers of a pool tell a subscription of: the client hears of each once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wirespeed.proxy.eras import params_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.side import Route, Side

# Seconds that a change waits for the other servers of the pool to tell of it, too.
WAIT = 0.2
# Changes that wait at once; further ones do not.
MAX_GATHERED = 1000

# What says that something is to be read again. The state of a task is of one server alone.
_CHANGES = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


class _Change:
    """A change that waits, as the first server has told of it."""

    def __init__(
        self, backend: Backend, message: Message, route: Route, timer: asyncio.TimerHandle
    ) -> None:
        self.backend = backend
        self.message = message
        self.route = route
        self.timer = timer
        self.servers: set[Backend] = set()


class GatheredChanges:
    """The changes of one pool. Each is told when all servers have told of it, or after `WAIT`: a
    client that reads again then reads from no server that does not know of the change yet.

    Args:
        n_servers: Returns how many servers have the subscriptions.
    """

    def __init__(self, n_servers: Callable[[], int]) -> None:
        self._n_servers = n_servers
        self._waiting: dict[tuple[Side, int, str, str], _Change] = {}

    def gathers(self, backend: Backend, message: Message, route: Route) -> bool:
        """Return whether a change was taken, to be told once."""
        method = message.method or ""
        n_servers = self._n_servers()
        if n_servers < 2 or method not in _CHANGES:
            return False
        uri = params_of(message).get("uri")
        key = route.asker, route.ref, method, uri if isinstance(uri, str) else ""
        change = self._waiting.get(key)
        if change is None:
            if len(self._waiting) >= MAX_GATHERED:
                return False
            timer = backend.loop.call_later(WAIT, self._tell, key)
            change = self._waiting[key] = _Change(backend, message, route, timer)
        change.servers.add(backend)
        if len(change.servers) >= n_servers:
            change.timer.cancel()
            self._tell(key)
        return True

    def _tell(self, key: tuple[Side, int, str, str]) -> None:
        change = self._waiting.pop(key)
        change.backend.pass_change(change.message, change.route)
