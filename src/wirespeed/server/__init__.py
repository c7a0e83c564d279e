"""MCP servers: see `Server`."""

from wirespeed.server.content import (
    Annotations,
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
)
from wirespeed.server.context import Context
from wirespeed.server.server import RawResult, Server
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
