"""The view of runs that go on, on a terminal."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from wirespeed.cli import show
from wirespeed.cli.bench.summary import load_text, micro

if TYPE_CHECKING:
    from rich.console import Group

    from wirespeed.bench.load import Load, Window
    from wirespeed.bench.plan import Planned

_SHOWN = 48  # seconds of the curves
_BLOCKS = "▁▂▃▄▅▆▇█"
_A_SECOND = 4  # views


class Watch:
    """The view. Without a terminal nothing is shown.

    Args:
        runs: The number of runs.
    """

    def __init__(self, active: bool, runs: int) -> None:
        self._runs = runs
        self._live: Any = None
        self._head = "connecting"
        self._load: Load | None = None
        self._clear()
        if active:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._view,
                console=show.console(stderr=True),
                refresh_per_second=_A_SECOND,
                transient=True,
                redirect_stdout=False,  # whose encoding is asked
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _clear(self) -> None:
        self._t = 0.0
        self._ok = self._errors = 0
        self._window: Window | None = None
        self._rates: deque[float] = deque(maxlen=_SHOWN)
        self._p99s: deque[float] = deque(maxlen=_SHOWN)

    def begin(self, number: int, planned: Planned) -> None:
        """A run begins, of the number from 0."""
        self._clear()
        self._load = planned.load
        self._head = load_text(planned.load)
        if self._runs > 1:
            side = ", on the target of --versus" if planned.side else ""
            self._head = f"run {number + 1} of {self._runs}{side}: {self._head}"

    def show(self, t: float, window: Window) -> None:
        """Show what was counted since the last time."""
        seconds, self._t = t - self._t, t
        self._ok += window.ok
        self._errors += window.errors
        if seconds > 0.5 or self._window is None:  # the rest of a run is no second
            self._window = window
            self._rates.append(window.ok / max(seconds, 1e-9))
            self._p99s.append(window.p99)

    def _view(self) -> Group:
        from rich.console import Group
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.text import Text

        window = self._window
        if window is None:
            if self._load is None or self._live is None:
                return Group(Text(self._head))
            return Group(Spinner("dots", f"{self._head}: connections, and calls before"))
        rate = Text.assemble(("  rate  ", "dim"), (f"{self._rates[-1]:>11,.0f}/s  ", "bold green"))
        rate.append(sparkline(self._rates), "green")
        p99 = Text.assemble(("  p99   ", "dim"), (f"{micro(window.p99):>13}  ", "bold yellow"))
        p99.append(sparkline(self._p99s), "yellow")
        rest = Text.assemble(
            *(("  p50   ", "dim"), (f"{micro(window.p50):>13}  ", "bold")),
            *(("max ", "dim"), (f"{micro(window.max)}  ", "bold")),
            *(("right ", "dim"), (f"{self._ok:,}  ", "bold")),
        )
        if self._errors:
            rest.append("not right ", "dim").append(f"{self._errors:,}", "bold red")
        lines: list[Any] = [Text.assemble((f"{self._t:.0f} s  ", "bold"), self._head)]
        share = self._share()
        if share is not None:
            bar = ProgressBar(total=1.0, completed=share, width=_SHOWN + 21)
            lines.append(Padding(bar, (0, 0, 0, 2)))
        return Group(*lines, rate, rest, p99)

    def _share(self) -> float | None:
        """The part of the run that is done."""
        load = self._load
        if load is None:
            return None
        if load.duration is not None:
            return min(self._t / load.duration, 1.0)
        return None if load.calls is None else min((self._ok + self._errors) / load.calls, 1.0)


def sparkline(values: deque[float]) -> str:
    """Draw values as blocks, from nothing to the highest one."""
    top = max(values, default=0.0)
    if not top or not show.unicode_output():
        return ""
    return "".join(_BLOCKS[min(int(value / top * 8), 7)] for value in values)
