"""Summaries of ``wirespeed bench`` for people: one run, several in a table, and what makes the
figures doubtful."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from wirespeed.bench.load import Latency, Load, Result, UsersResult

# Of a processor: with a larger share this process may be what is measured.
_BUSY = 0.8
# Of the calls: more late starts than this are reported.
_LATE = 0.001
# Of the calls: more that waited for a place in flight are reported. p99 leaves out as many.
_HELD = 0.01
# Of all processors: when other processes take more, it is reported.
CROWDED = 0.2
# Of a histogram: the length of the longest bar, limits within a power of ten, and how many.
_BAR = 40
_STEPS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.7, 2, 2.4, 3, 3.5, 4, 5, 6, 7, 8.5))
_MOST_BUCKETS = 12
# What the report calls the outcomes that are faults, in its order.
_FAULTS = {
    "tool_errors": "failed in the tool; wirespeed call shows why",
    "protocol_errors": "answered with an error; wirespeed call shows it",
    "wrong": "with a wrong answer",
    "missing": "without an answer",
    "refused": "refused, as the server has too many",
    "cancelled": "given up by their users",
    "duplicate": "answers to calls that were answered",
    "late": "answers that came too late",
    "unexpected": "messages that answer no call",
    "connection_losses": "connections lost",
}


def micro(value: float) -> str:
    """Write microseconds."""
    return show.duration(value / 1e6)


def title(out: Console, label: str, target: str, rest: str) -> Text:
    """Return a line about a target. A long one is cut at its begin: it often is a path."""
    from rich.text import Text

    shown, room = printable(target), out.width - len(label) - len(rest)
    if len(shown) > room:
        mark = "…" if show.unicode_output() else "..."
        shown = mark + shown[len(shown) - room + len(mark) :]
    return Text.assemble(label, (shown, "bold"), rest)


def show_results(out: Console, results: Sequence[Result], several: bool) -> None:
    """Print a run, or a table of several."""
    if several:
        _show_table(out, results)
    else:
        _show_one(out, results[0])


def _show_one(out: Console, result: Result) -> None:
    from rich.text import Text

    load = result.load
    out.print(title(out, "", result.target, f"  {result.transport}, {result.era}"))
    out.print()
    out.print(Text.assemble("  rate      ", (f"{result.rate:,.0f} calls/s", "bold green")))
    calls = f"{show.plural(result.calls, 'call')} in {result.seconds:.2f} s"
    out.print(f"  load      {calls}, {load_text(load)}")
    out.print(_line("latency", result.latency_us))
    if load.rate is not None:
        out.print(_line("service", result.service_time_us))
    for row in histogram(result):
        out.print(row)
    faults = any(result.counts[name] for name in _FAULTS)
    right = f"{result.counts['ok']:,} right" if faults else "all right" if result.calls else "none"
    out.print(f"  answers   {right}")
    for name, words in _FAULTS.items():
        count = result.counts[name]
        if count:
            out.print(Text.assemble("  ", (f"{name:<18}", "red"), f"{count:,} {words}"))
    for n, kind in enumerate(result.users):
        out.print(Text(f"  {'' if n else 'users':<10}{_kind(kind)}"))
    if result.startup is not None:
        cold, warm = micro(result.startup.cold_us), micro(result.startup.warm_us)
        out.print(f"  start     first answer after {cold}, a later one {warm}")
    for label, words in zip(("cost", ""), _costs(result), strict=False):
        out.print(f"  {label:<10}{words}")


def _kind(kind: UsersResult) -> str:
    """Write a kind of users: ``agent: 120 calls, p50 2 ms, p99 5 ms, 3 not right``."""
    latency = kind.latency_us
    parts = [show.plural(kind.calls, "call")]
    if kind.counts["ok"]:
        parts += [f"p50 {micro(latency.p50)}", f"p99 {micro(latency.p99)}"]
    cancelled = kind.counts["cancelled"]
    wrong = kind.calls - kind.counts["ok"] - cancelled
    parts += [f"{cancelled:,} cancelled"] if cancelled else []
    parts += [f"{wrong:,} not right"] if wrong else []
    return f"{printable(kind.name)}: {', '.join(parts)}"


def histogram(result: Result) -> list[Text]:
    """Return the lines of a histogram of the latencies: how many calls took up to a time."""
    from rich.text import Text

    buckets = _buckets(result)
    total, most = sum(buckets.values()), max(buckets.values(), default=0)
    bar = "■" if show.unicode_output() else "#"
    found = []
    for limit, count in buckets.items():
        share = count / total
        shown = "0" if not count else f"{share:.1%}" if share >= 0.001 else "<0.1%"
        line = Text(f"  {f'≤ {_short(limit)}' if bar == '■' else _short(limit):>17}  {shown:>6}")
        length = round(count / most * _BAR)
        found.append(line.append("  " + bar * length, "cyan") if length else line)
    return found


def _buckets(result: Result) -> dict[float, int]:
    """The number of calls up to each of a few limits, in microseconds."""
    from hdrh.histogram import HdrHistogram

    if not result.latency_histogram or not result.counts["ok"]:
        return {}
    recorded = HdrHistogram.decode(result.latency_histogram).get_recorded_iterator()
    counts = {item.value_iterated_to / 1000: item.count_at_value_iterated_to for item in recorded}
    buckets: dict[float, int] = {}
    for steps in _STEPS:
        limits = [step * 10.0**power for power in range(-3, 10) for step in steps]
        places: dict[int, int] = {}
        for value, count in counts.items():
            at = bisect_left(limits, value * 0.998)  # the value is the highest of its bucket
            places[at] = places.get(at, 0) + count
        every = range(min(places), max(places) + 1)
        finer = {limits[at]: places.get(at, 0) for at in every}
        if buckets and len(finer) > _MOST_BUCKETS:
            break
        buckets = finer
        if len(buckets) >= _MOST_BUCKETS / 2:
            break
    return buckets


def _short(value: float) -> str:
    """Write a round number of microseconds."""
    micro_sign = "µs" if show.unicode_output() else "us"
    for unit, scale in (("s", 1e6), ("ms", 1e3), (micro_sign, 1.0), ("ns", 1e-3)):
        if value >= scale * 0.9999:
            return f"{value / scale:.3g} {unit}"
    return "1 ns"


def load_text(load: Load) -> str:
    """Write a load: ``5,000 a second, 16 in flight on 2 connections``."""
    text = f"{load.in_flight} in flight on {show.plural(load.connections, 'connection')}"
    if load.rate is not None:
        text = f"{load.rate:,.0f} a second{' at random' if load.poisson else ''}, {text}"
    if load.processes > 1:
        text += f", {load.processes} processes"
    return text if load.bytes is None else f"{text}, {load.bytes:,} bytes"


def _line(name: str, latency: Latency) -> Text:
    from rich.text import Text

    line = Text(f"  {name:<8}")
    for label in ("p50", "p90", "p99", "p999", "max"):
        shown = "p99.9" if label == "p999" else label
        line.append(f"  {shown} ").append(micro(getattr(latency, label)), "bold")
    return line


def _costs(result: Result) -> list[str]:
    server, calls = result.server, max(result.calls, 1)
    parts = []
    if server.cpu_seconds is not None:
        parts.append(f"server {micro(server.cpu_seconds / calls * 1e6)} of processor time a call")
    if server.rss_peak:
        parts.append(f"{server.rss_peak / 2**20:,.0f} MiB")
    lines = [", ".join(parts)] if parts else []
    return [*lines, f"this program {_busy(result):.0%} of a processor"]


def _busy(result: Result) -> float:
    """The share of a processor that a process of this program used."""
    return result.tool.cpu_seconds / max(result.seconds, 1e-9) / result.load.processes


# -- several runs ---------------------------------------------------------------------------------


def _middle(rounds: list[Result], value: Callable[[Result], float]) -> float:
    return median(map(value, rounds))


def _show_table(out: Console, results: Sequence[Result]) -> None:
    from rich import box
    from rich.table import Table

    from wirespeed.bench.report import by_load

    loads_of = by_load(results).values()
    rows = [rounds for sides in loads_of for _, rounds in sorted(sides.items())]
    firsts = [rounds[0] for rounds in rows]
    loads = [first.load for first in firsts]
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    cells: list[list[str]] = [[] for _ in rows]

    def column(name: str, texts: Iterable[str], *, words: bool = False) -> None:
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
        for row, text in zip(cells, texts, strict=True):
            row.append(text)

    versus = any(first.versus for first in firsts)
    if versus:
        column("", ("B" if first.versus else "A" for first in firsts), words=True)
    if len({load.connections for load in loads}) > 1:
        column("connections", (f"{load.connections:,}" for load in loads))
    if len({load.bytes for load in loads}) > 1:
        column("bytes", (f"{load.bytes or 0:,}" for load in loads))
    if any(load.rate is not None for load in loads):
        column("asked/s", (f"{load.rate or 0:,.0f}" for load in loads))
    column("calls/s", (f"{_middle(one, lambda r: r.rate):,.0f}" for one in rows))
    if any(len(one) > 1 for one in rows):
        column("spread", (_spread(one) for one in rows))
    for label in ("p50", "p99", "p999", "max"):
        shown = "p99.9" if label == "p999" else label
        values = (_middle(one, lambda r, of=label: getattr(r.latency_us, of)) for one in rows)  # type: ignore[misc]
        column(shown, map(micro, values))
    if any(first.server.cpu_seconds is not None for first in firsts):
        column("server", (_server(one) for one in rows))
    wrong = [sum(r.counts[name] for r in one for name in _FAULTS) for one in rows]
    if any(wrong):
        column("not right", (f"{n:,}" if n else "" for n in wrong))
    for row in cells:
        table.add_row(*row)
    for is_other, one in {first.versus: first for first in firsts}.items():
        label = f"{'B' if is_other else 'A'}  " if versus else ""
        out.print(title(out, label, one.target, f"  {one.transport}, {one.era}"))
    out.print()
    show.put(out, table, indent=2)
    for text in _knees(results, versus):
        out.print(f"  {text}")


def _spread(rounds: list[Result]) -> str:
    """Half of the distance between the least and the highest rate."""
    rates = [one.rate for one in rounds]
    return f"±{(max(rates) - min(rates)) / 2 / max(median(rates), 1e-9):.0%}"


def _server(rounds: list[Result]) -> str:
    known = [one for one in rounds if one.server.cpu_seconds is not None]
    if not known:
        return ""
    return micro(_middle(known, lambda r: (r.server.cpu_seconds or 0) / max(r.calls, 1) * 1e6))


def _knees(results: Sequence[Result], versus: bool) -> Iterable[str]:
    """Say of each ramp which step is the last one that keeps up."""
    from wirespeed.bench.plan import knee

    ramps: dict[Any, list[Result]] = {}
    for one in results:
        if one.load.rate is not None:
            key = one.versus, one.load.connections, one.load.bytes, one.round
            ramps.setdefault(key, []).append(one)
    together: dict[Any, list[float]] = {}
    for key, ramp in ramps.items():
        if len({one.load.rate for one in ramp}) > 1:
            at = knee(ramp)
            rate = 0.0 if at is None else ramp[at].load.rate or 0.0
            together.setdefault(key[:3], []).append(rate)
    for (is_other, connections, size), rates in together.items():
        where = "B: " if is_other else "A: " if versus else ""
        if len({key[1] for key in together}) > 1:
            where += f"{show.plural(connections, 'connection')}: "
        if len({key[2] for key in together}) > 1:
            where += f"{size:,} bytes: "
        found = median(rates)
        if found:
            yield f"{where}keeps up to {found:,.0f} calls/s"
        else:
            yield f"{where}keeps up at no step"


def warnings(results: Sequence[Result]) -> list[str]:
    """Return what makes the figures of runs doubtful."""
    if len(results) == 1:
        return [text.format(show.plural(n, "call")) for text, n in _doubts(results[0])]
    found: dict[str, list[int]] = {}
    for result in results:
        for text, n in _doubts(result):
            found.setdefault(text, []).append(n)
    return [
        f"in {show.plural(len(counts), 'run')}: {text.format(show.plural(sum(counts), 'call'))}"
        for text, counts in found.items()
    ]


def _doubts(result: Result) -> Iterable[tuple[str, int]]:
    """Texts, and the numbers of calls in them."""
    if _busy(result) > _BUSY:
        yield (
            "this program was busy nearly all of the time: the server may be faster than shown, "
            "see --processes",
            0,
        )
    if result.tool.late_starts > _LATE * result.calls:
        yield (
            "{} began over a millisecond late, because this program could not keep up",
            result.tool.late_starts,
        )
    others = result.machine.get("others") or 0
    if others > CROWDED:
        yield "other processes took over a fifth of the processors' time", 0
    # without such a number: where this program is late with more calls than p99 leaves out, it may
    # be what they waited for
    if result.held_up > _HELD * result.calls or (
        result.load.rate is not None
        and result.latency_us.p99 > 2 * result.service_time_us.p99 > 0
        and result.tool.late_starts < _HELD * result.calls
    ):
        yield "calls waited for the server before they could be sent: the service time hides it", 0
