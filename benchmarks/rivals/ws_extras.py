"""wirespeed's own server with extras: ``ws_extras.py middleware+metrics+traces``.

``traces`` goes through the OpenTelemetry SDK's batch processor to an exporter that does nothing,
with the SDK's default sampler, which keeps every trace; ``traces1`` keeps one of a hundred;
``hand`` and ``hand1`` make the same spans in a middleware; ``read`` is ``traces`` with an exporter
that reads of each span what one for OTLP does.
"""

import logging
import sys
from typing import Any

from ws_server import server

EXTRAS = sys.argv[1].split("+") if len(sys.argv) > 1 and sys.argv[1] != "off" else []


def middleware() -> None:
    @server.add_middleware
    async def nothing(request: Any, call_next: Any) -> Any:
        return await call_next(request)


def metrics() -> None:
    from prometheus_client import CollectorRegistry

    from wirespeed.ext.prometheus import instrument

    instrument(server, registry=CollectorRegistry())


def provider_of(ratio: float | None, read: bool) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Nothing(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    class Reading(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            for span in spans:
                read_all(span)
            return SpanExportResult.SUCCESS

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # a full queue drops
    sampler = None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Reading() if read else Nothing()))
    return provider


def traces(ratio: float | None = None, *, read: bool = False) -> None:
    from wirespeed.ext.otel import instrument

    instrument(server, tracer_provider=provider_of(ratio, read))


def by_hand(ratio: float | None = None) -> None:
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    tracer = provider_of(ratio, False).get_tracer("by hand")

    @server.add_middleware
    async def traced(request: Any, call_next: Any) -> Any:
        attributes = {
            "mcp.method.name": request.method,
            "mcp.protocol.version": request.protocol_version,
            "gen_ai.tool.name": request.name or "",
            "gen_ai.operation.name": "execute_tool",
        }
        with tracer.start_as_current_span(
            f"{request.method} {request.name}",
            propagate.extract(request.meta),
            kind=SpanKind.SERVER,
            attributes=attributes,
        ):
            return await call_next(request)


def read_all(span: Any) -> list[Any]:
    """What an exporter turns into bytes, without the bytes."""
    found = [span.name, span.kind, span.start_time, span.end_time, span.resource]
    found += [span.context.trace_id.to_bytes(16, "big"), span.context.span_id.to_bytes(8, "big")]
    found += [span.context.trace_state, span.parent, span.instrumentation_scope]
    found += [span.status.status_code, span.status.description]
    found += [dict(span.attributes), span.dropped_attributes]
    found += [event.name for event in span.events] + [link.context for link in span.links]
    return [*found, span.dropped_events, span.dropped_links]


if __name__ == "__main__":
    for extra in EXTRAS:
        if extra == "middleware":
            middleware()
        elif extra == "metrics":
            metrics()
        elif extra == "traces":
            traces()
        elif extra == "traces1":
            traces(0.01)
        elif extra == "read":
            traces(read=True)
        elif extra == "hand":
            by_hand()
        elif extra == "hand1":
            by_hand(0.01)
        else:
            sys.exit(f"no extra {extra}")
    server.run()
