"""What a peer says that it can do, as it is meant.

Some encoders write a null for a member that is not there, and an array for an object without
members. Neither can mean anything else among capabilities.
"""

from __future__ import annotations

from typing import Any

__all__ = ["understood"]

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


def _settings(value: Any, depth: int) -> Any:
    if value == []:
        return {}
    if depth and isinstance(value, dict):
        return {k: _settings(v, depth - 1) for k, v in value.items() if v is not None}
    return value
