"""``wirespeed bench compare``: two reports, and whether chance explains their difference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirespeed.cli import show
from wirespeed.cli.bench.summary import CROWDED, load_text, micro, title
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed.bench.compare import Comparison
    from wirespeed.bench.load import Result

_NAMES = {"rate": "calls/s", "p50": "p50", "p99": "p99", "mean": "mean", "cpu": "server/call"}


def compare(paths: Sequence[str], *, as_json: bool) -> int:
    """Compare two reports, or the two targets of one."""
    from wirespeed.bench.compare import compare_all

    if not 1 <= len(paths) <= 2:
        raise usage("compare takes two reports of bench --json, or one of a run with --versus")
    reports = [_read(path) for path in paths]
    try:
        found = compare_all(reports[0], reports[1] if len(reports) > 1 else None)
    except ValueError as exc:
        raise usage(f"cannot compare {' and '.join(map(printable, paths))}: {exc}") from None
    doubts = _doubts(reports)
    if as_json:
        print_json(
            {
                "differs": any(one.differs for one in found),
                "comparisons": found,
                "warnings": doubts,
            }
        )
        return Exit.OK
    show_comparisons(show.console(), found)
    for text in doubts:
        complain(printable(text), level="warning")
    return Exit.OK


def _read(path: str) -> list[Result]:
    from wirespeed.bench.report import read_json

    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as exc:
        raise usage(f"cannot read {printable(path)}: {exc.strerror}") from None
    try:
        return read_json(data)
    except ValueError as exc:
        raise usage(
            f"{printable(path)} is not a report of wirespeed bench --json: {printable(str(exc))}"
        ) from None


def _doubts(reports: Sequence[Sequence[Result]]) -> list[str]:
    from wirespeed.bench.compare import differences, others_of

    found: dict[str, None] = {}
    one, other = reports[0], reports[-1]
    if len(reports) > 1:
        loads = {result.load: result for result in one}
        for result in other:
            found.update(dict.fromkeys(differences(loads.get(result.load, one[0]), result)))
    busy = max(others_of(result) or 0 for report in reports for result in report)
    if busy > CROWDED:
        found[f"other processes took up to {busy:.0%} of the processors"] = None
    for name, side in zip("AB", (reports if len(reports) > 1 else _sides(one)), strict=True):
        wrong = sum(result.calls - result.counts["ok"] for result in side)
        calls = sum(result.calls for result in side)
        if wrong > 0 and calls > 0:
            found[f"{wrong / calls:.2%} of the calls of {name} were not answered right"] = None
    return list(found)


def _sides(runs: Sequence[Result]) -> list[list[Result]]:
    return [[run for run in runs if run.versus == versus] for versus in (False, True)]


def show_comparisons(out: Console, found: Sequence[Comparison]) -> None:
    """Print comparisons, each with a row for each figure."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from wirespeed.bench.compare import NO_DIFFERENCE

    targets = None
    for one in found:
        if targets != (one.a, one.b):
            targets = one.a, one.b
            for name, target, rounds in zip("AB", targets, one.rounds, strict=True):
                out.print(title(out, f"{name}  ", target, f", {show.plural(rounds, 'run')}"))
        out.print()
        if len(found) > 1:
            out.print(f"  {load_text(one.load)}")
        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
            header_style="bold",
        )
        for head in ("", "A", "B", "B/A", "95 % interval", ""):
            table.add_column(head, justify="left" if not head else "right", no_wrap=True)
        for name, figure in one.figures.items():
            values = (
                f"{value:,.0f}" if name == "rate" else micro(value)
                for value in (figure.a, figure.b)
            )
            style = "dim" if figure.verdict == NO_DIFFERENCE else "bold"
            table.add_row(
                *(_NAMES[name], *values, _ratio(figure.ratio)),
                *(f"{_ratio(figure.low)} to {_ratio(figure.high)}", Text(figure.verdict, style)),
            )
        show.put(out, table, indent=2)
    out.print()
    out.print(_verdict(found))


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 999.5 else ">1000"


def _verdict(found: Sequence[Comparison]) -> str:
    differing = [one for one in found if one.differs]
    if not differing:
        return "no difference: these runs differ by less than their noise"
    if len(found) == 1:
        return "a difference: chance alone seldom makes one as large"
    return f"a difference with {len(differing)} of {len(found)} loads"
