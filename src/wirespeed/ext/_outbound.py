"""Spans of outgoing requests: of a client's requests, and of a server's requests to its client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode

from wirespeed.errors import CallTimeout, RemoteError
from wirespeed.ext._conventions import attributes_of, error_attributes, span_name, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed.client.requests.middleware import OutboundNext, OutboundRequest
    from wirespeed.server.middleware.functions import AskNext
    from wirespeed.server.middleware.stack import ServerRequest
    from wirespeed.server.server import Server


def failed(span: Any, exc: BaseException) -> None:
    """Record the exception of a request in its span."""
    if isinstance(exc, RemoteError):
        span.set_attributes(error_attributes(exc.code, False))
        span.set_status(Status(StatusCode.ERROR, text_of(exc.message)))
        return
    kind = type(exc).__qualname__
    if isinstance(exc, asyncio.CancelledError):
        kind = "cancelled"
    elif isinstance(exc, CallTimeout):
        kind = "timeout"
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, text_of(str(exc)) or None))


def client_link(tracer: Any) -> Callable[[OutboundRequest, OutboundNext], Any]:
    """Return client middleware that traces requests."""

    async def traced(request: OutboundRequest, call_next: OutboundNext) -> Any:
        with tracer.start_as_current_span(
            span_name(request.method, request.name),
            kind=SpanKind.CLIENT,
            attributes=attributes_of(request.method, request.name, request.protocol_version),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            propagate.inject(request.meta)
            try:
                result = await call_next(request)
            except BaseException as exc:
                failed(span, exc)
                raise
            if getattr(result, "is_error", False) is True:
                span.set_attributes(error_attributes(0, True))
                span.set_status(Status(StatusCode.ERROR))
            return result

    return traced


def trace_questions(server: Server, tracer: Any) -> None:
    """Trace a server's requests to its client as children of the span of the client's request."""

    @server.add_ask_middleware
    async def traced(question: ServerRequest, call_next: AskNext) -> bytes:
        with tracer.start_as_current_span(
            question.method,
            kind=SpanKind.CLIENT,
            attributes={"mcp.method.name": question.method},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            if carrier:
                members = msgspec.json.decode(question.params or b"{}", type=dict[str, msgspec.Raw])
                meta = msgspec.json.decode(members.get("_meta", b"{}"), type=dict[str, msgspec.Raw])
                members["_meta"] = msgspec.Raw(msgspec.json.encode({**meta, **carrier}))
                question.params = msgspec.json.encode(members)
            try:
                return await call_next(question)
            except BaseException as exc:
                failed(span, exc)
                raise
