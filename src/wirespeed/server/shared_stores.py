"""The stores of one server in a cluster. It is loaded where a server has a cluster."""

from __future__ import annotations

from collections.abc import Callable

from wirespeed.cluster.changes import SharedChanges
from wirespeed.cluster.events import RedisEventStore
from wirespeed.cluster.nonces import RedisSingleUse
from wirespeed.cluster.sessions import SessionHosts
from wirespeed.cluster.store import Cluster
from wirespeed.cluster.tasks import RedisTaskStore


class SharedStores:
    """The stores of one server.

    Args:
        cluster: The store that the hosts share.
        name: The server's name.
        secret: The same on all hosts.
        on_change, on_missed: As of `SharedChanges`.

    Attributes:
        changes: The changes of lists and resources, which hosts tell each other.
        single_use: Notes what the hosts have accepted once.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        secret: bytes,
        *,
        on_change: Callable[[str, str], object],
        on_missed: Callable[[], object],
    ) -> None:
        self.cluster = cluster
        self.changes = SharedChanges(cluster, name, on_change, on_missed)
        self.single_use = RedisSingleUse(cluster, name)
        self._name = name
        self._secret = secret

    def new_task_store(self) -> RedisTaskStore:
        """Return a store for the tasks of the server."""
        return RedisTaskStore(self.cluster, self._name, secret=self._secret)

    def new_event_store(self) -> RedisEventStore:
        """Return a store for the events of one listener."""
        return RedisEventStore(self.cluster, self._name)

    def new_session_hosts(self, url: str) -> SessionHosts:
        """Return the directory of sessions. ``url``: Where other hosts reach this one. ValueError:
        it is not the URL of a host."""
        return SessionHosts(self.cluster, self._name, url, secret=self._secret)

    async def close(self) -> None:
        """Let the connection go, at the end of the server's life."""
        await self.changes.close()
        await self.cluster.release(self.single_use)
