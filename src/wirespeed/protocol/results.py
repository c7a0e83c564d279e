"""Results of tools, prompts, resources and completion, typed, for both sides: what a client gets,
and what a server's handler may pass on as it is.

Unknown members are ignored, as every revision asks. Sources: server/tools, server/prompts,
server/resources and server/utilities/completion of each revision, and the schemas.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
from msgspec import UNSET

from wirespeed._exports import set_public_home
from wirespeed.errors import ToolError
from wirespeed.protocol.blocks import Block, ResourceContents, Text, UnknownContent

Role = Literal["user", "assistant"]

_ROLES = ("user", "assistant")

WRAP_MARKER = "x-fastmcp-wrap-result"
"""The member of an ``outputSchema``, true where the structured content is ``{"result": value}``
around a value that is not an object. No revision has such a member. The name is FastMCP's, so that
its clients unwrap the results of this project's servers as well, and the other way round."""


class CallToolResult(msgspec.Struct, rename="camel"):
    """The result of tools/call (server/tools, "Tool Result"), as a client gets it. A tool may
    return the result of a client unchanged. Authors make a `wirespeed.types.ToolResult`.

    Attributes:
        content: Content blocks for a model to read; blocks of types that this version does not
            know are `UnknownContent`.
        structured_content: The result as JSON value (2025-06-18 on), or `msgspec.UNSET` if the
            result has none: None is JSON's null, which 2026-07-28 allows.
        is_error: Whether the tool failed; the content is the reason.
        meta: ``_meta`` of the result.
        wrapped: Whether the structured content is ``{"result": value}``, a value that is not an
            object: the ``outputSchema`` of the tool says so by ``"x-fastmcp-wrap-result": true``. A
            client that has not listed the tool lists the tools once to know, within the time limit
            of the call.
    """

    content: list[Block] = msgspec.field(default_factory=list)
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"
    wrapped: bool = msgspec.field(name=WRAP_MARKER, default=False)

    @property
    def text(self) -> str:
        """The text of the text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def data(self) -> Any:
        """The value of the tool: its structured content, without ``{"result": …}`` around it where
        the result is `wrapped`; without structured content the text of the only text block. None if
        the tool failed, and if there is neither."""
        if self.is_error:
            return None
        content = self.structured_content
        if content is UNSET:
            texts = [block.text for block in self.content if isinstance(block, Text)]
            return texts[0] if len(texts) == 1 else None
        return content["result"] if self.wrapped and is_wrap(content) else content

    def raise_for_error(self) -> Self:
        """Raise `wirespeed.errors.ToolError` with the text of the result if the tool failed;
        otherwise return the result."""
        if self.is_error:
            raise ToolError(self.text or "the tool failed, and said nothing", result=self)
        return self


def is_wrap(content: Any) -> bool:
    """Whether structured content has the form of a wrapped value."""
    return isinstance(content, dict) and content.keys() == {"result"}


class PromptMessage(msgspec.Struct):
    """One message of a prompt.

    Attributes:
        role: "user" or "assistant".
        content: A content block; for a client it is an `UnknownContent` where this version does
            not know its type. A server's author may give a string, which becomes a `Text`, or a
            list, each item of which is sent as a message of its own.
    """

    role: Role
    content: Block | UnknownContent

    if TYPE_CHECKING:

        def __init__(
            self,
            role: Role,
            content: str | Block | UnknownContent | Sequence[str | Block | UnknownContent],
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ValueError(f'role must be "user" or "assistant", not {self.role!r}')
        if isinstance(self.content, str):
            self.content = Text(self.content)

    @property
    def text(self) -> str:
        """The text of a text block; "" for the others."""
        return getattr(self.content, "text", "")


class GetPromptResult(msgspec.Struct):
    """The result of prompts/get: ``messages`` for a model, and what they are for. A prompt may
    return it; authors build a `wirespeed.types.PromptResult`."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = msgspec.field(name="resultType", default="complete")


class ReadResourceResult(msgspec.Struct, rename="camel"):
    """The result of resources/read. A resource may return the result of a client unchanged;
    authors make a `wirespeed.types.ResourceResult`.

    Attributes:
        contents: The content of the resource, or of each of its sub-resources.
        ttl_ms, cache_scope: How long the result is fresh, and for whom (2026-07-28).
        meta: ``_meta`` of the result.
    """

    contents: list[ResourceContents]
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"

    @property
    def text(self) -> str:
        """The texts among the contents, joined by newlines."""
        return "\n".join(one.text for one in self.contents if one.text is not None)

    @property
    def data(self) -> bytes:
        """The bytes of the first contents, a text's as UTF-8; empty if there are none."""
        if not self.contents:
            return b""
        first = self.contents[0]
        return (first.text or "").encode() if first.blob is None else first.blob


WHOLE = (CallToolResult, GetPromptResult, ReadResourceResult)
"""Whole results, each of one method."""


class Completion(msgspec.Struct, rename="camel"):
    """Suggestions: the result of completion/complete, and what a completer may return instead of
    strings.

    Attributes:
        values: Suggestions, the best first; of more than 100, a server sends the first 100.
        total: The number of all suggestions; None if unknown.
        has_more: Whether there are more suggestions; None if unknown. A server sets it from the
            number of values if the completer did not.
    """

    values: list[str]
    total: int | float | None = None
    has_more: bool | None = None


set_public_home(globals())
