"""Which member of which object each revision has: what leaves is cut to the peer's revision.

Adding a revision is adding a first or a last revision here. Sources: the five ``schema.ts`` files,
member by member. Unknown members are harmless to a peer, but an old schema may be strict.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from wirespeed.protocol.revisions import REVISIONS

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
    "CompleteParams": {"context": _0618},
    "ListResult": {"ttlMs": _26, "cacheScope": _26, "resultType": _26},
}

# Members that are objects, or arrays of objects, with a row of their own.
NESTED: dict[str, dict[str, str]] = {
    "Prompt": {"arguments": "PromptArgument"},
    "Resource": {"annotations": "Annotations"},
    "ResourceTemplate": {"annotations": "Annotations"},
}

# Kinds of content blocks.
CONTENT: dict[str, Since] = {
    "audio": _0326,
    "resource_link": _0618,
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


def fit_tool(tool: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A tool's entry: besides, an ``outputSchema`` of older revisions describes an object."""
    fitted = fit("Tool", tool, version)
    schema = fitted.get("outputSchema")
    any_json = REVISIONS[version].structured_any
    if schema is not None and not any_json and schema.get("type") != "object":
        del fitted["outputSchema"]
    return fitted
