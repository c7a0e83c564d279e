"""One process among the workers and hosts of a proxy."""

from __future__ import annotations

import os

_KEY = os.urandom(32)  # forked workers have it, too


class Membership:
    """The place of a process in a proxy.

    Args:
        shared_key: A key that all hosts have; None: there is one host.
        host: The name of this host, where several hosts share a store; "" without others.
        n_hosts: How many hosts there are.

    Attributes:
        own_key: A key that the workers of this host have.
        shared_key: A key that all workers of all hosts have.
        place: The host and the worker, as in ids of tasks: ``HOST.WORKER~``.
        shown: The same if there are several workers or hosts; else "".
    """

    def __init__(self, shared_key: bytes | None = None, host: str = "", n_hosts: int = 1) -> None:
        self.own_key = _KEY
        self.shared_key = _KEY if shared_key is None else shared_key
        self._host = host
        self._n_hosts = n_hosts
        self._n_workers = 1
        self.share(0)

    def fork(self, n: int) -> None:
        """The process will fork ``n`` workers."""
        self._n_workers = n

    def share(self, worker: int) -> None:
        """This process is the worker with this number."""
        self.place = f"{self._host}.{worker}~"
        self.shown = self.place if self._host or self._n_workers > 1 else ""

    def part_of(self, limit: int) -> int:
        """Return the part of a limit that this process has, at least 1."""
        return max(1, limit // (self._n_workers * self._n_hosts))
