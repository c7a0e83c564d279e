"""Spans of OpenTelemetry that nobody sees: no provider of tracers is set, so none is recorded.

FastMCP collects the attributes of such spans at each call, several times. They are left out where
no provider is set, no context of OpenTelemetry is active, and the request brings no parent.
"""

from __future__ import annotations

from typing import Any

from fastmcp.server.dependencies import fastmcp_request_ctx
from opentelemetry.trace import INVALID_SPAN, Span

from wirespeed.adapters.mcp.sdk import has_provider, has_trace

PARENTS = ("traceparent", "tracestate")


class NoSpan:
    """A context without a span."""

    def __enter__(self) -> Span:
        return INVALID_SPAN

    def __exit__(self, *exc: object) -> None:
        pass


NO_SPAN = NoSpan()


def are_idle() -> bool:
    """Whether no span of this moment is recorded or has a parent in this process."""
    return not has_provider() and not has_trace()


def request_span(stock: Any) -> Any:
    """Make a span of a request that is none while spans are idle and the client sent no parent."""

    def span(*args: Any, **options: Any) -> Any:
        if are_idle():
            request = fastmcp_request_ctx.get(None)
            meta = request.meta if request is not None else None
            if not meta or not any(name in meta for name in PARENTS):
                return NO_SPAN
        return stock(*args, **options)

    return span


def call_span(stock: Any) -> Any:
    """Make a span of a client's call that is none while spans are idle."""

    def span(*args: Any, **options: Any) -> Any:
        return NO_SPAN if are_idle() else stock(*args, **options)

    return span
