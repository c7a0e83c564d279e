"""Rates of requests: a token bucket for each client."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from wirespeed.transport.address import host_of
from wirespeed.transport.token_buckets import TokenBuckets, next_token

if TYPE_CHECKING:
    from asyncio import Future

    from wirespeed.proxy.backend_config import RateConfig
    from wirespeed.proxy.flow.host_table import HostTable
    from wirespeed.proxy.side import Side


def client_of(side: Side) -> Hashable:
    """Return whose requests a connection carries: the connection itself, unless its requests come
    from any client, one by one over HTTP. Then it is the principal of the request, or else the
    address that it came from."""
    while side.outer is not None:
        side = side.outer
    return credentials_of(side) if side.shared else side


def credentials_of(side: Side) -> bytes | str:
    """Return the principal of a connection, or else the address of its client, without a port;
    empty on stdio."""
    if side.principal is not None:
        return side.principal
    return "" if side.peer is None else host_of(side.peer.address)


Ask: TypeAlias = "Callable[[bytes | str, float, int], float | Future[float]]"


class Rates:
    """The rates of all clients of a proxy.

    Args:
        default: The rate of a client; None: any.
        by_principal: Other rates, by the principals of connections.
        ask: Takes a token, as `TokenBuckets.delay` does; None: of a bucket in this process. A
            future has the delay later.
    """

    def __init__(
        self,
        default: RateConfig | None,
        by_principal: Mapping[bytes, RateConfig] | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._default = default
        self._by_principal = by_principal or {}
        self._ask: Ask = TokenBuckets().delay if ask is None else ask

    def are(self, default: RateConfig | None, by_principal: Mapping[bytes, RateConfig]) -> bool:
        """Return whether these are its rates."""
        return self._default == default and self._by_principal == by_principal

    def delay(self, side: Side) -> float | Future[float]:
        """Return the seconds until a connection may send one more request: 0 counts this one, and
        anything else refuses it."""
        return self.delay_of(credentials_of(side))

    def delay_of(self, key: bytes | str) -> float | Future[float]:
        """The same for the owner of a bucket."""
        rate = self._by_principal.get(key, self._default) if isinstance(key, bytes) else None
        rate = rate or self._default
        return 0.0 if rate is None else self._ask(key, rate.requests, rate.burst)


class HostBuckets:
    """Token buckets that all workers of a host share.

    Args:
        table: Where they are.
        clock: Seconds; the same clock in all workers.
    """

    def __init__(self, table: HostTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock

    def delay(self, key: bytes | str, rate: float, burst: int) -> float:
        """See `TokenBuckets.delay`."""
        owner = b"b" + key if isinstance(key, bytes) else b"s" + key.encode()
        now = self._clock()
        with self._table.entry(owner, now) as entry:
            full_at, delay = next_token(entry.value, now, rate, burst)
            entry.keep(full_at, full_at)
        return delay
