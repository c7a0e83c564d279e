"""The view of runs of ``wirespeed bench`` that go on, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from wirespeed.cli import show
from wirespeed.cli.bench.summary import micro

if TYPE_CHECKING:
    from wirespeed.bench.load import Load, Window


class Watch:
    """A line on a terminal about a run that goes on."""

    def __init__(self, active: bool, runs: int) -> None:
        self._status: Any = None
        self._runs = runs
        self._number = ""
        self._ok = self._errors = 0
        if active:
            self._status = show.console(stderr=True).status("connecting")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, number: int, load: Load) -> None:
        """A run begins, of the number from 0."""
        self._ok = self._errors = 0
        if self._runs > 1:
            self._number = f"run {number + 1} of {self._runs}  "

    def show(self, t: float, window: Window) -> None:
        """Show what was counted in the last second."""
        self._ok += window.ok
        self._errors += window.errors
        if self._status is not None:
            faults = f", {self._errors:,} not right" if self._errors else ""
            self._status.update(
                f"{self._number}{t:.0f} s  {window.ok:,} calls/s  p50 {micro(window.p50)}  "
                f"p99 {micro(window.p99)}  {self._ok:,} right{faults}"
            )
