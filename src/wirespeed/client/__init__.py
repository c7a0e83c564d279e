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
        Completion,
        Contents,
        Discovery,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        PromptArgument,
        PromptInfo,
        PromptMessage,
        PromptRef,
        ReadResourceResult,
        ResourceInfo,
        ResourceRef,
        ResourceTemplateInfo,
    )
    from wirespeed.client.handshake import VersionMismatch
    from wirespeed.client.hub import NotHonoured
    from wirespeed.client.questions import Accept, ElicitRequest, SampleRequest, SampleResult
    from wirespeed.client.remote import (
        Socket,
        WebSocket,
    )
    from wirespeed.client.results import (
        CallToolResult,
        ListToolsResult,
        LogMessage,
        ToolInfo,
        UnknownContent,
    )
    from wirespeed.client.roots import Root
    from wirespeed.client.subscriptions import Subscription
    from wirespeed.client.sync import (
        BlockingSubscription,
        SyncClient,
    )
    from wirespeed.client.sync_tasks import BlockingTask
    from wirespeed.client.target import Stdio
    from wirespeed.client.task_calls import TASKS
    from wirespeed.client.tasks import TaskState, ToolTask

__all__ = [
    "TASKS",
    "Accept",
    "BlockingSubscription",
    "BlockingTask",
    "CallToolResult",
    "Client",
    "Completion",
    "Contents",
    "Discovery",
    "ElicitRequest",
    "Event",
    "GetPromptResult",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListToolsResult",
    "LogMessage",
    "NotHonoured",
    "Notice",
    "Overflowed",
    "PromptArgument",
    "PromptInfo",
    "PromptMessage",
    "PromptRef",
    "PromptsChanged",
    "ReadResourceResult",
    "ResourceInfo",
    "ResourceRef",
    "ResourceTemplateInfo",
    "ResourceUpdated",
    "ResourcesChanged",
    "Resumed",
    "Root",
    "SampleRequest",
    "SampleResult",
    "Socket",
    "Stdio",
    "Subscription",
    "SubscriptionFilter",
    "SyncClient",
    "TaskState",
    "ToolInfo",
    "ToolTask",
    "ToolsChanged",
    "UnknownContent",
    "VersionMismatch",
    "WebSocket",
]

_HOMES = {
    "Accept": "questions",
    "BlockingSubscription": "sync",
    "BlockingTask": "sync_tasks",
    "CallToolResult": "results",
    "Client": "client",
    "Completion": "features",
    "Contents": "features",
    "Discovery": "features",
    "ElicitRequest": "questions",
    "Event": "events",
    "GetPromptResult": "features",
    "ListPromptsResult": "features",
    "ListResourceTemplatesResult": "features",
    "ListResourcesResult": "features",
    "ListToolsResult": "results",
    "LogMessage": "results",
    "NotHonoured": "hub",
    "Notice": "events",
    "Overflowed": "events",
    "PromptArgument": "features",
    "PromptInfo": "features",
    "PromptMessage": "features",
    "PromptRef": "features",
    "PromptsChanged": "events",
    "ReadResourceResult": "features",
    "ResourceInfo": "features",
    "ResourceRef": "features",
    "ResourceTemplateInfo": "features",
    "ResourceUpdated": "events",
    "ResourcesChanged": "events",
    "Resumed": "events",
    "Root": "roots",
    "SampleRequest": "questions",
    "SampleResult": "questions",
    "Socket": "remote",
    "Stdio": "target",
    "Subscription": "subscriptions",
    "SubscriptionFilter": "events",
    "SyncClient": "sync",
    "TASKS": "task_calls",
    "TaskState": "tasks",
    "ToolInfo": "results",
    "ToolTask": "tasks",
    "ToolsChanged": "events",
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
