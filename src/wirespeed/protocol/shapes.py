"""The members that each object has, by revision: a message is cut to the peer's revision.

Adding a revision is adding a first or a last revision here. Sources: the five ``schema.ts`` files,
member by member. Unknown members are harmless to a peer, but an old schema may be strict.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from wirespeed.protocol.revisions import REVISIONS

S = TypeVar("S", bound=msgspec.Struct)

_ORDER = {version: n for n, version in enumerate(REVISIONS)}


class Since(msgspec.Struct, frozen=True):
    """The revisions that have something: from the first to the last, which may be open."""

    first: str
    last: str | None = None

    def has(self, version: str) -> bool:
        """Whether a revision has it."""
        n = _ORDER[version]
        return _ORDER[self.first] <= n and (self.last is None or n <= _ORDER[self.last])


_0326 = Since("2025-03-26")
_0618 = Since("2025-06-18")
_1125 = Since("2025-11-25")
_26 = Since("2026-07-28")

# Members that not all revisions have. What is not named here is in all of them.
MEMBERS: dict[str, dict[str, Since]] = {
    "Implementation": {"title": _0618, "description": _1125, "websiteUrl": _1125, "icons": _1125},
    "Tool": {
        "annotations": _0326,
        "title": _0618,
        "outputSchema": _0618,
        "_meta": _0618,
        "icons": _1125,
        "execution": Since("2025-11-25", "2025-11-25"),
    },
    "Prompt": {"title": _0618, "_meta": _0618, "icons": _1125},
    "PromptArgument": {"title": _0618},
    "Resource": {"title": _0618, "_meta": _0618, "icons": _1125},
    "ResourceTemplate": {"title": _0618, "_meta": _0618, "icons": _1125},
    "ResourceContents": {"_meta": _0618},
    "Annotations": {"lastModified": _0618},
    "Text": {"_meta": _0618},
    "Image": {"_meta": _0618},
    "Audio": {"_meta": _0618},
    "EmbeddedResource": {"_meta": _0618},
    "ResourceLink": {"icons": _1125},
    "SamplingMessage": {"_meta": _1125},
    "Root": {"_meta": _0618},
    "CompleteParams": {"context": _0618},
    "ListResult": {"ttlMs": _26, "cacheScope": _26, "resultType": _26},
}

# Members that are objects, or arrays of objects, with a row of their own.
NESTED: dict[str, dict[str, str]] = {
    "Prompt": {"arguments": "PromptArgument"},
    "Resource": {"annotations": "Annotations"},
    "ResourceTemplate": {"annotations": "Annotations"},
    "Text": {"annotations": "Annotations"},
    "Image": {"annotations": "Annotations"},
    "Audio": {"annotations": "Annotations"},
    "EmbeddedResource": {"annotations": "Annotations", "resource": "ResourceContents"},
    "ResourceLink": {"annotations": "Annotations"},
    "ToolResultContent": {"content": "Block"},
}

# Kinds of content blocks that not all revisions have.
KINDS: dict[str, Since] = {
    "Audio": _0326,
    "ResourceLink": _0618,
    "ToolUseContent": _1125,
    "ToolResultContent": _1125,
}


@functools.cache
def missing(kind: str, version: str) -> frozenset[str]:
    """The members that a revision does not have of a kind of object."""
    return frozenset(
        name for name, since in MEMBERS.get(kind, {}).items() if not since.has(version)
    )


def has(kind: str, member: str, version: str) -> bool:
    """Whether a revision's objects of this kind have a member."""
    return member not in missing(kind, version)


def fit(kind: str, value: Mapping[str, Any], version: str) -> dict[str, Any]:
    """An object without what a revision does not have of it."""
    drop = missing(kind, version)
    fitted = {name: member for name, member in value.items() if name not in drop}
    for name, inner in NESTED.get(kind, {}).items():
        member = fitted.get(name)
        if isinstance(member, Mapping):
            fitted[name] = fit(inner, member, version)
        elif isinstance(member, list):
            fitted[name] = [fit(inner, item, version) for item in member]
    return fitted


@functools.cache
def has_kind(kind: str, version: str) -> bool:
    """Whether a revision has this kind of content block."""
    since = KINDS.get(kind)
    return since is None or since.has(version)


@functools.cache
def _cut(cls: type[msgspec.Struct], version: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Of a class that is named as its kind: the attributes that a revision does not have, with what
    stands for their absence; and those that hold objects with a row of their own."""
    kind, drop = cls.__name__, missing(cls.__name__, version)
    fields = msgspec.structs.fields(cls)
    return (
        {one.name: one.default for one in fields if one.encode_name in drop},
        tuple(one.name for one in fields if one.encode_name in NESTED.get(kind, {})),
    )


def fit_struct(value: S, version: str) -> S:
    """`fit` for a typed object: the same object where there is nothing to leave out."""
    dropped, nested = _cut(type(value), version)
    changes = {name: no for name, no in dropped.items() if getattr(value, name) is not no}
    for name in nested:
        member = getattr(value, name)
        if isinstance(member, msgspec.Struct):
            fitted: Any = fit_struct(member, version)
            if fitted is not member:
                changes[name] = fitted
        elif isinstance(member, list):
            fitted = [fit_struct(item, version) for item in member]
            if any(new is not old for new, old in zip(fitted, member, strict=True)):
                changes[name] = fitted
    return msgspec.structs.replace(value, **changes) if changes else value


def fit_tool(tool: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A tool's entry: besides, an ``outputSchema`` of older revisions describes an object."""
    fitted = fit("Tool", tool, version)
    schema = fitted.get("outputSchema")
    any_json = REVISIONS[version].structured_any
    if schema is not None and not any_json and schema.get("type") != "object":
        del fitted["outputSchema"]
    return fitted
