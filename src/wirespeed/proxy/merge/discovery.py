"""What the merged endpoint says of itself, of what its servers say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wirespeed.errors import InvalidResponse
from wirespeed.protocol.capabilities import understood
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import META_SERVER_INFO

# Capabilities that are lists of features.
_LISTS = ("tools", "prompts", "resources")
# What need not be known of a server but that it has it.
_PLAIN = ("logging", "completions")
# Extensions without methods of their own: what they add are members of tools and resources.
_WITHOUT_METHODS = ("io.modelcontextprotocol/ui",)

Hello = dict[str, Any]


def identity() -> dict[str, str]:
    """The proxy as a server."""
    from wirespeed import __version__

    return {"name": "wirespeed-proxy", "version": __version__}


def checked(name: str, hello: Hello) -> Hello:
    """Return what a server says of itself, with its capabilities. InvalidResponse: these are not
    objects, or its versions are not a list.

    ``name``: The server's.
    """
    found = hello.get("capabilities") or {}
    if isinstance(found, dict):
        found = understood(found)
    hello["capabilities"] = found
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidResponse(f"the capabilities of {name} are not objects")
    if not isinstance(hello.get("supportedVersions", []), list):
        raise InvalidResponse(f"the versions of {name} are not a list")
    return hello


def capabilities(hellos: Iterable[Hello], *, is_whole: bool) -> dict[str, Any]:
    """What the endpoint can do: what a server can, as far as its requests can be told apart. Tasks
    are missing if several servers have them: their ids do not say whose they are.

    ``is_whole``: Whether no server is missing. One that comes later may have any list.
    """
    found = [hello["capabilities"] for hello in hellos]
    union: dict[str, Any] = {}
    for name in _LISTS:
        having = [one[name] for one in found if name in one]
        if having or not is_whole:
            union[name] = {"listChanged": True}  # servers come and go
        if any(one.get("subscribe") is True for one in having):
            union[name]["subscribe"] = True
    for name in _PLAIN:
        if any(name in one for one in found):
            union[name] = {}
    having = [one["tasks"] for one in found if "tasks" in one]
    if len(having) == 1:
        union["tasks"] = having[0]
    if extensions := _extensions([one.get("extensions") for one in found]):
        union["extensions"] = extensions
    return union


def _extensions(found: list[Any]) -> dict[str, Any]:
    """The extensions whose methods the endpoint serves."""
    found = [one for one in found if isinstance(one, dict)]
    union: dict[str, Any] = {}
    for name in (*_WITHOUT_METHODS, TASKS_EXTENSION):
        having = [one[name] for one in found if name in one]
        if having and (name != TASKS_EXTENSION or len(having) == 1):
            union[name] = having[0]
    return union


def instructions(hellos: dict[str, Hello]) -> dict[str, str]:
    """The servers' instructions below their names, as a member of the result."""
    parts = [
        f"# {name}\n\n{hello['instructions']}"
        for name, hello in hellos.items()
        if isinstance(hello.get("instructions"), str) and hello["instructions"]
    ]
    return {"instructions": "\n\n".join(parts)} if parts else {}


def initialized(version: str, hellos: dict[str, Hello], *, is_whole: bool) -> Hello:
    """The result of ``initialize``. ``is_whole``: Whether no server is missing."""
    return {
        "protocolVersion": version,
        "capabilities": capabilities(hellos.values(), is_whole=is_whole),
        "serverInfo": identity(),
        **instructions(hellos),
    }


def discovered(hellos: dict[str, Hello], *, is_whole: bool) -> Hello:
    """The result of ``server/discover``. ``is_whole``: Whether no server is missing."""
    first, *others = (hello.get("supportedVersions", []) for hello in hellos.values())
    return {
        "supportedVersions": [v for v in first if all(v in other for other in others)],
        "capabilities": capabilities(hellos.values(), is_whole=is_whole),
        **instructions(hellos),
        **modern([*hellos.values(), *([] if is_whole else [{}])]),
    }


def modern(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What a result of 2026-07-28 has that was put together of others, which may be kept."""
    parts = list(parts)
    return {
        "resultType": "complete",
        "ttlMs": min((ttl_of(part) for part in parts), default=0),
        "cacheScope": "public"
        if parts and all(part.get("cacheScope") == "public" for part in parts)
        else "private",
        "_meta": {META_SERVER_INFO: identity()},
    }


def ttl_of(result: dict[str, Any]) -> int:
    """For how many milliseconds a result may be kept."""
    ttl = result.get("ttlMs")
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0
