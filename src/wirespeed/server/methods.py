"""Methods: the handler of each, loaded at its first call, and the handlers of every server.

A handler gets the call, whose ``revision`` the request is served by (None for ``initialize``), and
the message. It returns the result (see `wirespeed.server.requests.reply`), or a coroutine that
returns it, or None when it has started the call, which answers later. Or it raises `ProtocolError`.
``tools/call`` is served by `wirespeed.server.connection`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.messages import DiscoverParams, InitializeParams, SetLevelParams
from wirespeed.protocol.revisions import LATEST_LEGACY, LOG_LEVELS, REVISIONS, Revision, understood
from wirespeed.server.requests.call import Feature, Handshake
from wirespeed.server.requests.operation import cursor_of, params_of, saved
from wirespeed.server.requests.reply import Body

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.requests.call import Call, Serving
    from wirespeed.server.requests.operation import Handler

LATEST_LEGACY_REVISION = REVISIONS[LATEST_LEGACY]

# The module and name of each method's handler.
HANDLERS: dict[str, str] = {
    "initialize": "wirespeed.server.methods:initialize",
    "server/discover": "wirespeed.server.methods:discover",
    "ping": "wirespeed.server.methods:ping",
    "tools/list": "wirespeed.server.methods:tools_list",
    "prompts/list": "wirespeed.server.prompts:list_prompts",
    "prompts/get": "wirespeed.server.prompts:get",
    "resources/list": "wirespeed.server.resources.resource:list_resources",
    "resources/templates/list": "wirespeed.server.resources.resource:list_templates",
    "resources/read": "wirespeed.server.resources.resource:read",
    "completion/complete": "wirespeed.server.completion:complete",
    "logging/setLevel": "wirespeed.server.methods:set_level",
    "subscriptions/listen": "wirespeed.server.subscriptions:listen",
    "resources/subscribe": "wirespeed.server.subscriptions:subscribe",
    "resources/unsubscribe": "wirespeed.server.subscriptions:unsubscribe",
    "tasks/get": "wirespeed.server.tasks.legacy:get",
    "tasks/result": "wirespeed.server.tasks.legacy:result",
    "tasks/list": "wirespeed.server.tasks.legacy:list_page",
    "tasks/cancel": "wirespeed.server.tasks.legacy:cancel",
}

# What a server must offer, so that it has a method: others are not found (JSON-RPC 2.0 section 5.1,
# and the note at MethodNotFoundError in the schema of 2026-07-28).
NEEDS: dict[str, str] = {
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "completion/complete": "completions",
    "tasks/get": "tasks",
    "tasks/result": "tasks",
    "tasks/list": "tasks",
    "tasks/cancel": "tasks",
}


@functools.cache
def handler_of(method: str) -> Handler:
    """The handler of a method. ProtocolError -32601: there is none."""
    place = HANDLERS.get(method)
    if place is None:
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {shortened(method)}")
    module, _, name = place.partition(":")
    handler: Handler = getattr(importlib.import_module(module), name)
    return handler


def check_offered(discovery: ServerDiscovery, method: str) -> None:
    """ProtocolError -32601 for a method of a feature that the server does not have."""
    need = NEEDS.get(method)
    if need is not None and not discovery.offered(need):
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"This server has no {need}: {method}")


# -- eras -----------------------------------------------------------------------------------------


def unsupported_version(discovery: ServerDiscovery, requested: str | None) -> ProtocolError:
    """-32022 with the versions to choose from (2026-07-28 basic/versioning)."""
    requested = shortened(requested or "")
    return ProtocolError(
        codes.UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version: {requested}; supported: {', '.join(discovery.versions)}",
        {"supported": list(discovery.versions), "requested": requested},
    )


def newest(versions: tuple[str, ...]) -> Revision | None:
    """The newest of some revisions, oldest first; None of none."""
    return REVISIONS[versions[-1]] if versions else None


def modern_revision(connection: Serving, version: str) -> Revision:
    """The revision that a request's envelope names. ProtocolError if it cannot be served."""
    discovery = connection.service.discovery
    if version not in discovery.modern_versions:
        raise unsupported_version(discovery, version)
    return REVISIONS[version]


