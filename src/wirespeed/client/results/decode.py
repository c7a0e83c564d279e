"""Decoders of results from their JSON text.

``resultType``, ``ttlMs`` and ``cacheScope`` are members of 2026-07-28 (basic, "resultType";
server/utilities/caching). A result of an older revision may have members of these names, which mean
nothing: results are open, and unknown members are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from wirespeed.client.results.features import Discovery
from wirespeed.errors import InvalidResponse
from wirespeed.protocol.blocks import Block, UnknownContent
from wirespeed.protocol.results import (
    CallToolResult,
    Completion,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    Role,
)
from wirespeed.transport.rate_limited_log import RateLimitedLog

__all__ = [
    "PageDecoder",
    "ResultDecoder",
    "Unfinished",
    "complete",
    "decode_call_result",
    "decode_completion",
    "decode_discovery",
    "decode_legacy_call_result",
    "decode_prompt_result",
    "decode_read_result",
    "legacy_form",
]

P = TypeVar("P")
T = TypeVar("T")

logger = logging.getLogger("wirespeed.client")

_HINTS = ("ttlMs", "cacheScope", "digest")
_LATER = ("resultType", *_HINTS)
_KNOWN = frozenset({"text", "image", "audio", "resource", "resource_link"})

_encode = msgspec.json.Encoder().encode
# Members whose null says something.
_OWN = frozenset({"structuredContent", "_meta", "data"})
# Members of items that are objects.
_OBJECTS = frozenset({"annotations", "execution", "inputSchema", "outputSchema", "_meta"})
_SHOWN = 100  # characters of a name that the log shows

_any = msgspec.json.Decoder().decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Unfinished(msgspec.Struct):
    """A result that is not final: ``input_required`` (2026-07-28 basic/patterns/mrtr), or a
    ``resultType`` of an extension.

    Attributes:
        result_type: ``resultType`` of the result.
        text: The JSON text of the result.
    """

    result_type: str
    text: bytes


def complete(result_type: str) -> None:
    """InvalidResponse unless a result is complete (2026-07-28 basic, "resultType": a value that
    was not negotiated makes the response invalid; an absent one is complete)."""
    if result_type != "complete":
        raise InvalidResponse(
            f"the result has resultType {result_type!r}, which was not negotiated"
        )


def _without(data: Any, names: tuple[str, ...]) -> bytes | None:
    """The JSON text of a result without these members; None for a result that lacks them."""
    members = _members(data)
    if not any(name in members for name in names):
        return None
    return _encode({name: text for name, text in members.items() if name not in names})


def without_nulls(data: Any) -> bytes | None:
    """The JSON text of a result without members that are null, at whatever depth but where a value
    is the user's own. None for a result that has none of these."""
    whole = _any(data)
    found = _without_nulls(whole)
    return None if found == whole else _encode(found)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: item if name in _OWN else _without_nulls(item)
        for name, item in value.items()
        if item is not None or name in _OWN
    }


class _Kind(msgspec.Struct, rename="camel"):
    result_type: str = "complete"


_kind = msgspec.json.Decoder(_Kind).decode


class ResultDecoder(Generic[T]):
    """A decoder of results of servers of 2026-07-28; `legacy` decodes one of an older server.
    Malformed hints about caching count as absent, and so do members that are null.

    Args:
        decode: Decodes JSON text into an object with a ``result_type``.
        take: Returns the caller's result for this object.
        rounds: Whether the method may have an `Unfinished` result; for other methods such a result
            is InvalidResponse.
    """

    __slots__ = ("_decode", "_rounds", "_take")

    def __init__(
        self,
        decode: Callable[[Any], Any],
        take: Callable[[Any], T] | None = None,
        *,
        rounds: bool = False,
    ) -> None:
        self._decode = decode
        self._take = take
        self._rounds = rounds

    def __call__(self, data: Any) -> T | Unfinished:
        try:
            result = self._decode(data)
        except msgspec.ValidationError:
            bare = without_nulls(data) or data
            kind = _kind(bare).result_type
            if kind == "complete":
                return self._look_again(bare)
        else:
            kind = result.result_type
            if kind == "complete":
                return self._taken(result)
        if not self._rounds:
            complete(kind)
        return Unfinished(kind, bytes(data))

    def _look_again(self, data: Any) -> T:
        try:
            return self._taken(self._decode(data))
        except msgspec.ValidationError:
            bare = _without(data, _HINTS)
            if bare is None:
                raise
            return self._taken(self._decode(bare))

    def legacy(self, data: Any) -> T:
        """The result of a server of 2025-11-25 or before."""
        bare = _without(data, _LATER)
        data = data if bare is None else bare
        try:
            return self._taken(self._decode(data))
        except msgspec.ValidationError:
            bare = without_nulls(data)
            if bare is None:
                raise
            return self._taken(self._decode(bare))

    def _taken(self, result: Any) -> T:
        taken: T = result if self._take is None else self._take(result)
        return taken


