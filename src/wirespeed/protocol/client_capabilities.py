"""What a client may declare of itself, by revision: one row a revision.

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
"""The capabilities that there are, and their members."""

ANSWERED = frozenset({"roots", "sampling", "elicitation"})
"""Those that need a handler which answers the server."""

# What a capability without members stands for: a client that has not got that does not declare it.
_MEANT = {"elicitation": "form"}


def declared(full: Mapping[str, Any], version: str) -> dict[str, Any]:
    """What of *full*, the capabilities as the newest revisions write them, *version* has.

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
