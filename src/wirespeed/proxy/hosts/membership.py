"""One process among the workers and hosts of a proxy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from wirespeed.proxy.flow.host_table import HostTable
from wirespeed.proxy.flow.places import HostPlaces, Places, ProcessPlaces

if TYPE_CHECKING:
    from wirespeed.cluster.task_makers import RedisTaskMakers

_KEY = os.urandom(32)  # forked workers have it, too


class Membership:
    """The place of a process in a proxy.

    Args:
        shared_key: A key that all hosts have; None: there is one host.
        host: The name of this host, where several hosts share a store; "" without others.
        n_hosts: How many hosts there are.
        places: Makes the `Places` of all hosts, of the name of a server; None: there is one host.
        task_makers: Makes what all hosts know of the makers of tasks, of the name of a server, its
            URL, and the numbers of tasks and of those of one owner; None: there is one host.

    Attributes:
        task_makers: As above.
        own_key: A key that the workers of this host have.
        shared_key: A key that all workers of all hosts have.
        place: The host and the worker, as in ids of tasks: ``HOST.WORKER~``.
        shown: The same if there are several workers or hosts; else "".
    """

    def __init__(
        self,
        shared_key: bytes | None = None,
        host: str = "",
        n_hosts: int = 1,
        places: Callable[[str], Places] | None = None,
        task_makers: Callable[[str, str, int, int], RedisTaskMakers] | None = None,
    ) -> None:
        self.own_key = _KEY
        self.shared_key = _KEY if shared_key is None else shared_key
        self._host = host
        self._n_hosts = n_hosts
        self._n_workers = 1
        self._make_places = places
        self.task_makers = task_makers
        self._places: dict[str, Places] = {}  # by the name of the server
        self._table: HostTable | None = None
        self.share(0)

    def fork(self, n: int) -> None:
        """The process will fork ``n`` workers."""
        self._n_workers = n

    def count_together(self, table: HostTable) -> None:
        """Count in a table for all workers, which will be forked."""
        self._table = table

    def share(self, worker: int) -> None:
        """This process is the worker with this number."""
        self._worker = worker
        self.place = f"{self._host}.{worker}~"
        self.shown = self.place if self._host or self._n_workers > 1 else ""

    def places(self, server: str) -> Places:
        """Return the places of a server, for all that serve it in this process, one after the
        other. Call it where clients are served."""
        if server not in self._places:
            if self._make_places is not None:
                made = self._make_places(server)
            elif self._table is not None:
                made = HostPlaces(self._table, server, self._worker, self._n_workers)
            else:
                made = ProcessPlaces()
            self._places[server] = made
        return self._places[server]

    def part_of(self, limit: int) -> int:
        """Return the part of a limit that this process has, at least 1."""
        return max(1, limit // (self._n_workers * self._n_hosts))
