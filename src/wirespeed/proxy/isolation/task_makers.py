"""The clients that made the tasks of a server of a legacy era that several clients share.

The server knows one client, the proxy: it lists all tasks to anyone, and takes any id. So the proxy
remembers who made a task: the principal of the client, or else the client itself. To all others the
task is unknown (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control").
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.proxy.downstream import principal_of
from wirespeed.proxy.isolation.choice import TaskRequests
from wirespeed.proxy.own_requests import params_of
from wirespeed.tasks.views import RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream

# Tasks that are remembered for one server, and for one principal or client. Beyond these the oldest
# one of whoever has most is forgotten: it is unknown to all.
MAX_TASKS = 20_000
MAX_OF_OWNER = 1000
# Characters of an id that is remembered as it is; of a longer one the digest is.
_MAX_ID = 200

STATUS = "notifications/tasks/status"

_RELATED = re.compile(rb"related-task")
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[Raw]).decode


class _Task(msgspec.Struct):
    taskId: str  # noqa: N815


class _Created(msgspec.Struct):
    task: _Task


_task = msgspec.json.Decoder(_Task).decode
_created = msgspec.json.Decoder(_Created).decode


class _OwnedTask:
    """A task that was made. ``downstream`` is None when the client has left."""

    __slots__ = ("downstream", "owner", "tool")

    def __init__(self, downstream: Downstream, owner: bytes | Downstream, tool: str) -> None:
        self.downstream: Downstream | None = downstream
        self.owner = owner
        self.tool = tool


class TaskMakers:
    """The makers of the tasks of one server.

    Attributes:
        requests: What each client needs as its `Translation`, so that its tasks become known.
    """

    def __init__(self) -> None:
        self.requests = TaskRequests(self._after)
        self._made: dict[str | bytes, _OwnedTask] = {}
        self._of_owner: dict[bytes | Downstream, dict[str | bytes, None]] = {}
        self._of_downstream: dict[Downstream, set[str | bytes]] = {}

    def __len__(self) -> int:
        """Return how many tasks are remembered."""
        return len(self._made)

    def may(self, downstream: Downstream, task_id: object) -> bool:
        """Whether a client may know of a task: its principal, or the client itself, has made the
        task, by a tool that this principal may call."""
        made = self._made.get(_key(task_id)) if isinstance(task_id, str) else None
        return (
            made is not None and made.owner == _owner(downstream) and _allows(downstream, made.tool)
        )

    def left(self, downstream: Downstream) -> None:
        """A client has left. The tasks of its principal are remembered."""
        for key in self._of_downstream.pop(downstream, set()):
            made = self._made[key]
            made.downstream = None
            if made.owner is downstream:
                self._forget(key)

    def of_task(self, message: Message) -> tuple[bool, Downstream | None]:
        """Whether a message of the server belongs to a task, and the client that has made the
        task, if this client is known and there."""
        if message.method != STATUS and _RELATED.search(message.params or b"") is None:
            return False, None
        found: Any = params_of(message)
        if message.method != STATUS:
            meta = found.get("_meta")
            found = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
            if found is None:
                return False, None
        task_id = found.get("taskId") if isinstance(found, dict) else None
        made = self._made.get(_key(task_id)) if isinstance(task_id, str) else None
        return True, None if made is None else made.downstream

    def _after(
        self, downstream: Downstream, message: Message
    ) -> Callable[[Message], Message | bytes]:
        """Return what looks at the answer to a request of a client."""
        if message.method == "tasks/list":
            return partial(self._listed, downstream)
        return partial(
            self._called, downstream, _owner(downstream), message.text("params.name") or ""
        )

    def _called(
        self, downstream: Downstream, owner: bytes | Downstream, tool: str, answer: Message
    ) -> Message | bytes:
        """Note the task that a call has become."""
        if answer.result is not None:
            with contextlib.suppress(msgspec.DecodeError):  # it became none
                self._note(downstream, owner, tool, _created(answer.result).task.taskId)
        return answer

    def _note(
        self, downstream: Downstream, owner: bytes | Downstream, tool: str, task_id: str
    ) -> None:
        key = _key(task_id)
        if key in self._made:  # the server has begun to count anew
            self._forget(key)
        self._made[key] = _OwnedTask(downstream, owner, tool)
        owned = self._of_owner.setdefault(owner, {})
        owned[key] = None
        self._of_downstream.setdefault(downstream, set()).add(key)
        if len(self._made) > MAX_TASKS:
            owned = max(self._of_owner.values(), key=len)
        elif len(owned) <= MAX_OF_OWNER:
            return
        self._forget(next(iter(owned)))

    def _forget(self, key: str | bytes) -> None:
        made = self._made.pop(key)
        owned = self._of_owner[made.owner]
        del owned[key]
        if not owned:
            del self._of_owner[made.owner]
        if made.downstream is not None:
            mine = self._of_downstream[made.downstream]
            mine.remove(key)
            if not mine:
                del self._of_downstream[made.downstream]

    def _listed(self, downstream: Downstream, answer: Message) -> Message | bytes:
        """Leave the tasks of others out of a list."""
        if answer.result is None:
            return answer
        result = _members(answer.result)
        try:
            found = _entries(result.get("tasks", b"[]"))
            kept = [one for one in found if self.may(downstream, _task(one).taskId)]
        except msgspec.DecodeError:
            kept = []  # not a list of tasks: nothing of it is shown
        return msgspec.json.encode({**result, "tasks": kept})


def _key(task_id: str) -> str | bytes:
    if len(task_id) <= _MAX_ID:
        return task_id
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).digest()


def _owner(downstream: Downstream) -> bytes | Downstream:
    principal = principal_of(downstream)
    return downstream if principal is None else principal


def _allows(downstream: Downstream, tool: str) -> bool:
    """Whether the principal of a client may call a tool now."""
    access = downstream.service.access
    if access is None:
        return True
    grant = access.of(principal_of(downstream))
    return grant is not None and grant.shows(tool)
