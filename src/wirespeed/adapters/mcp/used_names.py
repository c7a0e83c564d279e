"""The names of the SDK that the adapter uses, public and private. A name that has moved is found
at the installation, not in the middle of a program."""

from __future__ import annotations

import importlib
from typing import Any

NAMES = (
    "mcp.client.client:Client._build_session",
    "mcp.client.stdio:PROCESS_TERMINATION_TIMEOUT",
    "mcp.client.stdio:_close_subprocess_transport",
    "mcp.client.stdio:_create_platform_compatible_process",
    "mcp.client.stdio:_get_executable_command",
    "mcp.client.stdio:_terminate_process_tree",
    "mcp.client.stdio:_wait_for_process_exit",
    "mcp.client.stdio:get_default_environment",
    "mcp.client.stdio:logger",
    "mcp.server._otel:OpenTelemetryMiddleware",
    "mcp.server._streamable_http_modern:_mcp_param_rejection",
    "mcp.server.auth.middleware.auth_context:auth_context_var",
    "mcp.server.auth.middleware.bearer_auth:AuthenticatedUser",
    "mcp.server.auth.provider:AccessToken",
    "mcp.server.connection:Connection",
    "mcp.server.connection:NotifyOnlyOutbound",
    "mcp.server.context:CallNext",
    "mcp.server.context:HandlerResult",
    "mcp.server.context:ServerRequestContext",
    "mcp.server.lowlevel.server:Server",
    "mcp.server.mcpserver.exceptions:ResourceError",
    "mcp.server.mcpserver.exceptions:ToolError",
    "mcp.server.mcpserver.exceptions:UnexpectedResourceError",
    "mcp.server.mcpserver.exceptions:UnexpectedToolError",
    "mcp.server.mcpserver.tools:Tool",
    "mcp.server.mcpserver.tools:ToolManager",
    "mcp.server.mcpserver.utilities.func_metadata:ArgModelBase",
    "mcp.server.mcpserver.utilities.func_metadata:FuncMetadata",
    "mcp.server.mcpserver:MCPServer",
    "mcp.server.runner:ServerRunner",
    "mcp.server.runner:ServerRunner._compose_server_middleware",
    "mcp.server.runner:_INIT_EXEMPT",
    "mcp.server.runner:_apply_middleware",
    "mcp.server.runner:_dump_result",
    "mcp.server.runner:_initialize_after_modern_data",
    "mcp.server.runner:aclose_shielded",
    "mcp.server.runner:modern_error_data",
    "mcp.server.stdio:_StreamClaim",
    "mcp.server.stdio:_claims",
    "mcp.server.stdio:_claims_lock",
    "mcp.server.streamable_http_manager:DEFAULT_MAX_SESSIONS",
    "mcp.server.streamable_http_manager:DEFAULT_SESSION_IDLE_TIMEOUT",
    "mcp.server.transport_security:DEFAULT_MAX_REQUEST_BODY_SIZE",
    "mcp.shared._otel:inject_trace_context",
    "mcp.shared._otel:otel_span",
    "mcp.shared.dispatcher:CallOptions",
    "mcp.shared.dispatcher:run_notify_intercept",
    "mcp.shared.exceptions:MCPError",
    "mcp.shared.exceptions:NoBackChannelError",
    "mcp.shared.inbound:InboundLadderRejection",
    "mcp.shared.inbound:InboundModernRoute",
    "mcp.shared.inbound:classify_inbound_request",
    "mcp.shared.inbound:x_mcp_header_map",
    "mcp.shared.jsonrpc_dispatcher:handler_exception_to_error_data",
    "mcp.shared.message:ServerMessageMetadata",
    "mcp.shared.message:SessionMessage",
    "mcp.shared.transport_context:TransportContext",
    "mcp_types.version:HANDSHAKE_PROTOCOL_VERSIONS",
    "mcp_types.version:KNOWN_PROTOCOL_VERSIONS",
    "mcp_types.version:LATEST_MODERN_VERSION",
    "mcp_types.version:MODERN_PROTOCOL_VERSIONS",
    "mcp_types:CONNECTION_CLOSED",
    "mcp_types:CallToolRequestParams",
    "mcp_types:CallToolResult",
    "mcp_types:ErrorData",
    "mcp_types:INVALID_PARAMS",
    "mcp_types:METHOD_NOT_FOUND",
    "mcp_types:SERVER_INFO_META_KEY",
    "mcp_types:TextContent",
    "mcp_types:UNSUPPORTED_PROTOCOL_VERSION",
    "mcp_types:jsonrpc_message_adapter",
    "mcp_types:methods",
)


def missing() -> list[str]:
    """Return the names that the SDK lacks."""
    gone = []
    for place in NAMES:
        module, _, path = place.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for name in path.split("."):
                value = getattr(value, name)
        except Exception:  # an import may raise anything
            gone.append(place)
    return gone
