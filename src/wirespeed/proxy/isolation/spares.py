"""Servers that were started before their clients came."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from wirespeed.proxy.isolation.pair import Pair

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.operation.meter import Meter
    from wirespeed.proxy.supervision.upstream import Upstream


class Spares:
    """Keeps as many servers waiting as the configuration says. One that ends is started again.

    Attributes:
        pairs: The servers, the oldest first.
    """

    def __init__(self, config: BackendConfig, limits: Limits, meter: Meter) -> None:
        self._config = config
        self._limits = limits
        self._meter = meter
        self.pairs: deque[Pair] = deque()

    def fill(self) -> None:
        """Start the servers that are missing."""
        while len(self.pairs) < self._config.spares:
            self.pairs.append(self._start(restarts=True))

    def first(self) -> Upstream:
        """Return the life of a server that waits. One is started if there is none."""
        if not self.pairs:
            self.pairs.append(self._start(restarts=True))
        return self.pairs[0].life.upstream

    def add(self, pair: Pair) -> None:
        """Take one more."""
        self.pairs.appendleft(pair)

    def take(self) -> Pair:
        """Return a server for a client: one that is there or comes soon, or else a new one."""
        for state in ("ready", "starting"):
            for pair in self.pairs:
                if pair.life.upstream.status.state == state:
                    self.pairs.remove(pair)
                    return pair
        for pair in [one for one in self.pairs if one.life.task.done()]:
            self.pairs.remove(pair)
        return self._start(restarts=False)

    def _start(self, *, restarts: bool) -> Pair:
        return Pair.start(self._config, self._limits, self._meter, restarts=restarts)

    def take_all(self) -> list[Pair]:
        """Return all, which are to be ended."""
        found = list(self.pairs)
        self.pairs.clear()
        return found
