"""Tasks on the wire: `Task` objects, parameters of requests, results and errors. Servers and
clients use them: clients run tasks for servers of 2025-11-25 (basic/utilities/tasks)."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.meta import META_PREFIX
from wirespeed.tasks.model import Task, TaskStatus, timestamp
from wirespeed.tasks.store import TaskStore, now_ms

RELATED_TASK = META_PREFIX + "related-task"
CANCELLED = "The task was cancelled by request"


class TaskParams(msgspec.Struct):
    """The params of tasks/get, tasks/result and tasks/cancel."""

    taskId: str  # noqa: N815


_error = msgspec.json.Decoder(dict[str, Any]).decode
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
    """The time to live that ``params.task`` requests, in milliseconds. ProtocolError: the value is
    not valid."""
    ttl = wish.get("ttl")
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl >= 0:
        raise ProtocolError(
            codes.INVALID_PARAMS,
            "Invalid params: params.task.ttl must be milliseconds, not below 0",
        )
    return ttl


async def list_page(store: TaskStore, owner: bytes, cursor: str | None, size: int) -> bytes:
    """The result of tasks/list. ProtocolError: the cursor is not valid."""
    page = await store.page(owner, 0 if cursor is None else _place_of(cursor), size)
    now = now_ms()
    found: dict[str, Any] = {"tasks": [view(task) for task in page.tasks if not task.expired(now)]}
    if page.next is not None:
        found["nextCursor"] = _cursor_of(page.next)
    return _encode(found)


def result_of(task: Task) -> bytes:
    """The result of tasks/result for a task that has ended. ProtocolError: the task failed, or was
    cancelled."""
    if task.error is not None:
        error = _error(task.error)
        raise ProtocolError(error["code"], error["message"], error.get("data"))
    if task.result is None:
        raise ProtocolError(codes.TASK_CANCELLED, task.message or CANCELLED)
    members = _members(task.result)
    members.pop("resultType", None)  # of a task that a modern client started
    return with_related(_encode(members), task.id)


def not_found(*, expired: bool = False) -> ProtocolError:
    """-32602, which both forms of tasks use for an unknown id."""
    reason = "Task has expired" if expired else "Task not found"
    return ProtocolError(codes.INVALID_PARAMS, f"Failed to retrieve task: {reason}")


def cannot_cancel(task: Task) -> ProtocolError:
    """The error of tasks/cancel for a task that has ended."""
    return ProtocolError(
        codes.INVALID_PARAMS, f"Cannot cancel task: already in terminal status '{status_of(task)}'"
    )


def _cursor_of(place: int) -> str:
    """The cursor of a place in a store (`Page.next`)."""
    return base64.urlsafe_b64encode(b"task:%d" % place).decode()


def _place_of(cursor: str) -> int:
    with contextlib.suppress(ValueError):
        kind, _, digits = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if kind == "task" and digits.isdecimal() and len(digits) < 19:
            place = int(digits)
            if _cursor_of(place) == cursor:  # base64 decoding accepts other spellings, too
                return place
    raise ProtocolError(codes.INVALID_PARAMS, "Invalid cursor")
