"""Metrics of a proxy, from a `Snapshot`: names, kinds, labels and values, once for all formats.

Names follow the practices of Prometheus. Labels are bounded: names of the configuration, methods of
the protocol, codes of errors (32 for each method of a server), and words of the proxy itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from wirespeed.proxy.operation.snapshot import READY, STATES
from wirespeed.server.requests.observer import BUCKETS

if TYPE_CHECKING:
    from wirespeed.proxy.operation.processes import ProcessEntry
    from wirespeed.proxy.operation.snapshot import (
        EndpointEntry,
        Facts,
        ServerEntry,
        Snapshot,
    )

PREFIX = "wirespeed_proxy_"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

# Codes of `Series` that are not those of JSON-RPC.
_CODES = {1: "cancelled", 2: "other"}


class MetricLine(NamedTuple):
    """One line of a family.

    Attributes:
        suffix: Behind the name of the family.
        labels: Names and values.
    """

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """All lines of one metric.

    Attributes:
        name: Without ``_total``, as OpenMetrics names a counter.
        kind: ``counter``, ``gauge`` or ``histogram``.
    """

    name: str
    kind: str
    help: str
    samples: list[MetricLine]


def code_text(code: int) -> str:
    """Return the label of an error's code."""
    return _CODES.get(code, str(code))


def families(snapshot: Snapshot, facts: Facts) -> Iterator[Family]:
    """Return the metrics of a proxy."""
    of_backends = [one for one in snapshot.endpoints if one.isolation is not None]

    def gauge(name: str, text: str, *samples: MetricLine) -> Family:
        return Family(PREFIX + name, "gauge", text, list(samples))

    def counter(name: str, text: str, *samples: MetricLine) -> Family:
        return Family(PREFIX + name, "counter", text, list(samples))

    yield gauge("build_info", "1; the version is a label.", _one(1, version=facts.version))
    yield gauge("info", "1; the name of the proxy is a label.", _one(1, name=facts.name))
    yield gauge(
        "certificate_expiry_time_seconds",
        "When the certificate of a listener expires.",
        *(_one(one.expires, listen=one.listen) for one in facts.certificates),
    )
    yield gauge("start_time_seconds", "When the proxy was started.", _one(snapshot.started))
    yield gauge("workers", "Processes that have answered.", _one(len(snapshot.processes)))
    yield gauge(
        "workers_missing",
        "Processes that did not answer in time: their numbers are not in this answer.",
        _one(len(snapshot.missing)),
    )
    processes = snapshot.processes
    yield counter(
        "cpu_seconds",
        "Processor time of all processes of the proxy, without servers.",
        _total(sum(one.cpu_seconds for one in processes)),
    )
    yield gauge(
        "resident_memory_bytes",
        "Memory of all processes of the proxy, without servers.",
        _one(sum(one.resident_bytes for one in processes)),
    )
    yield gauge(
        "open_fds",
        "Descriptors of all processes of the proxy.",
        _one(sum(one.open_fds for one in processes)),
    )
    stores = [one.store for one in processes if one.store is not None]
    if stores:
        yield gauge(
            "store_up",
            "0 while a process has lost the store that the hosts share.",
            _one(all(one.state != "down" for one in stores)),
        )
        yield counter(
            "store_losses",
            "How often processes have lost the store.",
            _total(sum(one.losses for one in stores)),
        )
    yield gauge("clients", "Clients that are connected.", *_endpoints(snapshot, "n_clients"))
    yield counter(
        "clients_connected",
        "All clients so far.",
        *(_total(one.n_connected, endpoint=one.name) for one in snapshot.endpoints),
    )
    yield gauge("sessions", "Sessions over HTTP.", *_endpoints(snapshot, "n_sessions"))
    yield gauge(
        "session_idle_seconds",
        "Time since the last request of the session that was used least recently.",
        *_endpoints(snapshot, "longest_idle"),
    )
    yield gauge(
        "backend_ready",
        "1: the server takes requests, or is started by the first one.",
        *(_one(one.state in READY, backend=one.name) for one in of_backends),
    )
    yield gauge(
        "servers",
        "Servers, or connections to them, by state.",
        *(
            _one(one.server_states.get(state, 0), backend=one.name, state=state)
            for one in of_backends
            for state in dict.fromkeys((*STATES, *one.server_states))
        ),
    )
    yield from _addresses(of_backends)
    yield counter(
        "name_lookups",
        "Look-ups of the names of servers, by outcome.",
        *(
            _total(n, backend=one.name, outcome=outcome)
            for one in of_backends
            for outcome, n in one.names.items()
        ),
    )
    for name, text in (
        ("starts", "Starts of servers."),
        ("restarts", "Starts of servers that had ended, or had failed to start."),
        ("replacements", "Servers that were replaced because of their age, size or work."),
    ):
        samples = [_total(one.supervision[name], backend=one.name) for one in of_backends]
        yield counter(f"server_{name}", text, *samples)
    yield from _failures(of_backends)
    yield Family(
        f"{PREFIX}request_duration_seconds",
        "histogram",
        "Seconds from passing a request on to its answer.",
        [sample for one in of_backends for sample in _durations(one)],
    )
    yield counter(
        "request_errors",
        "Requests that failed, by the code of the error, or were cancelled.",
        *(
            _total(n, backend=one.name, method=requests.method, code=code_text(code))
            for one in of_backends
            for requests in one.requests
            for code, n in sorted(requests.codes.items())
        ),
    )
    yield gauge(
        "requests_in_flight",
        "Requests that a server was asked and has not answered.",
        *(_one(one.of_servers["asked"], backend=one.name) for one in of_backends),
    )
    yield gauge(
        "requests_waiting",
        "Requests of clients that were not passed on yet.",
        *(_one(one.of_clients["waiting"], backend=one.name) for one in of_backends),
    )
    yield counter(
        "requests_refused",
        "Requests that got an error because of a limit, a rate, or what a client may do.",
        *(
            _total(n, endpoint=one.name, reason=reason)
            for one in snapshot.endpoints
            for reason, n in one.refused.items()
        ),
    )
    yield from _limits(of_backends)
    yield counter(
        "clients_cut",
        "Clients that were disconnected, by reason.",
        *(
            _total(n, endpoint=one.name, reason=reason)
            for one in snapshot.endpoints
            for reason, n in one.cut.items()
        ),
    )
    yield counter(
        "audit_lines",
        "Lines of the audit log that were written, or left out.",
        *(_total(n, outcome=outcome) for outcome, n in snapshot.audit.items()),
    )
    yield from _reloads(processes)
    yield from _traffic(snapshot, of_backends)


