"""Questions that a client of 2025-11-25 works on as tasks (basic/utilities/tasks, the server being
the requestor): ``sampling/createMessage`` and ``elicitation/create``, where the client takes them
so.

A question is sent with ``task`` and answered with a task. That is looked at by ``tasks/get`` as
often as the client wishes, and sooner where the client tells of a change
(``notifications/tasks/status``). Once it is over, or waits for something of this side, its result
is fetched by ``tasks/result``. Whoever asks sees nothing of all this: an answer comes, or an error,
as for a plain question. A client that answers at once, without a task, is as good.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InvalidResponse,
    RemoteError,
    TaskCancelled,
)
from wirespeed.protocol import codes
from wirespeed.protocol.asking import CREATE_MESSAGE, ELICIT
from wirespeed.server.schema import describe_validation_error
from wirespeed.tasks.shown import RELATED_TASK

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.call import Serving

__all__ = ["AskedTasks", "ClientTask", "ask", "tasks_of"]

logger = logging.getLogger("wirespeed.server")

# Seconds between two looks at a task: where the client says nothing, and the bounds of what it may
# say.
POLL = 1.0
SHORTEST_POLL = 0.1
LONGEST_POLL = 60.0

# Seconds that a client has to say that it made a task of a question which nobody waits for any
# more, and to answer its cancellation; and how many such questions one connection may have.
LAST_WAIT = 10.0
MAX_DROPPED = 100

# The longest id of a task: it is repeated in every look.
MAX_ID = 1024

# Tasks whose news may come before the answer that creates them has been read.
MAX_EARLY = 100

# What tasks/list may give, over all its pages, and how many pages.
MAX_LISTED = 10_000
MAX_PAGES = 1000

_FINAL = frozenset({"completed", "failed", "cancelled"})

# Where a client declares that it takes requests of a method as tasks.
_DECLARED = {CREATE_MESSAGE: ("sampling", "createMessage"), ELICIT: ("elicitation", "create")}

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ClientTask(msgspec.Struct, rename="camel", frozen=True):
    """A task of the client, as it shows it (``Task`` of 2025-11-25).

    Attributes:
        task_id: Its id, which the client chose.
        status: "working", "input_required", "completed", "failed" or "cancelled".
        status_message: What the client says about it, for people.
        created_at, last_updated_at: Times in ISO 8601, as the client gives them.
        ttl: Milliseconds from its creation that the client keeps it; None for no end.
        poll_interval: Milliseconds to wait between two looks, or None.
    """

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    poll_interval: float | None = None


class _Created(msgspec.Struct):
    task: msgspec.Raw = msgspec.Raw(b"")


class _Result(msgspec.Struct):
    meta: dict[str, msgspec.Raw] = msgspec.field(name="_meta", default_factory=dict)


class _Related(msgspec.Struct):
    taskId: str = ""  # noqa: N815


class _Page(msgspec.Struct, rename="camel"):
    tasks: list[ClientTask]
    next_cursor: str | None = None


_created = msgspec.json.Decoder(_Created).decode
_task = msgspec.json.Decoder(ClientTask).decode
_result = msgspec.json.Decoder(_Result).decode
_related = msgspec.json.Decoder(_Related).decode
_page = msgspec.json.Decoder(_Page).decode


async def ask(
    connection: Serving,
    method: str,
    params: bytes | None,
    *,
    timeout: float | None = None,
    ttl: float | None = None,
) -> bytes:
    """A request to a client of a legacy era: the JSON text of its result.

    With *ttl*, the seconds that the client is asked to keep it, as a task where the client takes
    it so; a client that takes it no other way (-32600; basic/utilities/tasks, "Task Support and
    Handling") gets it as one without being asked for a time. Errors as of `Serving.ask`.
    """
    if not _takes(connection, method):
        return await connection.ask(method, params, timeout=timeout)
    if ttl is None:
        began = connection.loop.time()
        try:
            return await connection.ask(method, params, timeout=timeout)
        except RemoteError as exc:
            if exc.code != codes.INVALID_REQUEST:
                raise
        if timeout is not None:
            timeout = max(0.0, timeout - (connection.loop.time() - began))
    send = functools.partial(tasks_of(connection).send, ttl)
    return await connection.ask(method, params, timeout=timeout, send=send)


def tasks_of(connection: Serving) -> AskedTasks:
    """What the client of a connection works on for this server."""
    tasks = connection.state.asked_tasks
    if tasks is None:
        tasks = connection.state.asked_tasks = AskedTasks(connection)
    return tasks


def _takes(connection: Serving, method: str) -> bool:
    """Whether the client takes requests of a method as tasks."""
    found = _capability(connection, "requests") if method in _DECLARED else None
    for name in _DECLARED.get(method, ()):
        found = found.get(name) if isinstance(found, Mapping) else None
    return isinstance(found, Mapping)


def _capability(connection: Serving, name: str) -> Any:
    """A member of the ``tasks`` that the client declared; None where it did not, or the revision
    has no tasks."""
    revision = connection.revision
    if revision is None or "tasks" not in revision.client_capabilities:
        return None
    declared = connection.state.capabilities.get("tasks")
    return declared.get(name) if isinstance(declared, Mapping) else None


class _Asked:
    """One task that is waited for.

    Attributes:
        due: Done when its result is to be fetched, or when the client is gone.
        wait: Seconds to the next look.
    """

    __slots__ = ("due", "id", "status", "wait")

    def __init__(self, task: ClientTask, due: asyncio.Future[None]) -> None:
        self.id = task.task_id
        self.due = due
        self.status = "working"
        self.wait = POLL
        self.take(task)

    @property
    def over(self) -> bool:
        return self.status in _FINAL

    def take(self, task: ClientTask) -> None:
        """The client said how far it is. What is over stays so."""
        if self.over:
            return
        self.status = task.status
        if task.poll_interval is not None:
            self.wait = min(max(task.poll_interval / 1000, SHORTEST_POLL), LONGEST_POLL)
        if self.status != "working":
            self.wake()

    def wake(self) -> None:
        if not self.due.done():
            self.due.set_result(None)


class AskedTasks:
    """The tasks that one connection's client works on for this server."""

    def __init__(self, connection: Serving) -> None:
        self._connection = connection
        connection.state.heard["notifications/tasks/status"] = self.told
        self._tasks: dict[str, _Asked] = {}
        self._n_creating = 0  # questions whose first answer is not there
        self._early: dict[str, ClientTask] = {}  # news of tasks that nobody knows yet
        self._dropped: set[asyncio.Future[bytes]] = set()
        self._gone = False

    # -- what the connection tells ---------------------------------------------------------------

    def told(self, message: Message) -> None:
        """notifications/tasks/status. What is malformed, or of no concern, is ignored: looking at
        the task will tell."""
        raw = message.params
        try:
            task = _task(b"{}" if raw is None else raw)
        except (msgspec.DecodeError, RecursionError):
            return
        asked = self._tasks.get(task.task_id)
        if asked is not None:
            asked.take(task)
        elif self._n_creating and len(self._early) < MAX_EARLY and len(task.task_id) <= MAX_ID:
            # without its texts, which may be long
            brief = ClientTask(task.task_id, task.status, poll_interval=task.poll_interval)
            self._early[task.task_id] = brief

    def client_gone(self) -> None:
        """No answer can come any more."""
        self._gone = True
        for asked in self._tasks.values():
            asked.wake()

    # -- a question ------------------------------------------------------------------------------

    def send(
        self, ttl: float | None, method: str, params: bytes | None, timeout: float | None
    ) -> asyncio.Future[bytes]:
        """Ask as a task: a future as of `Serving.ask`. Besides, `TaskCancelled`: the client ended
        it. Cancelling the future cancels the task where the client lets tasks be cancelled."""
        return self._connection.loop.create_task(self._ask(ttl, method, params, timeout))

    async def _ask(
        self, ttl: float | None, method: str, params: bytes | None, timeout: float | None
    ) -> bytes:
        members = {} if params is None else _members(params)
        wish = {} if ttl is None else {"ttl": max(1, round(ttl * 1000))}
        members["task"] = msgspec.Raw(_encode(wish))
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(method, _encode(members))
        except TimeoutError:
            raise CallTimeout(f"no answer to {method} within its time limit") from None

    async def _answer(self, method: str, params: bytes) -> bytes:
        self._n_creating += 1
        try:
            text = await self._first_answer(method, params)
            asked = self._asked(text)
        finally:
            self._n_creating -= 1
            if not self._n_creating:
                self._early.clear()
        if asked is None:
            return text
        self._tasks[asked.id] = asked
        ended = False
        try:
            await self._until_due(asked)
            result = await self._request("tasks/result", asked.id)
            ended = True
            return _of_task(result, asked.id)
        except RemoteError as exc:
            ended = True  # with the error of the question itself, or the task is forgotten
            if asked.status == "cancelled":
                raise TaskCancelled(exc.code, exc.message, exc.data) from None
            raise
        finally:
            del self._tasks[asked.id]
            if not (ended or asked.over):
                self._cancel(asked.id)

    async def _first_answer(self, method: str, params: bytes) -> bytes:
        """The answer to the question itself: a task, or all there is to say."""
        self._check_there()
        created = self._connection.ask_wire(method, params, None)
        try:
            await asyncio.wait([created])
        except asyncio.CancelledError:
            self._drop(created)
            raise
        return created.result()

    def _asked(self, text: bytes) -> _Asked | None:
        """The task that a question was answered with, None for any other answer. InvalidResponse:
        it is not usable."""
        found = _new_task(text)
        if found is None:
            return None
        if found.task_id in self._tasks:
            raise InvalidResponse("the client made a task with an id that another one has")
        asked = _Asked(found, self._connection.loop.create_future())
        if (news := self._early.pop(asked.id, None)) is not None:
            asked.take(news)
        return asked

    async def _until_due(self, asked: _Asked) -> None:
        """Until the result of a task is to be fetched: it is over, waits for something of this side
        ("Input Required Status"), or cannot be looked at."""
        while True:
            await asyncio.wait([asked.due], timeout=asked.wait)
            self._check_there()
            if asked.due.done():
                return
            look = self._request("tasks/get", asked.id)
            either: list[asyncio.Future[Any]] = [look, asked.due]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if look.done():
                    asked.take(_looked(look.result(), asked.id))
            except RemoteError:
                return  # tasks/result says what there is to say
            finally:
                look.cancel()

    def _request(self, method: str, task_id: str) -> asyncio.Future[bytes]:
        # without related-task: the id is in the params ("Associating Task-Related Messages")
        return self._connection.ask_wire(method, _encode({"taskId": task_id}), None)

    def _check_there(self) -> None:
        if self._gone:
            raise ConnectionClosed("the client is gone")

    # -- giving up -------------------------------------------------------------------------------

    def _drop(self, created: asyncio.Future[bytes]) -> None:
        """Nobody waits for a question any more that has no answer yet. A question asked as a task
        is cancelled by tasks/cancel alone (basic/utilities/cancellation), once its task is known;
        a client that says nothing has made none, and is told as of any question."""
        if len(self._dropped) >= MAX_DROPPED:
            created.cancel()
            return
        self._dropped.add(created)
        timer = self._connection.loop.call_later(LAST_WAIT, created.cancel)

        def answered(_: asyncio.Future[bytes]) -> None:
            timer.cancel()
            self._dropped.discard(created)
            if created.cancelled() or created.exception() is not None:
                return
            try:
                task = _new_task(created.result())
            except InvalidResponse as exc:
                logger.debug("a question that nobody waits for: %s", exc)
                return
            if task is not None and task.status not in _FINAL and task.task_id not in self._tasks:
                self._cancel(task.task_id)

        created.add_done_callback(answered)

    def _cancel(self, task_id: str) -> None:
        """End a task whose answer nobody wants, where the client lets it be."""
        if self._gone or not isinstance(_capability(self._connection, "cancel"), Mapping):
            return
        params = _encode({"taskId": task_id})
        self._connection.ask_wire("tasks/cancel", params, LAST_WAIT).add_done_callback(_ignore)

    # -- all of them -----------------------------------------------------------------------------

    async def list_all(self, timeout: float | None) -> list[ClientTask]:
        """tasks/list, all pages; empty where the client has no such list. InvalidResponse: it is
        malformed or has no end. Other errors as of `Serving.ask`."""
        if not isinstance(_capability(self._connection, "list"), Mapping):
            return []
        found: list[ClientTask] = []
        seen: set[str] = set()
        cursor: str | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    params = {} if cursor is None else {"cursor": cursor}
                    data = await self._connection.ask("tasks/list", _encode(params))
                    page = _decoded(_page, data, "the client's answer to tasks/list")
                    found += page.tasks
                    cursor = page.next_cursor
                    if cursor is None:
                        return found
                    if cursor in seen or len(seen) >= MAX_PAGES or len(found) > MAX_LISTED:
                        raise InvalidResponse("the client's pages of tasks/list never end")
                    seen.add(cursor)
        except TimeoutError:
            raise CallTimeout("no answer to tasks/list within its time limit") from None


def _decoded(decode: Any, data: Any, what: str) -> Any:
    try:
        return decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidResponse(f"{what}: {describe_validation_error(exc, 'result')}") from exc


def _new_task(text: bytes) -> ClientTask | None:
    """The task of a ``CreateTaskResult``; None for another result. InvalidResponse: it is none."""
    try:
        found = bytes(_created(text).task)
    except (msgspec.DecodeError, RecursionError):
        return None  # no object at all: whoever asked will say so
    if not found.startswith(b"{"):
        return None
    task: ClientTask = _decoded(_task, found, "the task that the client made")
    if len(task.task_id) > MAX_ID:
        raise InvalidResponse(f"the client made a task whose id is longer than {MAX_ID} characters")
    return task


def _looked(text: bytes, task_id: str) -> ClientTask:
    """What tasks/get gave for a task. InvalidResponse: it is none, or another one."""
    task: ClientTask = _decoded(_task, text, "the client's answer to tasks/get")
    if task.task_id != task_id:
        raise InvalidResponse("the client answered tasks/get with another task")
    return task


def _of_task(text: bytes, task_id: str) -> bytes:
    """The result of a task. InvalidResponse: it is marked as another's ("Associating Task-Related
    Messages"). One without a mark passes."""
    meta = _decoded(_result, text, "the client's answer to tasks/result").meta
    if RELATED_TASK in meta:
        related = _decoded(_related, meta[RELATED_TASK], "the client's answer to tasks/result")
        if related.taskId != task_id:
            raise InvalidResponse("the client answered tasks/result with another task's result")
    return text


def _ignore(future: asyncio.Future[bytes]) -> None:
    """Whatever comes of a cancellation: else its time to live ends the task."""
    if not future.cancelled() and (exc := future.exception()) is not None:
        logger.debug("a task of the client was not cancelled: %s", exc)
