"""Requests of a server to its client, typed for both sides: elicitation, sampling, roots.

The parameters and results are sent in two forms. Up to 2025-11-25 they are requests of the server
and their results. In 2026-07-28 they are the values of ``inputRequests`` and ``inputResponses``
(basic/patterns/mrtr), without ``jsonrpc``, ``id`` and ``resultType``.

`AskingRules` has the differences between revisions. `missing_capability` says which capability a
request needs, to the side that asks (it may not send) and to the side that is asked (it must
refuse). Sources: client/elicitation, client/sampling, client/roots of each revision.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, field

from wirespeed._exports import set_public_home
from wirespeed.protocol.blocks import Audio, Block, ContentBlock, Image, Text, fit_block
from wirespeed.protocol.revisions import CAPABILITY_OF, REVISIONS, fit_struct

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
    """The user's decision. Only an accepted form has ``content``."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


# -- sampling -------------------------------------------------------------------------------------


class ToolUseContent(
    msgspec.Struct, tag_field="type", tag="tool_use", omit_defaults=True, rename="camel"
):
    """The model calls a tool (2025-11-25)."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ToolResultContent(
    msgspec.Struct, tag_field="type", tag="tool_result", omit_defaults=True, rename="camel"
):
    """The result of the tool, for the `ToolUseContent` with that id (2025-11-25)."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"

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
    """The preferred models: hints in order, priorities from 0 to 1."""

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
    """The model's message. ``stop_reason`` is an open set: "endTurn", "stopSequence",
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


# -- rules by revision -----------------------------------------------------------------------------


class AskingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The requests to clients of one revision.

    Attributes:
        version: The revision.
        methods: The methods of the revision.
        modes: The capability ``elicitation`` has modes (``{}`` means form only), and url mode
            exists.
        elicitation_id: Url mode has an ``elicitationId``, and a request may be refused until its
            user has opened the link (error -32042).
        tools: Sampling has tools, tool blocks and lists of blocks; the capability ``sampling``
            has ``tools`` and ``context``.
        rich_forms: Forms have titled options (``oneOf``), multiple choices and defaults of every
            type; otherwise ``enumNames``, single choices and defaults of booleans.
    """

    version: str
    methods: frozenset[str]
    modes: bool = False
    elicitation_id: bool = False
    tools: bool = False
    rich_forms: bool = False


_FIRST = frozenset({CREATE_MESSAGE, LIST_ROOTS})
_ALL = _FIRST | {ELICIT}

RULES: dict[str, AskingRules] = {
    rules.version: rules
    for rules in (
        AskingRules(version="2024-11-05", methods=_FIRST),
        AskingRules(version="2025-03-26", methods=_FIRST),
        AskingRules(version="2025-06-18", methods=_ALL),
        AskingRules(
            version="2025-11-25",
            methods=_ALL,
            modes=True,
            elicitation_id=True,
            tools=True,
            rich_forms=True,
        ),
        AskingRules(version="2026-07-28", methods=_ALL, modes=True, tools=True, rich_forms=True),
    )
}
"""By revision."""


def missing_capability(
    method: str, params: Params | None, capabilities: Mapping[str, Any], version: str
) -> dict[str, Any] | None:
    """The capability that a request needs beyond *capabilities*.

    None: the client declared everything. Otherwise an object of ClientCapabilities for
    ``data.requiredCapabilities`` of error -32021, such as ``{"elicitation": {"url": {}}}``. A
    request that the revision lacks counts as not declared.
    """
    rules, top = RULES[version], CAPABILITY_OF[method]
    declared = capabilities.get(top) if method in rules.methods else None
    part = None
    if isinstance(params, ElicitRequestParams):
        if params.mode == "url":
            part = "url"
        elif rules.modes and isinstance(declared, Mapping) and "url" in declared:
            part = "form"  # a client without modes means form
    elif isinstance(params, SampleParams) and _uses_tools(params):
        part = "tools"
    if not isinstance(declared, Mapping):
        return {top: {} if part is None else {part: {}}}
    if part is None:
        return None
    here = rules.tools if part == "tools" else rules.modes
    if here and isinstance(declared.get(part), Mapping):
        return None
    return {top: {part: {}}}


def _uses_tools(params: SampleParams) -> bool:
    if params.tools is not None or params.tool_choice is not None:
        return True
    return any(
        isinstance(block, (ToolUseContent, ToolResultContent))
        for message in params.messages
        for block in blocks_of(message.content)
    )


# -- valid params ---------------------------------------------------------------------------------


def elicit_fault(params: ElicitRequestParams) -> str | None:
    """The fault of *params* for their mode, or None. A fault is answered with -32602."""
    if params.mode == "url":
        return None if params.url else "an elicitation in url mode needs a url"
    schema = params.requested_schema
    if schema is None:
        return "an elicitation in form mode needs a requestedSchema"
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return "requestedSchema must be of type object, with properties"
    return None


def messages_fault(messages: Sequence[SamplingMessage]) -> str | None:
    """The fault of messages by the rules about tool blocks, or None.

    client/sampling of 2025-11-25, "Message Content Constraints": a user message with tool results
    has no other content, and every tool use has a result in the next message. A client answers a
    fault with -32602; a server does not send it.
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


# -- forms of revisions ----------------------------------------------------------------------------


def fit_content(
    content: SamplingBlock | list[SamplingBlock], version: str
) -> SamplingBlock | list[SamplingBlock]:
    """The content of a message in the form of a revision: see `fit_block`."""
    if isinstance(content, list):
        return [_fit(block, version) for block in content]
    return _fit(content, version)


def _fit(block: SamplingBlock, version: str) -> SamplingBlock:
    if isinstance(block, ContentBlock):
        return fit_block(block, version)  # type: ignore[return-value]
    if isinstance(block, ToolResultContent) and not REVISIONS[version].structured_any:
        structured = block.structured_content
        if structured is not UNSET and not isinstance(structured, (Mapping, msgspec.Struct)):
            block = msgspec.structs.replace(block, structured_content=UNSET)
    return fit_struct(block, version)


def fit_message(message: SamplingMessage, version: str) -> SamplingMessage:
    """A message in the form of a revision."""
    content = fit_content(message.content, version)
    return fit_struct(msgspec.structs.replace(message, content=content), version)


set_public_home(globals())