def legacy_form(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The decoder for what servers of 2025-11-25 and before send instead."""
    if decode is decode_call_result:
        return decode_legacy_call_result
    form: Callable[[Any], Any] = getattr(decode, "legacy", decode)
    return form


# -- content --------------------------------------------------------------------------------------


def known_or_not(block: dict[str, Any]) -> Any:
    """A content block; `UnknownContent` if this version does not know its type."""
    kind = block.get("type", "")
    if isinstance(kind, str) and kind not in _KNOWN:
        return UnknownContent(block)
    return msgspec.convert(block, Block)


# -- tools ----------------------------------------------------------------------------------------


class _Loose(msgspec.Struct, rename="camel"):
    content: list[dict[str, Any]] = msgspec.field(default_factory=list)
    structured_content: Any = msgspec.UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


_strict = msgspec.json.Decoder(CallToolResult).decode
_loose = msgspec.json.Decoder(_Loose).decode


def _one_by_one(data: Any) -> CallToolResult:
    result = _loose(data)
    blocks = [known_or_not(block) for block in result.content]
    return CallToolResult(blocks, result.structured_content, result.is_error, result.meta)


def decode_call_result(data: Any) -> CallToolResult | Unfinished:
    """The result of tools/call. Blocks of unknown types become `UnknownContent`."""
    try:
        result = _strict(data)
    except msgspec.ValidationError:
        bare = without_nulls(data) or data
        kind = _kind(bare).result_type
        return _one_by_one(bare) if kind == "complete" else Unfinished(kind, bytes(data))
    if result.result_type != "complete":
        return Unfinished(result.result_type, bytes(data))
    return result


def decode_legacy_call_result(data: Any) -> CallToolResult:
    """The same of a server of 2025-11-25 or before."""
    try:
        result = _strict(data)
    except msgspec.ValidationError:
        return _one_by_one(without_nulls(data) or data)
    result.result_type = "complete"
    return result


# -- the other methods ----------------------------------------------------------------------------


class _Message(msgspec.Struct):
    role: Role
    content: dict[str, Any]


class _GetPrompt(msgspec.Struct, rename="camel"):
    messages: list[_Message]
    description: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
    result_type: str = "complete"


def _prompt_of(result: _GetPrompt) -> GetPromptResult:
    messages = [PromptMessage(one.role, known_or_not(one.content)) for one in result.messages]
    return GetPromptResult(messages, result.description, result.meta)


class _Complete(msgspec.Struct, rename="camel"):
    completion: Completion
    result_type: str = "complete"


def _completion_of(result: _Complete) -> Completion:
    return result.completion


decode_read_result: ResultDecoder[ReadResourceResult] = ResultDecoder(
    msgspec.json.Decoder(ReadResourceResult).decode, rounds=True
)
decode_prompt_result = ResultDecoder(
    msgspec.json.Decoder(_GetPrompt).decode, _prompt_of, rounds=True
)
decode_completion = ResultDecoder(msgspec.json.Decoder(_Complete).decode, _completion_of)
decode_discovery: ResultDecoder[Discovery] = ResultDecoder(msgspec.json.Decoder(Discovery).decode)


# -- lists -----------------------------------------------------------------------------------------


class PageDecoder(Generic[P]):
    """A decoder of the pages of one list, item by item where an item is broken: it costs the list
    that item.

    null for a member that may be absent, and ``[]`` for an object without members, are no fault:
    they can mean one thing only. A tool without ``inputSchema`` takes any arguments. An item that
    cannot be used is left out. The log names each, once for each page.

    Args:
        method: The method of the list.
        page: The type of a page: one of its fields is a list of structs.
    """

    def __init__(self, method: str, page: type[P]) -> None:
        self._method = method
        self._decode = msgspec.json.Decoder(page).decode
        fields = {one.encode_name: one for one in msgspec.structs.fields(cast("Any", page))}
        self._items = next(name for name, one in fields.items() if one.required)
        self._item = fields[self._items].type.__args__[0]
        self._quiet = RateLimitedLog(logger)
        self._takes = {one.encode_name for one in msgspec.structs.fields(self._item)}

    def __call__(self, data: Any) -> P:
        """Return a page. msgspec.ValidationError: the page itself is broken."""
        try:
            return self._decode(data)
        except msgspec.ValidationError as exc:
            members = {
                name: text for name, text in _members(data).items() if bytes(text) != b"null"
            }
            try:
                found = _raws(members.get(self._items, b""))
            except msgspec.DecodeError:
                raise exc from None
        page = self._decode(_encode({**members, self._items: []}))
        items = getattr(page, _field_of(page, self._items))
        items += filter(None, map(self._mended, found))
        return page

    def _mended(self, text: msgspec.Raw) -> Any:
        """Return an item; None if it is to be left out."""
        given = _any(text)
        if not isinstance(given, dict):
            self._tell(f"left out an item that is no object: {bytes(text)[:_SHOWN]!r}")
            return None
        item = {
            name: {} if value == [] and name in _OBJECTS else value
            for name, value in given.items()
            if value is not None
        }
        name = item.get("name", item.get("uri", item.get("uriTemplate", "")))
        name = f"{name:.{_SHOWN}}" if isinstance(name, str) else ""
        bare = "inputSchema" in self._takes and "inputSchema" not in item
        if bare:
            item["inputSchema"] = {"type": "object"}
        try:
            mended = msgspec.convert(item, self._item)
        except msgspec.ValidationError as exc:
            self._tell(f"left out {name!r}, which is broken: {exc}")
            return None
        if bare:
            self._tell(f"the tool {name!r} has no inputSchema: it may take any arguments")
        return mended

    def _tell(self, text: str) -> None:
        self._quiet.log(logging.WARNING, "%s: %s", self._method, text)


def _field_of(page: Any, name: str) -> str:
    return next(one.name for one in msgspec.structs.fields(page) if one.encode_name == name)
