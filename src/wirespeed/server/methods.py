"""What a server does for each method but ``tools/call``: one function a method.

A handler gets the connection, the message and the revision it is served by (None for
``initialize``); it returns the result as JSON text, or None when it answers later, or raises
`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.messages import (
    DiscoverParams,
    InitializeParams,
    ListenParams,
    ListParams,
    SetLevelParams,
)
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LOG_LEVELS,
    META_SERVER_INFO,
    META_SUBSCRIPTION_ID,
    REVISIONS,
    Revision,
)

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.server import Server

LATEST_LEGACY_REVISION = REVISIONS[LATEST_LEGACY]

encode = msgspec.json.Encoder().encode

# Subscriptions of one connection: each keeps a request in flight.
MAX_LISTENS = 100


class State:
    """What the handshake of a legacy connection settled."""

    __slots__ = ("capabilities", "client_info", "initialized", "log_level")

    def __init__(self) -> None:
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] | None = None
        self.initialized = False
        self.log_level = LOG_LEVELS.index("info")


def params_of(message: Message, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The params in their type. ProtocolError -32602 names what does not fit."""
    raw = message.params
    try:
        return decoder.decode(b"{}" if raw is None else raw)
    except msgspec.DecodeError as exc:
        text = str(exc).replace("`$", "`params").replace("$.", "params.")
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {text}") from None


# -- eras -----------------------------------------------------------------------------------------


def unsupported_version(server: Server, requested: str | None) -> ProtocolError:
    """-32022 with the versions to choose from (2026-07-28 basic/versioning)."""
    return ProtocolError(
        codes.UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version: {requested}; supported: {', '.join(server.versions)}",
        {"supported": list(server.versions), "requested": requested},
    )


def newest(versions: tuple[str, ...]) -> Revision | None:
    """The newest of some revisions, oldest first; None of none."""
    return REVISIONS[versions[-1]] if versions else None


def modern_revision(connection: ServerConnection, message: Message) -> Revision:
    """The revision that a request's envelope names. ProtocolError if it cannot be served."""
    version = message.text("params._meta.io.modelcontextprotocol/protocolVersion")
    if version is None:
        raise ProtocolError(
            codes.INVALID_PARAMS,
            "params._meta must have io.modelcontextprotocol/protocolVersion, a string",
        )
    server = connection.server
    if version not in server.modern_versions:
        raise unsupported_version(server, version)
    return REVISIONS[version]


def refuse_uninitialized(connection: ServerConnection, message: Message) -> None:
    """A request that has neither a modern envelope nor a handshake before it."""
    server = connection.server
    if server.modern_versions and server.legacy_versions:
        text = "Neither initialize came before, nor has params._meta a protocol version"
    elif server.legacy_versions:
        text = "The connection is not initialized: send initialize first"
    else:
        text = "params._meta must have io.modelcontextprotocol/protocolVersion"
    raise ProtocolError(codes.INVALID_PARAMS, text)


def initialize(connection: ServerConnection, message: Message, revision: Revision | None) -> bytes:
    """The legacy handshake (basic/lifecycle of 2024-11-05 to 2025-11-25)."""
    server = connection.server
    if revision is not None:  # with a modern envelope: no such method there
        raise ProtocolError(codes.METHOD_NOT_FOUND, "Method not found: initialize")
    if not server.legacy_versions or connection.pinned_modern:
        try:
            version = params_of(message, _initialize).protocolVersion
        except ProtocolError:
            version = None
        raise unsupported_version(server, version)
    if connection.revision is not None:
        raise ProtocolError(codes.INVALID_REQUEST, "This connection is initialized already")
    params = params_of(message, _initialize)
    version = params.protocolVersion
    if version not in server.legacy_versions:
        version = server.legacy_versions[-1]
    chosen = REVISIONS[version]
    connection.revision = chosen
    connection.session.batches = chosen.batches
    connection.session.null_ids = chosen.null_error_ids
    connection.state.client_info = params.clientInfo
    connection.state.capabilities = params.capabilities
    return server._initialize_result(chosen)


def discover(connection: ServerConnection, message: Message, revision: Revision) -> bytes:
    """server/discover (2026-07-28): what the server is and speaks."""
    params_of(message, _discover)
    result: bytes = connection.server._discover_result
    return result


def ping(connection: ServerConnection, message: Message, revision: Revision) -> bytes:
    """basic/utilities/ping of the legacy revisions."""
    return b"{}"


