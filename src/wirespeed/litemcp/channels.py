"""Channels of LiteMCP clients: those of MCP clients, with other rules for WebSocket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from wirespeed.client.connection.channels import Channel, MemoryChannel
from wirespeed.client.connection.channels import channel_for as mcp_channel_for

if TYPE_CHECKING:
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.litemcp.server import LiteServer
    from wirespeed.transport.child.command import Stdio

LiteTarget: TypeAlias = "Stdio | Http | WebSocket | Socket | LiteServer | str"


def as_target(
    target: Any, token: str | None, headers: Mapping[str, str] | None, both_headers: bool
) -> Stdio | Http | WebSocket | Socket | LiteServer:
    """Return the target that a client's arguments name. No process is started and no host name is
    resolved. TypeError, ValueError: the arguments do not name a target."""
    from wirespeed.client.targets import Http, WebSocket, from_url

    if isinstance(target, str):
        target = from_url(target)
    if isinstance(target, (Http, WebSocket)):
        return _with_credentials(target, token, headers, both_headers)
    if token is not None or headers or both_headers:
        raise ValueError("token and headers are for HTTP and WebSocket only")
    from wirespeed.client.targets import Socket
    from wirespeed.transport.child.command import Stdio

    if isinstance(target, (Stdio, Socket)):
        return target
    from wirespeed.litemcp.server import LiteServer

    if isinstance(target, LiteServer):
        return target
    raise TypeError(
        "a target is Stdio(command, args), Http(url), WebSocket(url), Socket(url), a URL or a "
        f"LiteServer, not {type(target).__name__}"
    )


def _with_credentials(
    target: Http | WebSocket,
    token: str | None,
    headers: Mapping[str, str] | None,
    both_headers: bool,
) -> Http | WebSocket:
    if getattr(target, "auth", None) is not None:
        raise TypeError("LiteMCP has no authorization: Http(auth=…) is for MCP; use token")
    merged = dict(target.headers or {}) | dict(headers or {})
    if token is None:
        token = target.token
    if both_headers:
        # LiteMCP's pages say "Authorization", and show "Authentication: Bearer …"
        if token is None:
            raise ValueError("both_headers needs a token")
        if "authentication" in map(str.lower, merged):
            raise ValueError("both_headers and the header Authentication exclude each other")
        merged["Authentication"] = f"Bearer {token}"
    return replace(target, headers=merged, token=token)


def restarts_of(target: Any) -> int:
    """Return how many consecutive times a lost link is made again. The default for WebSocket and
    `Socket` is `RECONNECTS`, because LiteMCP connections have no state."""
    from wirespeed.client.targets import RECONNECTS, Socket, WebSocket

    restart = getattr(target, "restart", 0)
    if restart is None and isinstance(target, (WebSocket, Socket)):
        return RECONNECTS
    return int(restart or 0)


def channel_for(target: Any) -> Channel:
    """Return a new channel to the target, for one link."""
    from wirespeed.client.targets import WebSocket
    from wirespeed.litemcp.server import LiteServer

    if isinstance(target, LiteServer):
        server: Any = target
        return MemoryChannel(server)
    if isinstance(target, WebSocket):
        from wirespeed.client.connection.network_channels import WebSocketChannel

        channel = WebSocketChannel(target)
        channel.subprotocols = ()  # LiteMCP has none
        return channel
    return mcp_channel_for(target)
