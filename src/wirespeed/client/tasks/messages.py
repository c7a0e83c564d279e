"""Tasks in messages of servers: one struct for both forms, 2025-11-25 basic/utilities/tasks and the
extension ``io.modelcontextprotocol/tasks`` of 2026-07-28."""

from typing import Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.client.requests.rounds import AskedInput
from wirespeed.protocol.messages import ErrorObject

__all__ = ["FINAL", "Seen", "TaskState", "list_of", "seen_of"]

FINAL = frozenset({"completed", "failed", "cancelled"})


class TaskState(msgspec.Struct, frozen=True):
    """The state of a task.

    Attributes:
        id: The id of the task; None for a call that was answered at once.
        status: "working", "input_required", "completed", "failed" or "cancelled".
        message: The server's status message, for people.
        created_at, updated_at: Times in ISO 8601, as the server sent them.
        ttl: Seconds from its creation for which the server keeps the task; None for no limit.
        poll_interval: The advised polling interval in seconds, or None.
    """

    id: str | None
    status: str
    message: str | None = None
    created_at: str = ""
    updated_at: str = ""
    ttl: float | None = None
    poll_interval: float | None = None

    @property
    def over(self) -> bool:
        """Whether the status is final."""
        return self.status in FINAL


class Seen(msgspec.Struct, rename="camel"):
    """A task as a server describes it, in either form."""

    task_id: str
    status: str
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, AskedInput] = {}
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ErrorObject | None = None

    @property
    def state(self) -> TaskState:
        """The state for callers."""
        return TaskState(
            self.task_id,
            self.status,
            self.status_message,
            self.created_at,
            self.last_updated_at,
            _seconds(self.ttl if self.ttl_ms is None else self.ttl_ms),
            _seconds(
                self.poll_interval if self.poll_interval_ms is None else self.poll_interval_ms
            ),
        )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


_seen = msgspec.json.Decoder(Seen).decode


def seen_of(data: Any) -> Seen:
    """Decode a task: the result of tasks/get, in 2025-11-25 that of tasks/cancel, or the params of
    a notification. msgspec.DecodeError: the task is not valid."""
    seen = _seen(bytes(data))
    if seen.status not in FINAL and seen.status not in ("working", "input_required"):
        raise msgspec.ValidationError(f"the status of the task is unknown: {seen.status!r}")
    return seen


class _List(msgspec.Struct, rename="camel"):
    tasks: list[Seen]
    next_cursor: str | None = None


_list = msgspec.json.Decoder(_List).decode


def list_of(data: Any) -> tuple[list[TaskState], str | None]:
    """The tasks of tasks/list, and the cursor of the next page."""
    page = _list(data)
    return [seen.state for seen in page.tasks], page.next_cursor


set_public_home(globals())
