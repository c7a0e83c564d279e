"""MCP clients: see `Client`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.client.client import Client
    from wirespeed.client.handshake import VersionMismatch
    from wirespeed.client.remote import Socket, WebSocket
    from wirespeed.client.results import (
        CallToolResult,
        ListToolsResult,
        LogMessage,
        ToolInfo,
        UnknownContent,
    )
    from wirespeed.client.sync import SyncClient
    from wirespeed.client.target import Stdio

__all__ = [
    "CallToolResult",
    "Client",
    "ListToolsResult",
    "LogMessage",
    "Socket",
    "Stdio",
    "SyncClient",
    "ToolInfo",
    "UnknownContent",
    "VersionMismatch",
    "WebSocket",
]

_HOMES = {
    "CallToolResult": "results",
    "Client": "client",
    "ListToolsResult": "results",
    "LogMessage": "results",
    "Socket": "remote",
    "Stdio": "target",
    "SyncClient": "sync",
    "ToolInfo": "results",
    "UnknownContent": "results",
    "VersionMismatch": "handshake",
    "WebSocket": "remote",
}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"wirespeed.client.{home}"), name)
    globals()[name] = value
    return value
