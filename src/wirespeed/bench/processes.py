"""Processor time and memory of other processes, as Linux shows them in /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from wirespeed.bench.load import Cost

_PROC = "/proc"


class ProcessCost:
    """What processes and their descendants cost from now on.

    Args:
        roots: Their process ids.
        themselves: Whether the roots count, or only their descendants.
    """

    def __init__(self, roots: Iterable[int], *, themselves: bool = True) -> None:
        self._roots = frozenset(roots)
        self._themselves = themselves
        self._before = self._seconds(self._members())

    def cost(self) -> Cost:
        """Return it. Where the system has no /proc, nothing is known."""
        members = self._members()
        if not members:
            return Cost()
        after = self._seconds(members)
        spent = sum(value - self._before.get(pid, 0.0) for pid, value in after.items())
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

    @staticmethod
    def _seconds(pids: Iterable[int]) -> dict[int, float]:
        ticks = os.sysconf("SC_CLK_TCK")
        found = {}
        for pid in pids:
            fields = _stat(pid)
            if fields is not None:
                found[pid] = (int(fields[11]) + int(fields[12])) / ticks
        return found


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
