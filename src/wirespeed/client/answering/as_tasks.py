"""Requests of a server of 2025-11-25 that this client answers as tasks (basic/utilities/tasks):
sampling and elicitation, whose handlers may take long.

``Client(task_requests=True)`` declares the capability. A task ends with its connection at the
latest. At `MAX_TASKS` or `MAX_BYTES` the oldest finished tasks are forgotten before their time to
live ends; working tasks are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.answering.answerer import Question, question_of
from wirespeed.client.answering.progress import Reporter, reporter_of
from wirespeed.client.answering.server_requests import Inbox, _Running
from wirespeed.errors import Declined, HandlerFailed, ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import CREATE_MESSAGE, TASK_REQUESTS
from wirespeed.tasks import views
from wirespeed.tasks.memory import MemoryTaskStore
from wirespeed.tasks.model import Task, TaskLimit, TaskStateError, new_task_id
from wirespeed.tasks.store import now_ms

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message

__all__ = ["TaskInbox"]

logger = logging.getLogger("wirespeed.client")

MAX_TASKS = 100
MAX_BYTES = 16 * 1024 * 1024
TTL = 3_600_000  # ms: the default time to live, and the longest that a server may request
POLL = 1000  # ms: the polling interval that the server is advised to use
PAGE_SIZE = 50

_OWNER = b"server"

_encode = msgspec.json.Encoder().encode


class _ListParams(msgspec.Struct):
    cursor: str | None = None


_task_params = msgspec.json.Decoder(views.TaskParams)
_list_params = msgspec.json.Decoder(_ListParams)


class TaskInbox(Inbox):
    """An inbox that can answer requests as tasks."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._store = MemoryTaskStore(
            max_tasks=MAX_TASKS, max_tasks_per_owner=MAX_TASKS, max_bytes=MAX_BYTES
        )
        self._workers: dict[str, asyncio.Future[Any]] = {}
        self._changed = asyncio.Event()  # set and replaced at each change
        requests = self._capabilities["tasks"].get("requests", {})
        self._offered = {
            method for method, (top, name) in TASK_REQUESTS.items() if name in requests.get(top, {})
        }

    def asked(self, message: Message) -> None:
        """Answer a request of the server."""
        method = message.method or ""
        try:
            served = _METHODS.get(method)
            if served is not None:
                decoder, serve = served
                self._reply(message, serve(self, _decode(message, decoder)))
                return
            if method in self._offered:
                question = question_of(method, message.params, self._capabilities, self._version)
                wish = getattr(question.params, "task", None)
                if wish is not None:
                    reporter = reporter_of(self._connection, message)
                    self._reply(message, self._create(question, wish, reporter))
                    return
        except ProtocolError as exc:
            self._connection.refuse(message.ref, exc.code, exc.message, exc.data)
        else:
            super().asked(message)

    def close(self) -> None:
        """Cancel all work: the connection has ended, so the server cannot fetch results."""
        super().close()
        for worker in list(self._workers.values()):
            worker.cancel()

    def _reply(self, message: Message, work: Coroutine[Any, Any, bytes]) -> None:
        running = _Running(message.ref)
        self._running.add(running)
        self._connection.session.set_token(message.ref, running)
        running.task = self._connection.owner.spawn(self._send(running, work))

        def ended(_: object) -> None:
            work.close()  # the asyncio task may have been cancelled before it began
            self._ended(running)

        running.task.add_done_callback(ended)

    async def _send(self, running: _Running, work: Awaitable[bytes]) -> None:
        try:
            self._connection.answer(running.ref, await work)
        except ProtocolError as exc:
            self._connection.refuse(running.ref, exc.code, exc.message, exc.data)

    # -- requests --------------------------------------------------------------------------------

    async def _create(
        self, question: Question, wish: Mapping[str, Any], reporter: Reporter | None
    ) -> bytes:
        ttl = views.ttl_of(wish)
        now = now_ms()
        for task_id in await self._store.expire(now):
            if (worker := self._workers.pop(task_id, None)) is not None:
                worker.cancel()
        task = Task(
            id=new_task_id(),
            owner=_OWNER,
            method=question.method,
            created=now,
            updated=now,
            ttl=TTL if ttl is None else max(1, int(min(ttl, TTL))),
            poll=POLL,
        )
        try:
            await self._store.create(task)
        except TaskLimit as exc:
            raise ProtocolError(codes.OVERLOADED, f"Too many tasks: {exc}") from None
        work = self._work(task, question, reporter)
        worker = self._workers[task.id] = self._connection.owner.spawn(work)
        worker.add_done_callback(lambda _: self._workers.pop(task.id, None))
        return _encode({"task": views.view(task)})

    async def _work(self, task: Task, question: Question, reporter: Reporter | None) -> None:
        """Run the handler, and end the task with its result."""
        with contextlib.suppress(TaskStateError, ProtocolError):
            await self._work_on(task, question, reporter)

    async def _work_on(self, task: Task, question: Question, reporter: Reporter | None) -> None:
        try:
            result = await self._answering.answer(question, reporter)
        except Declined as exc:
            logger.info("%s", exc)
            what = "sampling" if question.method == CREATE_MESSAGE else question.method
            await self._fail(task.id, codes.USER_REJECTED, f"User rejected {what} request")
        except HandlerFailed as exc:
            logger.error("%s: %s", question.method, exc, exc_info=exc.__cause__)
            await self._fail(task.id, codes.INTERNAL_ERROR, "Internal error")
        else:
            now = now_ms()
            try:
                await self._change(task.id, lambda task: task.completed(result, now))
            except TaskLimit as exc:
                logger.warning("a result cannot be kept: %s", exc)
                text = "The result is too large to keep"
                await self._fail(task.id, codes.INTERNAL_ERROR, text)

    async def _fail(self, task_id: str, code: int, message: str) -> None:
        error = _encode({"code": code, "message": message})
        now = now_ms()
        await self._change(task_id, lambda task: task.failed(error, message, now))

    async def _change(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        task = await self._store.update(task_id, change)
        if task is None:
            raise views.not_found()
        self._changed.set()
        self._changed = asyncio.Event()
        connection = self._connection
        if connection.usable:
            connection.notify("notifications/tasks/status", _encode(views.view(task)))
        return task

    async def _find(self, task_id: str) -> Task:
        task = await self._store.get(task_id)
        if task is None or task.expired(now_ms()):
            raise views.not_found()
        return task

    async def _get(self, params: views.TaskParams) -> bytes:
        return _encode(views.view(await self._find(params.taskId)))

    async def _list(self, params: _ListParams) -> bytes:
        return await views.list_page(self._store, _OWNER, params.cursor, PAGE_SIZE)

    async def _cancel(self, params: views.TaskParams) -> bytes:
        task = await self._find(params.taskId)
        now = now_ms()
        try:
            task = await self._change(task.id, lambda task: task.cancelled(views.CANCELLED, now))
        except TaskStateError:
            raise views.cannot_cancel(task) from None
        if (worker := self._workers.get(task.id)) is not None:
            worker.cancel()
        return _encode(views.view(task))

    async def _result(self, params: views.TaskParams) -> bytes:
        while True:
            changed = self._changed
            task = await self._find(params.taskId)
            if task.status.terminal:
                break
            left = None if task.expires is None else max(0.001, (task.expires - now_ms()) / 1000)
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                continue  # the task has expired: `_find` raises the error
        return views.result_of(task)


_METHODS: dict[str, tuple[msgspec.json.Decoder[Any], Callable[..., Coroutine[Any, Any, bytes]]]] = {
    "tasks/get": (_task_params, TaskInbox._get),
    "tasks/result": (_task_params, TaskInbox._result),
    "tasks/list": (_list_params, TaskInbox._list),
    "tasks/cancel": (_task_params, TaskInbox._cancel),
}


def _decode(message: Message, decoder: msgspec.json.Decoder[Any]) -> Any:
    raw = message.params
    try:
        return decoder.decode(b"{}" if raw is None else raw)
    except msgspec.DecodeError as exc:
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {exc}") from None
