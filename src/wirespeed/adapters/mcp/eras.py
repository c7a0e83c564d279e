"""One connection of the SDK's low-level `Server`, served in the era that its client opens with.

`mcp.server.runner.serve_dual_era_loop` does the same on streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.runner import (
    _initialize_after_modern_data,
    aclose_shielded,
    modern_error_data,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from wirespeed.adapters.mcp import envelopes
from wirespeed.adapters.mcp.envelopes import Envelope, has_callbacks
from wirespeed.adapters.mcp.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from mcp.server.lowlevel.server import Server
    from mcp.server.models import InitializationOptions

    from wirespeed.adapters.mcp.dispatcher import MessageContext, SdkDispatcher

DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
ONE_WAY = TransportContext(kind="jsonrpc", can_send_request=False)


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

    def enter(self, client: Any) -> None:
        """Set the user of a request, whom the listener let in, in the context of its handler."""
        if client is not None and client.user is not None:
            from wirespeed.adapters.mcp.access import enter

            enter(client.user, client.headers)

    # -- 2026-07-28 ------------------------------------------------------------------------------

    def on_modern(
        self, dctx: MessageContext, method: str, params: Mapping[str, Any] | None
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return the coroutine that serves a request with an envelope."""
        if method == "initialize":
            raise MCPError(
                code=UNSUPPORTED_PROTOCOL_VERSION,
                message="connection is serving the 2026-07-28 protocol; "
                "the initialize handshake is not accepted",
                data=_initialize_after_modern_data(params),
            )
        envelope = envelopes.known(dctx.envelope) or envelopes.read(dctx, method, params)
        return self.serve_one(dctx, method, params, envelope, self.outbound)

    async def serve_one(
        self,
        dctx: MessageContext,
        method: str,
        params: Mapping[str, Any] | None,
        envelope: Envelope,
        outbound: Any = envelopes.NO_CHANNEL,
    ) -> dict[str, Any]:
        """Serve a request with a connection of its own, as `mcp.server.runner.serve_one` does."""
        if dctx.exchange is None:
            self.enter(self.dispatcher.peer)
        connection = envelope.connection(outbound)
        runner = Runner(
            self.server, connection, self.lifespan_state, init_options=self.init_options
        )
        if dctx.envelope is not None:
            runner.envelope = envelope
        try:
            return await runner._on_request(dctx, method, params)
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
        self.enter(dctx.exchange)
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
