"""Prometheus metrics of servers and clients. They need ``pip install wirespeed[prometheus]``.

>>> from wirespeed.ext.prometheus import instrument
>>> instrument(server)
>>> prometheus_client.start_http_server(9000, addr="127.0.0.1")

Requests are counted in plain numbers, which prometheus_client reads at each scrape. A server's
metrics begin with ``wirespeed_server_``, a client's with ``wirespeed_client_``. All metrics have
the label ``peer``, the name passed to `instrument`.

================================  =========  =================  ====================================
metric                            kind       further labels     meaning
================================  =========  =================  ====================================
``requests_in_flight``            gauge                         requests in progress
``requests_waiting``              gauge                         requests held back by flow control
                                                                (server)
``request_duration_seconds``      histogram  method, name       time from a request to its answer
``request_errors_total``          counter    method, name,      failed requests; the code is that of
                                             code               JSON-RPC or ``cancelled``, in a
                                                                client also ``timeout``, ``closed``,
                                                                ``invalid`` or ``failed``
``tool_failures_total``           counter    name               results with ``isError``
``connections``                   gauge                         open connections
``connections_made_total``        counter                       all connections so far (server)
``connections_paused``            gauge                         connections that are not read,
                                                                because of a limit
``received_bytes_total``          counter                       bytes from the peer
``sent_bytes_total``              counter                       bytes to the peer
``received_messages_total``       counter                       messages from the peer
``sent_messages_total``           counter                       messages to the peer
``limits_reached_total``          counter    limit              refused requests (``overloaded``),
                                                                and ``notifications_dropped``
``bad_messages_total``            counter                       input that is not a message
``store_up``                      gauge                         0 while the store of a cluster is
                                                                lost (server with ``cluster``)
``store_losses_total``            counter                       how often it was lost
================================  =========  =================  ====================================

A proxy has the metrics of its admin listener, which the page "Watch the proxy" lists.

``name`` is the tool's name, and empty for other methods. Tools and methods that the server does not
have share the label ``unknown``, so that clients cannot create labels. The duration includes
middleware. Requests refused because too many wait are counted in ``limits_reached_total`` only.
subscriptions/listen, which does not end, is counted in the gauges only.

Each worker process (``run(…, workers=4)``) has its own numbers: use one port for each process, or
push them. prometheus_client's multi-process mode does not include these metrics.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from wirespeed.client.requests.middleware import OutboundChain
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    RemoteError,
    TransportError,
)
from wirespeed.server.requests.observer import BUCKETS, Observer

if TYPE_CHECKING:
    from wirespeed.client.client import Client
    from wirespeed.client.requests.middleware import OutboundNext, OutboundRequest
    from wirespeed.client.sync import SyncClient
    from wirespeed.proxy.proxy import Proxy
    from wirespeed.server.server import Server
    from wirespeed.server.shared_stores import SharedStores

__all__ = ["Instrumentation", "instrument"]

MAX_NAMES = 500  # tools of one client with a label of their own; all others are ``other``

_OUTCOMES = {1: "cancelled", 2: "timeout", 3: "closed", 4: "invalid", 5: "failed"}

_FAILURES: tuple[tuple[type[BaseException], int], ...] = (
    (asyncio.CancelledError, 1),
    (CallTimeout, 2),
    (ConnectionClosed, 3),
    (TransportError, 3),
    (InvalidResponse, 4),
)

_COUNTERS = {
    "received_bytes": ("bytes_in", "Bytes that were received."),
    "sent_bytes": ("bytes_out", "Bytes that were sent."),
    "received_messages": ("messages_in", "Messages that were received."),
    "sent_messages": ("messages_out", "Messages that were sent."),
    "bad_messages": ("faults", "Input that was not a message."),
}


class Instrumentation:
    """The registered metrics of one server or client."""

    def __init__(
        self,
        kind: str,
        peer: str,
        observer: Observer,
        live: Callable[[], Any],
        stores: Callable[[], SharedStores | None] = lambda: None,
    ) -> None:
        self._kind = kind
        self._stores = stores
        self.peer = peer
        self.observer = observer
        self._live = live
        self._exporter: _Exporter | None = None

    def remove(self) -> None:
        """Remove the metrics from their registry. Counting goes on."""
        if self._exporter is not None:
            self._exporter.sources.remove(self)
            self._exporter = None


def instrument(
    target: Server | Client | SyncClient | Proxy,
    *,
    registry: CollectorRegistry = REGISTRY,
    peer: str | None = None,
    buckets: Iterable[float] = BUCKETS,
) -> Instrumentation:
    """Count the requests of a server, a client or a proxy, and register the metrics.

    Args:
        target: A `wirespeed.Server` or a `wirespeed.proxy.Proxy`, before its clients connect, or a
            client, before its calls.
        registry: The registry in which the metrics appear.
        peer: The value of the label ``peer``, unique in the registry: by default the name of the
            server, or the name that the client sends.
        buckets: Upper bounds of the buckets of durations, in seconds; at most 32.

    Raises:
        ValueError: The registry has this ``peer`` already, or the buckets are not increasing
            numbers.
    """
    from wirespeed.client.client import Client
    from wirespeed.client.sync import SyncClient
    from wirespeed.proxy.proxy import Proxy

    if isinstance(target, Proxy):
        if peer is not None or buckets is not BUCKETS:
            raise ValueError("the metrics of a proxy have neither a peer nor buckets to choose")
        return _ProxyMetrics(target, registry)
    if isinstance(target, SyncClient):
        target = target._client
    if isinstance(target, Client):
        kind, name = "client", str(target._identity.info["name"])
    else:
        kind, name = "server", target.name
    exporter = _exporter_of(registry, kind)
    name = name if peer is None else peer
    if any(source.peer == name for source in exporter.sources):
        raise ValueError(f"peer {name!r} is in this registry already: pass another peer")
    if isinstance(target, Client):
        source = _client_source(target, name, Observer(buckets))
    else:
        server = target
        observer = server.observe(bounds=buckets)
        source = Instrumentation(
            kind,
            name,
            observer,
            lambda: list(server.service.connections),
            lambda: server.service.stores,
        )
    source._exporter = exporter
    exporter.sources.append(source)
    return source


# -- clients --------------------------------------------------------------------------------------


def _client_source(client: Client, peer: str, observer: Observer) -> Instrumentation:
    names: set[str] = set()

    async def measured(request: OutboundRequest, call_next: OutboundNext) -> Any:
        name = ""
        if request.method == "tools/call":
            name = request.name or ""
            if name not in names:
                if len(names) >= MAX_NAMES:
                    name = "other"
                else:
                    names.add(name)
        began = time.perf_counter()
        code = 0
        failed = False
        try:
            result = await call_next(request)
            failed = getattr(result, "is_error", False) is True
            return result
        except RemoteError as exc:
            code = exc.code
            raise
        except BaseException as exc:
            code = next((code for kind, code in _FAILURES if isinstance(exc, kind)), 5)
            raise
        finally:
            observer.of(request.method, name).add(time.perf_counter() - began, code, failed)

    chain = client._sender.middleware
    client._sender.middleware = (
        OutboundChain([measured]) if chain is None else chain.with_outermost(measured)
    )

    def live() -> list[Any]:
        connection = client._life.live
        return [] if connection is None else [connection]

    return Instrumentation("client", peer, observer, live)


# -- proxies --------------------------------------------------------------------------------------


_with_proxy: weakref.WeakSet[CollectorRegistry] = weakref.WeakSet()


class _ProxyMetrics(Instrumentation, Collector):
    """The metrics of a proxy's admin listener, in a registry."""

    def __init__(self, proxy: Proxy, registry: CollectorRegistry) -> None:
        super().__init__("proxy", "", Observer(), list)
        if registry in _with_proxy:
            raise ValueError("this registry has the metrics of a proxy already")
        _with_proxy.add(registry)
        proxy.observe()
        self._proxy = proxy
        self._registry: CollectorRegistry | None = registry
        self._started = time.time()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        from wirespeed.proxy.operation.meter import at_once
        from wirespeed.proxy.operation.metrics import families
        from wirespeed.proxy.operation.snapshot import take

        facts = self._proxy.facts()
        snapshot = at_once(take(self._proxy.endpoints, facts, self._started, [], 0))
        for family in families(snapshot, facts):
            metric = Metric(family.name, family.help, family.kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(family.name + suffix, dict(labels), value)
            if metric.samples:
                yield metric

    def remove(self) -> None:
        if self._registry is not None:
            self._registry.unregister(self)
            _with_proxy.discard(self._registry)
            self._registry = None


# -- showing --------------------------------------------------------------------------------------


class _Exporter(Collector):
    """The metrics of all servers, or of all clients, in one registry. They share a collector,
    because a registry accepts each metric name once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sources: list[Instrumentation] = []

    def collect(self) -> Iterator[Metric]:
        families = _Families(self.kind)
        for source in list(self.sources):
            families.add(source)
        if families.store_up.samples:
            families.all += [families.store_up, families.store_losses]
        return iter(families.all)


class _Families:
    """The metrics of all servers, or of all clients, at one scrape."""

    def __init__(self, kind: str) -> None:
        def gauge(name: str, text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"wirespeed_{kind}_{name}", text, labels=["peer"])

        def counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
            return CounterMetricFamily(f"wirespeed_{kind}_{name}", text, labels=["peer", *labels])

        self.kind = kind
        self.in_flight = gauge("requests_in_flight", "Requests in progress.")
        self.waiting = gauge("requests_waiting", "Requests held back by flow control.")
        self.connections = gauge("connections", "Connections that are open.")
        self.paused = gauge("connections_paused", "Connections not read, because of a limit.")
        self.duration = HistogramMetricFamily(
            f"wirespeed_{kind}_request_duration_seconds",
            "Seconds from a request to its answer.",
            labels=["peer", "method", "name"],
        )
        self.errors = counter(
            "request_errors", "Requests that failed, by code.", "method", "name", "code"
        )
        self.failures = counter("tool_failures", "Results with isError.", "name")
        self.made = counter("connections_made", "All connections so far.")
        self.limits = counter("limits_reached", "Refused requests, dropped notifications.", "limit")
        self.counters = {name: counter(name, text) for name, (_, text) in _COUNTERS.items()}
        self.all: list[Metric] = [
            self.in_flight,
            self.duration,
            self.errors,
            self.failures,
            self.connections,
            self.paused,
            *self.counters.values(),
        ]
        self.store_up = gauge("store_up", "0 while the store that hosts share is lost.")
        self.store_losses = counter("store_losses", "How often that store was lost.")
        if kind == "server":
            self.all += [self.waiting, self.made, self.limits]

    def add(self, source: Instrumentation) -> None:
        """Add the current values of one server or client."""
        observer, peer = source.observer, source.peer
        live = source._live()
        now = [connection.session.counters for connection in live]
        in_flight = "requests_in_flight" if self.kind == "server" else "requests_outstanding"
        waiting = sum(counters["requests_waiting"] for counters in now)
        held = sum(counters[in_flight] for counters in now)
        self.in_flight.add_metric([peer], held - (waiting if self.kind == "server" else 0))
        self.waiting.add_metric([peer], waiting)
        self.connections.add_metric([peer], len(live))
        self.paused.add_metric([peer], sum(not c.session.want_read for c in live))
        self.made.add_metric([peer], observer.n_connections)
        for name, (key, _) in _COUNTERS.items():
            total = observer.gone.get(key, 0) + sum(counters[key] for counters in now)
            self.counters[name].add_metric([peer], total)
        refused = observer.gone.get("refused", 0) + sum(counters["refused"] for counters in now)
        dropped = observer.gone.get("dropped", 0) + sum(
            getattr(connection, "n_dropped", 0) for connection in live
        )
        self.limits.add_metric([peer, "overloaded"], refused)
        self.limits.add_metric([peer, "notifications_dropped"], dropped)
        stores = source._stores()
        if stores is not None:
            self.store_up.add_metric([peer], stores.cluster.state != "down")
            self.store_losses.add_metric([peer], stores.cluster.n_losses)
        for series in list(observer.series.values()):
            labels = [peer, series.method, series.name]
            bounds = [*map(_number, observer.bounds), "+Inf"]
            self.duration.add_metric(
                labels, list(zip(bounds, series.buckets, strict=True)), series.seconds
            )
            for code, count in list(series.codes.items()):
                self.errors.add_metric([*labels, _OUTCOMES.get(code, str(code))], count)
            if series.failures:
                self.failures.add_metric([peer, series.name], series.failures)


def _number(bound: float) -> str:
    return repr(float(bound))


_exporters: weakref.WeakKeyDictionary[CollectorRegistry, dict[str, _Exporter]] = (
    weakref.WeakKeyDictionary()
)


def _exporter_of(registry: CollectorRegistry, kind: str) -> _Exporter:
    known = _exporters.setdefault(registry, {})
    if kind not in known:
        exporter = _Exporter(kind)
        registry.register(exporter)
        known[kind] = exporter
    return known[kind]
