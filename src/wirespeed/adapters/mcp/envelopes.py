"""Envelopes of requests of 2026-07-28: the `_meta` that names the revision and the client.

Most clients send the same envelope in each request. Its text is compared, so that it is checked and
typed once.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import mcp.server.runner as stock
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
)
from mcp_types import methods
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError
from pydantic_core import to_json

if TYPE_CHECKING:
    from wirespeed.adapters.mcp.dispatcher import MessageContext

# The channel that `Connection.from_envelope` gives to a connection without a stream to its client.
NO_CHANNEL: Any = Connection.from_envelope(LATEST_MODERN_VERSION, None, None).outbound

# Members of a connection: those that each connection makes for itself; models, which are copied
# because a handler may change them; those that all connections share.
OWN = frozenset({"initialized", "state", "exit_stack"})
MODELS = frozenset({"client_capabilities", "_client_params"})
SHARED = frozenset({"outbound", "protocol_version", "session_id"})
MAX_KNOWN = 64
MAX_KEY = 4096  # bytes

_known: dict[bytes, Envelope] = {}


class RequestConnection(Connection):  # type: ignore[misc]  # without the SDK
    """The connection of one request. Members that handlers seldom read are made at the first
    access."""

    def __init__(self, members: Mapping[str, Any], models: Mapping[str, Any]) -> None:
        self.__dict__.update(members, _models=models)

    def __getattr__(self, name: str) -> Any:
        value: Any
        if name in MODELS:
            for member, model in copy.deepcopy(self.__dict__["_models"]).items():
                self.__dict__.setdefault(member, model)
            return self.__dict__[name]
        if name == "initialized":
            value = anyio.Event()
            value.set()
        elif name == "state":
            value = {}
        elif name == "exit_stack":
            value = AsyncExitStack()
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = value
        return value

    @property
    def initialize_accepted(self) -> bool:
        """Always true: this era has no handshake."""
        return True


class Envelope:
    """The common part of requests with the same envelope.

    Args:
        route: The SDK's reading of the envelope.
        params: The params of the request, if later requests find the envelope by the text of its
            `_meta`.
    """

    def __init__(self, route: InboundModernRoute, params: Mapping[str, Any] | None) -> None:
        self.route = route
        typed = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities
        )
        members = vars(typed)
        # another version of the SDK may have further members: then each request makes all of them
        self._is_known = members.keys() <= OWN | MODELS | SHARED
        self._members = {name: members[name] for name in SHARED & members.keys()}
        self._models = {name: members[name] for name in MODELS & members.keys()}
        # whether `_meta` is valid in a call; whether handlers get it as it is on the wire
        self.fits_calls = params is not None and _fits_calls(route.protocol_version, params)
        self.is_plain = params is not None and _is_plain(params)

    def connection(self, outbound: Any = NO_CHANNEL) -> Connection:
        """Return the connection of one request, as `Connection.from_envelope` makes it."""
        if not self._is_known:
            route = self.route
            return Connection.from_envelope(
                route.protocol_version,
                route.client_info,
                route.client_capabilities,
                outbound=outbound,
            )
        connection = RequestConnection(self._members, self._models)
        connection.outbound = outbound
        return connection


def _fits_calls(version: str, params: Mapping[str, Any]) -> bool:
    try:
        call = {"name": "", "_meta": params["_meta"]}
        methods.validate_client_request("tools/call", version, call)
    except (KeyError, ValidationError):
        return False
    return True


def _is_plain(params: Mapping[str, Any]) -> bool:
    """Whether handlers get the `_meta` as it is on the wire."""
    meta = params["_meta"]
    try:
        seen = stock._extract_meta({"_meta": meta})
    except AttributeError:  # another version of the SDK
        return False
    return type(meta) is dict and type(seen) is dict and to_json(seen) == to_json(meta)


def known(text: bytes | None) -> Envelope | None:
    """Return the envelope of an earlier request with this text; None if there was none."""
    return None if text is None else _known.get(text)


def read(
    context: MessageContext,
    method: str,
    params: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None = None,
) -> Envelope:
    """Return the envelope of a request. MCPError: it is not valid, or the header fields differ
    from it."""
    route = classify_inbound_request({"method": method, "params": params}, headers=headers)
    if isinstance(route, InboundLadderRejection):
        raise MCPError(code=route.code, message=route.message, data=route.data)
    text = context.envelope
    given = (route.protocol_version, route.client_info, route.client_capabilities)
    # 1, 1.0 and True are equal in Python, but their texts differ
    key = to_json(given) if text is None else text
    envelope = _known.get(key)
    if envelope is None:
        envelope = Envelope(route, None if text is None else params)
        if len(key) <= MAX_KEY:  # a client chooses how long it is
            if len(_known) >= MAX_KNOWN:
                _known.clear()
            _known[key] = envelope
    return envelope


def has_callbacks(connection: Connection) -> bool:
    """Whether handlers registered a callback for the end of the connection."""
    if type(connection) is RequestConnection and "exit_stack" not in vars(connection):
        return False
    try:
        return bool(connection.exit_stack._exit_callbacks)
    except AttributeError:
        return True
