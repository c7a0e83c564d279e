"""Capabilities: those that a peer declares, as they are meant, and those of clients by revision.

Some encoders write a null for a member that is not there, and an array for an object without
members. Neither can mean anything else among capabilities.

Sources: `ClientCapabilities` of the revisions' schemas; client/elicitation, client/sampling and
client/roots of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Their members have settings that only those who know the member can read.
_FREE = frozenset({"experimental", "extensions"})


def understood(capabilities: object) -> dict[str, Any]:
    """Return capabilities without members that are null, and with empty objects for empty arrays.

    >>> understood({"tools": [], "logging": None, "tasks": {"requests": {"tools": {"call": []}}}})
    {'tools': {}, 'tasks': {'requests': {'tools': {'call': {}}}}}
    """
    if not isinstance(capabilities, dict):
        return {}
    return {
        name: _settings(value, 1 if name in _FREE else 8)
        for name, value in capabilities.items()
        if value is not None
    }


def offers(capabilities: Mapping[str, Any], feature: str, what: str) -> bool:
    """Whether a server declares a member of a capability, such as ``resources.subscribe``."""
    declared = capabilities.get(feature)
    return isinstance(declared, dict) and declared.get(what) is True


def _settings(value: Any, depth: int) -> Any:
    if value == []:
        return {}
    if depth and isinstance(value, dict):
        return {k: _settings(v, depth - 1) for k, v in value.items() if v is not None}
    return value


# The members that a capability may have; None: any.
Members = tuple[str, ...] | None

CAPABILITIES: dict[str, dict[str, Members]] = {
    "2024-11-05": {"roots": ("listChanged",), "sampling": (), "experimental": None},
    "2025-03-26": {"roots": ("listChanged",), "sampling": (), "experimental": None},
    "2025-06-18": {
        "roots": ("listChanged",),
        "sampling": (),
        "elicitation": (),
        "experimental": None,
    },
    "2025-11-25": {
        "roots": ("listChanged",),
        "sampling": ("context", "tools"),
        "elicitation": ("form", "url"),
        "tasks": None,
        "experimental": None,
    },
    "2026-07-28": {
        "roots": (),
        "sampling": ("context", "tools"),
        "elicitation": ("form", "url"),
        "experimental": None,
        "extensions": None,
    },
}
"""The capabilities and their members."""

CAPABILITY_OF = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The capability that a request of a server needs, by its method."""

ANSWERED = frozenset(CAPABILITY_OF.values())
"""The capabilities that need a handler."""

# The member that a capability without members means. A client without it does not declare it.
_MEANT = {"elicitation": "form"}


def declared(full: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The part of *full*, capabilities in the form of the newest revision, that *version* has.

    >>> full = {"elicitation": {"form": {}, "url": {}}, "extensions": {"com.example/x": {}}}
    >>> declared(full, "2025-06-18")
    {'elicitation': {}}
    """
    result: dict[str, Any] = {}
    for name, members in CAPABILITIES[version].items():
        settings = full.get(name)
        if settings is None:
            continue
        if members is None:
            result[name] = settings
            continue
        kept = {member: settings[member] for member in members if member in settings}
        if not kept and settings and _MEANT.get(name, name) not in (name, *settings):
            continue
        result[name] = kept
    return result
