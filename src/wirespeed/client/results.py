"""What servers answer about tools, typed, and what all results have in common. Unknown members are
ignored, as every revision asks. Resources, prompts and completion: `wirespeed.client.features`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from wirespeed.errors import InvalidResponse
from wirespeed.server.content import Audio, EmbeddedResource, Image, ResourceLink, Text

T = TypeVar("T")


class UnknownContent(msgspec.Struct):
    """A content block of a type that this version does not know, as it came."""

    data: dict[str, Any]


Block = Text | Image | Audio | EmbeddedResource | ResourceLink


class CallToolResult(msgspec.Struct, rename="camel"):
    """The result of tools/call (server/tools, "Tool Result").

    Attributes:
        content: Content blocks for a model to read; blocks of types that this version does not
            know are `UnknownContent`.
        structured_content: The result as JSON value (2025-06-18 on), or None.
        is_error: The tool failed; the content says why.
        meta: ``_meta`` of the result.
    """

    content: list[Block] = msgspec.field(default_factory=list)
    structured_content: Any = None
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"

    @property
    def text(self) -> str:
        """The text of the text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class _Loose(msgspec.Struct, rename="camel"):
    content: list[dict[str, Any]] = msgspec.field(default_factory=list)
    structured_content: Any = None
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class ToolInfo(msgspec.Struct, rename="camel"):
    """A tool as a server lists it. ``annotations`` are hints, not to be trusted."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    icons: list[dict[str, Any]] | None = None
    execution: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)

    @property
    def display_name(self) -> str:
        """What to show to people: title, the annotations' title, or name (basic, "title")."""
        return self.title or (self.annotations or {}).get("title") or self.name


class ListToolsResult(msgspec.Struct, rename="camel"):
    """One page of tools/list. ``""`` is a cursor; None is the end."""

    tools: list[ToolInfo]
    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


class Progress(msgspec.Struct):
    """notifications/progress."""

    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(msgspec.Struct):
    """notifications/message: ``level``, what was said, and by which part of the server."""

    level: str
    data: Any = None
    logger: str | None = None


_strict = msgspec.json.Decoder(CallToolResult).decode
_loose = msgspec.json.Decoder(_Loose).decode


def decode_call_result(data: Any) -> CallToolResult | Unfinished:
    """The result of tools/call. Blocks of unknown types become `UnknownContent`."""
    try:
        result = _strict(data)
    except msgspec.ValidationError:
        kind = _kind(data).result_type
        if kind != "complete":
            return Unfinished(kind, bytes(data))
        loose = _loose(data)
        result = CallToolResult(
            [known_or_not(block) for block in loose.content],
            loose.structured_content,
            loose.is_error,
            loose.meta,
        )
    if result.result_type != "complete":
        return Unfinished(result.result_type, bytes(data))
    return result


_TYPES = {"text", "image", "audio", "resource", "resource_link"}


def known_or_not(block: dict[str, Any]) -> Any:
    """A content block; `UnknownContent` if this version does not know its type."""
    try:
        return msgspec.convert(block, Block)
    except msgspec.ValidationError:
        if block.get("type") in _TYPES:
            raise
        return UnknownContent(block)


class Unfinished(msgspec.Struct):
    """A result that is none yet: ``input_required`` (2026-07-28 basic/patterns/mrtr), or what an
    extension has of its own.

    Attributes:
        result_type: ``resultType`` of the result.
        text: The JSON text of the result.
    """

    result_type: str
    text: bytes


class _Kind(msgspec.Struct, rename="camel"):
    result_type: str = "complete"


_kind = msgspec.json.Decoder(_Kind).decode


def unless_unfinished(decode: Callable[[Any], T]) -> Callable[[Any], T | Unfinished]:
    """A decoder for results of the methods that may be answered with an `Unfinished` one."""

    def either(data: Any) -> T | Unfinished:
        kind = _kind(data).result_type
        return decode(data) if kind == "complete" else Unfinished(kind, bytes(data))

    return either


def complete(result_type: str) -> None:
    """InvalidResponse unless a result is complete (2026-07-28 basic, "resultType": a value that
    was not negotiated makes the response invalid; an absent one is complete)."""
    if result_type != "complete":
        raise InvalidResponse(
            f"the result has resultType {result_type!r}, which was not negotiated"
        )
