"""The machine of a run: its description, the versions of programs, and the cost of processes."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from wirespeed.bench.load import Cost

_PROC = "/proc"


def machine() -> dict[str, Any]:
    """Return the processor, the number of them, and the system."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    processor = line.partition(":")[2].strip()
                    break
    except OSError:
        pass
    return {
        "processor": processor,
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(server: dict[str, Any]) -> dict[str, str]:
    """Return the versions of this program, of Python, and of a server by its ``serverInfo``."""
    from wirespeed import __version__

    found = {"wirespeed": __version__, "python": platform.python_version()}
    name, version = server.get("name"), server.get("version")
    if isinstance(name, str):
        found["server"] = f"{name} {version}" if isinstance(version, str) else name
    return found


class Others:
    """The share of the machine's processors that processes take, from now on."""

    def __init__(self) -> None:
        self._before = _processors()

    def share(self, known: float) -> float | None:
        """Return it without what known processes took, in seconds. None: /proc does not say it."""
        if self._before is None or (now := _processors()) is None:
            return None
        busy, total = (after - before for before, after in zip(self._before, now, strict=True))
        if not total:
            return None
        return round(min(max((busy - known) / total, 0.0), 1.0), 3)


def _processors() -> tuple[float, float] | None:
    """Seconds of all processors: busy ones, and all."""
    try:
        with open(f"{_PROC}/stat", encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    if len(fields) < 5:
        return None
    ticks, total = os.sysconf("SC_CLK_TCK"), sum(fields)
    return (total - fields[3] - fields[4]) / ticks, total / ticks


class ProcessCost:
    """The cost of processes and their descendants from now on.

    Args:
        roots: Their process ids.
        themselves: Whether the roots count, or only their descendants. Then these are children of
            this process, and those that have ended count, too.
    """

    def __init__(self, roots: Iterable[int], *, themselves: bool = True) -> None:
        self._roots = frozenset(roots)
        self._themselves = themselves
        self._before = _seconds(self._members())
        self._ended = _ended_children()

    def cost(self) -> Cost:
        """Return it. Nothing is known where the system has no /proc, or where there are no such
        processes: the server is one that somebody else started."""
        if not os.path.isdir(_PROC):
            return Cost()
        members = self._members()
        after = _seconds(members)
        spent = sum(value - self._before.get(pid, 0.0) for pid, value in after.items())
        if not self._themselves:
            gone = sum(value for pid, value in self._before.items() if pid not in after)
            spent += max(_ended_children() - self._ended - gone, 0.0)
        if not members and not spent:
            return Cost()
        return Cost(spent, sum(map(_most_resident, members)))

    def _members(self) -> set[int]:
        children: dict[int, list[int]] = defaultdict(list)
        try:
            entries = os.listdir(_PROC)
        except OSError:
            return set()
        for name in entries:
            if name.isdigit():
                fields = _stat(int(name))
                if fields is not None:
                    children[int(fields[1])].append(int(name))
        found = set(self._roots) if self._themselves else set()
        todo = list(self._roots)
        while todo:
            for pid in children[todo.pop()]:
                if pid not in found:
                    found.add(pid)
                    todo.append(pid)
        return found


def _seconds(pids: Iterable[int]) -> dict[int, float]:
    """Processor seconds of processes, in nanoseconds' steps; /proc has only hundredths."""
    found = {}
    for pid in pids:
        # the clock of a process, as clock_getcpuclockid(3) of Linux makes its number
        with contextlib.suppress(OSError):
            found[pid] = time.clock_gettime((~pid << 3) | 2)
    return found


def _ended_children() -> float:
    """Processor seconds of the children of this process that have ended, and of theirs."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _stat(pid: int) -> list[str] | None:
    """The fields of a process behind its name: state, parent, …; None: it is gone."""
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _most_resident(pid: int) -> int:
    """The most bytes that a process had in memory; 0: it is gone."""
    try:
        with open(f"{_PROC}/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
