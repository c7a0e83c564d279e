"""MCP servers: see `Server`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.protocol.asking import (
        ModelHint,
        ModelPreferences,
        Root,
        SamplingMessage,
        ToolResultContent,
        ToolUseContent,
    )
    from wirespeed.protocol.blocks import (
        Annotations,
        Audio,
        EmbeddedResource,
        Icon,
        Image,
        ResourceContents,
        ResourceLink,
        Text,
        UnknownContent,
    )
    from wirespeed.protocol.results import Completion, PromptMessage
    from wirespeed.server.content import RawResult, ToolResult
    from wirespeed.server.contents import ResourceResult
    from wirespeed.server.context import Context
    from wirespeed.server.extensions import Extension, ExtensionResult
    from wirespeed.server.forms import Email, Uri, titles
    from wirespeed.server.inputs import InputRequired
    from wirespeed.server.passage import InboundRequest, Reply
    from wirespeed.server.prompt import Prompt, PromptResult
    from wirespeed.server.providers import DependencyError, Depends
    from wirespeed.server.questions import (
        Elicited,
        ElicitRequest,
        RootsRequest,
        Sampled,
        SampleRequest,
    )
    from wirespeed.server.resource import Resource, ResourceTemplate
    from wirespeed.server.roots import RootsChange
    from wirespeed.server.server import Server
    from wirespeed.server.signature import SignatureError

__all__ = [
    "Annotations",
    "Audio",
    "Completion",
    "Context",
    "DependencyError",
    "Depends",
    "ElicitRequest",
    "Elicited",
    "Email",
    "EmbeddedResource",
    "Extension",
    "ExtensionResult",
    "Icon",
    "Image",
    "InboundRequest",
    "InputRequired",
    "ModelHint",
    "ModelPreferences",
    "Prompt",
    "PromptMessage",
    "PromptResult",
    "RawResult",
    "Reply",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceResult",
    "ResourceTemplate",
    "Root",
    "RootsChange",
    "RootsRequest",
    "SampleRequest",
    "Sampled",
    "SamplingMessage",
    "Server",
    "SignatureError",
    "Text",
    "ToolResult",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
    "Uri",
    "titles",
]

_HOMES = {
    "wirespeed.protocol.asking": (
        "ModelHint",
        "ModelPreferences",
        "Root",
        "SamplingMessage",
        "ToolResultContent",
        "ToolUseContent",
    ),
    "wirespeed.protocol.results": ("Completion", "PromptMessage"),
    "wirespeed.server.content": ("RawResult", "ToolResult"),
    "wirespeed.server.contents": ("ResourceResult",),
    "wirespeed.server.context": ("Context",),
    "wirespeed.server.extensions": ("Extension", "ExtensionResult"),
    "wirespeed.server.forms": ("Email", "Uri", "titles"),
    "wirespeed.server.inputs": ("InputRequired",),
    "wirespeed.server.passage": ("InboundRequest", "Reply"),
    "wirespeed.server.prompt": ("Prompt", "PromptResult"),
    "wirespeed.server.providers": ("DependencyError", "Depends"),
    "wirespeed.server.questions": (
        "ElicitRequest",
        "Elicited",
        "RootsRequest",
        "SampleRequest",
        "Sampled",
    ),
    "wirespeed.server.resource": ("Resource", "ResourceTemplate"),
    "wirespeed.server.roots": ("RootsChange",),
    "wirespeed.server.server": ("Server",),
    "wirespeed.server.signature": ("SignatureError",),
}
_HOME_OF = dict.fromkeys(__all__, "wirespeed.protocol.blocks")
_HOME_OF |= {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed.server' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
