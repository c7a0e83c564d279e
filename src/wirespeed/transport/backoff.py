"""The pauses between attempts, and when attempts count anew."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """Pauses that double with each attempt that fails.

    Attributes:
        first: The first pause, in seconds.
        longest: The longest pause of all.
        jitter: Whether a pause is random, from half of what it would be to the whole, so that many
            clients do not try again at the same moment.
    """

    first: float
    longest: float
    jitter: bool = False

    def pause(self, n: int) -> float:
        """Seconds to wait after ``n`` pauses in a row; none if that is below 0."""
        if n < 0:
            return 0.0
        most: float = min(self.first * 2.0 ** min(n, 30), self.longest)
        return random.uniform(most / 2, most) if self.jitter else most


# Before a child process that has ended twice in a row is started again.
RESTARTS = Backoff(0.1, 30.0)
# Seconds after which a connection counts as good: its loss is the first in a row.
SETTLED = 60.0
