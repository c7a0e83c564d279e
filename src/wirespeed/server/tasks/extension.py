"""The extension ``io.modelcontextprotocol/tasks`` of 2026-07-28: the server decides which calls
become tasks.

Source: the extension's specification (repository modelcontextprotocol/ext-tasks,
specification/2026-07-28/tasks). The answer to tasks/get contains the questions of a task, and
tasks/update their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import META_SERVER_INFO
from wirespeed.server.extensions import Extension, declares, missing
from wirespeed.server.requests.operation import params_of
from wirespeed.server.requests.reply import Body, Whole
from wirespeed.server.tasks.book import TaskRuntime, TaskService
from wirespeed.server.tasks.run import run_now, run_soon
from wirespeed.tasks.model import Task, TaskStateError, TaskStatus
from wirespeed.tasks.views import TaskParams, view

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.requests.call import Call, Serving
    from wirespeed.server.requests.operation import Handler
    from wirespeed.server.subscriptions import ListenStream
    from wirespeed.server.tasks.catalog import AsTask, TaskTool
    from wirespeed.server.tasks.participants import TaskListener

# The most task ids of one subscription, and the longest id (those of this server are shorter).
MAX_LISTENED = 1000
MAX_TASK_ID = 64

_encode = msgspec.json.Encoder().encode


class UpdateParams(msgspec.Struct):
    """tasks/update: the results for ``inputRequests``, by the same keys."""

    taskId: str  # noqa: N815
    inputResponses: dict[str, msgspec.Raw]  # noqa: N815


_task_params = msgspec.json.Decoder(TaskParams)
_update_params = msgspec.json.Decoder(UpdateParams)


def detailed(task: Task) -> dict[str, Any]:
    """Return a ``DetailedTask``: a task with its questions, its result or its error."""
    shown = view(task, modern=True)
    if task.status is TaskStatus.INPUT_REQUIRED:
        shown["inputRequests"] = {key: msgspec.Raw(text) for key, text in task.requests.items()}
    elif task.result is not None:
        shown["result"] = msgspec.Raw(task.result)
    elif task.error is not None:
        shown["error"] = msgspec.Raw(task.error)
    return shown


class _Form:
    """See `wirespeed.server.tasks.run.TaskForm`."""

    def created(self, connection: Serving, task: Task) -> Body:
        info = msgspec.Raw(connection.service.discovery.info_json)
        whole = {**view(task, modern=True), "resultType": "task", "_meta": {META_SERVER_INFO: info}}
        return Whole(_encode(whole))

    def started(self, book: TaskRuntime, connection: Serving, task: Task) -> None:
        """Does nothing: only subscribers receive the states of tasks."""

    def tagged(self, task_id: str, method: str, params: bytes) -> bytes | None:
        return None  # "not supported on tasks in general" ("Task Status Notifications")


_FORM = _Form()


def as_task_if_declared(book: TaskRuntime, support: TaskTool, message: Message) -> AsTask | None:
    """Return how a call becomes a task, at once or after some seconds. None: the client did not
    declare the extension. ProtocolError -32021: the same, and the tool only runs as a task."""
    if not declares(message, TASKS_EXTENSION):
        if support.required:
            raise missing(TASKS_EXTENSION)
        return None

    def start(call: Call, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        if support.required or support.after == 0:
            return run_now(book, _FORM, None, call, work)
        return run_soon(book, _FORM, support.after, call, work)

    return start


def tasks_extension(service: TaskService) -> Extension:
    """Return the extension for the tasks of one server."""
    extension = Extension(
        TASKS_EXTENSION, result_types=["task"], listening={"taskIds": _Listening(service)}
    )

    def requests(work: Any, decoder: msgspec.json.Decoder[Any]) -> Handler:
        def handler(call: Call, message: Message) -> Any:
            extension.require(message)
            connection = call.connection
            return work(service.book(connection.loop), connection, params_of(message, decoder))

        return handler

    extension.handlers |= {
        "tasks/get": requests(_get, _task_params),
        "tasks/update": requests(_update, _update_params),
        "tasks/cancel": requests(_cancel, _task_params),
    }
    return extension


async def _get(book: TaskRuntime, connection: Serving, params: TaskParams) -> Body:
    task = await book.find(connection, params.taskId)
    return _encode(detailed(task))


async def _update(book: TaskRuntime, connection: Serving, params: UpdateParams) -> Body:
    """tasks/update: store the answers. Answers to unknown questions are ignored ("Task Update
    Requests")."""
    task = await book.find(connection, params.taskId)
    await book.answer(task.id, {key: bytes(raw) for key, raw in params.inputResponses.items()})
    return b"{}"


async def _cancel(book: TaskRuntime, connection: Serving, params: TaskParams) -> Body:
    """tasks/cancel: cancel the task. The request is also acknowledged for a task that has ended,
    which does not change."""
    task = await book.find(connection, params.taskId)
    with contextlib.suppress(TaskStateError):
        await book.cancel(task)
    return b"{}"


class _Listening:
    """``taskIds`` of subscriptions/listen: notifications/tasks for each change of these tasks.

    The acknowledgement names every requested id, including ids of unknown tasks. The state of each
    task that the client may see is sent at once, so that the client misses no change.
    """

    def __init__(self, service: TaskService) -> None:
        self._service = service

    def honoured(self, message: Message, value: Any) -> list[str]:
        if not declares(message, TASKS_EXTENSION):
            raise missing(TASKS_EXTENSION)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ProtocolError(
                codes.INVALID_PARAMS,
                "Invalid params: params.notifications.taskIds must be an array of strings",
            )
        if any(len(item) > MAX_TASK_ID for item in value):
            raise ProtocolError(
                codes.INVALID_PARAMS,
                f"Invalid params: an id of a task is longer than {MAX_TASK_ID} characters",
            )
        ids = list(dict.fromkeys(value))
        if len(ids) > MAX_LISTENED:
            raise ProtocolError(
                codes.OVERLOADED,
                f"Too many tasks on one subscription (the limit is {MAX_LISTENED})",
            )
        return ids

    def started(self, subscription: ListenStream) -> None:
        _Following(self._service.book(subscription.connection.loop), subscription)


class _Following:
    """The tasks of one subscription, from its start to its end."""

    def __init__(self, book: TaskRuntime, subscription: ListenStream) -> None:
        self._book = book
        self._subscription = subscription
        self._connection = subscription.connection
        self._listeners: list[TaskListener] = []
        self._late: dict[str, Task] = {}  # states to send when the client reads again
        subscription.on_over = self._end
        book.spawn(self._start())

    async def _start(self) -> None:
        for task_id in self._subscription.extras["taskIds"]:
            try:
                task = await self._book.find(self._connection, task_id)
            except ProtocolError:
                continue
            if self._subscription.is_over:
                return
            self._tell(task)
            if not task.status.terminal:
                self._listeners.append(self._book.listen(self._connection, task, self._tell))

    def _end(self) -> None:
        for listener in self._listeners:
            self._book.listeners.remove(listener)

    def _tell(self, task: Task) -> None:
        if not self._late:
            room = self._connection.wait_for_room()
            if room is None:
                self._send(task)
                return
            self._book.spawn(self._tell_late(room))
        # only the last state of each task, so that a slow client does not fill the memory
        self._late[task.id] = task

    async def _tell_late(self, room: asyncio.Future[None] | None) -> None:
        while self._late:
            if room is not None:
                await room
            if self._subscription.is_over:
                return
            self._send(self._late.pop(next(iter(self._late))))
            room = self._connection.wait_for_room()

    def _send(self, task: Task) -> None:
        self._subscription.notify("notifications/tasks", _encode(detailed(task)))
