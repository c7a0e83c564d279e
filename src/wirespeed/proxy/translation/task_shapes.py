"""Tasks of one era as the other has them.

Sources: basic/utilities/tasks of 2025-11-25, and the extension ``io.modelcontextprotocol/tasks`` of
2026-07-28. Members pass as they came. A tool's ``isError`` is a failure in 2025-11-25 alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import META_CLIENT_CAPABILITIES
from wirespeed.tasks.model import TaskStatus
from wirespeed.tasks.views import RELATED_TASK

# What a legacy client is told of a server with the extension. There is no list: the extension has
# none.
CAPABILITY: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
# Seconds between two looks at a task: where the server names none, the least and the most.
POLL = 1.0
MIN_POLL = 0.02
MAX_POLL = 60.0

_NONE = Raw(b"")
_NULL = Raw(b"null")


class TaskState(msgspec.Struct, rename="camel"):
    """A task as a server of either era describes it."""

    task_id: str
    status: TaskStatus
    created_at: Raw
    last_updated_at: Raw
    status_message: Raw = _NONE
    ttl: Raw = _NULL
    ttl_ms: Raw = _NULL
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Raw] = {}
    result: Raw = _NONE
    error: Raw = _NONE

    @property
    def poll(self) -> float:
        """The seconds until the next look."""
        ms = self.poll_interval if self.poll_interval_ms is None else self.poll_interval_ms
        return POLL if ms is None else min(max(ms / 1000, MIN_POLL), MAX_POLL)

    @property
    def is_error(self) -> bool:
        """Whether its result says that the tool failed."""
        return bool(self.result) and error_in(self.result)


class _Result(msgspec.Struct):
    isError: bool = False  # noqa: N815


class _Created(msgspec.Struct):
    task: TaskState | None = None
    meta: dict[str, Raw] = msgspec.field(default={}, name="_meta")


task_state = msgspec.json.Decoder(TaskState).decode
created_task = msgspec.json.Decoder(_Created).decode
_result = msgspec.json.Decoder(_Result).decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def error_in(result: Raw | bytes) -> bool:
    """Whether a result of a tool says that it failed."""
    return _result(result).isError


def lowered_task(state: TaskState, id: str) -> dict[str, Any]:
    """A task of 2026-07-28 as a ``Task`` of 2025-11-25. ``id``: What the client calls it."""
    status = TaskStatus.FAILED if state.is_error else state.status
    shown = _shown(state, id, status)
    shown["ttl"] = state.ttl_ms
    if state.poll_interval_ms is not None:
        shown["pollInterval"] = _number(state.poll_interval_ms)
    return shown


def raised_task(state: TaskState, id: str, status: TaskStatus) -> dict[str, Any]:
    """A task of 2025-11-25 as a ``Task`` of the extension. ``status``: Its status
    there."""
    shown = _shown(state, id, status)
    shown["ttlMs"] = state.ttl
    if state.poll_interval is not None:
        shown["pollIntervalMs"] = _number(state.poll_interval)
    return shown


def _shown(state: TaskState, id: str, status: TaskStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {"taskId": id, "status": status}
    if bytes(state.status_message):
        shown["statusMessage"] = state.status_message
    shown["createdAt"] = state.created_at
    shown["lastUpdatedAt"] = state.last_updated_at
    return shown


def _number(value: float) -> float:
    """A whole number without a fraction."""
    return int(value) if value == int(value) else value


def unrelated(result: bytes) -> bytes:
    """A result without the id of its task, which 2026-07-28 has in no result."""
    members = _members(result)
    meta = _members(members.get("_meta", b"{}"))
    if meta.pop(RELATED_TASK, None) is None:
        return result
    del members["_meta"]
    if meta:
        members["_meta"] = Raw(msgspec.json.encode(meta))
    return msgspec.json.encode(members)


def has_extension(capabilities: object) -> bool:
    """Whether capabilities of 2026-07-28 have the extension for tasks."""
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)


def with_extension(meta: dict[str, Any]) -> dict[str, Any]:
    """An envelope whose client declares the extension."""
    declared = meta[META_CLIENT_CAPABILITIES]
    return {**meta, META_CLIENT_CAPABILITIES: {**declared, "extensions": {TASKS_EXTENSION: {}}}}


def runs_tasks(capabilities: object) -> bool:
    """Whether a server of 2025-11-25 runs calls of tools as tasks."""
    found: object = capabilities
    for name in ("tasks", "requests", "tools", "call"):
        found = found.get(name) if isinstance(found, dict) else None
    return isinstance(found, dict)
