"""What a server may ask its client: elicitation, sampling, roots; typed, for both sides.

The same parameters and results travel in two ways. Up to 2025-11-25 they are requests of the
server's own; in 2026-07-28 they are the values of ``inputRequests`` and ``inputResponses``
(basic/patterns/mrtr), which carry no ``jsonrpc``, no ``id`` and no ``resultType``.

What differs by revision is in `RULES`; which capability a request needs, `missing_capability`
says, to the side that asks (it may not send) and to the side that is asked (it must refuse).
Sources: client/elicitation, client/sampling, client/roots of each revision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from wirespeed.server.content import Audio, EmbeddedResource, Image, ResourceLink, Text

__all__ = [
    "CREATE_MESSAGE",
    "ELICIT",
    "LIST_ROOTS",
    "PARAMS",
    "RESULTS",
    "RULES",
    "AskingRules",
    "Block",
    "CreateMessageParams",
    "CreateMessageResult",
    "ElicitParams",
    "ElicitResult",
    "InputRequest",
    "ListRootsParams",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "Params",
    "Root",
    "SamplingBlock",
    "SamplingMessage",
    "ToolChoice",
    "ToolResultContent",
    "ToolUseContent",
    "blocks_of",
    "elicit_fault",
    "messages_fault",
    "missing_capability",
]

ELICIT = "elicitation/create"
CREATE_MESSAGE = "sampling/createMessage"
LIST_ROOTS = "roots/list"


# -- elicitation ----------------------------------------------------------------------------------


class ElicitParams(msgspec.Struct, omit_defaults=True, rename="camel"):
    """elicitation/create (client/elicitation of 2025-06-18 and later).

    Attributes:
        message: What to show to the user.
        mode: "form", also when absent; "url" from 2025-11-25 on.
        requested_schema: Form: a flat JSON Schema object (`wirespeed.server.forms`).
        url: Url mode: where the user is to go.
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
    """What the user did. ``content`` only comes with an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


def elicit_fault(params: ElicitParams) -> str | None:
    """What is missing in *params* for their mode; None if nothing (answer -32602 to a fault)."""
    if params.mode == "url":
        return None if params.url else "an elicitation in url mode needs a url"
    schema = params.requested_schema
    if schema is None:
        return "an elicitation in form mode needs a requestedSchema"
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return "requestedSchema must be of type object, with properties"
    return None


# -- sampling -------------------------------------------------------------------------------------

Block = Text | Image | Audio | EmbeddedResource | ResourceLink
"""What the content of a tool's result is made of."""


