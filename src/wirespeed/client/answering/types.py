"""The arguments and the answers of a client's handlers.

Sources: client/elicitation and client/sampling of each revision. `AskingRules` lists the
differences between revisions.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.asking import (
    AskingRules,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    SampleParams,
    SamplingBlock,
    ToolResultContent,
    ToolUseContent,
    fit_content,
)
from wirespeed.protocol.blocks import Audio, Text
from wirespeed.protocol.revisions import has_kind
from wirespeed.schema.form_answers import defaults, fill

__all__ = [
    "Accept",
    "ElicitParams",
    "SampleResult",
    "elicit_result",
    "sample_result",
]


class ElicitParams(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of `on_elicit` and `on_elicit_url`: a question to the user.

    Attributes:
        message: The text to show.
        mode: "form", or "url" (2025-11-25 on).
        schema: The form, a flat JSON Schema (client/elicitation, "Requested Schema"); empty for a
            URL.
        url: The link to open; empty for a form. Show the whole URL, open it only after the user has
            agreed, and do not fetch it before (client/elicitation, "Safe URL Handling").
        elicitation_id: The id in ``notifications/elicitation/complete`` (2025-11-25).
        meta: ``_meta`` of the request, or None.
    """

    message: str
    mode: Literal["form", "url"] = "form"
    schema: dict[str, Any] = {}
    url: str = ""
    elicitation_id: str | None = None
    meta: dict[str, Any] | None = None

    @classmethod
    def of(cls, params: ElicitRequestParams) -> "ElicitParams":
        """The argument for the params of elicitation/create."""
        return cls(
            message=params.message,
            mode=params.mode,
            schema=params.requested_schema or {},
            url=params.url or "",
            elicitation_id=params.elicitation_id,
            meta=params.meta,
        )

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the form, for the fields that an accepted answer leaves out."""
        return defaults(self.schema)


class Accept(msgspec.Struct, frozen=True):
    """The answer that accepts an elicitation.

    Attributes:
        content: The filled-in fields: a mapping, a struct, a dataclass or a pydantic model. None
            for a URL, and for a form that is accepted with its defaults.
    """

    content: Any = None


class SampleResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `on_sample`: a message that a model generated.

    Attributes:
        content: A text, a block, or a list of blocks (`Text`, `Image`, `Audio`, from 2025-11-25 on
            `ToolUseContent`).
        model: The name of the model.
        stop_reason: Why the model stopped: "endTurn", "stopSequence", "maxTokens", "toolUse", or a
            reason of the model's provider.
        role: The role of the message.
        meta: ``_meta`` of the result.
    """

    content: str | SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = "endTurn"
    role: Literal["user", "assistant"] = "assistant"
    meta: dict[str, Any] | None = None


def elicit_result(answer: Any, request: ElicitParams) -> ElicitResult:
    """The result for an answer of a handler: `Accept`, "accept", "decline", "cancel", or content,
    which stands for `Accept` with this content.

    The content is checked against the form, and defaults are filled in. TypeError, ValueError: the
    answer does not fit.
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
    """The result for an answer of a handler. TypeError, ValueError: the answer does not fit, or the
    revision cannot express it."""
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
            raise ValueError("a message of this revision has exactly one content block")
        result = msgspec.structs.replace(result, content=blocks[0])
    for block in blocks:
        if isinstance(block, ToolResultContent):
            raise ValueError("the answer of a model cannot contain tool results")
        if isinstance(block, ToolUseContent) and not (rules.tools and request.tools):
            raise ValueError("the answer uses tools, but the server offered none")
        if isinstance(block, Audio) and not has_kind("Audio", rules.version):
            raise ValueError("this revision has no audio content")
    # the conversion checks the values
    result = msgspec.convert(
        msgspec.to_builtins(result, str_keys=True), CreateMessageResult, str_keys=True
    )
    result.content = fit_content(result.content, rules.version)
    return result


set_public_home(globals())
