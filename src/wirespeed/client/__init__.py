"""MCP clients: see `Client`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.client.client import Client as Client
    from wirespeed.client.subscriptions.events import (
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
    from wirespeed.client.results.features import (
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
    from wirespeed.client.connection.handshake import VersionMismatch as VersionMismatch
    from wirespeed.client.subscriptions.router import NotHonoured as NotHonoured
    from wirespeed.client.requests.middleware import (
        ClientMiddleware as ClientMiddleware,
        OutboundRequest as OutboundRequest,
    )
    from wirespeed.client.answering.progress import report_progress as report_progress
    from wirespeed.client.answering.types import (
        Accept as Accept,
        ElicitParams as ElicitParams,
        SampleResult as SampleResult,
    )
    from wirespeed.client.targets.remote import Socket as Socket, WebSocket as WebSocket
    from wirespeed.client.results.tools import (
        ListToolsResult as ListToolsResult,
        LogMessage as LogMessage,
        ToolInfo as ToolInfo,
    )
    from wirespeed.client.subscriptions.subscription import Subscription as Subscription
    from wirespeed.client.sync import (
        BlockingSubscription as BlockingSubscription,
        SyncClient as SyncClient,
    )
    from wirespeed.client.tasks.sync import BlockingTask as BlockingTask
    from wirespeed.transport.child.command import Stdio as Stdio
    from wirespeed.client.tasks.calls import TASKS as TASKS
    from wirespeed.client.tasks.messages import TaskState as TaskState
    from wirespeed.client.tasks.task import ToolTask as ToolTask
    from wirespeed.client.timeouts import CLIENT_DEFAULT as CLIENT_DEFAULT
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
__all__, __getattr__ = exports(__name__)
