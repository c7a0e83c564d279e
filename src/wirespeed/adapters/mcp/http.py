"""Streamable HTTP as the SDK's handlers see it: the request, and its checks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mcp.server._streamable_http_modern import _mcp_param_rejection
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError
from starlette.requests import Request

from wirespeed.adapters.mcp import envelopes
from wirespeed.adapters.mcp.access import user_of
from wirespeed.adapters.mcp.eras import ServedConnection

if TYPE_CHECKING:
    from wirespeed.adapters.mcp.dispatcher import MessageContext


MAX_SCHEMAS = 4096
# Whether a schema has arguments that are header fields, by the identity of the schema.
_mirrored: dict[int, tuple[Any, bool]] = {}


class WireRequest(Request):  # type: ignore[misc]  # without the SDK
    """The HTTP request that brought a message. What handlers look at is made when they do."""

    def __init__(self, exchange: Any) -> None:
        self.__dict__["_exchange"] = exchange

    def __getattr__(self, name: str) -> Any:
        exchange = self.__dict__.get("_exchange")
        if exchange is None or "scope" in self.__dict__:
            raise AttributeError(name)

        async def receive() -> dict[str, Any]:
            if not exchange.gone:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        Request.__init__(self, scope_of(exchange), receive)
        self._stream_consumed = True  # its body is the message
        return getattr(self, name)


def scope_of(exchange: Any) -> dict[str, Any]:
    """The ASGI scope of a request."""
    host, _, port = exchange.address.rpartition(":")
    client = (host.strip("[]"), int(port)) if port.isdigit() else (exchange.address, 0)
    path = exchange.path
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "root_path": "",
        "query_string": exchange.query.encode("latin-1"),
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in exchange.headers.items()
        ],
        "client": client,
        "server": None,
        "state": {},
    }
    user = user_of(exchange.user, exchange.headers)
    if user is not None:
        scope["user"] = user
    return scope


class HttpServedConnection(ServedConnection):
    """The SDK's half of one session of Streamable HTTP, or of requests without a session."""

    def describe(self, context: MessageContext) -> ServerMessageMetadata:
        """The SDK's metadata of a message."""
        exchange = context.exchange
        request = WireRequest(exchange)
        if context.modern:
            return ServerMessageMetadata(request_context=request, can_send_request=False)
        self.enter(exchange)
        if self.connection.session_id is None:
            self.connection.session_id = self.dispatcher.session_id

        async def close_stream() -> None:
            exchange.pause(None)

        return ServerMessageMetadata(
            request_context=request,
            close_sse_stream=close_stream if exchange.session is not None else None,
            can_send_request=context.can_send_request,
        )

    def transport(self, context: MessageContext) -> TransportContext:
        """The SDK's description of how a message came."""
        if not context.modern or context.exchange is None:
            return super().transport(context)
        return TransportContext(
            kind="streamable-http",
            can_send_request=False,
            headers=WireRequest(context.exchange).headers,
        )

    def mirrors(self, params: Mapping[str, Any] | None) -> bool:
        """Whether arguments of the tool that is called are header fields, too; True where only the
        list of tools says so."""
        lookup = self.server.get_tool_input_schema
        name = (params or {}).get("name")
        if lookup is None or not isinstance(name, str):
            return True
        try:
            schema = lookup(name)
        except Exception:
            return True  # the SDK logs it
        known = _mirrored.get(id(schema))
        if known is None or known[0] is not schema:
            if len(_mirrored) >= MAX_SCHEMAS:
                _mirrored.clear()
            known = _mirrored[id(schema)] = schema, bool(schema and x_mcp_header_map(schema))
        return known[1]

    async def on_modern(
        self, dctx: MessageContext, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Serve a request with an envelope. Its header fields must agree with it."""
        if dctx.exchange is None:  # HTTP+SSE
            found: dict[str, Any] = await super().on_modern(dctx, method, params)
            return found
        self.enter(dctx.exchange)
        try:
            envelope = envelopes.known(dctx.envelope) if dctx.is_routed else None
            if envelope is None:
                envelope = envelopes.read(dctx, method, params, dctx.exchange.headers)
            if method == "tools/call" and self.mirrors(params):
                message: Any = SimpleNamespace(id=dctx.request_id, method=method, params=params)
                request = WireRequest(dctx.exchange)
                rejected = await _mcp_param_rejection(
                    self.server, request, message, envelope.route, self.lifespan_state
                )
                if rejected is not None:
                    raise MCPError(code=rejected.code, message=rejected.message, data=rejected.data)
            return await self.serve_one(dctx, method, params, envelope)
        except ValidationError:
            dctx.refuse_before_serving()
            raise
        except MCPError as exc:
            if exc.code == INVALID_PARAMS:  # for the SDK always a status of 400
                dctx.refuse_before_serving()
            raise
