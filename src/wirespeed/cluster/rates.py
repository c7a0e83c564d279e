"""Rates over hosts: token buckets in the store that hosts share, by the store's clock.

A key ``PREFIX:{rate1:SERVER:OWNER}:`` holds the time at which a bucket is full again (microseconds
since 1970), and lives until then. OWNER is a keyed digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from itertools import zip_longest
from typing import Literal, NamedTuple

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Script
from wirespeed.cluster.owners import OwnerNumbers
from wirespeed.cluster.store import MIN_SECRET, Cluster
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.transport.token_buckets import TokenBuckets

# ARGV: rate, burst (see `TokenBuckets.delay`), wanted tokens. Returns how many there were, and the
# microseconds until there is one more.
_TAKE = Script(
    """
local at = redis.call('TIME')
local now, one = at[1] * 1000000 + at[2], 1000000 / ARGV[1]
local kept = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local full_at = math.min(math.max(kept, now), now + ARGV[2] * one)
local most = now + (ARGV[2] - 1) * one + 1
local n = math.max(0, math.min(tonumber(ARGV[3]), math.floor((most - full_at) / one) + 1))
if n > 0 or full_at < kept then
  full_at = full_at + n * one
  local life = math.ceil((full_at - now) / 1000)
  redis.call('SET', KEYS[1], string.format('%.1f', full_at), 'PX', life)
end
return {n, math.max(1, math.ceil(full_at - most))}
"""
)


class _Bucket(NamedTuple):
    owner: bytes
    rate: float
    burst: int


class RedisTokenBuckets:
    """Token buckets that all hosts share: ``LimitRate(100, buckets=…)``. The requests of one turn
    of the loop take one round trip.

    Args:
        cluster: The store.
        name: The name of the server: servers of one name share their buckets.
        secret: The same bytes on all hosts, at least 16. The store does not name users and
            addresses: they are HMAC-SHA256 digests, with a key that is derived from the secret.
        on_store_loss: While the store is away, or refuses commands, ``"local"`` keeps the buckets
            of each host in its memory, and ``"refuse"`` refuses requests
            (`wirespeed.errors.StoreUnavailable`).
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
        self._numbers = OwnerNumbers(cluster, "rate", name, secret)
        self._refuses = on_store_loss == "refuse"
        self._hosts = hosts
        self._here = TokenBuckets()
        self._asked: dict[_Bucket, list[asyncio.Future[float]]] = {}  # in this turn
        self._taking: set[asyncio.Task[None]] = set()

    async def delay(self, key: Hashable, rate: float, burst: int) -> float:
        """See `TokenBuckets.delay`. StoreUnavailable: with ``on_store_loss="refuse"``."""
        if isinstance(key, bytes | str):
            return await self.ask(key, rate, burst)
        return self._here.delay(key, rate, burst)

    def ask(self, key: bytes | str, rate: float, burst: int) -> asyncio.Future[float]:
        """The same without waiting, for a text or bytes."""
        owner = (
            b"b" + key if isinstance(key, bytes) else b"s" + key.encode("utf-8", "surrogatepass")
        )
        bucket = _Bucket(owner, float(rate), burst)
        if bucket not in self._asked:
            self._asked[bucket] = []
            task = asyncio.get_running_loop().create_task(self._take(bucket))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
        delay: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asked[bucket].append(delay)
        return delay

    async def _take(self, bucket: _Bucket) -> None:
        """Take a token for each request of a turn."""
        asked = [one for one in self._asked.pop(bucket) if not one.done()]
        owner, rate, burst = bucket
        delays: list[float] = []
        try:
            n, delay = await self._numbers.ask(_TAKE, owner, repr(rate), burst, len(asked))
            delays = [0.0] * n + [delay / 1e6] * (len(asked) - n)
        except ProtocolError:  # it is away, or does not let us
            if not self._refuses:
                rate, burst = rate / self._hosts, max(1, burst // self._hosts)
                delays = [self._here.delay(owner, rate, burst) for _ in asked]
        finally:
            for one, found in zip_longest(asked, delays):
                if found is None and not one.done():
                    one.set_exception(StoreUnavailable())
                elif not one.done():
                    one.set_result(found)

    async def close(self) -> None:
        """Let the connection go."""
        await self._numbers.close()


set_public_home(globals())
