"""The functions of the SDK that the dispatcher needs, and telemetry of requests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import anyio
import mcp  # noqa: F401  (where it is not installed, that is the error)
from pydantic_core import from_json, to_json

from wirespeed.adapters.mcp import dispatcher
from wirespeed.adapters.mcp.used_names import missing

if gone := missing():
    raise ImportError(
        f"wirespeed.adapters.mcp does not know this version of mcp: {', '.join(gone)} is missing"
    )

import opentelemetry.trace as trace
from mcp.shared._otel import inject_trace_context, otel_span
from mcp.shared.dispatcher import CallOptions, run_notify_intercept
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp_types import CONNECTION_CLOSED
from opentelemetry import context as otel_context
from opentelemetry.propagate import get_global_textmap
from opentelemetry.trace import SpanKind, StatusCode

# Where the environment names a provider, the first tracer loads it.
_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


def has_provider() -> bool:
    """Whether a provider of spans was set, or will be: without one nobody sees a span."""
    if _NAMED:
        return True
    try:
        return trace._TRACER_PROVIDER is not None
    except AttributeError:  # another version of opentelemetry-api
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def has_trace() -> bool:
    """Whether the caller is inside of a trace, or of another context to pass on."""
    return bool(otel_context.get_current())


def traced() -> bool:
    """Whether a request that is sent has a span, or a trace to pass on."""
    return has_provider() or has_trace()


def carries_trace(meta: Mapping[str, Any] | None) -> bool:
    """Whether the ``_meta`` of a message has a field of the propagators."""
    if not meta:
        return False
    return "traceparent" in meta or not trace_fields().isdisjoint(meta)


_fields: tuple[Any, frozenset[str]] = None, frozenset()


def trace_fields() -> frozenset[str]:
    """The fields that the propagators read. To collect them takes 2 µs, in each request."""
    global _fields
    textmap = get_global_textmap()
    if _fields[0] is not textmap:
        _fields = textmap, frozenset(textmap.fields)
    return _fields[1]


async def traced_request(
    connection: dispatcher.SdkDispatcher,
    method: str,
    params: Mapping[str, Any] | None,
    opts: CallOptions,
    about: int,
) -> dict[str, Any]:
    """Send a request in a span, as the SDK's own dispatcher does."""
    options: dict[str, Any] = dict(opts)
    if connection.names_requests:
        options.setdefault("request_id", connection.next_request_id())
    asked = dict(params or {})
    target = asked.get("name")
    with otel_span(
        f"MCP send {method}{f' {target}' if isinstance(target, str) else ''}",
        kind=SpanKind.CLIENT,
        attributes={
            "mcp.method.name": method,
            "jsonrpc.request.id": str(options.get("request_id", "")),
        },
    ) as span:
        meta = dict(asked.get("_meta") or {})
        inject_trace_context(meta)
        if meta:
            asked["_meta"] = meta
        try:
            return await connection.ask(method, asked, options, about, True)
        except MCPError as exc:
            if exc.code != CONNECTION_CLOSED:
                code = str(exc.code)
                span.set_attributes({"error.type": code, "rpc.response.status_code": code})
                span.set_status(StatusCode.ERROR, exc.message)
            raise


def shielded(task: Any) -> bool:
    """Whether a task is inside of a shielded scope of anyio; False where that cannot be seen."""
    try:
        from anyio._backends._asyncio import _task_states

        state = _task_states.get(task)
        scope = None if state is None else state.cancel_scope
        while scope is not None:
            if scope.shield:
                return True
            scope = scope._parent_scope
    except (ImportError, AttributeError):
        pass
    return False


dispatcher.use_sdk(
    mcp_error=MCPError,
    no_back_channel=NoBackChannelError,
    handler_error_data=handler_exception_to_error_data,
    run_notify_intercept=run_notify_intercept,
    from_json=from_json,
    to_json=to_json,
    event=anyio.Event,
    shielded=shielded,
    traced=traced,
    traced_request=traced_request,
)
