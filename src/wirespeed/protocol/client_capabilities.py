"""The capabilities that a client may declare, by revision.

Sources: `ClientCapabilities` of the revisions' schemas; client/elicitation, client/sampling and
client/roots of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ANSWERED", "CAPABILITIES", "declared"]

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

ANSWERED = frozenset({"roots", "sampling", "elicitation"})
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
