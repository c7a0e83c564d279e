"""One process of a proxy, and the store that it shares with the processes of other hosts."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Protocol

import msgspec

from wirespeed.proxy.operation.meter import PART

if TYPE_CHECKING:
    from wirespeed.proxy.operation.meter import Steps


class StoreEntry(msgspec.Struct):
    """The store that the hosts of the proxy share, as one process sees it.

    Attributes:
        name: Its URL without user and password.
        state: As of `wirespeed.cluster.Cluster.state`.
        losses: How often it was lost.
    """

    name: str
    state: str
    losses: int


class ProcessEntry(msgspec.Struct):
    """One worker.

    Attributes:
        reloads: How often it has read the configuration again, and how often it was refused.
        reloaded: When the last time, in Unix seconds; None: never.
        reload_ok: Whether the last one was not refused.
        store: The store of the hosts; None without one.
    """

    worker: int
    pid: int
    cpu_seconds: float
    resident_bytes: int
    open_fds: int
    reloads: int
    reloads_refused: int
    reloaded: float | None
    reload_ok: bool
    store: StoreEntry | None = None


class ReloadFacts(Protocol):
    """The facts of a process: as of `wirespeed.proxy.operation.snapshot.Facts`."""

    reloads: int
    reloads_refused: int
    reloaded: float | None
    reload_error: str | None
    store: StoreEntry | None


def _open_fds() -> Steps[int]:
    n = os.stat("/proc/self/fd").st_size  # 0 before Linux 6.2
    if n == 0:
        with os.scandir("/proc/self/fd") as entries:
            for n, _ in enumerate(entries):  # one of them is that of the folder
                if n % PART == 0:
                    yield
    return n


def process_entry(worker: int, facts: ReloadFacts) -> Steps[ProcessEntry]:
    """Read the numbers of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        fds = yield from _open_fds()
    except OSError:  # no Linux
        resident = fds = 0
    return ProcessEntry(
        worker,
        os.getpid(),
        usage.ru_utime + usage.ru_stime,
        resident,
        fds,
        facts.reloads,
        facts.reloads_refused,
        facts.reloaded,
        facts.reload_error is None,
        facts.store,
    )
