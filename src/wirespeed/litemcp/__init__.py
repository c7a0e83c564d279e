"""LiteMCP 1.0.0: servers with one tool an endpoint, their clients, and bridges to MCP.

See `LiteServer` and `LiteClient`; `wirespeed.litemcp.bridge` joins the two protocols. What a name
needs is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.litemcp.client import LiteClient
    from wirespeed.litemcp.messages import (
        CallResult,
        Content,
        Parameter,
        Response,
        Tool,
        VersionTuple,
    )
    from wirespeed.litemcp.server import LiteServer, run, serve
    from wirespeed.litemcp.sync import SyncLiteClient

__all__ = [
    "CallResult",
    "Content",
    "LiteClient",
    "LiteServer",
    "Parameter",
    "Response",
    "SyncLiteClient",
    "Tool",
    "VersionTuple",
    "run",
    "serve",
]

_HOMES = {
    "CallResult": "messages",
    "Content": "messages",
    "LiteClient": "client",
    "LiteServer": "server",
    "Parameter": "messages",
    "Response": "messages",
    "SyncLiteClient": "sync",
    "Tool": "messages",
    "VersionTuple": "messages",
    "run": "server",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed.litemcp' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"wirespeed.litemcp.{home}"), name)
    globals()[name] = value
    return value
