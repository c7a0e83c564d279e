"""Tasks on the wire: `Task` objects, cursors and the requested time to live. Servers and clients
use them: clients run tasks for servers of 2025-11-25 (basic/utilities/tasks, "Data Types")."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from wirespeed.protocol.revisions import META
from wirespeed.tasks.model import Task, TaskStatus, timestamp

__all__ = ["RELATED_TASK", "cursor_of", "place_of", "status_of", "ttl_of", "view", "with_related"]

RELATED_TASK = META + "related-task"

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def status_of(task: Task) -> TaskStatus:
    """The status in 2025-11-25, where a tool's ``isError`` is a failure ("Task Status")."""
    return TaskStatus.FAILED if task.is_error else task.status


def view(task: Task, *, modern: bool = False) -> dict[str, Any]:
    """A ``Task`` object of 2025-11-25, or with ``modern`` of the extension of 2026-07-28."""
    status = task.status if modern else status_of(task)
    shown: dict[str, Any] = {"taskId": task.id, "status": status}
    if task.message is not None:
        shown["statusMessage"] = task.message
    shown["createdAt"] = timestamp(task.created)
    shown["lastUpdatedAt"] = timestamp(task.updated)
    shown["ttlMs" if modern else "ttl"] = task.ttl
    if task.poll is not None:
        shown["pollIntervalMs" if modern else "pollInterval"] = task.poll
    return shown


def with_related(text: bytes, task_id: str) -> bytes:
    """The JSON text of an object, with the task that it belongs to in ``_meta`` ("Associating
    Task-Related Messages")."""
    members = _members(text)
    own = _members(members["_meta"]) if "_meta" in members else {}
    own[RELATED_TASK] = msgspec.Raw(_encode({"taskId": task_id}))
    members["_meta"] = msgspec.Raw(_encode(own))
    return _encode(members)


def ttl_of(wish: Mapping[str, Any]) -> float | None:
    """The time to live that ``params.task`` requests, in milliseconds. ValueError: not valid."""
    ttl = wish.get("ttl")
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl >= 0:
        raise ValueError("params.task.ttl must be milliseconds, not below 0")
    return ttl


def cursor_of(place: int) -> str:
    """The tasks/list cursor of a place in a store (`Page.next`)."""
    return base64.urlsafe_b64encode(b"task:%d" % place).decode()


def place_of(cursor: str) -> int:
    """The place of a cursor. ValueError: the cursor was not made by `cursor_of`."""
    with contextlib.suppress(ValueError):
        kind, _, digits = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if kind == "task" and digits.isdecimal() and len(digits) < 19:
            place = int(digits)
            if cursor_of(place) == cursor:  # decoding is lenient: one spelling only
                return place
    raise ValueError("Invalid cursor")
