"""What handlers of a client are asked, and what they answer.

Sources: client/elicitation and client/sampling of each revision. What differs by revision comes as
`AskingRules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal

import msgspec

from wirespeed.client.forms import defaults, fill
from wirespeed.protocol.asking import (
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    SampleParams,
    SamplingBlock,
    ToolResultContent,
    ToolUseContent,
)
from wirespeed.protocol.asking_rules import AskingRules, fit_content
from wirespeed.protocol.blocks import Audio, Text
from wirespeed.protocol.shapes import has_kind

__all__ = [
    "Accept",
    "ElicitParams",
    "SampleResult",
    "elicit_result",
    "sample_result",
]


class ElicitParams(msgspec.Struct, frozen=True, kw_only=True):
    """What `on_elicit` and `on_elicit_url` are given: something the server wants of the user.

    Attributes:
        message: What to show.
        mode: "form", or "url" (2025-11-25 on).
        schema: The form, a flat JSON Schema (client/elicitation, "Requested Schema"); None for a
            URL.
        url: Where the user is to go, or None for a form. Show all of it, open it only after the
            user has agreed, and do not fetch it before (client/elicitation, "Safe URL Handling").
        elicitation_id: What ``notifications/elicitation/complete`` will name (2025-11-25).
        meta: ``_meta`` of the request, or None.
    """

    message: str
    mode: Literal["form", "url"] = "form"
    schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    meta: dict[str, Any] | None = None

    @classmethod
    def of(cls, params: ElicitRequestParams) -> ElicitParams:
        """From the wire."""
        return cls(
            message=params.message,
            mode=params.mode,
            schema=params.requested_schema,
            url=params.url,
            elicitation_id=params.elicitation_id,
            meta=params.meta,
        )

    @property
    def defaults(self) -> dict[str, Any]:
        """What the form holds before it is filled in. Fields that an accepted answer leaves out
        get these by themselves."""
        return {} if self.schema is None else defaults(self.schema)


class Accept(msgspec.Struct, frozen=True):
    """An elicitation is accepted.

    ``content``: a mapping, a struct, a dataclass or a pydantic model with what was filled in;
    None for a URL, and for a form of which every default is right.
    """

    content: Any = None


class SampleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said, as the answer of `on_sample`.

    Attributes:
        content: A text, a block, or a list of blocks (`Text`, `Image`, `Audio`, from 2025-11-25 on
            `ToolUseContent`).
        model: The model that said it.
        stop_reason: Why it stopped: "endTurn", "stopSequence", "maxTokens", "toolUse", or what the
            model's provider calls it.
        role: Who said it.
        meta: ``_meta`` of the result.
    """

    content: str | SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = "endTurn"
    role: Literal["user", "assistant"] = "assistant"
    meta: dict[str, Any] | None = None


def elicit_result(answer: Any, request: ElicitParams) -> ElicitResult:
    """A handler's answer for the wire: `Accept`, "accept", "decline", "cancel", or the content
    itself, which stands for `Accept` with it.

    Content is checked against the form, and defaults are filled in. TypeError, ValueError: it is
    no answer to this.
    """
    if isinstance(answer, ElicitResult):
        answer = Accept(answer.content) if answer.action == "accept" else answer.action
    if isinstance(answer, str):
        if answer not in ("accept", "decline", "cancel"):
            raise ValueError(f'the answer must be "accept", "decline" or "cancel", not {answer!r}')
        if answer != "accept":
            return ElicitResult(answer)  # type: ignore[arg-type]
        answer = Accept()
    content = answer.content if isinstance(answer, Accept) else answer
    if answer is None:
        raise TypeError(
            'the answer must be Accept(…), its content, "decline" or "cancel", not None'
        )
    if request.mode == "url":
        if content is not None:
            raise ValueError("a URL is accepted without content")
        return ElicitResult("accept")
    assert request.schema is not None
    return ElicitResult("accept", fill(request.schema, _members(content)))


def _members(content: Any) -> Mapping[str, Any]:
    if content is None:
        return {}
    if hasattr(content, "model_dump"):
        content = content.model_dump(mode="json", by_alias=True)
    if isinstance(content, (Mapping, msgspec.Struct)) or (
        is_dataclass(content) and not isinstance(content, type)
    ):
        content = msgspec.to_builtins(
            dict(content) if isinstance(content, Mapping) else content, str_keys=True
        )
    if not isinstance(content, dict):
        raise TypeError(
            f"the content must be a mapping, a struct or the like, not {type(content).__name__}"
        )
    return content


def sample_result(answer: Any, request: SampleParams, rules: AskingRules) -> CreateMessageResult:
    """A handler's answer for the wire. TypeError, ValueError: it is no answer to this, or one that
    the revision has no words for."""
    if isinstance(answer, CreateMessageResult):
        result = answer
    elif isinstance(answer, SampleResult):
        content = Text(text=answer.content) if isinstance(answer.content, str) else answer.content
        result = CreateMessageResult(
            answer.role, content, answer.model, answer.stop_reason, answer.meta
        )
    else:
        raise TypeError(f'the answer must be SampleResult(…) or "decline", not {answer!r:.100}')
    blocks = result.content if isinstance(result.content, list) else [result.content]
    if not rules.tools and isinstance(result.content, list):
        if len(blocks) != 1:
            raise ValueError("this revision has exactly one content block in a message")
        result = msgspec.structs.replace(result, content=blocks[0])
    for block in blocks:
        if isinstance(block, ToolResultContent):
            raise ValueError("the answer of a model has no tool results")
        if isinstance(block, ToolUseContent) and not (rules.tools and request.tools):
            raise ValueError("the answer uses tools, but the server offered none")
        if isinstance(block, Audio) and not has_kind("Audio", rules.version):
            raise ValueError("this revision has no audio")
    # typed by hand, so that nothing else gets to the wire
    result = msgspec.convert(
        msgspec.to_builtins(result, str_keys=True), CreateMessageResult, str_keys=True
    )
    result.content = fit_content(result.content, rules.version)
    return result
