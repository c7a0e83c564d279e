"""The JSON of ``/status``, from a `Snapshot`, and its quantities as people read them. The page and
``wirespeed top`` show it."""

from __future__ import annotations

import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.proxy.operation.meter import MINUTES, TICK, TICKS, Sample, current_tick
from wirespeed.proxy.operation.metrics import code_text, dropped
from wirespeed.proxy.operation.snapshot import READY
from wirespeed.proxy.operation.workers import columns, grouped
from wirespeed.proxy.own_requests import CANCELLED
from wirespeed.server.requests.observer import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wirespeed.proxy.operation.meter import Share
    from wirespeed.proxy.operation.snapshot import EndpointEntry, Facts, MethodEntry, Snapshot

RATE_TICKS = 5  # the rate is that of the last ten seconds
LATENCY_TICKS = 30  # and the latency that of the last minute
MINUTE = 60.0  # seconds
MAX_SHARES = 200  # tools and principals of a server that are shown


def not_ready(snapshot: Snapshot) -> list[str]:
    """Return the required servers that should take requests and do not."""
    return [one.name for one in snapshot.endpoints if one.required and one.state not in READY]


def status(snapshot: Snapshot, facts: Facts) -> dict[str, Any]:
    """Return the members of the answer. Rates are of the last ten seconds, and latencies of the
    last minute, in seconds."""
    last = current_tick()
    backends = [one for one in snapshot.endpoints if one.isolation is not None]
    waits = not_ready(snapshot)
    return {
        "name": facts.name,
        "version": facts.version,
        "started": snapshot.started,
        "uptime": time.time() - snapshot.started,
        "ready": not waits and not facts.draining,
        "not_ready": waits,
        "draining": facts.draining,
        "listen": facts.listen,
        "certificates": [msgspec.to_builtins(one) for one in facts.certificates],
        "config": {
            "file": facts.config,
            "reloads": facts.reloads,
            "refused": facts.reloads_refused,
            "error": facts.reload_error,
            "last": facts.reloaded,
            "starting": facts.coming,
        },
        "store": _store(snapshot),
        "workers": [msgspec.to_builtins(one) for one in snapshot.processes],
        "workers_missing": snapshot.missing,
        "totals": {
            "clients": snapshot.n_clients,
            "in_flight": sum(one.of_servers["asked"] for one in backends),
            "waiting": sum(one.of_clients["waiting"] for one in backends),
            "refused": sum(sum(one.refused.values()) for one in snapshot.endpoints),
            **_recent([sample for one in backends for sample in one.history], last),
            "hour": _hour([sample for one in backends for sample in one.hour], last),
        },
        "backends": [_backend(one, last) for one in backends],
        "endpoints": [
            {
                "name": one.name,
                "clients": one.n_clients,
                "clients_so_far": one.n_connected,
                "sessions": one.n_sessions,
                "longest_idle": one.longest_idle,
                "refused": one.refused,
                "cut": one.cut,
            }
            for one in snapshot.endpoints
        ],
        "configuration": facts.configuration,
        "audit": snapshot.audit or None,
        "clients": [msgspec.to_builtins(one) for one in snapshot.clients],
        "events": [
            {"at": one.at, "level": one.level, "text": one.text, "times": one.times}
            for one in reversed(snapshot.events)
        ],
    }


