"""Quotas over hosts: how many calls there were in a day, by the store's clock.

A key ``PREFIX:{quota1:SERVER:OWNER}:DAY`` has a number, and lives an hour longer than its day (days
since 1970, UTC). OWNER is a keyed digest.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from wirespeed.cluster.clients import Script
from wirespeed.cluster.owners import OwnerNumbers
from wirespeed.cluster.store import Cluster
from wirespeed.errors import ProtocolError, StoreUnavailable

# ARGV: limit. Returns the seconds until tomorrow where there are as many; 0: it is counted.
_TAKE = Script(
    """
local now = tonumber(redis.call('TIME')[1])
local left = 86400 - now % 86400
local key = KEYS[1] .. math.floor(now / 86400)
if (tonumber(redis.call('GET', key) or '0') or 0) >= tonumber(ARGV[1]) then return left end
if redis.call('INCR', key) == 1 then redis.call('PEXPIRE', key, (left + 3600) * 1000) end
return 0
"""
)
# ARGV: seconds since the call was counted.
_GIVE_BACK = Script(
    """
local key = KEYS[1] .. math.floor((redis.call('TIME')[1] - ARGV[1]) / 86400)
if (tonumber(redis.call('GET', key) or '0') or 0) > 0 then redis.call('INCRBY', key, -1) end
return 0
"""
)


class LocalCounts(Protocol):
    """Counts calls while the store is away."""

    def take(self, owner: bytes, limit: int) -> float:
        """Count one more call. Return the seconds until there may be another one."""

    def give_back(self, owner: bytes, age: float) -> None:
        """Count one call less, of the day on which it was counted, ``age`` seconds ago."""


class RedisCounts:
    """The calls of all hosts.

    Args:
        cluster: The store. It is held from the first call on, until `close`.
        name: The name of the server.
        secret: The key of the digests.
        here: Counts calls while the store is away; None: they are refused meanwhile.
        hosts: While the store is away, this host has this part of a limit.
    """

    def __init__(
        self, cluster: Cluster, name: str, secret: bytes, here: LocalCounts | None, hosts: int
    ) -> None:
        self._numbers = OwnerNumbers(cluster, "quota", name, secret)
        self._here = here
        self._hosts = hosts
        self._giving: set[asyncio.Task[None]] = set()

    def take(self, owner: bytes, limit: int) -> asyncio.Future[float]:
        """Count one more call of today (UTC). The result is 0 if it is counted, and else the
        seconds until tomorrow. StoreUnavailable: the store is away, and nothing else counts."""
        return asyncio.get_running_loop().create_task(self._take(owner, limit))

    async def _take(self, owner: bytes, limit: int) -> float:
        try:
            return float(await self._numbers.ask(_TAKE, owner, limit))
        except ProtocolError:  # it is away, or does not let us
            if self._here is None:
                raise StoreUnavailable from None
            return self._here.take(owner, max(1, limit // self._hosts))

    def give_back(self, owner: bytes, age: float) -> None:
        """Count one call less, of the day on which it was counted, ``age`` seconds ago: in the
        store, or, while it is away, here."""
        task = asyncio.get_running_loop().create_task(self._give_back(owner, age))
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)

    async def _give_back(self, owner: bytes, age: float) -> None:
        try:
            await self._numbers.ask(_GIVE_BACK, owner, f"{age:.3f}")
        except ProtocolError:  # the cluster logs it
            if self._here is not None:
                self._here.give_back(owner, age)

    async def close(self) -> None:
        """Let the connection go."""
        if self._giving:
            await asyncio.wait(self._giving)
        await self._numbers.close()
