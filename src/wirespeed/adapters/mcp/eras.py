"""One connection of the SDK's low-level `Server`, served in the era that its client opens with.

`mcp.server.runner.serve_dual_era_loop` does the same on streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.runner import (
    ServerRunner,
    _apply_middleware,
    _initialize_after_modern_data,
    aclose_shielded,
    modern_error_data,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
)
from mcp.shared.transport_context import TransportContext
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError
from pydantic_core import to_json

from wirespeed.adapters.mcp.sdk import carries_trace, has_provider, has_trace

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from mcp.server.models import InitializationOptions

    from wirespeed.adapters.mcp.dispatcher import MessageContext, SdkDispatcher

DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
ONE_WAY = TransportContext(kind="jsonrpc", can_send_request=False)


# What `Connection.from_envelope` gives a connection that has no way of its own to the client.
NO_CHANNEL: Any = Connection.from_envelope(LATEST_MODERN_VERSION, None, None).outbound


class _Envelope:
    """The content of the last envelope of a request, typed. Most clients send the same one in each
    request, and to validate it takes longer than to compare its JSON text."""

    said: bytes = b""
    client_params: Any = None
    client_capabilities: Any = None


_last = _Envelope()


def connection_of(route: InboundModernRoute, outbound: Any = NO_CHANNEL) -> Connection:
    """The connection of one request of 2026-07-28, as `Connection.from_envelope` makes it."""
    global _last
    given = (route.protocol_version, route.client_info, route.client_capabilities)
    said = to_json(given)  # Python takes 1, 1.0 and True for the same
    last = _last
    if last.said != said:
        typed = Connection.from_envelope(*given)
        last = _Envelope()
        last.said = said
        last.client_params = typed.client_params
        last.client_capabilities = typed.client_capabilities
        _last = last
    connection = Connection(
        outbound, protocol_version=route.protocol_version, client_params=last.client_params
    )
    connection.client_capabilities = last.client_capabilities
    connection.initialized.set()
    return connection


def is_idle(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether nobody would see the span of a message, and no trace has to be passed on."""
    if has_provider():
        return False
    params = ctx.params
    meta = params.get("_meta") if params else None
    if isinstance(meta, Mapping) and carries_trace(meta):
        return False
    return not has_trace()


def unless_idle(
    middleware: OpenTelemetryMiddleware, call_next: CallNext, ctx: ServerRequestContext[Any, Any]
) -> Any:
    """Call the SDK's OpenTelemetry middleware, unless it is idle."""
    if is_idle(ctx):
        return call_next(ctx)
    return middleware(ctx, call_next)


class Runner(ServerRunner[Any]):  # type: ignore[misc]  # without the SDK
    """The SDK's runner, without its OpenTelemetry middleware while that is idle."""

    def _compose_server_middleware(self, inner: CallNext) -> CallNext:
        call = inner
        for middleware in reversed(self.server.middleware):
            if type(middleware) is OpenTelemetryMiddleware:
                call = partial(unless_idle, middleware, call)
            else:
                call = partial(_apply_middleware, middleware, call)
        return call


class ServedConnection:
    """The SDK's half of one connection of a server.

    Args:
        server: The low-level server.
        dispatcher: The connection.
        lifespan_state: The value of the server's lifespan.
        session_id: Of Streamable HTTP.
        init_options: What `initialize` answers; None: what the server says.
        raise_exceptions: Whether an exception of a handler ends the connection.
    """

    def __init__(
        self,
        server: Server[Any],
        dispatcher: SdkDispatcher,
        lifespan_state: Any,
        *,
        session_id: str | None = None,
        init_options: InitializationOptions | None = None,
        raise_exceptions: bool = False,
    ) -> None:
        self.server = server
        self.dispatcher = dispatcher
        self.lifespan_state = lifespan_state
        self.init_options = init_options
        self.raise_exceptions = raise_exceptions
        self.connection = Connection.for_loop(dispatcher, session_id=session_id)
        runner = Runner(server, self.connection, lifespan_state, init_options=init_options)
        self.outbound = NotifyOnlyOutbound(dispatcher)
        dispatcher.raises = raise_exceptions
        dispatcher.make_transport = self.transport
        dispatcher.serve(
            runner.on_request,
            runner.on_notify,
            self.on_modern,
            self.on_modern_notify,
            self.on_stateless,
        )

    def transport(self, context: MessageContext) -> TransportContext:
        """The SDK's description of how a message came."""
        return DUPLEX if context.can_send_request else ONE_WAY

    @property
    def version(self) -> str:
        """The revision that `initialize` agreed on."""
        return str(self.connection.protocol_version)

    @property
    def ends(self) -> bool:
        """Whether handlers have registered anything that the end of the connection unwinds."""
        return has_callbacks(self.connection)

    async def aclose(self) -> None:
        """Unwind what handlers have registered with the connection."""
        if has_callbacks(self.connection):
            await aclose_shielded(self.connection)

    # -- 2026-07-28 ------------------------------------------------------------------------------

    async def on_modern(
        self, dctx: MessageContext, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Serve a request with an envelope."""
        if method == "initialize":
            raise MCPError(
                code=UNSUPPORTED_PROTOCOL_VERSION,
                message="connection is serving the 2026-07-28 protocol; "
                "the initialize handshake is not accepted",
                data=_initialize_after_modern_data(params),
            )
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(code=route.code, message=route.message, data=route.data)
        connection = connection_of(route, self.outbound)
        return await self.serve_one(dctx, method, params, connection)

    async def serve_one(
        self,
        dctx: Any,
        method: str,
        params: Mapping[str, Any] | None,
        connection: Connection,
    ) -> dict[str, Any]:
        """Serve a request with a connection of its own, as `mcp.server.runner.serve_one`."""
        runner = Runner(
            self.server, connection, self.lifespan_state, init_options=self.init_options
        )
        try:
            result: dict[str, Any] = await runner.on_request(dctx, method, params)
            return result
        except (MCPError, ValidationError):
            raise
        except Exception as exc:
            if self.raise_exceptions:
                raise
            error = modern_error_data(exc)
            raise MCPError(code=error.code, message=error.message, data=error.data) from exc
        finally:
            if has_callbacks(connection):
                await aclose_shielded(connection)

    async def on_modern_notify(
        self, dctx: Any, method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Handle a notification of a connection of 2026-07-28."""
        connection = Connection.from_envelope(
            LATEST_MODERN_VERSION, None, None, outbound=self.outbound
        )
        try:
            await Runner(self.server, connection, self.lifespan_state).on_notify(
                dctx, method, params
            )
        finally:
            if has_callbacks(connection):
                await aclose_shielded(connection)

    # -- older revisions, without a session --------------------------------------------------------

    async def on_stateless(
        self, dctx: Any, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Serve a request of an older revision that belongs to no session."""
        version = self.dispatcher.revision.version
        connection = Connection.from_envelope(version, None, None)
        runner = Runner(
            self.server, connection, self.lifespan_state, init_options=self.init_options
        )
        try:
            result: dict[str, Any] = await runner.on_request(dctx, method, params)
            return result
        finally:
            if has_callbacks(connection):
                await aclose_shielded(connection)


def has_callbacks(connection: Connection) -> bool:
    """Whether handlers have registered anything that the end of a connection unwinds."""
    try:
        return bool(connection.exit_stack._exit_callbacks)
    except AttributeError:
        return True
