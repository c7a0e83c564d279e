"""What a server may ask of a client, by its revision and the capabilities that it declared.

`missing_capability` says which capability a request needs, to the side that asks (it may not send)
and to the side that is asked (it must refuse). Sources: client/elicitation, client/sampling,
client/roots of each revision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from wirespeed.protocol.asking import (
    CREATE_MESSAGE,
    ELICIT,
    LIST_ROOTS,
    ElicitRequestParams,
    Params,
    SampleParams,
    SamplingBlock,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
    blocks_of,
)
from wirespeed.protocol.blocks import ContentBlock, fit_block
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.protocol.shapes import fit_struct

__all__ = [
    "RULES",
    "AskingRules",
    "elicit_fault",
    "fit_content",
    "fit_message",
    "messages_fault",
    "missing_capability",
]


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

_TOP = {ELICIT: "elicitation", CREATE_MESSAGE: "sampling", LIST_ROOTS: "roots"}


def missing_capability(
    method: str, params: Params | None, capabilities: Mapping[str, Any], version: str
) -> dict[str, Any] | None:
    """The capability that a request needs beyond *capabilities*.

    None: the client declared everything. Otherwise an object of ClientCapabilities for
    ``data.requiredCapabilities`` of error -32021, such as ``{"elicitation": {"url": {}}}``. A
    request that the revision lacks counts as not declared.
    """
    rules, top = RULES[version], _TOP[method]
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
    """What is missing in *params* for their mode, or None. A fault is answered with -32602."""
    if params.mode == "url":
        return None if params.url else "an elicitation in url mode needs a url"
    schema = params.requested_schema
    if schema is None:
        return "an elicitation in form mode needs a requestedSchema"
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return "requestedSchema must be of type object, with properties"
    return None


def messages_fault(messages: Sequence[SamplingMessage]) -> str | None:
    """What breaks the rules about tool blocks, or None.

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
