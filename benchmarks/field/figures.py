"""The results of a run, as medians, and as people read them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE.parent / "results"
OURS, REFERENCE = "wirespeed", "c"
# Of processor time, of which the system's clock has ticks of 10,000.
LEAST_US = 50_000
NONE = "–"  # noqa: RUF001
TIMES = "×"  # noqa: RUF001


class Field:
    """The results of a run."""

    def __init__(self, path: Path = RESULTS / "field.json") -> None:
        self.about: dict[str, Any] = json.loads(path.read_text())
        self.rows = {(row["contender"], row["cell"], row["by"]): row for row in self.about["rows"]}

    def values(self, contender: str, cell: str, by: str, figure: str) -> list[float]:
        """A figure in all rounds; empty if there is none."""
        row = self.rows.get((contender, cell, by))
        if row is None:
            return []
        rounds = row["rounds"]
        if by == "bench" and figure == "cpu_us":  # its clock of other processes is coarse
            rounds = [one for one in rounds if one.get(figure, 0.0) * one["calls"] >= LEAST_US]
        return [one[figure] for one in rounds if one.get(figure) is not None]

    def all_values(
        self, contender: str, cell: str, figure: str, by: str | None = None
    ) -> list[float]:
        """The same by the best source: the generator in C, which takes least time itself, where it
        drove the load; else `wirespeed bench`. by: The source; None: the best one."""
        order = ("c", "bench", "raw", "client") if by is None else (by,)
        sources = (self.values(contender, cell, by, figure) for by in order)
        return next((found for found in sources if found), [])

    def get(self, contender: str, cell: str, figure: str) -> float | None:
        """The median of a figure."""
        values = self.all_values(contender, cell, figure)
        return statistics.median(values) if values else None

    def events(self, contender: str) -> bool:
        """Whether a server answers with streams of events."""
        return self.values(contender, "answers", "raw", "events") == [1.0]

    def servers(self, setting: str | None = None) -> list[tuple[str, str]]:
        """The id and the name of servers that were measured."""
        measured = {contender for contender, _, _ in self.rows}
        return [
            (key, name)
            for key, (name, _, how) in self.about["servers"].items()
            if key in measured and setting in (None, how)
        ]

    def name(self, key: str) -> str:
        """The name of a server, client or proxy."""
        for kind in ("servers", "proxies", "clients"):
            if key in self.about[kind]:
                return str(self.about[kind][key][0])
        return key

    def best(
        self, keys: list[str], cell: str, figure: str, by: str | None = None
    ) -> tuple[float, str] | None:
        """The best of some contenders, and which one it is. by: None: by the best source."""
        found = [
            (statistics.median(values), key)
            for key in keys
            if (values := self.all_values(key, cell, figure, by))
        ]
        if not found:
            return None
        return max(found) if figure == "rate" else min(found)


def digits(value: float) -> str:
    """Three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def plain(value: float | None, unit: str = "") -> str:
    """A figure."""
    return NONE if value is None else f"{digits(value)}{unit}"


def ranged(values: list[float]) -> str:
    """The median with the range."""
    if not values:
        return NONE
    middle = digits(statistics.median(values))
    if len(values) < 2:
        return middle
    return f"{middle} [{digits(min(values))}{NONE}{digits(max(values))}]"


def micro(value: float | None) -> str:
    """A time in microseconds."""
    if value is None:
        return NONE
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} s"
    return f"{digits(value)} µs" if abs(value) < 1000 else f"{digits(value / 1000)} ms"


def mib(value: float | None) -> str:
    """Bytes as MiB."""
    return NONE if value is None else f"{digits(value / 2**20)} MiB"


def kib(value: float | None) -> str:
    """Bytes as KiB. A heap that has room already does not grow."""
    if value is None:
        return NONE
    return f"{digits(value / 1024)} KiB" if value > 50 else "no growth"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table, without rows in which nothing was measured."""
    shown = [row for row in rows if any(cell.strip(NONE) for cell in row[1:])]
    if not shown:
        return "Not measured."
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in shown)])