def _failures(of_backends: list[EndpointEntry]) -> Iterator[Family]:
    """Return what became of servers that have failed."""
    for name, key, text in (
        ("retries", "retries", "Requests that were sent again, as their server had ended."),
        ("breaker_opened", "breaker_opened", "How often a breaker was opened."),
    ):
        samples = [_total(one.supervision[key], backend=one.name) for one in of_backends]
        yield Family(PREFIX + name, "counter", text, samples)
    yield Family(
        f"{PREFIX}breakers",
        "gauge",
        "Breakers that let no requests pass, or one at a time, by state.",
        [
            _one(n, backend=one.name, state=state)
            for one in of_backends
            for state, n in one.breakers.items()
        ],
    )
    yield Family(
        f"{PREFIX}garbage",
        "counter",
        "Invalid messages that servers wrote, by kind.",
        [
            _total(n, backend=one.name, kind=kind)
            for one in of_backends
            for kind, n in one.garbage.items()
        ],
    )


def _addresses(of_backends: list[EndpointEntry]) -> Iterator[Family]:
    """Return the numbers of each address of servers that have several, of all workers together."""
    found: dict[tuple[str, str], list[ServerEntry]] = {}
    for one in of_backends:
        for server in one.servers:
            if server.url and server.state != "leaving":
                found.setdefault((one.name, server.url), []).append(server)

    def family(name: str, kind: str, text: str, of: Callable[[ServerEntry], float]) -> Family:
        suffix = "_total" if kind == "counter" else ""
        samples = [
            MetricLine(suffix, (("backend", backend), ("url", url)), sum(map(of, servers)))
            for (backend, url), servers in found.items()
        ]
        return Family(PREFIX + name, kind, text, samples)

    yield family(
        "address_connections_up",
        "gauge",
        "Connections of workers to an address that gets requests, one for each era.",
        lambda server: server.state == "up",
    )
    yield family(
        "address_requests_in_flight",
        "gauge",
        "Requests that an address was asked and has not answered.",
        lambda server: server.in_flight,
    )
    yield family(
        "address_requests_answered",
        "counter",
        "Requests that an address has answered.",
        lambda server: server.answered,
    )
    yield family(
        "address_failures",
        "counter",
        "How often an address could not be reached, did not answer, or answered with an error of "
        "HTTP.",
        lambda server: server.failures,
    )


def _limits(of_backends: list[EndpointEntry]) -> Iterator[Family]:
    """Return what the limits of servers count. Servers without limits have no line."""
    for name, key, text in (
        ("requests_admitted", "in_flight", "Requests that a server with limits works on."),
        ("requests_queued", "queued", "Requests that wait because of the limits of a server."),
        ("queued_bytes", "queued_bytes", "Bytes of the requests that wait there."),
    ):
        samples = [_one(one.flow[key], backend=one.name) for one in of_backends if one.flow]
        yield Family(PREFIX + name, "gauge", text, samples)
    yield Family(
        f"{PREFIX}turns",
        "counter",
        "Turns that clients got at a server that could not read fast enough.",
        [_total(one.of_servers["turns"], backend=one.name) for one in of_backends],
    )


