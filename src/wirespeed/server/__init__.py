"""MCP servers: see `Server`. What a name needs is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.protocol.asking import (
        ModelHint as ModelHint,
        ModelPreferences as ModelPreferences,
        Root as Root,
        SamplingMessage as SamplingMessage,
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
    from wirespeed.protocol.results import Completion as Completion, PromptMessage as PromptMessage
    from wirespeed.server.tools.results import RawResult as RawResult, ToolResult as ToolResult
    from wirespeed.server.resources.contents import ResourceResult as ResourceResult
    from wirespeed.server.context import Context as Context
    from wirespeed.server.extensions import (
        Extension as Extension,
        ExtensionResult as ExtensionResult,
    )
    from wirespeed.schema.forms import Email as Email, Uri as Uri, titles as titles
    from wirespeed.server.asking.input_required import InputRequired as InputRequired
    from wirespeed.server.middleware.inbound import InboundRequest as InboundRequest, Reply as Reply
    from wirespeed.server.prompts.prompt import Prompt as Prompt, PromptResult as PromptResult
    from wirespeed.server.dependencies.provider import (
        DependencyError as DependencyError,
        Depends as Depends,
    )
    from wirespeed.server.asking.elicitation import (
        ElicitRequest as ElicitRequest,
        Elicited as Elicited,
    )
    from wirespeed.server.asking.sampling import SampleRequest as SampleRequest, Sampled as Sampled
    from wirespeed.server.resources.resource import (
        Resource as Resource,
        ResourceTemplate as ResourceTemplate,
    )
    from wirespeed.server.asking.roots import RootsRequest as RootsRequest
    from wirespeed.server.asking.roots_changes import RootsChange as RootsChange
    from wirespeed.server.server import Server as Server
    from wirespeed.schema.json_schema import SignatureError as SignatureError

# isort: on
__all__, __getattr__ = exports(__name__)
