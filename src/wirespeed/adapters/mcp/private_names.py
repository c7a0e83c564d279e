"""The private names of the SDK that the adapter uses: one that has moved is found before anything
runs."""

from __future__ import annotations

import importlib
from typing import Any

# What is needed of the SDK besides what its documentation names.
PRIVATE = (
    "mcp.client.client:Client._build_session",
    "mcp.client.stdio:_close_subprocess_transport",
    "mcp.client.stdio:_create_platform_compatible_process",
    "mcp.client.stdio:_get_executable_command",
    "mcp.client.stdio:_terminate_process_tree",
    "mcp.client.stdio:_wait_for_process_exit",
    "mcp.server._streamable_http_modern:_mcp_param_rejection",
    "mcp.server.connection:NotifyOnlyOutbound",
    "mcp.server.runner:ServerRunner._compose_server_middleware",
    "mcp.server.runner:_apply_middleware",
    "mcp.server.runner:_initialize_after_modern_data",
    "mcp.server.runner:aclose_shielded",
    "mcp.server.runner:modern_error_data",
    "mcp.server.stdio:_StreamClaim",
    "mcp.server.stdio:_claims",
    "mcp.server.stdio:_claims_lock",
    "mcp.server._otel:OpenTelemetryMiddleware",
    "mcp.shared._otel:inject_trace_context",
    "mcp.shared._otel:otel_span",
    "mcp.shared.dispatcher:run_notify_intercept",
    "mcp.shared.inbound:classify_inbound_request",
    "mcp.shared.jsonrpc_dispatcher:handler_exception_to_error_data",
)


def missing() -> list[str]:
    """The names that are not there."""
    gone = []
    for place in PRIVATE:
        module, _, path = place.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for name in path.split("."):
                value = getattr(value, name)
        except (ImportError, AttributeError):
            gone.append(place)
    return gone
