"""A call that goes on as a task: its request is answered with the task, its handler works on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.reply import Body
from wirespeed.server.task_book import SHUT_DOWN, TaskBook, Worker
from wirespeed.tasks.model import Task

if TYPE_CHECKING:
    from wirespeed.server.call import Call
    from wirespeed.server.connection import ServerConnection

_encode = msgspec.json.Encoder().encode


class TaskForm(Protocol):
    """What the two forms of tasks do differently while a handler works."""

    def created(self, connection: ServerConnection, task: Task) -> Body:
        """The answer to the request that has become a task."""

    def started(self, book: TaskBook, connection: ServerConnection, task: Task) -> None:
        """The answer has left."""

    def tagged(self, task_id: str, method: str, params: bytes) -> bytes | None:
        """The params of a notification that the handler sends; None: there is none in tasks."""


class _Result(msgspec.Struct):
    isError: bool = False  # noqa: N815
    content: list[dict[str, Any]] = []


_result = msgspec.json.Decoder(_Result).decode


class TaskSink:
    """Where the end of a task's handler goes: see `Call.detach`."""

    __slots__ = ("_book", "_form", "_task_id", "_worker")

    def __init__(self, book: TaskBook, form: TaskForm, worker: Worker) -> None:
        self._book = book
        self._form = form
        self._worker = worker
        self._task_id = worker.task_id

    def result(self, data: bytes) -> None:
        """The handler ended with this result."""
        found = _result(data)
        message = None
        if found.isError:
            texts = (block.get("text") for block in found.content)
            message = next((text for text in texts if isinstance(text, str)), None)
        self._book.done(
            self._worker,
            lambda task, now: task.completed(data, now, is_error=found.isError, message=message),
        )

    def error(self, code: int, message: str, data: Any) -> None:
        """The handler ended with this JSON-RPC error."""
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        text = _encode(error)
        self._book.done(self._worker, lambda task, now: task.failed(text, message, now))

    def cancelled(self) -> None:
        """The handler ended because its task did."""
        self._book.done(self._worker, None)

    def tagged(self, method: str, params: bytes) -> bytes | None:
        """The params of a notification of the handler."""
        return self._form.tagged(self._task_id, method, params)


class TaskAsker:
    """How a handler that works on a task asks the client: by way of the task."""

    __slots__ = ("_book", "_connection", "_task_id")

    def __init__(self, book: TaskBook, connection: ServerConnection, task_id: str) -> None:
        self._book = book
        self._connection = connection
        self._task_id = task_id

    async def ask(self, kind: str, method: str, params: bytes | None) -> bytes:
        """The JSON text of the client's result for a request that a server may make. RemoteError:
        it refused. CancelledError: the task is over."""
        request = b'{"method":%b%b}' % (
            _encode(method),
            b"" if params is None else b',"params":' + params,
        )
        return await self._book.ask(self._connection, self._task_id, request)


async def run_now(
    book: TaskBook,
    form: TaskForm,
    ttl: float | None,
    call: Call,
    work: Coroutine[Any, Any, Any],
) -> Any:
    """The handler of a call as a task from its start: it starts once the task is kept."""
    connection: Any = call.connection
    try:
        task = await book.create(connection, call.operation.name, ttl)
    except BaseException:
        work.close()
        raise
    _become(book, form, call, task)
    return await _worked(call, work)


async def run_soon(
    book: TaskBook,
    form: TaskForm,
    after: float,
    call: Call,
    work: Coroutine[Any, Any, Any],
) -> Any:
    """The handler of a call that becomes a task if it is not over after some seconds."""
    over = False

    async def become() -> None:
        connection: Any = call.connection
        try:
            task = await book.create(connection, call.operation.name)
        except ProtocolError:
            return  # too many tasks: it stays a call
        if over or call.ended or _asks(call):
            await book.store.delete(task.id)
        else:
            _become(book, form, call, task)

    loop = asyncio.get_running_loop()
    timer = loop.call_later(after, lambda: book.spawn(become()))
    try:
        return await _worked(call, work)
    finally:
        over = True
        timer.cancel()


async def _worked(call: Call, work: Coroutine[Any, Any, Any]) -> Any:
    """What the handler gives. Of a task whose handler is cancelled from outside, by neither its
    client nor its time limit, it is said that the server ended."""
    try:
        return await work
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if call.detached and not (call.ended or call.timed_out) and this and this.cancelling():
            raise ProtocolError(codes.SHUTTING_DOWN, SHUT_DOWN) from None
        raise


def _asks(call: Call) -> bool:
    """Whether the request is about to be answered with questions (2026-07-28 basic/patterns/mrtr):
    it ends with them, and comes again."""
    asker = getattr(call.context, "_asker", None)
    return bool(getattr(asker, "_asked", None))


def _become(book: TaskBook, form: TaskForm, call: Call, task: Task) -> None:
    connection: Any = call.connection
    worker = book.work(task, call.cancel)
    call.asker = TaskAsker(book, connection, task.id)
    call.detach(form.created(connection, task), TaskSink(book, form, worker))
    form.started(book, connection, task)
