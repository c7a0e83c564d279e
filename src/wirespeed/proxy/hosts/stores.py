"""The stores of one proxy in a cluster. It is loaded where a proxy has a cluster."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from wirespeed.cluster.places import RedisPlaces
from wirespeed.cluster.quotas import RedisCounts
from wirespeed.cluster.rates import RedisTokenBuckets
from wirespeed.cluster.sessions import SessionHosts
from wirespeed.cluster.store import Cluster
from wirespeed.cluster.task_makers import RedisTaskMakers
from wirespeed.errors import ConfigError
from wirespeed.proxy.flow.quotas import ProcessCounts
from wirespeed.proxy.hosts.membership import Membership
from wirespeed.proxy.operation.processes import StoreEntry

if TYPE_CHECKING:
    from wirespeed.proxy.config import ClusterConfig

_NAME = "proxy"  # in keys: all proxies of one prefix share their counts


class ProxyStores:
    """The stores of one proxy.

    Args:
        config: The store and its settings.

    Attributes:
        cluster: The connection to the store.
        buckets: The token buckets of clients.
        counts: The calls that quotas count.
        shares_sessions: Whether any host answers requests of any session.

    Raises:
        ConfigError: The configuration is wrong, or the extra ``cluster`` is not installed.
    """

    def __init__(self, config: ClusterConfig) -> None:
        secret = config.secret.encode()
        try:
            self.cluster = Cluster(
                config.url, prefix=config.prefix, store_timeout=config.store_timeout
            )
            self.buckets = RedisTokenBuckets(
                self.cluster,
                _NAME,
                secret=secret,
                on_store_loss=config.on_store_loss,
                hosts=config.hosts,
            )
        except ValueError as exc:
            raise ConfigError(f"proxy.cluster: {exc}") from None
        here = ProcessCounts() if config.on_store_loss == "local" else None
        self.counts = RedisCounts(self.cluster, _NAME, secret, here, config.hosts)
        self._is_local = config.on_store_loss == "local"
        self._places: list[RedisPlaces] = []
        self.shares_sessions = config.host_url is not None
        self._secret = secret
        self._n_hosts = config.hosts
        self._hosts: dict[str, SessionHosts] = {}  # by the URL of this host
        self._users: set[object] = set()

    def entry(self) -> StoreEntry:
        """Return the state of the store, as this process sees it."""
        return StoreEntry(self.cluster.name, self.cluster.state, self.cluster.n_losses)

    def member(self, host: str) -> Membership:
        """Return the place of this process. ``host``: The name of its host."""
        key = hmac.digest(self._secret, b"wirespeed seals of tasks 1", "sha256")
        return Membership(key, host, self._n_hosts, self._places_of, self._task_makers_of)

    def _places_of(self, server: str) -> RedisPlaces:
        """Return the places of a server, for this process."""
        self._places.append(RedisPlaces(self.cluster, _NAME, server, is_local=self._is_local))
        return self._places[-1]

    def _task_makers_of(
        self, server: str, url: str, max_tasks: int, max_of_owner: int
    ) -> RedisTaskMakers:
        """Return what all hosts know of the makers of a server's tasks."""
        return RedisTaskMakers(
            self.cluster,
            server,
            url,
            self._secret,
            max_tasks=max_tasks,
            max_of_owner=max_of_owner,
        )

    def session_hosts(self, url: str) -> SessionHosts:
        """Return the directory of sessions. ``url``: Where other hosts reach this one. ValueError:
        it is not the URL of a host."""
        if url not in self._hosts:
            self._hosts[url] = SessionHosts(self.cluster, _NAME, url, secret=self._secret)
        return self._hosts[url]

    def hold(self, user: object) -> None:
        """Keep the connection for one more user."""
        self._users.add(user)
        self.cluster.hold(self)

    async def release(self, user: object) -> None:
        """End a `hold`. The last one closes the connection."""
        self._users.discard(user)
        if not self._users:
            await self.buckets.close()
            await self.counts.close()
            for places in self._places:
                await places.close()
            await self.cluster.release(self)
