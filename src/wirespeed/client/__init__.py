"""MCP clients: see `Client`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.client.client import Client
    from wirespeed.client.events import (
        Event,
        Notice,
        Overflowed,
        PromptsChanged,
        ResourcesChanged,
        ResourceUpdated,
        Resumed,
        SubscriptionFilter,
        ToolsChanged,
    )
    from wirespeed.client.features import (
        Discovery,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        PromptArgument,
        PromptInfo,
        PromptRef,
        ResourceInfo,
        ResourceRef,
        ResourceTemplateInfo,
    )
    from wirespeed.client.handshake import VersionMismatch
    from wirespeed.client.hub import NotHonoured
    from wirespeed.client.middleware import ClientMiddleware, OutboundRequest
    from wirespeed.client.progress import report_progress
    from wirespeed.client.questions import Accept, ElicitParams, SampleResult
    from wirespeed.client.remote import (
        Socket,
        WebSocket,
    )
    from wirespeed.client.results import (
        ListToolsResult,
        LogMessage,
        ToolInfo,
    )
    from wirespeed.client.subscriptions import Subscription
    from wirespeed.client.sync import (
        BlockingSubscription,
        SyncClient,
    )
    from wirespeed.client.sync_tasks import BlockingTask
    from wirespeed.client.target import Stdio
    from wirespeed.client.task_calls import TASKS
    from wirespeed.client.task_messages import TaskState
    from wirespeed.client.tasks import ToolTask
    from wirespeed.client.timeouts import CLIENT_DEFAULT
    from wirespeed.protocol.asking import (
        ModelHint,
        ModelPreferences,
        Root,
        SampleParams,
        SamplingMessage,
        ToolChoice,
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
    from wirespeed.protocol.results import (
        CallToolResult,
        Completion,
        GetPromptResult,
        PromptMessage,
        ReadResourceResult,
    )

__all__ = [
    "CLIENT_DEFAULT",
    "TASKS",
    "Accept",
    "Annotations",
    "Audio",
    "BlockingSubscription",
    "BlockingTask",
    "CallToolResult",
    "Client",
    "ClientMiddleware",
    "Completion",
    "Discovery",
    "ElicitParams",
    "EmbeddedResource",
    "Event",
    "GetPromptResult",
    "Icon",
    "Image",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListToolsResult",
    "LogMessage",
    "ModelHint",
    "ModelPreferences",
    "NotHonoured",
    "Notice",
    "OutboundRequest",
    "Overflowed",
    "PromptArgument",
    "PromptInfo",
    "PromptMessage",
    "PromptRef",
    "PromptsChanged",
    "ReadResourceResult",
    "ResourceContents",
    "ResourceInfo",
    "ResourceLink",
    "ResourceRef",
    "ResourceTemplateInfo",
    "ResourceUpdated",
    "ResourcesChanged",
    "Resumed",
    "Root",
    "SampleParams",
    "SampleResult",
    "SamplingMessage",
    "Socket",
    "Stdio",
    "Subscription",
    "SubscriptionFilter",
    "SyncClient",
    "TaskState",
    "Text",
    "ToolChoice",
    "ToolInfo",
    "ToolResultContent",
    "ToolTask",
    "ToolUseContent",
    "ToolsChanged",
    "UnknownContent",
    "VersionMismatch",
    "WebSocket",
    "report_progress",
]

_HOMES = {
    "wirespeed.client.client": ("Client",),
    "wirespeed.client.events": (
        "Event",
        "Notice",
        "Overflowed",
        "PromptsChanged",
        "ResourceUpdated",
        "ResourcesChanged",
        "Resumed",
        "SubscriptionFilter",
        "ToolsChanged",
    ),
    "wirespeed.client.features": (
        "Discovery",
        "ListPromptsResult",
        "ListResourceTemplatesResult",
        "ListResourcesResult",
        "PromptArgument",
        "PromptInfo",
        "PromptRef",
        "ResourceInfo",
        "ResourceRef",
        "ResourceTemplateInfo",
    ),
    "wirespeed.client.handshake": ("VersionMismatch",),
    "wirespeed.client.hub": ("NotHonoured",),
    "wirespeed.client.middleware": ("ClientMiddleware", "OutboundRequest"),
    "wirespeed.client.progress": ("report_progress",),
    "wirespeed.client.questions": ("Accept", "ElicitParams", "SampleResult"),
    "wirespeed.client.remote": ("Socket", "WebSocket"),
    "wirespeed.client.results": ("ListToolsResult", "LogMessage", "ToolInfo"),
    "wirespeed.client.subscriptions": ("Subscription",),
    "wirespeed.client.sync": ("BlockingSubscription", "SyncClient"),
    "wirespeed.client.sync_tasks": ("BlockingTask",),
    "wirespeed.client.target": ("Stdio",),
    "wirespeed.client.task_calls": ("TASKS",),
    "wirespeed.client.task_messages": ("TaskState",),
    "wirespeed.client.tasks": ("ToolTask",),
    "wirespeed.client.timeouts": ("CLIENT_DEFAULT",),
    "wirespeed.protocol.asking": (
        "ModelHint",
        "ModelPreferences",
        "Root",
        "SampleParams",
        "SamplingMessage",
        "ToolChoice",
        "ToolResultContent",
        "ToolUseContent",
    ),
    "wirespeed.protocol.results": (
        "CallToolResult",
        "Completion",
        "GetPromptResult",
        "PromptMessage",
        "ReadResourceResult",
    ),
}
_HOME_OF = dict.fromkeys(__all__, "wirespeed.protocol.blocks")
_HOME_OF |= {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'wirespeed.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
