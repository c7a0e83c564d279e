"""The requests that a handler may make of its client, and their answers, typed: elicitation,
sampling, roots.

Sources: client/elicitation, client/sampling, client/roots of each revision. Members that a revision
lacks are left out or refused by the tables of `wirespeed.protocol.asking_rules`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from wirespeed.errors import InvalidResponse, MissingCapability, ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import (
    CREATE_MESSAGE,
    ELICIT,
    LIST_ROOTS,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsParams,
    ListRootsResult,
    ModelPreferences,
    Params,
    Root,
    SampleParams,
    SamplingBlock,
    SamplingMessage,
    ToolChoice,
    blocks_of,
)
from wirespeed.protocol.asking_rules import RULES, fit_message, messages_fault, missing_capability
from wirespeed.protocol.blocks import Text
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.protocol.shapes import fit_tool
from wirespeed.schema.forms import form_of
from wirespeed.schema.json_schema import describe_validation_error, enc_hook
from wirespeed.server.catalog import check_options

__all__ = [
    "ElicitRequest",
    "Elicited",
    "InputRequest",
    "Root",
    "RootsRequest",
    "SampleRequest",
    "Sampled",
    "answer_of",
    "links_required",
]

T = TypeVar("T")
U = TypeVar("U")

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


# -- answers --------------------------------------------------------------------------------------


class Elicited(msgspec.Struct, Generic[T], frozen=True):
    """What the user did with a form or a link.

    Attributes:
        action: "accept": the user sent the form, or agreed to open the link (not that anything was
            done there); "decline": the user refused; "cancel": the user closed it without a choice.
        content: The content of an accepted form, as the class that was asked for; otherwise None.
    """

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None

    @property
    def accepted(self) -> bool:
        """Whether the action is "accept"."""
        return self.action == "accept"

    def as_form(self, form: type[U]) -> U | None:
        """The content as this class, for answers to `InputRequired`, whose content is a dict.
        InvalidResponse: the content does not fit."""
        if self.action != "accept":
            return None
        content: Any = self.content
        decoded: U = form_of(form).decode(content)
        return decoded


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


_elicited = msgspec.json.Decoder(ElicitResult).decode
_sampled = msgspec.json.Decoder(CreateMessageResult).decode
_listed = msgspec.json.Decoder(ListRootsResult).decode


def answer_of(method: str, data: Any) -> Elicited[dict[str, Any]] | Sampled | list[Root]:
    """A result as the client sent it. `msgspec.DecodeError`: it is not a result of that method."""
    if method == ELICIT:
        result = _elicited(data)
        content = (result.content or {}) if result.action == "accept" else None
        return Elicited(result.action, content)
    if method == CREATE_MESSAGE:
        message = _sampled(data)
        return Sampled(message.role, message.content, message.model, message.stop_reason)
    return _listed(data).roots


# -- requests -------------------------------------------------------------------------------------


def missing(required: dict[str, Any], version: str, text: str | None = None) -> MissingCapability:
    """The error for a request that the client did not declare, with the code of its era."""
    modern = REVISIONS[version].modern
    code = codes.MISSING_CLIENT_CAPABILITY if modern else codes.INTERNAL_ERROR
    return MissingCapability(required, text, code=code)


class InputRequest:
    """A request to the client (``InputRequest`` of 2026-07-28)."""

    __slots__ = ()

    method: ClassVar[str]
    kind: ClassVar[str]
    """The beginning of its key, if the engine chooses the key."""

    def params(self) -> Params:
        """The parameters, as the newest revision has them."""
        raise NotImplementedError

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        """*params* in the form of another revision and of this client."""
        return params

    def encoded(self, capabilities: Mapping[str, Any], version: str) -> bytes:
        """The parameters as JSON text for a client. MissingCapability: it did not declare this."""
        params = self.params()
        required = missing_capability(self.method, params, capabilities, version)
        if required is not None:
            raise missing(required, version)
        return _encode(self.fit(params, version, capabilities))

    def answer(self, data: bytes) -> Any:
        """The client's result, typed. InvalidResponse: it does not fit."""
        return self.plain_answer(data)

    def plain_answer(self, data: bytes) -> Elicited[dict[str, Any]] | Sampled | list[Root]:
        """The client's result without the form's type. InvalidResponse: it is malformed."""
        try:
            return answer_of(self.method, data)
        except (msgspec.DecodeError, RecursionError) as exc:
            fault = describe_validation_error(exc, "result")
            raise InvalidResponse(f"the client's answer to {self.method}: {fault}") from exc


class ElicitRequest(InputRequest):
    """Ask the user to fill in a form, or with *url* to open a link.

    *form* is a class with flat fields (see `wirespeed.schema.forms`); None only asks for consent.
    *elicitation_id* identifies the elicitation in 2025-11-25, the only revision that has it. It is
    random by default.
    """

    __slots__ = ("elicitation_id", "form", "message", "url")

    method = ELICIT
    kind = "elicit"

    def __init__(
        self,
        message: str,
        form: Any = None,
        *,
        url: str | None = None,
        elicitation_id: str | None = None,
    ) -> None:
        if url is not None and form is not None:
            raise ValueError("an elicitation has a form or a url, not both")
        self.message = message
        self.url = url
        self.form = form_of(form) if url is None else None
        self.elicitation_id = elicitation_id

    def params(self) -> ElicitRequestParams:
        if self.form is None:
            return ElicitRequestParams(self.message, "url", url=self.url)
        return ElicitRequestParams(self.message, requested_schema=self.form.schema)

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        rules = RULES[version]
        if self.form is None:
            if not rules.elicitation_id:
                return params
            chosen = self.elicitation_id or os.urandom(16).hex()
            return ElicitRequestParams(self.message, "url", url=self.url, elicitation_id=chosen)
        if rules.rich_forms:
            return params
        if self.form.plain_schema is None:
            raise missing(
                {"elicitation": {"form": {}}},
                version,
                f"Forms of {version} have no field for several choices ({self.form.unplain})",
            )
        return ElicitRequestParams(self.message, requested_schema=self.form.plain_schema)

    def answer(self, data: bytes) -> Any:
        result = self.plain_answer(data)
        assert isinstance(result, Elicited)
        if not result.accepted or self.form is None:
            return Elicited(result.action)
        return Elicited(result.action, self.form.decode(result.content))


def links_required(
    links: Sequence[ElicitRequest], capabilities: Mapping[str, Any], version: str
) -> ProtocolError:
    """Error -32042 with these links. `MissingCapability` for a client of another revision."""
    encoded = [link.encoded(capabilities, version) for link in links]
    if not RULES[version].elicitation_id:
        return missing(
            {"elicitation": {"url": {}}},
            version,
            f"Clients of {version} do not retry a request after a link: use elicit_url",
        )
    data = {"elicitations": [msgspec.json.decode(link) for link in encoded]}
    return ProtocolError(codes.URL_ELICITATION_REQUIRED, "The user has to open a link first", data)


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


class RootsRequest(InputRequest):
    """Ask for the directories and files that the client considers relevant."""

    __slots__ = ()

    method = LIST_ROOTS
    kind = "roots"

    def params(self) -> ListRootsParams:
        return ListRootsParams()
