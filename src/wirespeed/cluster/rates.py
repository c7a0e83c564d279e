"""Rates over hosts: token buckets in the store that hosts share, by the store's clock.

A key ``PREFIX:{rate1:SERVER:OWNER}:`` holds the time at which a bucket is full again (microseconds
since 1970), and lives until then. OWNER is a keyed digest.
"""

from __future__ import annotations

import hmac
from collections.abc import Hashable
from typing import Literal

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import MIN_SECRET, Cluster
from wirespeed.errors import StoreUnavailable
from wirespeed.transport.token_buckets import TokenBuckets

# rate burst: see `TokenBuckets.delay`
_TAKE = Script(
    """
local at = redis.call('TIME')
local now, one = at[1] * 1000000 + at[2], 1000000 / ARGV[1]
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') or 0, now)
local delay = full_at - now - (ARGV[2] - 1) * one
if delay > 1 then return math.ceil(delay) end
full_at = full_at + one
redis.call('SET', KEYS[1], string.format('%.1f', full_at), 'PX', math.ceil((full_at - now) / 1000))
return 0
"""
)


class RedisTokenBuckets:
    """Token buckets that all hosts share: ``LimitRate(100, buckets=…)``. One round trip a request.

    Args:
        cluster: The store.
        name: The name of the server: servers of one name share their buckets.
        secret: The same bytes on all hosts, at least 16. The store does not name users and
            addresses: they are HMAC-SHA256 digests, with a key that is derived from the secret.
        on_store_loss: While the store is away, ``"local"`` keeps the buckets of each host in its
            memory, and ``"refuse"`` refuses requests (`wirespeed.errors.StoreUnavailable`).
        hosts: How many hosts there are: while the store is away, each has this part of a rate.

    Owners that are neither texts nor bytes, such as connections, are of one host, and stay in its
    memory.

    ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        secret: bytes,
        on_store_loss: Literal["local", "refuse"] = "local",
        hosts: int = 1,
    ) -> None:
        if len(secret) < MIN_SECRET:
            raise ValueError(f"the secret of RedisTokenBuckets has at least {MIN_SECRET} bytes")
        if on_store_loss not in ("local", "refuse"):
            raise ValueError('on_store_loss is "local" or "refuse"')
        if hosts < 1:
            raise ValueError("hosts must be at least 1")
        self._cluster = cluster
        self._name = name
        context = b"wirespeed owners of rates 1\0" + name.encode("utf-8", "surrogatepass")
        self._secret = hmac.digest(secret, context, "sha256")
        self._refuses = on_store_loss == "refuse"
        self._hosts = hosts
        self._here = TokenBuckets()

    async def delay(self, key: Hashable, rate: float, burst: int) -> float:
        """See `TokenBuckets.delay`. StoreUnavailable: with ``on_store_loss="refuse"``."""
        if isinstance(key, bytes):
            owner = b"b" + key
        elif isinstance(key, str):
            owner = b"s" + key.encode("utf-8", "surrogatepass")
        else:
            return self._here.delay(key, rate, burst)
        self._cluster.hold(self)
        digest = hmac.digest(self._secret, owner, "sha256").hex()[:32]
        base = self._cluster.base("rate1", self._name, digest)
        try:
            delay = await self._cluster.run(_TAKE, base, repr(float(rate)), burst)
        except StoreUnavailable:
            if self._refuses:
                raise
            return self._here.delay(key, rate / self._hosts, max(1, burst // self._hosts))
        return float(delay) / 1e6

    async def close(self) -> None:
        """Let the connection go."""
        await self._cluster.release(self)


set_public_home(globals())
