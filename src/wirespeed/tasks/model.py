"""A task as a value, and the changes that it allows.

Source: basic/utilities/tasks of 2025-11-25 ("Task Status Lifecycle") and the extension
``io.modelcontextprotocol/tasks`` of 2026-07-28 ("Task Status"). Both have the same state machine.
They differ in the status of a task whose result has ``isError``: ``failed`` in 2025-11-25,
``completed`` in the extension. `Task.is_error` stores the fact, and each form derives its status.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import LimitExceeded, WirespeedError

MAX_STATUS_MESSAGE = 1000  # characters; each poll sends the message again


class TaskStatus(StrEnum):
    """The status of a task. The last three are terminal."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the task has ended, and cannot change."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.WORKING: frozenset(set(TaskStatus) - {TaskStatus.WORKING}),
    TaskStatus.INPUT_REQUIRED: frozenset(set(TaskStatus) - {TaskStatus.INPUT_REQUIRED}),
    TaskStatus.COMPLETED: frozenset(),
    TaskStatus.FAILED: frozenset(),
    TaskStatus.CANCELLED: frozenset(),
}


class TaskStateError(WirespeedError):
    """A task cannot change: its status is terminal."""


class TaskLimit(LimitExceeded):
    """A task store is full."""


def new_task_id() -> str:
    """An unguessable id: 192 random bits in hexadecimal. One that began with ``-`` would be an
    option on a command line."""
    return os.urandom(24).hex()


def timestamp(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC, the format of times in both forms of tasks."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task at one moment. Methods return the changed task.

    Attributes:
        id: An unguessable id. A client that knows it may see the task; see `visible_to`.
        owner: The owner, for lists and limits: stands for a credential or a connection.
        principal: Whether `owner` stands for a credential. Then no other client gets the task.
        method, name: The request that the task runs: ``tools/call`` and the tool.
        status: The status.
        message: The status message, for people: what the task does, or why it ended.
        created, updated: Milliseconds since 1970, by the wall clock.
        ttl: Milliseconds from `created` after which the task may be forgotten; None for never.
        poll: The advised polling interval in milliseconds; None for no advice.
        result: JSON text of the result object of a completed task.
        is_error: Whether the result says that the tool failed (``isError``).
        error: JSON text of the JSON-RPC error object of a failed task.
        requests: The open questions: key to the JSON text of ``{"method", "params"}``.
        answers: The answers that the handler has not taken yet: key to JSON text.
        asked: The number of keys given out so far. No key is given out twice.
        revision: The number of changes, by which a store detects concurrent changes.
    """

    id: str
    owner: bytes
    principal: bool = False
    method: str = "tools/call"
    name: str = ""
    status: TaskStatus = TaskStatus.WORKING
    message: str | None = None
    created: int
    updated: int
    ttl: int | None = None
    poll: int | None = None
    result: bytes | None = None
    is_error: bool = False
    error: bytes | None = None
    requests: dict[str, bytes] = {}
    answers: dict[str, bytes] = {}
    asked: int = 0
    revision: int = 0

    @property
    def expires(self) -> int | None:
        """The time at which the task may be forgotten, in milliseconds since 1970; None for
        never."""
        return None if self.ttl is None else self.created + self.ttl

    @property
    def size(self) -> int:
        """The bytes of result, error, questions and answers."""
        held = (self.result, self.error, *self.requests.values(), *self.answers.values())
        return sum(len(part) for part in held if part is not None)

    def expired(self, now: int) -> bool:
        """Whether the time to live is over at `now`."""
        return self.ttl is not None and now >= self.created + self.ttl

    def visible_to(self, owner: bytes, principal: bool) -> bool:
        """Whether a requestor may see the task (2025-11-25 basic/utilities/tasks, "Task Isolation
        and Access Control"). A task of a principal is visible to that principal alone, and a
        principal sees no other tasks. Every other task is visible to requestors without a principal
        that know its id."""
        if self.principal or principal:
            return self.principal and principal and self.owner == owner
        return True

    # -- changes ---------------------------------------------------------------------------------

    def _to(self, status: TaskStatus, now: int, message: str | None, **changes: object) -> Self:
        if self.status.terminal:
            raise TaskStateError(f"the task is {self.status} already")
        if message is not None and len(message) > MAX_STATUS_MESSAGE:
            message = message[: MAX_STATUS_MESSAGE - 1] + "…"
        return msgspec.structs.replace(
            self,
            status=status,
            message=message,
            updated=max(self.updated, now),
            revision=self.revision + 1,
            **changes,
        )

    def noted(self, message: str | None, now: int) -> Self:
        """The task with another status message."""
        return self._to(self.status, now, message)

    def asking(self, request: bytes, now: int) -> tuple[Self, str]:
        """The task with one more question, and the key of the question. `request` is the JSON text
        of ``{"method", "params"}``."""
        key = f"input-{self.asked + 1}"
        after = self._to(
            TaskStatus.INPUT_REQUIRED,
            now,
            None,
            requests={**self.requests, key: request},
            asked=self.asked + 1,
        )
        return after, key

    def answered(self, answers: Mapping[str, bytes], now: int) -> Self:
        """The task with these answers. Answers to unknown questions are ignored; if no answer is
        left, the task itself is returned. The task is working again when every question has its
        answer."""
        known = {key: text for key, text in answers.items() if key in self.requests}
        if not known or self.status.terminal:
            return self
        return self._without(known.keys(), now, answers={**self.answers, **known})

    def withdrawing(self, key: str, now: int) -> Self:
        """The task without a question, and without its answer."""
        if key not in self.requests and key not in self.answers:
            return self
        answers = {other: text for other, text in self.answers.items() if other != key}
        return self._without({key}, now, answers=answers)

    def _without(self, keys: object, now: int, **changes: object) -> Self:
        assert hasattr(keys, "__contains__")
        left = {key: text for key, text in self.requests.items() if key not in keys}
        status = TaskStatus.INPUT_REQUIRED if left else TaskStatus.WORKING
        return self._to(status, now, self.message, requests=left, **changes)

    def completed(
        self, result: bytes, now: int, *, is_error: bool = False, message: str | None = None
    ) -> Self:
        """The task, ended with a result: the JSON text of an object."""
        return self._end(TaskStatus.COMPLETED, now, message, result=result, is_error=is_error)

    def failed(self, error: bytes, message: str, now: int) -> Self:
        """The task, ended with a JSON-RPC error: the JSON text of the error object."""
        return self._end(TaskStatus.FAILED, now, message, error=error)

    def cancelled(self, message: str, now: int) -> Self:
        """The task, ended by a cancellation."""
        return self._end(TaskStatus.CANCELLED, now, message)

    def _end(self, status: TaskStatus, now: int, message: str | None, **outcome: object) -> Self:
        return self._to(status, now, message, requests={}, answers={}, **outcome)


set_public_home(globals())
