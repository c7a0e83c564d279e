"""Rates of requests: a token bucket for each client."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from wirespeed.transport.token_buckets import TokenBuckets

if TYPE_CHECKING:
    from wirespeed.proxy.backend_config import RateConfig
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


def host_of(address: str) -> str:
    """Return an address without its port."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


class Rates:
    """The rates of all clients of a proxy.

    Args:
        default: The rate of a client; None: any.
        by_principal: Other rates, by the principals of connections.
        clock: Seconds.

    Attributes:
        n_refused: Requests that came too early.
    """

    def __init__(
        self,
        default: RateConfig | None,
        by_principal: Mapping[bytes, RateConfig] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.n_refused = 0
        self._default = default
        self._by_principal = by_principal or {}
        self._buckets = TokenBuckets(clock)

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._buckets)

    def are(self, default: RateConfig | None, by_principal: Mapping[bytes, RateConfig]) -> bool:
        """Return whether these are its rates."""
        return self._default == default and self._by_principal == by_principal

    def delay(self, side: Side) -> float:
        """Return the seconds until a connection may send one more request: 0 counts this one, and
        anything else refuses it."""
        return self.delay_of(credentials_of(side))

    def delay_of(self, key: bytes | str) -> float:
        """The same for the owner of a bucket."""
        rate = self._by_principal.get(key, self._default) if isinstance(key, bytes) else None
        rate = rate or self._default
        if rate is None:
            return 0.0
        delay = self._buckets.delay(key, rate.requests, rate.burst)
        if delay:
            self.n_refused += 1
        return delay