def _reloads(processes: list[ProcessEntry]) -> Iterator[Family]:
    """Return how often the configuration was read again, by each process for itself."""
    yield Family(
        f"{PREFIX}reloads",
        "counter",
        "How often a process has read the configuration again, by result.",
        [
            _total(sum(one.reloads for one in processes), result="ok"),
            _total(sum(one.reloads_refused for one in processes), result="refused"),
        ],
    )
    times = [one.reloaded for one in processes if one.reloaded is not None]
    if times:
        text = "When the configuration was read again last."
        yield Family(f"{PREFIX}last_reload_time_seconds", "gauge", text, [_one(max(times))])
    yield Family(
        f"{PREFIX}last_reload_ok",
        "gauge",
        "0: a process has refused the configuration when it read it last.",
        [_one(all(one.reload_ok for one in processes))],
    )


def _traffic(snapshot: Snapshot, of_backends: list[EndpointEntry]) -> Iterator[Family]:
    sides = [("client", one.name, one.of_clients) for one in snapshot.endpoints]
    sides += [("server", one.name, one.of_servers) for one in of_backends]
    for name, key, text in (
        ("received_bytes", "bytes_in", "Bytes of clients, and of servers."),
        ("sent_bytes", "bytes_out", "Bytes to clients, and to servers."),
        ("received_messages", "messages_in", "Messages of clients, and of servers."),
        ("sent_messages", "messages_out", "Messages to clients, and to servers."),
        ("bad_messages", "faults", "Input that was not a message."),
    ):
        samples = [_total(sums[key], endpoint=one, peer=peer) for peer, one, sums in sides]
        yield Family(PREFIX + name, "counter", text, samples)
    yield Family(
        f"{PREFIX}unsent_bytes",
        "gauge",
        "Bytes that a client, or a server, has not read yet.",
        [_one(sums["unsent"], endpoint=one, peer=peer) for peer, one, sums in sides],
    )
    yield Family(
        f"{PREFIX}messages_dropped",
        "counter",
        "Notifications and late answers that were not passed on, by reason.",
        [
            _total(n, endpoint=one.name, reason=reason)
            for one in snapshot.endpoints
            for reason, n in dropped(one).items()
        ],
    )


def dropped(one: EndpointEntry) -> dict[str, int]:
    """Return how many messages were not passed on, by reason."""
    return {
        **one.dropped,
        "late": one.of_servers["late"] + one.of_clients["late"],
        "slow client": one.of_clients["dropped"],
        "slow server": one.of_servers["dropped"],
    }


def _durations(one: EndpointEntry) -> Iterator[MetricLine]:
    bounds = [*(repr(bound) for bound in BUCKETS), "+Inf"]
    for requests in one.requests:
        labels = (("backend", one.name), ("method", requests.method))
        total = 0
        for bound, total in zip(bounds, accumulate(requests.buckets), strict=True):
            yield MetricLine("_bucket", (*labels, ("le", bound)), total)
        yield MetricLine("_count", labels, total)
        yield MetricLine("_sum", labels, requests.seconds)


def _endpoints(snapshot: Snapshot, name: str) -> list[MetricLine]:
    return [_one(getattr(one, name), endpoint=one.name) for one in snapshot.endpoints]


def _one(value: float, **labels: str) -> MetricLine:
    return MetricLine("", tuple(labels.items()), value)


def _total(value: float, **labels: str) -> MetricLine:
    return MetricLine("_total", tuple(labels.items()), value)


# -- as text for Prometheus: its own format 0.0.4, and OpenMetrics 1.0 -----------------------------


def wants_open_metrics(accept: str) -> bool:
    """Whether a client asks for OpenMetrics, by its header field Accept."""
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        if kind == "application/openmetrics-text":
            return all(word not in ("q=0", "q=0.0") for word in parameters)
    return False


def text_of(families: Iterable[Family], *, open_metrics: bool) -> str:
    """Write metrics. A family without a line is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        # before OpenMetrics, a counter had its suffix in its name
        total = "" if open_metrics or family.kind != "counter" else "_total"
        help_text = family.help.translate(_IN_LABELS if open_metrics else _IN_HELP)
        lines.append(f"# HELP {family.name}{total} {help_text}")
        lines.append(f"# TYPE {family.name}{total} {family.kind}")
        for suffix, labels, value in family.samples:
            shown = ",".join(f'{name}="{text.translate(_IN_LABELS)}"' for name, text in labels)
            braces = f"{{{shown}}}" if shown else ""
            lines.append(f"{family.name}{suffix}{braces} {_number(value)}")
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
