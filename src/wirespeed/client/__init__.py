"""MCP clients: see `Client`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed import _exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.client.client import (
        Client as Client,
    )
    from wirespeed.client.events import (
        Event as Event,
        Notice as Notice,
        Overflowed as Overflowed,
        PromptsChanged as PromptsChanged,
        ResourceUpdated as ResourceUpdated,
        ResourcesChanged as ResourcesChanged,
        Resumed as Resumed,
        SubscriptionFilter as SubscriptionFilter,
        ToolsChanged as ToolsChanged,
    )
    from wirespeed.client.features import (
        Discovery as Discovery,
        ListPromptsResult as ListPromptsResult,
        ListResourceTemplatesResult as ListResourceTemplatesResult,
        ListResourcesResult as ListResourcesResult,
        PromptArgument as PromptArgument,
        PromptInfo as PromptInfo,
        PromptRef as PromptRef,
        ResourceInfo as ResourceInfo,
        ResourceRef as ResourceRef,
        ResourceTemplateInfo as ResourceTemplateInfo,
    )
    from wirespeed.client.handshake import (
        VersionMismatch as VersionMismatch,
    )
    from wirespeed.client.hub import (
        NotHonoured as NotHonoured,
    )
    from wirespeed.client.middleware import (
        ClientMiddleware as ClientMiddleware,
        OutboundRequest as OutboundRequest,
    )
    from wirespeed.client.progress import (
        report_progress as report_progress,
    )
    from wirespeed.client.questions import (
        Accept as Accept,
        ElicitParams as ElicitParams,
        SampleResult as SampleResult,
    )
    from wirespeed.client.remote import (
        Socket as Socket,
        WebSocket as WebSocket,
    )
    from wirespeed.client.results import (
        ListToolsResult as ListToolsResult,
        LogMessage as LogMessage,
        ToolInfo as ToolInfo,
    )
    from wirespeed.client.subscriptions import (
        Subscription as Subscription,
    )
    from wirespeed.client.sync import (
        BlockingSubscription as BlockingSubscription,
        SyncClient as SyncClient,
    )
    from wirespeed.client.sync_tasks import (
        BlockingTask as BlockingTask,
    )
    from wirespeed.client.target import (
        Stdio as Stdio,
    )
    from wirespeed.client.task_calls import (
        TASKS as TASKS,
    )
    from wirespeed.client.task_messages import (
        TaskState as TaskState,
    )
    from wirespeed.client.tasks import (
        ToolTask as ToolTask,
    )
    from wirespeed.client.timeouts import (
        CLIENT_DEFAULT as CLIENT_DEFAULT,
    )
    from wirespeed.protocol.asking import (
        ModelHint as ModelHint,
        ModelPreferences as ModelPreferences,
        Root as Root,
        SampleParams as SampleParams,
        SamplingMessage as SamplingMessage,
        ToolChoice as ToolChoice,
        ToolResultContent as ToolResultContent,
        ToolUseContent as ToolUseContent,
    )
    from wirespeed.protocol.blocks import (
        Annotations as Annotations,
        Audio as Audio,
        EmbeddedResource as EmbeddedResource,
        Icon as Icon,
        Image as Image,
        ResourceContents as ResourceContents,
        ResourceLink as ResourceLink,
        Text as Text,
        UnknownContent as UnknownContent,
    )
    from wirespeed.protocol.results import (
        CallToolResult as CallToolResult,
        Completion as Completion,
        GetPromptResult as GetPromptResult,
        PromptMessage as PromptMessage,
        ReadResourceResult as ReadResourceResult,
    )

# isort: on
__all__, __getattr__ = _exports(
    __name__,
    {
        "wirespeed.client.client": "Client",
        "wirespeed.client.events": (
            "Event Notice Overflowed PromptsChanged ResourceUpdated ResourcesChanged Resumed "
            "SubscriptionFilter ToolsChanged"
        ),
        "wirespeed.client.features": (
            "Discovery ListPromptsResult ListResourceTemplatesResult ListResourcesResult "
            "PromptArgument PromptInfo PromptRef ResourceInfo ResourceRef "
            "ResourceTemplateInfo"
        ),
        "wirespeed.client.handshake": "VersionMismatch",
        "wirespeed.client.hub": "NotHonoured",
        "wirespeed.client.middleware": "ClientMiddleware OutboundRequest",
        "wirespeed.client.progress": "report_progress",
        "wirespeed.client.questions": "Accept ElicitParams SampleResult",
        "wirespeed.client.remote": "Socket WebSocket",
        "wirespeed.client.results": "ListToolsResult LogMessage ToolInfo",
        "wirespeed.client.subscriptions": "Subscription",
        "wirespeed.client.sync": "BlockingSubscription SyncClient",
        "wirespeed.client.sync_tasks": "BlockingTask",
        "wirespeed.client.target": "Stdio",
        "wirespeed.client.task_calls": "TASKS",
        "wirespeed.client.task_messages": "TaskState",
        "wirespeed.client.tasks": "ToolTask",
        "wirespeed.client.timeouts": "CLIENT_DEFAULT",
        "wirespeed.protocol.asking": (
            "ModelHint ModelPreferences Root SampleParams SamplingMessage ToolChoice "
            "ToolResultContent ToolUseContent"
        ),
        "wirespeed.protocol.blocks": (
            "Annotations Audio EmbeddedResource Icon Image ResourceContents ResourceLink Text "
            "UnknownContent"
        ),
        "wirespeed.protocol.results": (
            "CallToolResult Completion GetPromptResult PromptMessage ReadResourceResult"
        ),
    },
)
