"""Reports of runs as files: JSON, which is read again, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from wirespeed.bench.load import Load, Result
from wirespeed.bench.recorder import OF_CALLS, OUTCOMES


class _Runs(msgspec.Struct, frozen=True):
    runs: list[Result]


def as_json(results: Sequence[Result], several: bool) -> bytes:
    """Write one run as an object, and several as ``{"runs": […]}``."""
    value = _Runs(list(results)) if several else results[0]
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def read_json(data: bytes) -> list[Result]:
    """Read the runs of a report. ValueError: it is not one."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"it is not JSON: {exc}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    several = isinstance(value, dict) and "runs" in value
    try:
        if several:
            results = msgspec.convert(value, _Runs).runs
        else:
            results = [msgspec.convert(value, Result)]
    except msgspec.ValidationError as exc:
        raise ValueError(str(exc)) from None
    if not results:
        raise ValueError("it has no runs")
    for result in results:
        if set(OUTCOMES) - set(result.counts):
            raise ValueError("its counts lack an outcome")
    return results


def by_load(results: Iterable[Result]) -> dict[Load, dict[bool, list[Result]]]:
    """Return the rounds of each load, for each side: False is the first target, True that of
    ``--versus``."""
    found: dict[Load, dict[bool, list[Result]]] = {}
    for result in results:
        found.setdefault(result.load, {}).setdefault(result.versus, []).append(result)
    return found


# -- CSV ------------------------------------------------------------------------------------------


def as_csv(results: Iterable[Result]) -> str:
    """Write a table with a row for each run. Times are in microseconds."""
    rows = [dict(_cells(result)) for result in results]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _cells(result: Result) -> Iterator[tuple[str, Any]]:
    """The name and the value of each column; those that only some runs have come last."""
    yield "target", result.target
    yield "versus", int(result.versus)
    yield "round", result.round
    yield "era", result.era
    yield "transport", result.transport
    for name, value in msgspec.structs.asdict(result.load).items():
        yield f"load_{name}", int(value) if isinstance(value, bool) else value
    for name in ("seconds", "calls", "rate"):
        yield name, getattr(result, name)
    for name in OUTCOMES:
        yield name, result.counts[name]
    for prefix, latency in (("", result.latency_us), ("service_", result.service_time_us)):
        for name, value in msgspec.structs.asdict(latency).items():
            yield f"{prefix}{name}_us", value
    yield "bytes_sent", result.bytes.sent
    yield "bytes_received", result.bytes.received
    yield "server_cpu_seconds", result.server.cpu_seconds
    yield "server_rss_peak", result.server.rss_peak
    yield "tool_cpu_seconds", result.tool.cpu_seconds
    yield "late_starts", result.tool.late_starts
    yield "held_up", result.held_up
    yield "cold_us", result.startup and result.startup.cold_us
    yield "warm_us", result.startup and result.startup.warm_us
    for name, value in {**result.machine, **result.versions}.items():
        yield name, value
    for kind in result.users:
        yield f"user_{kind.name}_calls", kind.calls
        for name in OF_CALLS:
            yield f"user_{kind.name}_{name}", kind.counts[name]
        for name, value in msgspec.structs.asdict(kind.latency_us).items():
            yield f"user_{kind.name}_{name}_us", value
        yield f"user_{kind.name}_progress", kind.progress
