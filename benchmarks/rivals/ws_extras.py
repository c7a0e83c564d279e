"""wirespeed's own server with extras: ``ws_extras.py middleware+metrics+traces``.

``traces`` goes through the OpenTelemetry SDK's batch processor to an exporter that does nothing,
with the SDK's default sampler, which keeps every trace; ``traces1`` keeps one of a hundred;
``sdk`` makes every span by the SDK.
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


def traces(ratio: float | None = None, *, late: bool = True) -> None:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    from wirespeed.ext.otel import instrument

    class Nothing(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    class Watching(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            pass

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # a full queue drops
    sampler = None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Nothing()))
    if not late:
        provider.add_span_processor(Watching())
    instrument(server, tracer_provider=provider)


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
        elif extra == "sdk":
            traces(late=False)
        else:
            sys.exit(f"no extra {extra}")
    server.run()
