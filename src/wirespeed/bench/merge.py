"""A run by several processes: the share of each, and one result of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hdrh.histogram import HdrHistogram

from wirespeed.bench.load import Cost, Latency, Load, Result, ToolCost, Traffic, UsersResult
from wirespeed.bench.recorder import OF_CALLS, OUTCOMES
from wirespeed.bench.series import Series


class Part(msgspec.Struct, frozen=True):
    """The findings of one process.

    Attributes:
        service_histogram: As ``latency_histogram`` of the result.
        unsent, failure: As of `wirespeed.bench.run.Run`; the failure as a text.
    """

    result: Result
    series: Series
    service_histogram: str
    unsent: int
    failure: str | None


def shares(load: Load) -> list[Load]:
    """Return the loads of the processes, by their connections. ValueError: one has no call."""
    n, whole, each, end = load.processes, load.connections, [], 0
    for i in range(n):
        begin, end = end, end + whole // n + (i < whole % n)

        def part(calls: int, begin: int = begin, end: int = end) -> int:
            return calls * end // whole - calls * begin // whole

        each.append(
            msgspec.structs.replace(
                load,
                connections=end - begin,
                calls=None if load.calls is None else part(load.calls),
                rate=None if load.rate is None else load.rate * (end - begin) / whole,
                warmup=part(load.warmup),
                seed=None if load.seed is None else (load.seed + i) % 2**63,
                processes=1,
            )
        )
    return each


def merged(load: Load, parts: Sequence[Part], others: float | None) -> Result:
    """Return one result of all processes.

    others: The share of the machine that none of them took; None: it is not known.
    """
    results = [part.result for part in parts]
    first = results[0]
    seconds = max(result.seconds for result in results)
    counts = {name: sum(result.counts[name] for result in results) for name in OUTCOMES}
    latency = _histogram([result.latency_histogram for result in results])
    means = [
        (result.counts["ok"], result.latency_us.mean, result.service_time_us.mean)
        for result in results
    ]
    cpu = [result.server.cpu_seconds for result in results]
    resident = [result.server.rss_peak for result in results]
    series = parts[0].series
    for part in parts[1:]:
        series.join(part.series)
    return msgspec.structs.replace(
        first,
        load=load,
        seconds=seconds,
        calls=sum(counts[name] for name in OF_CALLS),
        rate=counts["ok"] / seconds if seconds else 0.0,
        counts=counts,
        latency_us=_latency(latency, [(n, mean) for n, mean, _ in means]),
        service_time_us=_latency(
            _histogram([part.service_histogram for part in parts]),
            [(n, mean) for n, _, mean in means],
        ),
        bytes=Traffic(
            sum(result.bytes.sent for result in results),
            sum(result.bytes.received for result in results),
        ),
        server=Cost(_sum(cpu), _sum(resident)),
        tool=ToolCost(
            sum(result.tool.cpu_seconds for result in results),
            sum(result.tool.late_starts for result in results),
        ),
        machine=first.machine | {"others": others},
        series=series.windows(),
        latency_histogram=latency.encode().decode(),
        held_up=sum(result.held_up for result in results),
        users=[_kind(kind) for kind in zip(*(result.users for result in results), strict=True)],
    )


def _kind(parts: Sequence[UsersResult]) -> UsersResult:
    """The findings about one kind of users, of all processes."""
    latency = _histogram([part.latency_histogram for part in parts])
    counts = {name: sum(part.counts[name] for part in parts) for name in OF_CALLS}
    return UsersResult(
        parts[0].name,
        sum(counts.values()),
        counts,
        _latency(latency, [(part.counts["ok"], part.latency_us.mean) for part in parts]),
        sum(part.progress for part in parts),
        latency.encode().decode(),
    )


def _sum(values: Sequence[Any]) -> Any:
    """The sum of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _histogram(encoded: Sequence[str]) -> Any:
    found = HdrHistogram.decode(encoded[0])
    for one in encoded[1:]:
        found.decode_and_add(one)
    return found


def _latency(histogram: Any, means: Sequence[tuple[int, float]]) -> Latency:
    calls = sum(n for n, _ in means)
    if not calls:
        return Latency()
    p50, p90, p99, p999, highest = (
        histogram.get_value_at_percentile(percent) / 1000 for percent in (50, 90, 99, 99.9, 100)
    )
    return Latency(p50, p90, p99, p999, highest, sum(n * mean for n, mean in means) / calls)
