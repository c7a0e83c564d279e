"""The page of runs: one HTML file that needs nothing else. Its template is ``page/page.jinja``:
jinja2 fills it in, and escapes every text. uPlot (``page/uPlot.LICENSE``) draws the plots."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from hdrh.histogram import HdrHistogram
from jinja2 import Environment, StrictUndefined

from wirespeed.bench.compare import Comparison, cpu_of
from wirespeed.bench.load import Result
from wirespeed.bench.plan import knee
from wirespeed.bench.recorder import OUTCOMES
from wirespeed.bench.report import by_load

_FILES = files("wirespeed.bench") / "page"


def _read(*names: str) -> str:
    return "\n".join(_FILES.joinpath(name).read_text("utf-8") for name in names)


_STYLE = _read("uPlot.min.css", "page.css")
_SCRIPT = _read("uPlot.iife.min.js", "page.js")
# Points of a percentile curve for each power of ten of 1 / (1 - q).
_POINTS = 24
# The most curves that a page shows at once: more cannot be told apart.
_MAX_CURVES = 8


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)


def page(
    results: Sequence[Result], command: str, comparisons: Sequence[Comparison], at: float
) -> str:
    """Return the page.

    command: The command line, without secrets.
    at: The time of the runs, in Unix seconds.
    """
    versus = any(result.versus for result in results)
    names = _names(results, versus)
    data = {
        "runs": [
            {"name": name, "series": _columns(result)}
            for name, result in zip(names, results, strict=True)
        ],
        "curves": _curves(results, names),
        "ramps": _ramps(results, versus),
    }
    others = [result.machine.get("others") for result in results]
    return _TEMPLATE.render(
        results=results,
        names=names,
        first=results[0],
        versus=versus,
        command=command,
        comparisons=comparisons,
        at=at,
        data=_in_script(data),
        faults={name: sum(r.counts[name] for r in results) for name in OUTCOMES[1:]},
        calls=sum(result.calls for result in results),
        sides=sorted({result.versus: result for result in results}.items()),
        versions=_merged(result.versions for result in results),
        others=max((share for share in others if share is not None), default=None),
        machine=_merged(result.machine for result in results),
    )


def _in_script(value: Any) -> str:
    """Write JSON that cannot end the element around it."""
    text = msgspec.json.encode(value).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _merged(all_of: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, dict[Any, None]] = {}
    for one in all_of:
        for name, value in one.items():
            if name != "others" and value is not None:
                found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _names(results: Sequence[Result], versus: bool) -> list[str]:
    """Name runs by what differs between them."""
    loads = [result.load for result in results]
    rounds = any(result.round for result in results)
    found = []
    for result in results:
        load, parts = result.load, []
        if versus:
            parts.append("B" if result.versus else "A")
        if len({one.connections for one in loads}) > 1:
            parts.append(f"{load.connections:,} connections")
        if len({one.bytes for one in loads}) > 1:
            parts.append(f"{load.bytes or 0:,} bytes")
        if len({one.rate for one in loads}) > 1:
            parts.append(f"{load.rate or 0:,.0f}/s")
        if rounds:
            parts.append(f"round {result.round + 1}")
        found.append(", ".join(parts) or "latency")
    return found


# -- data of the plots ----------------------------------------------------------------------------


def _columns(result: Result) -> list[list[float | None]]:
    """The middles of the windows, and of each p50, p99, max, the right answers and the other
    outcomes a second."""
    columns: list[list[float | None]] = [[] for _ in range(6)]
    before, last = 0.0, len(result.series) - 1
    for i, window in enumerate(result.series):
        seconds = window.t - before
        if i and i == last and seconds < result.series[0].t / 2:
            break  # a rest, in which few answers come
        latencies = [value or None for value in (window.p50, window.p99, window.max)]
        rates = [count / seconds if seconds else None for count in (window.ok, window.errors)]
        middle = before + seconds / 2
        before = window.t
        for column, value in zip(columns, (middle, *latencies, *rates), strict=True):
            column.append(value)
    return columns


def _curves(results: Sequence[Result], names: Sequence[str]) -> dict[str, Any]:
    """The percentile curves of runs, rounds together: at 1 / (1 - q), the latency."""
    drawn: list[tuple[str, Any]] = []
    for result, name in zip(results, names, strict=True):
        histogram = _histogram(result)
        if histogram is None:
            continue
        label = name.rpartition(", round ")[0] if ", round " in name else name
        label = "latency" if label.startswith("round ") else label
        for other, all_of_it in drawn:
            if other == label:
                all_of_it.add(histogram)
                break
        else:
            drawn.append((label, histogram))
    left_out = max(len(drawn) - _MAX_CURVES, 0)
    if left_out:  # evenly from all, with the first and the last
        last = len(drawn) - 1
        drawn = [drawn[round(i * last / (_MAX_CURVES - 1))] for i in range(_MAX_CURVES)]
    most = max((histogram.get_total_count() for _, histogram in drawn), default=0)
    at = [1.0]
    while at[-1] < most:
        at.append(10 ** (len(at) / _POINTS))
    return {
        "at": at,
        "names": [name for name, _ in drawn],
        "values": [_curve(histogram, at) for _, histogram in drawn],
        "left_out": left_out,
    }


def _curve(histogram: Any, at: Sequence[float]) -> list[float | None]:
    n = histogram.get_total_count()
    wanted = [100 * (1 - 1 / one) for one in at if one <= n]
    found = histogram.get_percentile_to_value_dict(wanted)
    values: list[float | None] = [found[one] / 1000 for one in wanted]
    return values + [None] * (len(at) - len(values))


def _histogram(result: Result) -> Any:
    if not result.latency_histogram or not result.counts["ok"]:
        return None
    return HdrHistogram.decode(result.latency_histogram)


def _ramps(results: Sequence[Result], versus: bool) -> list[dict[str, Any]]:
    """The steps of each ramp: rate asked, rate, p50, p99; and the step that is the knee."""
    ramps: dict[Any, list[Result]] = {}
    for load, sides in by_load(results).items():
        for is_other, rounds in sides.items():
            if load.rate is not None:
                # one round stands for all: the one in the middle
                rounds.sort(key=lambda one: one.latency_us.p99)
                middle = rounds[len(rounds) // 2]
                ramps.setdefault((is_other, load.connections, load.bytes), []).append(middle)
    found = []
    for (is_other, connections, size), steps in ramps.items():
        if len(steps) < 2:
            continue
        parts = ["B" if is_other else "A"] if versus else []
        if len({key[1] for key in ramps}) > 1:
            parts.append(f"{connections:,} connections")
        if len({key[2] for key in ramps}) > 1:
            parts.append(f"{size or 0:,} bytes")
        found.append(
            {
                "name": ", ".join(parts),
                "asked": [step.load.rate for step in steps],
                "rate": [step.rate for step in steps],
                "p50": [step.latency_us.p50 or None for step in steps],
                "p99": [step.latency_us.p99 or None for step in steps],
                "knee": knee(steps),
            }
        )
    return found


# -- texts ----------------------------------------------------------------------------------------


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _duration(micro: float | None) -> str:
    """Write microseconds."""
    if not micro:
        return "—"
    if micro < 999.5:
        return f"{_three(micro)} µs"
    return f"{_three(micro / 1e3)} ms" if micro < 999_500 else f"{_three(micro / 1e6)} s"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 999.5 else ">1000"


def _size(n: float | None) -> str:
    """Write bytes."""
    if n is None:
        return "—"
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:,.0f} {unit}"
        n /= 1024
    return f"{n:,.1f} GiB"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


_ENVIRONMENT = Environment(
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.globals |= {
    "style": _STYLE, "script": _SCRIPT, "policy": _POLICY, "duration": _duration, "size": _size,
    "utc": _utc, "ratio": _ratio, "cpu_of": cpu_of, "asdict": msgspec.structs.asdict,
}  # fmt: skip
_TEMPLATE = _ENVIRONMENT.from_string(_FILES.joinpath("page.jinja").read_text("utf-8"))
