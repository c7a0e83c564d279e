"""What the merged endpoint says of itself, of what its servers say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wirespeed.errors import InvalidResponse
from wirespeed.protocol.revisions import META_SERVER_INFO

# Capabilities that are lists of features, and those that need to know whose a task is.
_LISTS = ("tools", "prompts", "resources")
_OF_ONE = ("tasks", "io.modelcontextprotocol/tasks")

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
    found = hello.setdefault("capabilities", {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidResponse(f"the capabilities of {name} are not objects")
    if not isinstance(hello.get("supportedVersions", []), list):
        raise InvalidResponse(f"the versions of {name} are not a list")
    return hello


def capabilities(hellos: Iterable[Hello]) -> dict[str, Any]:
    """The union of the servers' capabilities. Tasks are missing if several servers have them: their
    ids do not say whose they are."""
    return _union([hello["capabilities"] for hello in hellos])


def _union(found: list[Any]) -> dict[str, Any]:
    union: dict[str, Any] = {}
    found = [one for one in found if isinstance(one, dict)]
    for one in found:
        for name, value in one.items():
            if name in _OF_ONE and sum(name in other for other in found) > 1:
                continue
            if name in _LISTS and isinstance(value, dict):
                earlier = union.setdefault(name, {})
                earlier |= {flag: on for flag, on in value.items() if on or flag not in earlier}
            elif name in ("extensions", "experimental"):
                union[name] = _union([other.get(name) for other in found])
            else:
                union.setdefault(name, value)
    return union


def instructions(hellos: dict[str, Hello]) -> dict[str, str]:
    """The servers' instructions below their names, as a member of the result."""
    parts = [
        f"# {name}\n\n{hello['instructions']}"
        for name, hello in hellos.items()
        if isinstance(hello.get("instructions"), str) and hello["instructions"]
    ]
    return {"instructions": "\n\n".join(parts)} if parts else {}


def initialized(version: str, hellos: dict[str, Hello]) -> Hello:
    """The result of ``initialize``."""
    found = capabilities(hellos.values())
    for name in _LISTS:  # servers come and go
        if isinstance(found.get(name), dict):
            found[name]["listChanged"] = True
    return {
        "protocolVersion": version,
        "capabilities": found,
        "serverInfo": identity(),
        **instructions(hellos),
    }


def discovered(hellos: dict[str, Hello]) -> Hello:
    """The result of ``server/discover``."""
    first, *others = (hello.get("supportedVersions", []) for hello in hellos.values())
    return {
        "supportedVersions": [v for v in first if all(v in other for other in others)],
        "capabilities": capabilities(hellos.values()),
        **instructions(hellos),
        **modern(hellos.values()),
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
