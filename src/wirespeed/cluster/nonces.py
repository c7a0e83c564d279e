"""Single use over hosts, in the store that they share.

A key ``PREFIX:{once1:SERVER:KIND:NONCE}:`` says that something was used. It is empty, and lives as
long as that thing could be brought again.
"""

from __future__ import annotations

from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster

_USE = Script("return redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[1]) and 1 or 0")


class RedisSingleUse:
    """The `wirespeed.single_use.SingleUse` of the servers of one name.

    Args:
        cluster: The store. It is held from the first use on, until the owner of this object
            releases it.
        name: The name of the server.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def use(self, kind: str, nonce: bytes, seconds: float) -> bool:
        """See `SingleUse`."""
        self._cluster.hold(self)
        base = self._cluster.base("once1", self._name, kind, nonce.hex())
        return bool(await self._cluster.run(_USE, base, max(1, round(seconds * 1000))))
