"""MCP servers: see `Server`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.server.content import (
        Annotations,
        Audio,
        EmbeddedResource,
        Icon,
        Image,
        RawResult,
        ResourceContents,
        ResourceLink,
        Text,
        ToolResult,
    )
    from wirespeed.server.context import Context
    from wirespeed.server.server import Server
    from wirespeed.server.signature import SignatureError

__all__ = [
    "Annotations",
    "Audio",
    "Context",
    "EmbeddedResource",
    "Icon",
    "Image",
    "RawResult",
    "ResourceContents",
    "ResourceLink",
    "Server",
    "SignatureError",
    "Text",
    "ToolResult",
]

_HOMES = dict.fromkeys(__all__, "content") | {
    "Context": "context",
    "Server": "server",
    "SignatureError": "signature",
}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed.server' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"wirespeed.server.{home}"), name)
    globals()[name] = value
    return value
