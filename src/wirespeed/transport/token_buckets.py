"""Token buckets: rates at which the owners of keys may do something."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

# Owners that are remembered. The one that was silent for longest is forgotten first.
MAX_OWNERS = 65536


def next_token(full_at: float, now: float, rate: float, burst: int) -> tuple[float, float]:
    """Take a token of a bucket. Return when it is full again, and the seconds until there is a
    token: 0 if this one was taken.

    No bucket lacks more than ``burst`` tokens: an earlier rate may have been slower, and the clock
    of a store may have gone back.

    Args:
        full_at: When the bucket is full again.
        now: The time.
        rate: Tokens a second.
        burst: The most tokens of a bucket.
    """
    full_at = min(max(full_at, now), now + burst / rate)
    delay = full_at - now - (burst - 1) / rate
    # one bucket is the same as none when it is full again, but for the rounding of floats
    return (full_at, delay) if delay > 1e-9 else (full_at + 1 / rate, 0.0)


class TokenBuckets:
    """A bucket for each key.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When each bucket is full again.
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many owners are remembered."""
        return len(self._full_at)

    def delay(self, key: Hashable, rate: float, burst: int) -> float:
        """Return the seconds until the owner of a key may go on: 0 takes a token.

        Args:
            key: The owner.
            rate: Tokens a second.
            burst: The most tokens of a bucket.
        """
        now = self._clock()
        full_at, delay = next_token(self._full_at.pop(key, now), now, rate, burst)
        self._full_at[key] = full_at
        if len(self._full_at) > MAX_OWNERS:
            self._full_at.popitem(last=False)
        return delay
