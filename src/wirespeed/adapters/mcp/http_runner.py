"""``MCPServer.run("streamable-http")`` on our listener."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import (
    DEFAULT_MAX_SESSIONS,
    DEFAULT_SESSION_IDLE_TIMEOUT,
)
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE

from wirespeed.adapters.mcp.service import SdkService, verifies_tokens
from wirespeed.limits import Limits
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.net.serve import announce, serve

if TYPE_CHECKING:
    from mcp.server.mcpserver.server import MCPServer
    from mcp.server.transport_security import TransportSecuritySettings

    from wirespeed.transport.options import ListenFields

# An entry that can equal a Host header field. The SDK compares texts: "*" and URLs never match.
_HOST = re.compile(r"(?:\[[0-9a-f:.%]+\]|[^\[\]:/?#@*\s]+)(?::[0-9]{1,5})?", re.IGNORECASE)

ENDLESS = 1_000_000_000  # seconds or sessions, where the SDK has no limit


def gate_options(security: TransportSecuritySettings | None) -> ListenFields:
    """The options of a listener that check Host and Origin as the SDK's settings say."""
    if security is None:
        return {}
    if not security.enable_dns_rebinding_protection:
        return {"hosts": ["*"], "origins": ["*"]}
    hosts = [name.removesuffix(":*") for name in security.allowed_hosts]
    return {
        "hosts": [name for name in hosts if _HOST.fullmatch(name)],
        "origins": [origin for origin in security.allowed_origins if origin != "*"],
    }


def reason_for_stock(server: MCPServer[Any], options: Mapping[str, Any]) -> str | None:
    """The part of a server that only the SDK's own HTTP has; None: there is none."""
    if options.get("event_store") is not None:
        return "it has an event store"
    if verifies_tokens(server):
        return "it verifies tokens"
    if server._custom_starlette_routes:
        return "it has custom routes"
    app = server.streamable_http_app
    if app.__module__ != "mcp.server.mcpserver.server":
        return f"{type(server).__name__} has an application of its own"
    return None


async def serve_http(
    server: MCPServer[Any],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    streamable_http_path: str = "/mcp",
    json_response: bool = False,
    stateless_http: bool = False,
    event_store: None = None,
    retry_interval: int | None = None,
    max_request_body_size: int = DEFAULT_MAX_REQUEST_BODY_SIZE,
    session_idle_timeout: float | None = DEFAULT_SESSION_IDLE_TIMEOUT,
    max_sessions: int | None = DEFAULT_MAX_SESSIONS,
    transport_security: TransportSecuritySettings | None = None,
) -> None:
    """Serve a server as its ``run("streamable-http")`` does, on our listener."""
    options = HttpOptions(
        response="json" if json_response else "auto",
        stateless=stateless_http,
        retry=None if retry_interval is None else retry_interval / 1000,
        session_ttl=ENDLESS if session_idle_timeout is None else session_idle_timeout,
        max_sessions=ENDLESS if max_sessions is None else max_sessions,
        max_sessions_per_principal=ENDLESS if max_sessions is None else max_sessions,
        healthz=None,
    )
    limits = Limits(max_message=min(max_request_body_size, 2**31))
    name = f"[{host}]" if ":" in host else host
    await serve(  # type: ignore[misc]  # `gate_options` has no ``http``
        f"http://{name}:{port}{streamable_http_path}",
        SdkService(server, limits=limits, json_response=json_response),
        on_listening=announce,
        http=options,
        **gate_options(transport_security),
    )
