"""Results of loads that nobody made."""

from __future__ import annotations

from typing import Any

import msgspec

from wirespeed.bench.load import Cost, Latency, Load, Result, ToolCost, Traffic
from wirespeed.bench.recorder import OUTCOMES


def a_result(
    rate: float = 1000.0, *, asked: float | None = None, p99: float = 200.0, **changes: Any
) -> Result:
    """A run of ten seconds."""
    latency = Latency(p99 / 2, p99 * 0.9, p99, p99 * 1.5, p99 * 2, p99 / 2)
    calls = int(rate * 10)
    result = Result(
        target="./server",
        era="modern",
        transport="stdio",
        load=Load(duration=10.0, rate=asked),
        seconds=10.0,
        calls=calls,
        rate=rate,
        counts=dict.fromkeys(OUTCOMES, 0) | {"ok": calls},
        latency_us=latency,
        service_time_us=latency,
        bytes=Traffic(calls * 100, calls * 100),
        server=Cost(calls * 50e-6, 2**24),
        tool=ToolCost(1.0, 0),
        machine={"processor": "one", "processors": 2, "system": "Linux 6", "others": 0.0},
        versions={"wirespeed": "1", "python": "3.11", "server": "server 1"},
        series=[],
    )
    return msgspec.structs.replace(result, **changes)
