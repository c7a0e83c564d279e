"""Requests of a server to its client, typed for both sides: elicitation, sampling, roots.

The parameters and results are sent in two forms. Up to 2025-11-25 they are requests of the server
and their results. In 2026-07-28 they are the values of ``inputRequests`` and ``inputResponses``
(basic/patterns/mrtr), without ``jsonrpc``, ``id`` and ``resultType``.

`wirespeed.protocol.asking_rules` has the differences between revisions and the capabilities that a
client must declare. Sources: client/elicitation, client/sampling, client/roots of each revision.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, field

from wirespeed._exports import set_public_home
from wirespeed.protocol.blocks import Audio, Block, Image, Text

__all__ = [
    "CREATE_MESSAGE",
    "ELICIT",
    "LIST_ROOTS",
    "PARAMS",
    "CreateMessageResult",
    "ElicitRequestParams",
    "ElicitResult",
    "ListRootsParams",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Params",
    "Root",
    "SampleParams",
    "SamplingBlock",
    "SamplingMessage",
    "ToolChoice",
    "ToolResultContent",
    "ToolUseContent",
    "blocks_of",
]

ELICIT = "elicitation/create"
CREATE_MESSAGE = "sampling/createMessage"
LIST_ROOTS = "roots/list"

# -- elicitation ----------------------------------------------------------------------------------


class ElicitRequestParams(msgspec.Struct, omit_defaults=True, rename="camel"):
    """elicitation/create (client/elicitation of 2025-06-18 and later).

    Attributes:
        message: The text to show to the user.
        mode: "form", also when absent; "url" from 2025-11-25 on.
        requested_schema: Form: a flat JSON Schema object (`wirespeed.schema.forms`).
        url: Url mode: the link to open.
        elicitation_id: Url mode of 2025-11-25 only.
        task: 2025-11-25 only: the client may run it as a task.
    """

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    task: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ElicitResult(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What the user did. Only an accepted form has ``content``."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


# -- sampling -------------------------------------------------------------------------------------


class ToolUseContent(
    msgspec.Struct, tag_field="type", tag="tool_use", omit_defaults=True, rename="camel"
):
    """The model calls a tool (2025-11-25)."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ToolResultContent(
    msgspec.Struct, tag_field="type", tag="tool_result", omit_defaults=True, rename="camel"
):
    """The result of the tool, for the `ToolUseContent` with that id (2025-11-25)."""

    tool_use_id: str
    content: list[Block]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = field(default=None, name="_meta")


SamplingBlock = Text | Image | Audio | ToolUseContent | ToolResultContent
"""A content block of a sampling message; tool blocks from 2025-11-25 on."""


class SamplingMessage(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One message. ``content`` is one block, from 2025-11-25 on also a list of blocks."""

    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ModelHint(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A part of the name of a suitable model."""

    name: str | None = None


class ModelPreferences(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Which model to prefer: hints in order, priorities from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Whether the model may, must or must not use tools; absent means "auto" (2025-11-25)."""

    mode: Literal["auto", "required", "none"] | None = None


class SampleParams(msgspec.Struct, omit_defaults=True, rename="camel"):
    """sampling/createMessage (client/sampling of each revision).

    Attributes:
        messages: The conversation; `messages_fault` checks it.
        max_tokens: The limit, which the client must respect.
        system_prompt: The client may change or omit it.
        include_context: The last two values are deprecated and need ``sampling.context``.
        tools: `Tool` objects as in tools/list; needs ``sampling.tools`` (2025-11-25).
        task: 2025-11-25 only: the client may run it as a task.
    """

    messages: list[SamplingMessage]
    max_tokens: int | float
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    task: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class CreateMessageResult(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What the model said. ``stop_reason`` is an open set: "endTurn", "stopSequence",
    "maxTokens", "toolUse" or another word of the client's model."""

    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


def blocks_of(content: SamplingBlock | list[SamplingBlock]) -> list[SamplingBlock]:
    """The content of a message as a list."""
    return content if isinstance(content, list) else [content]


# -- roots ----------------------------------------------------------------------------------------


class ListRootsParams(msgspec.Struct, omit_defaults=True):
    """roots/list: nothing, or ``_meta``."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Root(msgspec.Struct, omit_defaults=True):
    """A directory or file that the client considers relevant: a ``file://`` URI, and optionally a
    name for people. It is a hint, not an access control (client/roots)."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ListRootsResult(msgspec.Struct, omit_defaults=True):
    """The result of roots/list."""

    roots: list[Root]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


# -- all of them ----------------------------------------------------------------------------------

Params = ElicitRequestParams | SampleParams | ListRootsParams

PARAMS: dict[str, type[ElicitRequestParams | SampleParams | ListRootsParams]] = {
    ELICIT: ElicitRequestParams,
    CREATE_MESSAGE: SampleParams,
    LIST_ROOTS: ListRootsParams,
}
"""Parameters by method. roots/list may have none."""


set_public_home(globals())
