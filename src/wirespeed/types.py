"""The values of the API: what handlers take and return, what clients receive, and their parts.

What makes servers and clients is in `wirespeed`, what they raise in `wirespeed.errors`. A name is
loaded when it is first used.
"""

from __future__ import annotations

from wirespeed._exports import TYPE_CHECKING, exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.client.answering.types import (
        Accept as Accept,
        ElicitParams as ElicitParams,
        SampleResult as SampleResult,
    )
    from wirespeed.client.requests.middleware import (
        ClientMiddleware as ClientMiddleware,
        OutboundNext as OutboundNext,
        OutboundRequest as OutboundRequest,
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
    from wirespeed.client.results.tools import (
        ListToolsResult as ListToolsResult,
        LogMessage as LogMessage,
        ToolInfo as ToolInfo,
    )
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
    from wirespeed.client.subscriptions.subscription import Subscription as Subscription
    from wirespeed.client.sync import BlockingSubscription as BlockingSubscription
    from wirespeed.client.tasks.messages import TaskState as TaskState
    from wirespeed.client.tasks.sync import BlockingTask as BlockingTask
    from wirespeed.client.tasks.task import ToolTask as ToolTask
    from wirespeed.protocol.asking import (
        ListRootsParams as ListRootsParams,
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
    from wirespeed.schema.forms import Email as Email, Uri as Uri, titles as titles
    from wirespeed.server.asking.elicitation import (
        AcceptedElicitation as AcceptedElicitation,
        CancelledElicitation as CancelledElicitation,
        DeclinedElicitation as DeclinedElicitation,
        ElicitRequest as ElicitRequest,
        Elicited as Elicited,
    )
    from wirespeed.server.asking.input_required import InputRequired as InputRequired
    from wirespeed.server.asking.roots import RootsRequest as RootsRequest
    from wirespeed.server.asking.roots_changes import RootsChange as RootsChange
    from wirespeed.server.asking.sampling import SampleRequest as SampleRequest, Sampled as Sampled
    from wirespeed.server.entries import (
        Entry as Entry,
        PromptEntry as PromptEntry,
        ResourceEntry as ResourceEntry,
        TemplateEntry as TemplateEntry,
        ToolEntry as ToolEntry,
    )
    from wirespeed.server.extensions import ExtensionResult as ExtensionResult
    from wirespeed.server.middleware.functions import (
        AskMiddleware as AskMiddleware,
        AskNext as AskNext,
        CallNext as CallNext,
        Middleware as Middleware,
    )
    from wirespeed.server.middleware.inbound import (
        InboundRequest as InboundRequest,
        Reply as Reply,
    )
    from wirespeed.server.middleware.stack import ServerRequest as ServerRequest
    from wirespeed.server.prompts.prompt import Prompt as Prompt, PromptResult as PromptResult
    from wirespeed.server.resources.contents import ResourceResult as ResourceResult
    from wirespeed.server.resources.resource import (
        Resource as Resource,
        ResourceTemplate as ResourceTemplate,
    )
    from wirespeed.server.tools.results import RawResult as RawResult, ToolResult as ToolResult
    from wirespeed.server.tools.tool import Tool as Tool
    from wirespeed.transport.http.asgi import AsgiApp as AsgiApp
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)
