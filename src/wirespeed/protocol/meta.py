"""Names of ``_meta`` members (basic, "_meta", of 2025-06-18 on; the rule for reserved prefixes is
that of 2025-11-25 on: the second label decides)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

META_PREFIX = "io.modelcontextprotocol/"
APPS_EXTENSION = META_PREFIX + "ui"
TASKS_EXTENSION = META_PREFIX + "tasks"  # the extension for tasks of 2026-07-28

# The answering server, the subscription, the task: true of one connection alone.
_OF_ONE_HOP = frozenset(
    META_PREFIX + name for name in ("serverInfo", "subscriptionId", "related-task")
)

_encode = msgspec.json.Encoder().encode

_RESERVED_LABELS = ("modelcontextprotocol", "mcp")
_BARE = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(
    rf"(?:(?P<prefix>{LABEL}(?:\.{LABEL})*)/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
)


def is_reserved(key: str) -> bool:
    """Whether a member's name belongs to MCP: ``dev.mcp/x`` does, ``com.example.mcp/x`` does not.
    ValueError: it is not a valid name of a member."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is not the name of a member of _meta: [prefix/]name")
    prefix = found["prefix"]
    if prefix is None:
        return key in _BARE
    return prefix.split(".")[1:2] in ([label] for label in _RESERVED_LABELS)


def check_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The ``_meta`` that an author gives something. ValueError: a name is malformed or MCP's own.

    Names below ``io.modelcontextprotocol/`` pass: those of official extensions are there.
    """
    if meta is None:
        return None
    for key in meta:
        if is_reserved(key) and not key.startswith(META_PREFIX):
            raise ValueError(f"_meta: {key!r} is reserved for MCP; use a prefix of your own")
    return dict(meta)


def check_json(owner: str, values: Mapping[str, Any]) -> None:
    """Check that JSON can hold each of the values that an author gives, by the name of its field.

    Raises:
        ValueError: A text has a lone surrogate, as file names that are not UTF-8 have.
        TypeError: A value has no JSON form.
    """
    for field, value in values.items():
        try:
            _encode(value)
        except UnicodeEncodeError as exc:
            raise ValueError(
                f"{owner}: {field} is not valid text: it has the lone surrogate "
                f"{exc.object[exc.start]!a}"
            ) from None
        except TypeError as exc:
            raise TypeError(f"{owner}: {field} has no JSON form: {exc}") from None


def passed_on(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The members of another server's ``_meta`` that hold when its result is passed on."""
    if meta is None:
        return None
    return {name: value for name, value in meta.items() if name not in _OF_ONE_HOP} or None