def refuse_uninitialized(connection: Serving, message: Message) -> None:
    """A request that has neither a modern envelope nor a handshake before it; of a client without a
    session, one that has no envelope."""
    discovery = connection.service.discovery
    if connection.shared and discovery.modern_versions:
        text = "params._meta must have io.modelcontextprotocol/protocolVersion"
    elif discovery.modern_versions and discovery.legacy_versions:
        text = "Neither initialize came before, nor has params._meta a protocol version"
    elif discovery.legacy_versions:
        text = "The connection is not initialized: send initialize first"
    else:
        text = "params._meta must have io.modelcontextprotocol/protocolVersion"
    raise ProtocolError(codes.INVALID_PARAMS, text)


def initialize(call: Call, message: Message) -> bytes | Coroutine[Any, Any, bytes]:
    """The legacy handshake (basic/lifecycle of 2024-11-05 to 2025-11-25)."""
    connection = call.connection
    discovery = connection.service.discovery
    if call.revision is not None:  # with a modern envelope: no such method there
        raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: initialize")
    if not discovery.legacy_versions or connection.handshake == Handshake.MODERN:
        try:
            version = params_of(message, _initialize).protocolVersion
        except ProtocolError:
            version = None
        raise unsupported_version(discovery, version)
    if connection.shared:
        if connection.revision is None:
            refuse_uninitialized(connection, message)
    elif connection.revision is not None:
        raise ProtocolError(codes.INVALID_REQUEST, "This connection is initialized already")
    params = params_of(message, _initialize)
    version = params.protocolVersion
    if version not in discovery.legacy_versions:
        version = discovery.legacy_versions[-1]
    chosen = REVISIONS[version]
    if not connection.shared:  # else the next request may be another client's
        connection.handshake = Handshake.GREETED
        connection.revision = chosen
        connection.session.batches = chosen.batches
        connection.session.null_ids = chosen.null_error_ids
        connection.state.client_info = params.clientInfo
        connection.state.capabilities = understood(params.capabilities)
        connection.changes.offered = frozenset(discovery.capabilities(chosen))
    return saved(call, discovery.initialize_result(chosen))


def discover(call: Call, message: Message) -> Body:
    """server/discover (2026-07-28): what the server is and speaks."""
    params_of(message, _discover)
    return call.connection.service.discovery.discover_result(call.revision)


def ping(call: Call, message: Message) -> bytes:
    """basic/utilities/ping of the legacy revisions."""
    return b"{}"


# -- tools ----------------------------------------------------------------------------------------


def tools_list(call: Call, message: Message) -> Body:
    """server/tools, "Listing Tools": pre-encoded pages; the cursor needs no connection state."""
    service = call.connection.service
    shows = service.visibility.of("tools", call)
    if service.tool_search is not None:
        shows = service.tool_search.listed(shows)
    return service.tools.page(call.revision, cursor_of(message), shows)


# -- logging --------------------------------------------------------------------------------------


def set_level(call: Call, message: Message) -> bytes | Coroutine[Any, Any, bytes]:
    """logging/setLevel of the legacy revisions."""
    level = params_of(message, _set_level).level
    if level not in LOG_LEVELS:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Invalid log level: one of {', '.join(LOG_LEVELS)}"
        )
    call.connection.state.log_level = LOG_LEVELS.index(level)
    return saved(call)


@functools.cache
def answer(method: str) -> Feature:
    """The operation of a request that a coroutine answers."""

    async def nothing() -> None:
        raise NotImplementedError

    return Feature(method, "request", nothing, encode=lambda body, revision: body)


_initialize = msgspec.json.Decoder(InitializeParams)
_discover = msgspec.json.Decoder(DiscoverParams)
_set_level = msgspec.json.Decoder(SetLevelParams)
