"""What a proxy shares with its other hosts: loaded where it has a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.cluster.rates import RedisTokenBuckets
from wirespeed.cluster.store import Cluster
from wirespeed.errors import ConfigError
from wirespeed.proxy.operation.snapshot import StoreEntry

if TYPE_CHECKING:
    from wirespeed.proxy.config import ClusterConfig

_NAME = "proxy"  # in keys: proxies of one prefix share what they count


class SharedStores:
    """The stores of one proxy.

    Args:
        config: The store, and what is kept there.

    Attributes:
        cluster: The connection to the store.
        buckets: The token buckets of clients.

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
        self._users: set[object] = set()

    def entry(self) -> StoreEntry:
        """The state of the store."""
        return StoreEntry(self.cluster.name, self.cluster.state, self.cluster.n_losses)

    def hold(self, user: object) -> None:
        """Keep the connection for one more user."""
        self._users.add(user)
        self.cluster.hold(self)

    async def release(self, user: object) -> None:
        """End a `hold`. The last one closes the connection."""
        self._users.discard(user)
        if not self._users:
            await self.buckets.close()
            await self.cluster.release(self)
