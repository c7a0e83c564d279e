"""The report that a run of the chaos prints at its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from adoption import Adoption
from seen import Seen

ADOPTED_IN = 5.0  # seconds after the fault
ADOPTED_AFTER_NOTICE = 2.0
NO_FAULT = "no fault"
# Between them no host owns the sessions of the one that has the fault.
GONE = ("kill", "freeze", "unplug", "cut off from the store", "drain")
MOST_LINES = 200


def table(seen: Seen, adopted: Iterable[Adoption]) -> list[str]:
    """A line for each kind of fault: how often it was, how soon sessions were adopted, and how the
    requests ended that were made meanwhile. A request counts for each fault that it met."""
    times = list(adopted)
    counts = Counter(fault.kind for fault in seen.faults)
    rows = [
        (
            "fault",
            *("number", "adopted", "p50", "max", "alone: p50", "max", "noticed: p50", "max"),
            *("answered", "cancelled", "refused", "lost"),
        )
    ]
    for kind in [*sorted(counts), ""]:
        of_kind = [one for one in times if one.kind == kind]
        calls = seen.calls[kind]
        rows.append(
            (
                kind or NO_FAULT,
                str(counts[kind]) if kind else "",
                str(len(of_kind)) if of_kind else "",
                *_spread([one.seconds for one in of_kind]),
                *_spread([one.seconds for one in of_kind if one.is_alone]),
                *_spread([one.after_notice for one in of_kind if one.after_notice is not None]),
                *(str(calls[one]) for one in ("answered", "cancelled", "refused", "lost")),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def _spread(seconds: Sequence[float]) -> tuple[str, str]:
    """The median and the highest."""
    if not seconds:
        return "", ""
    found = sorted(seconds)
    return f"{found[len(found) // 2]:.2f}", f"{found[-1]:.2f}"


def too_late(adopted: Iterable[Adoption]) -> list[str]:
    """Adoptions that took longer than they may. What else happened at that time may excuse one."""
    found = []
    for one in adopted:
        if one.kind in GONE and one.is_alone and one.seconds > ADOPTED_IN:
            found.append(f"adopted {one.seconds:.2f} s after {one.kind}")
        if one.kind in GONE and one.is_alone and (one.after_notice or 0) > ADOPTED_AFTER_NOTICE:
            found.append(f"adopted {one.after_notice:.2f} s after the notice of {one.kind}")
    return found


def logged(logs: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The lines of logs about errors, each once, and the hosts that have logged an exception."""
    lines, faulty = [], []
    for log in sorted(logs):
        text = log.read_text()
        found = re.findall(r"^.*Traceback.*$|^\w*Error.*$|^\S+ ERROR .*$", text, re.MULTILINE)
        once = dict.fromkeys(re.sub(r"^\S+T\S+ ", "", line) for line in found)
        lines += [f"log of {log.stem}: {line}" for line in once]
        if "Traceback" in text:
            faulty.append(log.stem)
    return lines[:MOST_LINES], faulty
