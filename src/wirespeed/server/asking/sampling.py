"""Sampling: ask the client's model (client/sampling of each revision)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.asking import (
    CREATE_MESSAGE,
    RULES,
    CreateMessageResult,
    ModelPreferences,
    Params,
    SampleParams,
    SamplingBlock,
    SamplingMessage,
    ToolChoice,
    blocks_of,
    fit_message,
    messages_fault,
)
from wirespeed.protocol.blocks import Text
from wirespeed.protocol.revisions import fit_tool
from wirespeed.schema.python_types import enc_hook
from wirespeed.server.asking.asker import InputRequest
from wirespeed.server.catalog import check_options

_result = msgspec.json.Decoder(CreateMessageResult).decode


class Sampled(msgspec.Struct, frozen=True):
    """The message that the client's model generated.

    Attributes:
        role: "assistant", with rare exceptions.
        content: One block, or a list of blocks if tools were offered.
        model: The name of the model.
        stop_reason: "endTurn", "stopSequence", "maxTokens", "toolUse", another reason, or None.
    """

    role: Literal["user", "assistant"]
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None

    @property
    def blocks(self) -> list[SamplingBlock]:
        """The content as a list."""
        return blocks_of(self.content)

    @property
    def text(self) -> str:
        """The text of the text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def message(self) -> SamplingMessage:
        """The answer as a message, to continue the conversation."""
        return SamplingMessage(self.role, self.content)


class SampleOptions(TypedDict, total=False):
    """The options of `Context.sample`, which describes them."""

    system: str | None
    temperature: float | None
    stop_sequences: Sequence[str] | None
    model_preferences: ModelPreferences | Mapping[str, Any] | None
    tools: Iterable[Any] | None
    tool_choice: Literal["auto", "required", "none"] | None
    include_context: Literal["none", "thisServer", "allServers"] | None
    metadata: Mapping[str, Any] | None


class SampleRequest(InputRequest):
    """Ask the client's model. The arguments are those of `Context.sample`."""

    __slots__ = ("_params",)

    method = CREATE_MESSAGE
    kind = "sample"

    def __init__(
        self,
        messages: str | SamplingMessage | Sequence[str | SamplingMessage],
        *,
        max_tokens: int,
        **options: Unpack[SampleOptions],
    ) -> None:
        check_options("sample()", options, SampleOptions)
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError("max_tokens must be a positive integer")
        if isinstance(messages, (str, SamplingMessage)):
            messages = [messages]
        conversation = [
            SamplingMessage("user", Text(text=m)) if isinstance(m, str) else m for m in messages
        ]
        fault = messages_fault(conversation)
        if fault is not None:
            raise ValueError(fault)
        model_preferences = options.get("model_preferences")
        stop_sequences, metadata = options.get("stop_sequences"), options.get("metadata")
        tools, tool_choice = options.get("tools"), options.get("tool_choice")
        if isinstance(model_preferences, Mapping):
            model_preferences = msgspec.convert(dict(model_preferences), ModelPreferences)
        self._params = SampleParams(
            conversation,
            max_tokens,
            model_preferences=model_preferences,
            system_prompt=options.get("system"),
            include_context=options.get("include_context"),
            temperature=options.get("temperature"),
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            metadata=None if metadata is None else dict(metadata),
            tools=None if tools is None else [_tool(tool) for tool in tools],
            tool_choice=None if tool_choice is None else ToolChoice(tool_choice),
        )

    def params(self) -> SampleParams:
        return self._params

    @staticmethod
    def decode(data: Any) -> Sampled:
        result = _result(data)
        return Sampled(result.role, result.content, result.model, result.stop_reason)

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        rules, fitted = RULES[version], self._params
        declared = capabilities.get("sampling") or {}
        if rules.tools and "context" not in declared and fitted.include_context != "none":
            # not declared, so it should not be sent; a client may ignore it anyway
            fitted = msgspec.structs.replace(fitted, include_context=None)
        messages = [fit_message(message, version) for message in fitted.messages]
        tools = fitted.tools
        if not rules.tools:  # one block a message
            messages = [
                SamplingMessage(message.role, block)
                for message in messages
                for block in blocks_of(message.content)
            ]
        elif tools is not None:
            tools = [fit_tool(tool, version) for tool in tools]
        return msgspec.structs.replace(fitted, messages=messages, tools=tools)


def _tool(tool: Any) -> dict[str, Any]:
    """A tool to offer to a model: an object of tools/list, or a tool of this server."""
    if isinstance(tool, Mapping):
        return dict(tool)
    entry: dict[str, Any] = msgspec.to_builtins(getattr(tool, "entry", tool), enc_hook=enc_hook)
    return entry


set_public_home(globals())