class ToolUseContent(
    msgspec.Struct, tag_field="type", tag="tool_use", omit_defaults=True, rename="camel"
):
    """The model wants a tool to be called (2025-11-25)."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ToolResultContent(
    msgspec.Struct, tag_field="type", tag="tool_result", omit_defaults=True, rename="camel"
):
    """What the tool gave, for the `ToolUseContent` with that id (2025-11-25)."""

    tool_use_id: str
    content: list[Block]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = field(default=None, name="_meta")


SamplingBlock = Text | Image | Audio | ToolUseContent | ToolResultContent
"""What a message of sampling is made of; tool blocks from 2025-11-25 on."""


class SamplingMessage(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One message. ``content`` is one block; from 2025-11-25 on it may be a list of them."""

    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ModelHint(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A part of the name of a model that would suit."""

    name: str | None = None


class ModelPreferences(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Which model to take, if there is a choice: hints in order, priorities from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Whether the model may, must or must not use tools; absent means "auto" (2025-11-25)."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(msgspec.Struct, omit_defaults=True, rename="camel"):
    """sampling/createMessage (client/sampling of each revision).

    Attributes:
        messages: The conversation; `messages_fault` says whether it is sound.
        max_tokens: The client must respect it.
        system_prompt: The client may change or omit it.
        include_context: The last two values are deprecated and need ``sampling.context``.
        tools: `Tool` objects as tools/list gives them; needs ``sampling.tools`` (2025-11-25).
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
    "maxTokens", "toolUse" or what the client's model gives."""

    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


def blocks_of(content: SamplingBlock | list[SamplingBlock]) -> list[SamplingBlock]:
    """The content of a message as a list."""
    return content if isinstance(content, list) else [content]


def messages_fault(messages: Sequence[SamplingMessage]) -> str | None:
    """What breaks the rules about tool blocks; None if nothing does.

    client/sampling of 2025-11-25, "Message Content Constraints": a user message with tool results
    holds nothing else, and every tool use is matched by a result in the next message. The side
    that is asked answers a fault with -32602; the side that asks does not send it.
    """
    open_uses: Counter[str] = Counter()
    for message in messages:
        blocks = blocks_of(message.content)
        results = Counter(b.tool_use_id for b in blocks if isinstance(b, ToolResultContent))
        if results and message.role == "user" and results.total() != len(blocks):
            return "Tool results mixed with other content"
        if open_uses - results:
            return "Tool result missing in request"
        if results - open_uses:
            return "Tool result without its tool use"
        open_uses = Counter(b.id for b in blocks if isinstance(b, ToolUseContent))
    return "Tool result missing in request" if open_uses else None


# -- roots ----------------------------------------------------------------------------------------


class ListRootsParams(msgspec.Struct, omit_defaults=True):
    """roots/list: nothing, or ``_meta``."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Root(msgspec.Struct, omit_defaults=True):
    """A directory or file that the client considers relevant: a ``file://`` URI, and perhaps a
    name for people. A hint, not an access control (client/roots)."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ListRootsResult(msgspec.Struct, omit_defaults=True):
    """What roots/list gives."""

    roots: list[Root]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


# -- all of them ----------------------------------------------------------------------------------

Params = ElicitParams | CreateMessageParams | ListRootsParams

PARAMS: dict[str, type[ElicitParams | CreateMessageParams | ListRootsParams]] = {
    ELICIT: ElicitParams,
    CREATE_MESSAGE: CreateMessageParams,
    LIST_ROOTS: ListRootsParams,
}
"""Parameters by method. roots/list may come without any."""

RESULTS: dict[str, type[ElicitResult | CreateMessageResult | ListRootsResult]] = {
    ELICIT: ElicitResult,
    CREATE_MESSAGE: CreateMessageResult,
    LIST_ROOTS: ListRootsResult,
}
"""Results by method."""


class InputRequest(msgspec.Struct, omit_defaults=True):
    """One value of ``inputRequests`` (basic/patterns/mrtr of 2026-07-28); ``params`` is decoded by
    the type that `PARAMS` has for the method."""

    method: str
    params: msgspec.Raw | UnsetType = UNSET


class AskingRules(msgspec.Struct, frozen=True, kw_only=True):
    """What one revision lets a server ask.

    Attributes:
        methods: The methods there are.
        modes: ``elicitation`` of the capabilities names its modes (``{}`` means form alone), and
            there is url mode.
        elicitation_id: Url mode carries an ``elicitationId``, and a request may be refused until
            its user was there (error -32042).
        tools: Sampling has tools, tool blocks and lists of blocks; ``sampling`` of the
            capabilities names ``tools`` and ``context``.
        audio: Sampling has audio blocks.
        rich_forms: Forms have titled options (``oneOf``), multiple choices and defaults of every
            type; before, ``enumNames``, single choices and defaults of booleans.
    """

    methods: frozenset[str]
    modes: bool = False
    elicitation_id: bool = False
    tools: bool = False
    audio: bool = True
    rich_forms: bool = False


_FIRST = frozenset({CREATE_MESSAGE, LIST_ROOTS})
_ALL = _FIRST | {ELICIT}

RULES: dict[str, AskingRules] = {
    "2024-11-05": AskingRules(methods=_FIRST, audio=False),
    "2025-03-26": AskingRules(methods=_FIRST),
    "2025-06-18": AskingRules(methods=_ALL),
    "2025-11-25": AskingRules(
        methods=_ALL, modes=True, elicitation_id=True, tools=True, rich_forms=True
    ),
    "2026-07-28": AskingRules(methods=_ALL, modes=True, tools=True, rich_forms=True),
}
"""By revision."""

_TOP = {ELICIT: "elicitation", CREATE_MESSAGE: "sampling", LIST_ROOTS: "roots"}


def missing_capability(
    method: str, params: Params | None, capabilities: Mapping[str, Any], version: str
) -> dict[str, Any] | None:
    """What a client would have to declare, beyond *capabilities*, to be asked this.

    None: nothing, it may be asked. Otherwise an object of ClientCapabilities, fit for
    ``data.requiredCapabilities`` of error -32021, such as ``{"elicitation": {"url": {}}}``. What
    the revision does not have counts as not declared.
    """
    rules, top = RULES[version], _TOP[method]
    declared = capabilities.get(top) if method in rules.methods else None
    part = None
    if isinstance(params, ElicitParams):
        if params.mode == "url":
            part = "url"
        elif rules.modes and isinstance(declared, Mapping) and "url" in declared:
            part = "form"  # without either, form alone is meant
    elif isinstance(params, CreateMessageParams) and _uses_tools(params):
        part = "tools"
    if not isinstance(declared, Mapping):
        return {top: {} if part is None else {part: {}}}
    if part is None:
        return None
    here = rules.tools if part == "tools" else rules.modes
    if here and isinstance(declared.get(part), Mapping):
        return None
    return {top: {part: {}}}


def _uses_tools(params: CreateMessageParams) -> bool:
    if params.tools is not None or params.tool_choice is not None:
        return True
    return any(
        isinstance(block, (ToolUseContent, ToolResultContent))
        for message in params.messages
        for block in blocks_of(message.content)
    )
