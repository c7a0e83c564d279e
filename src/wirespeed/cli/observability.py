"""Metrics and traces of ``wirespeed serve``: a listener for Prometheus, and spans of
OpenTelemetry."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from wirespeed.cli import credentials
from wirespeed.cli.failures import usage
from wirespeed.errors import ConfigError
from wirespeed.limits import Limits
from wirespeed.transport.address import is_loopback, parse
from wirespeed.transport.gate import Gate
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.http.routes import CustomRoute, HttpResponse
from wirespeed.transport.options import HttpRequest

if TYPE_CHECKING:
    from wirespeed import Server
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.options import ListenFields
    from wirespeed.transport.taskpool import TaskPool

LAST_SPANS = 5000  # milliseconds for the last spans to leave at the end
OTEL_PACKAGES = "'wirespeed[otel]' opentelemetry-sdk opentelemetry-exporter-otlp"


# -- metrics --------------------------------------------------------------------------------------


class MetricsRoute(CustomRoute):
    """The path of the metrics. A request needs the token of the listener, if there is one."""

    def admit(self, gate: Gate, request: HttpRequest) -> Any:
        """Check Host, Origin and the token."""
        return HttpTarget.admit(self, gate, request)


class MetricsService:
    """A `wirespeed.transport.service.Service` without clients of a protocol: it answers HTTP with
    the metrics of the servers of this process, and with all others of prometheus_client's registry.
    """

    name = "metrics"
    subprotocol = None
    auth_headers = ("authorization",)
    refusal_status = 401
    limits = Limits(max_message=1 << 16)
    shutdown_grace = 1.0
    drains_last = True

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return the target of the metrics."""
        return MetricsRoute({"GET": self._metrics, "HEAD": self._metrics}, loop)

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        from prometheus_client import REGISTRY
        from prometheus_client.exposition import choose_encoder

        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        body: bytes = encode(REGISTRY)
        return HttpResponse(200, body, {"Cache-Control": "no-store"}, media_type)


def metrics_at(url: str, token_file: str | None) -> tuple[str, ListenFields]:
    """Return the address of the metrics, by default with the path ``/metrics``, and the options of
    the listener. Failure
    (2): the URL is wrong, or other machines could read the metrics without a token."""
    try:
        address = parse(url)
    except ValueError as exc:
        raise usage(f"--metrics: {exc}") from None
    if not address.is_http or address.secure:
        raise usage("--metrics takes http://HOST:PORT/PATH, as in http://127.0.0.1:9464/metrics")
    token = credentials.one_line(token_file, "--metrics-token-file", credentials.METRICS)
    if token is None and not address.file and not is_loopback(address.host):
        raise usage(
            f"--metrics: other machines can reach {address.host}: set {credentials.METRICS}, or "
            "give --metrics-token-file"
        )
    if address.path == "/":
        address = msgspec.structs.replace(address, path="/metrics")
    return str(address), {} if token is None else {"token": token}


def count_requests(servers: Iterable[Server]) -> None:
    """Count the requests of servers. ConfigError: prometheus_client is not installed."""
    try:
        from wirespeed.ext import prometheus
    except ModuleNotFoundError as exc:
        if exc.name != "prometheus_client":
            raise
        raise ConfigError(
            "--metrics needs prometheus_client: pip install 'wirespeed[prometheus]'"
        ) from None
    taken: set[str] = set()
    for server in servers:
        peer = server.name
        while peer in taken:
            peer += "'"
        taken.add(peer)
        try:
            prometheus.instrument(server, peer=peer)
        except ValueError:  # the file has registered them itself
            continue


# -- traces ---------------------------------------------------------------------------------------


class SpanExporter(Protocol):
    """A provider of tracers of the SDK."""

    def force_flush(self, timeout_millis: int) -> object:
        """Export the spans that are queued."""


def trace_requests(servers: Sequence[Server], instance: str | None) -> SpanExporter:
    """Trace the requests of servers as the environment says. Returns the provider of the spans.
    ConfigError: a package is missing."""

    def instrument(otel: Any, provider: Any) -> None:
        for server in servers:
            with contextlib.suppress(ValueError):  # the file has instrumented the server itself
                otel.instrument(server, tracer_provider=provider)

    name = servers[0].name if len(servers) == 1 else "wirespeed"
    return traced("--tracing", name, instance, instrument)


def traced(
    where: str, name: str, instance: str | None, instrument: Callable[[Any, Any], None]
) -> SpanExporter:
    """Trace as the environment says. Returns the provider of the spans. ConfigError: a package is
    missing.

    Args:
        where: The option or key that asks for traces.
        name: The name of the service, unless the environment has one.
        instance: The name of this instance; None makes one.
        instrument: Is called with the module `wirespeed.ext.otel`, and with the provider.
    """
    try:
        from wirespeed.ext import otel
    except ImportError:
        raise ConfigError(f"{where}: needs OpenTelemetry: pip install {OTEL_PACKAGES}") from None
    try:
        provider = otel.provider_of_environment(instance or uuid.uuid4().hex[:8], name)
    except ConfigError as exc:
        raise ConfigError(f"{where}: {exc}") from None
    instrument(otel, provider)
    return cast("SpanExporter", provider)
