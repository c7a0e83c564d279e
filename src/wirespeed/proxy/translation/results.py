"""Results and errors of one era as the other has them. Members that neither names pass as they
came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_MODERN,
    META_SERVER_INFO,
    MODERN_VERSIONS,
    REVISIONS,
    fit,
    fit_tool,
    has_kind,
    understood,
)

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed._core.slab import Lease

Members = dict[str, Raw]

_MODERN = REVISIONS[LATEST_MODERN]
_ERA_MEMBERS = ("resultType", "ttlMs", "cacheScope")
# Lists whose entries differ between revisions: the member, and the kind of its entries.
_LISTS = {
    "tools/list": ("tools", "Tool"),
    "prompts/list": ("prompts", "Prompt"),
    "resources/list": ("resources", "Resource"),
    "resources/templates/list": ("resourceTemplates", "ResourceTemplate"),
}
# Kinds of content that not all legacy revisions have: the kind, and what a text says instead.
_CONTENT = {"audio": ("Audio", "mimeType"), "resource_link": ("ResourceLink", "uri")}
# What the capabilities of servers are called that have no counterpart in the other era.
_LEGACY_ONLY = frozenset({"tasks"})
_MODERN_ONLY = frozenset({"extensions"})
_SINCE = {"completions": "2025-03-26"}

_decode = msgspec.json.Decoder(Members).decode
encode = msgspec.json.Encoder().encode


def members_of(text: Lease | Raw | bytes | None) -> Members:
    """Return the members of a JSON object, as they came. ProtocolError: the text is not one."""
    try:
        return {} if text is None else _decode(text)
    except msgspec.DecodeError:
        raise ProtocolError(
            codes.INTERNAL_ERROR, "the server's answer is not a JSON object"
        ) from None


def malformed(exc: msgspec.DecodeError) -> ProtocolError:
    """Return the error for an answer of a server that is not what the method demands."""
    return ProtocolError(codes.INTERNAL_ERROR, f"the server's answer is malformed: {exc}")


def raised(method: str, result: Lease | bytes, info: object) -> bytes:
    """Return the result of a legacy server for a client of 2026-07-28.

    ``info``: The server's name and version, or None.
    """
    members = members_of(result)
    members["resultType"] = Raw(b'"complete"')
    if method in _MODERN.cached_methods:
        members.setdefault("ttlMs", Raw(b"0"))
        members.setdefault("cacheScope", Raw(b'"private"'))
    if method == "tools/list" and b'"execution"' in bytes(members.get("tools", b"")):
        members["tools"] = _fitted(members["tools"], "Tool", LATEST_MODERN)
    if info is not None:
        meta = {META_SERVER_INFO: info}
        if "_meta" in members:
            meta |= members_of(members["_meta"])
        members["_meta"] = Raw(encode(meta))
    return encode(members)


def lowered(method: str, members: Members, version: str) -> bytes:
    """Return a complete result of a server of 2026-07-28 for a client of a legacy revision."""
    for name in _ERA_MEMBERS:
        members.pop(name, None)
    if method in _LISTS:
        name, kind = _LISTS[method]
        if name in members:
            members[name] = _fitted(members[name], kind, version)
    elif method == "tools/call":
        structured = members.get("structuredContent")
        if structured is not None and not bytes(structured).lstrip().startswith(b"{"):
            del members["structuredContent"]  # its text is in the content (server/tools)
        if "content" in members:
            members["content"] = _content(members["content"], version)
    elif method == "prompts/get" and "messages" in members:
        found = msgspec.json.decode(members["messages"], type=list[Members])
        for message in found:
            if "content" in message:
                message["content"] = _block(message["content"], version)
        members["messages"] = Raw(encode(found))
    return encode(members)


def _fitted(entries: Raw, kind: str, version: str) -> Raw:
    found = msgspec.json.decode(entries)
    if not isinstance(found, list):
        return entries
    cut = fit_tool if kind == "Tool" else lambda one, version: fit(kind, one, version)
    return Raw(encode([cut(one, version) if isinstance(one, dict) else one for one in found]))


def _content(blocks: Raw, version: str) -> Raw:
    found = msgspec.json.decode(blocks, type=list[Raw])
    return Raw(encode([_block(one, version) for one in found]))


def _block(block: Raw, version: str) -> Raw:
    """Return a content block, or a text that says what it was if the revision lacks its kind."""
    kind = msgspec.json.decode(block, type=dict[str, Any]) if _may_differ(block) else {}
    name, member = _CONTENT.get(str(kind.get("type")), ("Text", ""))
    if has_kind(name, version):
        return block
    return Raw(encode({"type": "text", "text": f"[{kind['type']} {kind.get(member, '')}]"}))


def _may_differ(block: Raw) -> bool:
    text = bytes(block)
    return any(b'"%b"' % kind.encode() in text for kind in _CONTENT)


# -- handshakes ------------------------------------------------------------------------------------


def discovered(hello: dict[str, Any], versions: tuple[str, ...]) -> bytes:
    """Return what a legacy server said in ``initialize``, as a result of ``server/discover``."""
    offered = _cut(understood(hello.get("capabilities")), _LEGACY_ONLY)
    result: dict[str, Any] = {
        "supportedVersions": [*versions, *MODERN_VERSIONS],
        "capabilities": offered,
        "ttlMs": 0,
        "cacheScope": "private",
        "resultType": "complete",
    }
    if isinstance(hello.get("instructions"), str):
        result["instructions"] = hello["instructions"]
    if "serverInfo" in hello:
        result["_meta"] = {META_SERVER_INFO: hello["serverInfo"]}
    return encode(result)


def initialized(found: dict[str, Any], version: str, name: str) -> dict[str, Any]:
    """Return what a server of 2026-07-28 said in ``server/discover``, as a result of
    ``initialize``.

    ``name``: What the server is called if it does not say so.
    """
    offered = {
        key: value
        for key, value in _cut(understood(found.get("capabilities")), _MODERN_ONLY).items()
        if version >= _SINCE.get(key, version)
    }
    meta = found.get("_meta")
    info = meta.get(META_SERVER_INFO) if isinstance(meta, dict) else None
    if not isinstance(info, dict) or not {"name", "version"} <= info.keys():
        info = {"name": name, "version": "unknown"}
    hello: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": offered,
        "serverInfo": fit("Implementation", info, version),
    }
    if isinstance(found.get("instructions"), str):
        hello["instructions"] = found["instructions"]
    return hello


def _cut(offered: dict[str, Any], drop: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in offered.items() if name not in drop}


# -- errors ----------------------------------------------------------------------------------------


def raised_error(answer: Message) -> Message:
    """Return the error of a legacy server for a client of 2026-07-28, or raise ProtocolError."""
    error = _error(answer)
    code = error.get("code")
    if code == codes.RESOURCE_NOT_FOUND:
        raise ProtocolError(codes.INVALID_PARAMS, _text(error), error.get("data"))
    if code == codes.URL_ELICITATION_REQUIRED:
        needed: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"url": {}}}}
        raise ProtocolError(
            codes.INTERNAL_ERROR,
            f"{_text(error)} (the server wants the user to open a URL before it is called again, "
            "which 2026-07-28 has no error for)",
            {**needed, "elicitations": (error.get("data") or {}).get("elicitations")},
        )
    return answer


def lowered_error(request: Message, answer: Message) -> Message:
    """Return the error of a server of 2026-07-28 for a legacy client, or raise ProtocolError."""
    error = _error(answer)
    code, data = error.get("code"), error.get("data")
    if code == codes.MISSING_CLIENT_CAPABILITY:
        raise ProtocolError(codes.INVALID_PARAMS, _text(error), data)
    if code in codes.MODERN_ERRORS:  # the proxy's fault, not the client's
        raise ProtocolError(codes.INTERNAL_ERROR, _text(error), data)
    if (
        request.method == "resources/read"
        and code == codes.INVALID_PARAMS
        and isinstance(data, dict)
        and data.get("uri") == request.text("params.uri")
    ):
        raise ProtocolError(codes.RESOURCE_NOT_FOUND, _text(error), data)
    return answer


def _error(answer: Message) -> dict[str, Any]:
    assert answer.error is not None
    error = msgspec.json.decode(answer.error)
    return error if isinstance(error, dict) else {}


def _text(error: dict[str, Any]) -> str:
    return str(error.get("message", ""))
