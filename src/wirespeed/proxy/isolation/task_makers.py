"""The clients that made the tasks of a server of a legacy era that several clients share.

The server knows one client, the proxy: it lists all tasks to anyone, and takes any id. So the proxy
remembers who made a task: the principal of the client, or else the client itself. To all others the
task is unknown (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control").

Where several hosts use one server, the store knows it, too, for principals and for sessions that
may move to another host. The store decides: the server may have given an id again, to somebody
else. While the store is away, and where it does not know a task, this process decides. It tells the
store later of a task that was made while the store was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError
from wirespeed.proxy.downstream import DeferredRequest, outermost, principal_of
from wirespeed.proxy.isolation.choice import TaskRequests
from wirespeed.proxy.own_requests import params_of
from wirespeed.tasks.views import RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from wirespeed._core.envelope import Message
    from wirespeed.cluster.task_makers import RedisTaskMakers
    from wirespeed.peer.http.http_session import HttpSession
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
    ttl: Raw = Raw(b"null")  # milliseconds; any value, which the client sees


class _Created(msgspec.Struct):
    task: _Task


_task = msgspec.json.Decoder(_Task).decode
_created = msgspec.json.Decoder(_Created).decode
_milliseconds = msgspec.json.Decoder(float | None).decode


class _OwnedTask:
    """A task that was made.

    Attributes:
        downstream: The client that gets its questions and changes; None when that has left.
        owner: Its maker: a principal, or the client.
        tool: The tool that was called.
        untold: Whether the store is to be told of it.
    """

    __slots__ = ("downstream", "owner", "tool", "untold")

    def __init__(
        self, downstream: Downstream, owner: bytes | Downstream, tool: str, untold: bool
    ) -> None:
        self.downstream: Downstream | None = downstream
        self.owner = owner
        self.tool = tool
        self.untold = untold


class TaskMakers:
    """The makers of the tasks of one server.

    Args:
        shared: What all hosts know; None: no other host uses the server.

    Attributes:
        requests: What each client needs as its `Translation`, so that its tasks become known.
    """

    def __init__(self, shared: RedisTaskMakers | None = None) -> None:
        self._shared = shared
        self._answers: set[DeferredRequest] = set()  # those that wait for the store
        self.requests = TaskRequests(self._after)
        self._made: dict[str | bytes, _OwnedTask] = {}
        self._of_owner: dict[bytes | Downstream, dict[str | bytes, None]] = {}
        self._of_downstream: dict[Downstream, set[str | bytes]] = {}

    def __len__(self) -> int:
        """Return how many tasks are remembered."""
        return len(self._made)

    def may(self, downstream: Downstream, task_id: object) -> bool | asyncio.Future[bool]:
        """Whether a client may know of a task: its principal, or the client itself, has made the
        task, by a tool that this principal may call. The future raises ProtocolError where the
        store is away and this process does not know the task."""
        if not isinstance(task_id, str):
            return False
        owner = self._shared_owner(downstream)
        if owner is None:
            return self._may_here(downstream, task_id)
        return asyncio.ensure_future(self._may(downstream, owner, task_id))

    async def _may(self, downstream: Downstream, owner: bytes, task_id: str) -> bool:
        try:
            await self._learn(downstream, owner, [task_id])
        except ProtocolError:
            if not self._may_here(downstream, task_id):
                raise
        return self._may_here(downstream, task_id)

    def _may_here(self, downstream: Downstream, task_id: str) -> bool:
        """The same, as far as this process knows."""
        made = self._made.get(_key(task_id))
        return (
            made is not None and made.owner == _owner(downstream) and _allows(downstream, made.tool)
        )

    def asked(self, downstream: Downstream, message: Message) -> None:
        """A client asks about its task. The one that asked for the result last gets the questions
        of the task: the one that made it may have left, or may not listen."""
        task_id = params_of(message)["taskId"]
        made = self._made.get(_key(task_id))
        if (
            made is not None
            and made.owner == _owner(downstream)
            and (made.downstream is None or message.method == "tasks/result")
        ):
            self._note(downstream, made.owner, made.tool, task_id, untold=made.untold)

    async def _learn(self, downstream: Downstream, owner: bytes, task_ids: Sequence[str]) -> None:
        """Learn whose tasks are, as the store knows. Questions of those that another process has
        made for this client reach the client here from now on. ProtocolError: the store is away."""
        assert self._shared is not None
        known = await self._shared.tools(owner, task_ids)
        mine = _owner(downstream)
        for task_id in task_ids:
            made = self._made.get(_key(task_id))
            if task_id not in known and made is not None and made.untold and made.owner == mine:
                await self._shared.note(task_id, owner, made.tool, None)
                made.untold = False
        if downstream.link is None:
            return  # it has left meanwhile
        for task_id, tool in known.items():
            made = self._made.get(_key(task_id))
            is_mine = made is not None and made.owner == mine
            if tool is not None and not is_mine:
                self._note(downstream, mine, tool, task_id)
            elif tool is None and is_mine:  # the server has begun to count anew
                self._forget(_key(task_id))

    def _shared_owner(self, downstream: Downstream) -> bytes | None:
        """Return whose tasks those of a client are at all hosts; None: only this process has the
        client."""
        if self._shared is None:
            return None
        if (principal := principal_of(downstream)) is not None:
            return b"p" + principal
        outer = outermost(downstream)
        session: HttpSession | None = getattr(outer.link, "session", None)
        return None if outer.state is None or session is None else b"s" + session.id.encode()

    def left(self, downstream: Downstream) -> None:
        """A client has left. The tasks of its principal are remembered."""
        for key in self._of_downstream.pop(downstream, set()):
            made = self._made[key]
            made.downstream = None
            if made.owner is downstream:
                self._forget(key)

    def of_task(self, message: Message) -> tuple[bool, Downstream | None]:
        """Whether a message of the server belongs to a task, and the client that it is for, if this
        client is known and there."""
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
    ) -> Callable[[Message], Message | bytes | None]:
        """Return what looks at the answer to a request of a client."""
        shared = self._shared_owner(downstream)
        if message.method == "tasks/list":
            return partial(self._listed, downstream, message, shared)
        tool = message.text("params.name") or ""
        return partial(self._called, downstream, message, (_owner(downstream), shared), tool)

    def _called(
        self,
        downstream: Downstream,
        message: Message,
        owners: tuple[bytes | Downstream, bytes | None],
        tool: str,
        answer: Message,
    ) -> Message | bytes | None:
        """Note the task that a call has become. None: the client gets the answer when other hosts
        know the task, too."""
        if answer.result is None:
            return answer
        try:
            task = _created(answer.result).task
        except msgspec.DecodeError:  # it became none
            return answer
        owner, shared = owners
        made = self._note(downstream, owner, tool, task.taskId, untold=shared is not None)
        if shared is None:
            return answer
        telling = self._tell(made, shared, task.taskId, _life(task), bytes(answer.result))
        self._answer_later(downstream, message, telling)
        return None

    async def _tell(
        self, made: _OwnedTask, owner: bytes, task_id: str, life: float | None, result: bytes
    ) -> bytes:
        """Tell other hosts of a task."""
        assert self._shared is not None
        with contextlib.suppress(ProtocolError):  # they hear of it when the client asks about it
            await self._shared.note(task_id, owner, made.tool, life)
            made.untold = False
        return result

    def _answer_later(
        self, downstream: Downstream, message: Message, result: Coroutine[Any, Any, bytes]
    ) -> None:
        """Answer a request when the store has said what is needed."""

        async def answer() -> None:
            text = await result
            downstream.answer(message, msgspec.json.format(text, indent=-1))

        DeferredRequest(downstream, message, answer(), self._answers)

    def _note(
        self,
        downstream: Downstream,
        owner: bytes | Downstream,
        tool: str,
        task_id: str,
        *,
        untold: bool = False,
    ) -> _OwnedTask:
        key = _key(task_id)
        if key in self._made:  # the server has begun to count anew
            self._forget(key)
        made = self._made[key] = _OwnedTask(downstream, owner, tool, untold)
        owned = self._of_owner.setdefault(owner, {})
        owned[key] = None
        self._of_downstream.setdefault(downstream, set()).add(key)
        if len(self._made) > MAX_TASKS:
            owned = max(self._of_owner.values(), key=len)
        elif len(owned) <= MAX_OF_OWNER:
            return made
        self._forget(next(iter(owned)))
        return made

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

    def _listed(
        self, downstream: Downstream, message: Message, owner: bytes | None, answer: Message
    ) -> Message | bytes | None:
        """Leave the tasks of others out of a list. None: the client gets it when the store has
        said whose the tasks are."""
        if answer.result is None:
            return answer
        result = _members(bytes(answer.result))
        try:
            found = [(_task(one).taskId, one) for one in _entries(result.get("tasks", b"[]"))]
        except msgspec.DecodeError:
            found = []  # not a list of tasks: nothing of it is shown

        def kept() -> bytes:
            mine = [one for task_id, one in found if self._may_here(downstream, task_id)]
            return msgspec.json.encode({**result, "tasks": mine})

        async def learned(owner: bytes) -> bytes:
            await self._learn(downstream, owner, [task_id for task_id, _ in found])
            return kept()

        if owner is None:
            return kept()
        self._answer_later(downstream, message, learned(owner))
        return None


def _life(task: _Task) -> float | None:
    """The seconds for which a server keeps a task; None: it does not say."""
    try:
        milliseconds = _milliseconds(task.ttl)
    except msgspec.DecodeError:  # not a number, or one that is too large
        return None
    return None if milliseconds is None else milliseconds / 1000


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