def _store(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the store of the hosts: down if it is down for a worker. None: there is none."""
    found = [one.store for one in snapshot.processes if one.store is not None]
    if not found:
        return None
    states = [one.state for one in found]
    return {
        "name": found[0].name,
        "state": next((one for one in ("down", "connecting", "up") if one in states), "idle"),
        "losses": sum(one.losses for one in found),
    }


def _backend(one: EndpointEntry, last: int) -> dict[str, Any]:
    errors: dict[str, int] = {}
    for requests in one.requests:
        for code, n in requests.codes.items():
            errors[code_text(code)] = errors.get(code_text(code), 0) + n
    return {
        "name": one.name,
        "state": one.state,
        "isolation": one.isolation,
        "target": one.target,
        "clients": one.n_clients,
        "in_flight": one.of_servers["asked"],
        "waiting": one.of_clients["waiting"],
        "requests": sum(sum(requests.buckets) for requests in one.requests),
        "errors": errors,
        "refused": one.refused,
        "cut": one.cut,
        "flow": one.flow or None,
        "turns": one.of_servers["turns"],
        "garbage": one.garbage,
        "breakers": one.breakers,
        "dropped": dropped(one),
        "bytes_from_clients": one.of_clients["bytes_in"],
        "bytes_to_clients": one.of_clients["bytes_out"],
        **one.supervision,
        **_recent(one.history, last),
        "hour": _hour(one.hour, last),
        "drained": one.drained,
        "tools": _shares(one.tools),
        "principals": _shares(one.principals),
        "hooks": one.hooks or None,
        "search": one.search or None,
        "names": one.names or None,
        "skills": None if one.skills is None else msgspec.to_builtins(one.skills),
        "cached_lists": one.cached_lists,
        "methods": [
            _method(requests) for requests in sorted(one.requests, key=lambda one: one.method)
        ],
        "servers_by_state": one.server_states,
        "servers": [msgspec.to_builtins(server) for server in one.servers],
    }


def _shares(found: list[Share]) -> list[dict[str, Any]]:
    """Return the numbers of tools or principals, those with the most requests first."""
    rows: list[dict[str, Any]] = [
        {
            "name": one.name,
            "requests": sum(one.buckets),
            "errors": sum(n for code, n in one.codes.items() if code != CANCELLED),
            "rate": one.recent / MINUTE,
            "error_rate": one.recent_errors / MINUTE,
            **_quantiles(one.recent_buckets if one.recent else one.buckets),
        }
        for one in found
    ]
    return sorted(rows, key=lambda row: (-row["rate"], -row["requests"], row["name"]))[:MAX_SHARES]


def _hour(samples: Iterable[Sample], last: int) -> dict[str, list[float | None]]:
    """Return the numbers of the last hour for the charts, by whole minutes."""
    return plotted(samples, int(last * TICK // MINUTE) - 1, MINUTES, MINUTE)


def _method(requests: MethodEntry) -> dict[str, Any]:
    n = sum(requests.buckets)
    return {
        "method": requests.method,
        "requests": n,
        "errors": sum(n for code, n in requests.codes.items() if code != CANCELLED),
        "mean": requests.seconds / n if n else None,
        **_quantiles(requests.buckets),
    }


def _recent(history: Sequence[Sample], last: int) -> dict[str, Any]:
    """Return rates and latencies of late, and those of each tick for plots."""
    of_rate = [one for one in history if last - RATE_TICKS < one.tick <= last]
    of_latency = [one.buckets for one in history if last - LATENCY_TICKS < one.tick <= last]
    seconds = RATE_TICKS * TICK
    return {
        "rate": sum(one.requests for one in of_rate) / seconds,
        "error_rate": sum(one.errors for one in of_rate) / seconds,
        "byte_rate": sum(one.bytes for one in of_rate) / seconds,
        **_quantiles(columns(of_latency)),
        "history": plotted(history, last),
    }


def plotted(
    history: Iterable[Sample], last: int, n: int = TICKS, length: float = TICK
) -> dict[str, list[float | None]]:
    """Return requests and errors a second, p50 and p99 of the last ``n`` ticks, the oldest first.
    ``length``: seconds of a tick."""
    by_tick = grouped(history, "tick")
    found: dict[str, list[float | None]] = {"rate": [], "error_rate": [], "p50": [], "p99": []}
    for tick in range(last - n + 1, last + 1):
        many = by_tick.get(tick, ())
        quantiles = _quantiles(columns(one.buckets for one in many))
        found["rate"].append(sum(one.requests for one in many) / length if many else None)
        found["error_rate"].append(sum(one.errors for one in many) / length if many else None)
        found["p50"].append(quantiles["p50"])
        found["p99"].append(quantiles["p99"])
    return found


def _quantiles(buckets: list[int]) -> dict[str, float | None]:
    return {f"p{round(100 * q)}": quantile(buckets, q) for q in (0.5, 0.95, 0.99)}


def quantile(buckets: list[int], q: float) -> float | None:
    """Estimate a quantile from a histogram, as Prometheus does: durations are spread evenly in each
    bucket, and the last bucket, which has no upper bound, counts as its lower one. None: there is
    no duration."""
    n = sum(buckets)
    if not n:
        return None
    rank = q * n
    for i, total in enumerate(accumulate(buckets)):
        if total >= rank and buckets[i]:
            low = BUCKETS[i - 1] if i else 0.0
            high = BUCKETS[min(i, len(BUCKETS) - 1)]
            return low + (high - low) * (rank - (total - buckets[i])) / buckets[i]
    return BUCKETS[-1]


# -- quantities as people read them ----------------------------------------------------------------


def count(value: float) -> str:
    """Write a number, or a rate: ``0.25``, ``9.5``, ``1234``, ``12.3 k``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.1f}"


def size(value: float) -> str:
    """Write a number of bytes: ``12 B``, ``1.5 KiB``, ``640 MiB``."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    """Write a short time: ``209 µs``, ``1.5 ms``, ``2 s``; a dash for none."""
    if value is None:
        return "—"
    for unit, scaled in (("µs", 1e6 * value), ("ms", 1e3 * value)):
        if scaled < 999.5:
            return f"{scaled:.3g} {unit}"
    return f"{value:.3g} s"


def span(value: float) -> str:
    """Write a long time: ``12 s``, ``3 min 5 s``, ``2 d 4 h``."""
    n = int(value)
    for unit_seconds, unit, smaller, less in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if n >= unit_seconds:
            return f"{n // unit_seconds} {unit} {n % unit_seconds // smaller} {less}"
    return f"{n} s"