# -- tools ----------------------------------------------------------------------------------------


def tools_list(connection: ServerConnection, message: Message, revision: Revision) -> bytes:
    """server/tools, "Listing Tools": pre-encoded pages; the cursor needs no connection state."""
    params = params_of(message, _list)
    return connection.server._tools_page(revision, params.cursor)


# -- logging --------------------------------------------------------------------------------------


def set_level(connection: ServerConnection, message: Message, revision: Revision) -> bytes:
    """logging/setLevel of the legacy revisions."""
    level = params_of(message, _set_level).level
    if level not in LOG_LEVELS:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Invalid log level: one of {', '.join(LOG_LEVELS)}"
        )
    connection.state.log_level = LOG_LEVELS.index(level)
    return b"{}"


# -- subscriptions (2026-07-28) -------------------------------------------------------------------


class Subscription:
    """One subscriptions/listen that stays open: basic/patterns/subscriptions."""

    __slots__ = ("connection", "raw_id", "ref", "tools")

    def __init__(self, connection: ServerConnection, request: Message, tools: bool) -> None:
        self.connection = connection
        self.ref = request.ref
        raw_id = request.raw_id
        assert raw_id is not None
        self.raw_id: bytes = raw_id
        self.tools = tools

    def meta(self) -> bytes:
        """The ``_meta`` that ties a message to this subscription: the id in its own JSON type."""
        return b'{"%b":%b}' % (META_SUBSCRIPTION_ID.encode(), self.raw_id)

    def notify(self, method: str) -> None:
        self.connection.session.send_notification(method, b'{"_meta":%b}' % self.meta())
        self.connection.wrote()

    def cancel(self) -> None:
        """The client ended it: nothing further is sent."""
        self.connection.listens.pop(self.raw_id, None)
        self.connection.session.cancelled_done()

    def end(self) -> None:
        """The server ends it: a cancellation and then the result, as stdio has it."""
        server = self.connection.server
        session = self.connection.session
        session.send_notification("notifications/cancelled", b'{"requestId":%b}' % self.raw_id)
        meta = with_server_info(server, self.meta())
        session.send_result(self.ref, b'{"resultType":"complete","_meta":%b}' % meta)
        self.connection.wrote()


def listen(connection: ServerConnection, message: Message, revision: Revision) -> None:
    """subscriptions/listen: acknowledge what is honoured, then keep the request open."""
    wanted = params_of(message, _listen).notifications
    if len(connection.listens) >= MAX_LISTENS:
        raise ProtocolError(
            codes.OVERLOADED, f"Too many subscriptions at once (the limit is {MAX_LISTENS})"
        )
    tools = wanted.get("toolsListChanged") is True
    subscription = Subscription(connection, message, tools)
    connection.listens[subscription.raw_id] = subscription
    connection.session.set_token(message, subscription)
    honoured = {"toolsListChanged": True} if tools else {}
    connection.session.send_notification(
        "notifications/subscriptions/acknowledged",
        b'{"_meta":%b,"notifications":%b}' % (subscription.meta(), encode(honoured)),
    )


def end_listens(connection: ServerConnection) -> None:
    """The server shuts down: every subscription gets its end."""
    for subscription in list(connection.listens.values()):
        subscription.end()
    connection.listens.clear()


def tools_changed(connection: ServerConnection) -> None:
    """Tell a client that the list of tools is another one now."""
    if connection.state.initialized:
        connection.session.send_notification("notifications/tools/list_changed")
        connection.wrote()
    for subscription in list(connection.listens.values()):
        if subscription.tools:
            subscription.notify("notifications/tools/list_changed")


# -- results --------------------------------------------------------------------------------------


def with_server_info(server: Server, meta: bytes) -> bytes:
    """A result's ``_meta`` with the server's identity added, unless it is there."""
    fields = msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
    fields.setdefault(META_SERVER_INFO, msgspec.Raw(server._info_json))
    return encode(fields)


Handler = Callable[[Any, Any, Any], bytes | None]

HANDLERS: dict[str, Handler] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": ping,
    "tools/list": tools_list,
    "logging/setLevel": set_level,
    "subscriptions/listen": listen,
}

_initialize = msgspec.json.Decoder(InitializeParams)
_discover = msgspec.json.Decoder(DiscoverParams)
_list = msgspec.json.Decoder(ListParams)
_set_level = msgspec.json.Decoder(SetLevelParams)
_listen = msgspec.json.Decoder(ListenParams)
