"""The SDK's runner of requests, without the work that nobody sees."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mcp.server.runner as stock
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, SERVER_INFO_META_KEY, ErrorData, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wirespeed.adapters.mcp import tool_calls
from wirespeed.adapters.mcp.sdk import carries_trace, has_provider, has_trace
from wirespeed.adapters.seams import is_known

if TYPE_CHECKING:
    from mcp.shared.dispatcher import DispatchContext

    from wirespeed.adapters.mcp.envelopes import Envelope

# The digests of the functions whose work `Runner` does.
REPLACED = {
    "mcp.server.runner:ServerRunner._on_request": "7587c2b3c38f38c2",
    "mcp.server.runner:ServerRunner._serialize": "2b8fa324a8a01537",
    "mcp.server.runner:ServerRunner._stamp_server_info": "f4fddcb75a80126b",
}
_known = is_known(REPLACED)
_stock_on_request = stock.ServerRunner._on_request  # before instrumentation replaces it


def is_idle(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the span of a message would go nowhere, and there is no trace to pass on."""
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


class Runner(stock.ServerRunner[Any]):  # type: ignore[misc]  # without the SDK
    """The SDK's runner, with less work and the same results.

    The OpenTelemetry middleware is left out while it is idle, and of calls of tools the work whose
    outcome is known (`tool_calls`).
    """

    envelope: Envelope | None = None  # of the request, where its text was known

    def _compose_server_middleware(self, inner: CallNext) -> CallNext:
        call = inner
        for middleware in reversed(self.server.middleware):
            if type(middleware) is OpenTelemetryMiddleware:
                call = partial(unless_idle, middleware, call)
            else:
                call = partial(stock._apply_middleware, middleware, call)
        return call

    async def _on_request(
        self, dctx: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if not _known or stock.ServerRunner._on_request is not _stock_on_request:
            unknown: dict[str, Any] = await super()._on_request(dctx, method, params)
            return unknown
        version = self.connection.protocol_version
        envelope = self.envelope
        if envelope is not None and envelope.is_plain and params is not None:
            meta = dict(params["_meta"])
        else:
            meta = stock._extract_meta(params)
        ctx = self._make_context(dctx, method, params, meta, version)
        call = self._compose_server_middleware(partial(self._respond, version, params))
        result: dict[str, Any] = stock._dump_result(await call(ctx))
        if method == "initialize":
            negotiated = self._negotiate_initialize(params)
            self.connection.client_params, self.connection.protocol_version = negotiated
        return result

    async def _respond(
        self,
        version: str,
        given: Mapping[str, Any] | None,
        ctx: ServerRequestContext[Any, Any],
    ) -> HandlerResult:
        """Return the result of a request in its wire form. Middleware may have changed the
        handler's."""
        method, params = ctx.method, ctx.params
        fits = False
        if method == tool_calls.CALL and params is given:
            envelope = self.envelope
            meta_fits = envelope is not None and envelope.fits_calls
            fits = tool_calls.fits(version, params, meta_fits)
        if not fits and method in methods.SPEC_CLIENT_METHODS:
            try:
                methods.validate_client_request(method, version, params)
            except KeyError:
                raise MCPError(METHOD_NOT_FOUND, "Method not found", method) from None
        if method == "initialize":
            return self._serialize(method, version, self._handle_initialize(params))
        entry = self.server.get_request_handler(method)
        if entry is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        if not self.connection.initialize_accepted and method not in stock._INIT_EXEMPT:
            raise MCPError(INVALID_PARAMS, "Invalid request parameters", "")
        tool = None
        if fits and tool_calls.is_same(version):
            tool = tool_calls.plain_tool(entry, params["name"])
        if tool is not None:
            result = await tool_calls.call(tool, params["name"], params.get("arguments") or {})
        else:
            typed = entry.params_type.model_validate(
                {} if params is None else params, by_name=False
            )
            result = await entry.handler(ctx, typed)
            if isinstance(result, ErrorData):
                raise MCPError.from_error_data(result)
        if method == tool_calls.CALL:
            wire = tool_calls.wire_form(version, result)
            if wire is not None:
                return self._stamp_server_info(version, wire)
        return self._serialize(method, version, result)

    def _stamp_server_info(self, version: str, result: dict[str, Any]) -> dict[str, Any]:
        if not _known or version not in MODERN_PROTOCOL_VERSIONS or result.get("_meta") is not None:
            stamped: dict[str, Any] = super()._stamp_server_info(version, result)
            return stamped
        result["_meta"] = {SERVER_INFO_META_KEY: stamp_of(self.server)}
        return result


# The name of each server in results, and whether all its members are strings.
_stamps: WeakKeyDictionary[Server[Any], tuple[dict[str, Any], bool]] = WeakKeyDictionary()


def stamp_of(server: Server[Any]) -> dict[str, Any]:
    """Return the name of a server for one result. The caller may change it."""
    if type(server).server_info_stamp is not Server.server_info_stamp:
        own: dict[str, Any] = server.server_info_stamp  # a subclass of the program defines it
        return own
    known = _stamps.get(server)
    if known is None:
        stamp = server.server_info_stamp
        known = _stamps[server] = stamp, all(type(value) is str for value in stamp.values())
    stamp, is_flat = known
    return dict(stamp) if is_flat else copy.deepcopy(stamp)
