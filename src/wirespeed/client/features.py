"""What servers answer about resources, prompts and completion, typed.

Unknown members are ignored, as every revision asks. Sources: server/resources, server/prompts and
server/utilities/completion of each revision, and the schemas.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wirespeed.client.results import Block, UnknownContent, known_or_not, unless_unfinished


class _Named(msgspec.Struct, rename="camel", kw_only=True):
    """What named things have: ``title`` from 2025-06-18 on, ``icons`` from 2025-11-25 on."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[dict[str, Any]] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """What to show to people: the title, or the name (basic, "title")."""
        return self.title or self.name


class ResourceInfo(_Named, rename="camel", kw_only=True):
    """A resource as a server lists it. ``size`` is in bytes; ``annotations`` (audience, priority,
    lastModified) are hints."""

    uri: str
    mime_type: str | None = None
    size: int | float | None = None
    annotations: dict[str, Any] | None = None


class ResourceTemplateInfo(_Named, rename="camel", kw_only=True):
    """A template of resources as a server lists it; ``uri_template`` is one of RFC 6570, for
    `Client.read_template`."""

    uri_template: str
    mime_type: str | None = None
    annotations: dict[str, Any] | None = None


class PromptArgument(msgspec.Struct, kw_only=True):
    """An argument that a prompt takes."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class PromptInfo(_Named, rename="camel", kw_only=True):
    """A prompt as a server lists it."""

    arguments: list[PromptArgument] = msgspec.field(default_factory=list)


class _Page(msgspec.Struct, rename="camel", kw_only=True):
    """One page of a list. ``""`` is a cursor; None is the end.

    ``ttl_ms`` and ``cache_scope``: see `wirespeed.client.cache`.
    """

    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class ListResourcesResult(_Page, rename="camel", kw_only=True):
    """One page of resources/list. ``""`` is a cursor; None is the end."""

    resources: list[ResourceInfo]


class ListResourceTemplatesResult(_Page, rename="camel", kw_only=True):
    """One page of resources/templates/list. ``""`` is a cursor; None is the end."""

    resource_templates: list[ResourceTemplateInfo]


class ListPromptsResult(_Page, rename="camel", kw_only=True):
    """One page of prompts/list. ``""`` is a cursor; None is the end."""

    prompts: list[PromptInfo]


class Discovery(msgspec.Struct, rename="camel"):
    """The result of server/discover (2026-07-28): what a modern server is and can do."""

    supported_versions: list[str]
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    instructions: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


# -- reading ---------------------------------------------------------------------------------------


class Contents(msgspec.Struct, rename="camel", kw_only=True):
    """The contents of one resource, text or bytes.

    Attributes:
        uri: The resource; may be a sub-resource of the one that was asked for.
        mime_type: Its media type, if the server knows it.
        text: The text, or None for what is not text.
        data: The bytes (``blob``, base64 on the wire), or None for text.
        meta: ``_meta`` of the contents.
    """

    uri: str
    mime_type: str | None = None
    text: str | None = None
    data: bytes | None = msgspec.field(name="blob", default=None)
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    def __post_init__(self) -> None:
        if self.text is None and self.data is None:
            raise ValueError("contents of a resource have neither text nor blob")


class ReadResourceResult(msgspec.Struct, rename="camel"):
    """The result of resources/read.

    Attributes:
        contents: What the resource, or each of its sub-resources, holds.
        ttl_ms, cache_scope: How long the server says that this is fresh (2026-07-28).
        meta: ``_meta`` of the result.
    """

    contents: list[Contents]
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
        return (first.text or "").encode() if first.data is None else first.data


# -- prompts ---------------------------------------------------------------------------------------


class PromptMessage(msgspec.Struct):
    """One message of a prompt: ``role`` is "user" or "assistant", ``content`` a block as of tools;
    of a type that this version does not know it is an `UnknownContent`."""

    role: str
    content: Block | UnknownContent

    @property
    def text(self) -> str:
        """The text of a text block; "" for the others."""
        return getattr(self.content, "text", "")


class GetPromptResult(msgspec.Struct):
    """The result of prompts/get: ``messages`` for a model, and what they are for."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: dict[str, Any] | None = None


class _Message(msgspec.Struct):
    role: str
    content: dict[str, Any]


class _GetPrompt(msgspec.Struct):
    messages: list[_Message]
    description: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


_prompt = msgspec.json.Decoder(_GetPrompt).decode


def _get_prompt(data: Any) -> GetPromptResult:
    result = _prompt(data)
    messages = [PromptMessage(one.role, known_or_not(one.content)) for one in result.messages]
    return GetPromptResult(messages, result.description, result.meta)


# -- completion ------------------------------------------------------------------------------------


class PromptRef(msgspec.Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    """What is completed: an argument of a prompt."""

    name: str


class ResourceRef(msgspec.Struct, frozen=True, tag_field="type", tag="ref/resource"):
    """What is completed: a variable of a resource template, such as ``file:///{path}``."""

    uri: str


class Completion(msgspec.Struct, rename="camel"):
    """The result of completion/complete.

    Attributes:
        values: Suggestions, the best first; at most 100.
        total: How many there are in all, if the server says so.
        has_more: There are more than these.
    """

    values: list[str]
    total: int | float | None = None
    has_more: bool = False


class CompleteResult(msgspec.Struct, rename="camel"):
    """completion/complete as it comes."""

    completion: Completion
    result_type: str = "complete"


decode_read_result = unless_unfinished(msgspec.json.Decoder(ReadResourceResult).decode)
decode_prompt_result = unless_unfinished(_get_prompt)
