"""Calls that become tasks: the request is answered with the task, and the handler goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.server.requests.call import AnswerSink
from wirespeed.server.requests.reply import Body
from wirespeed.server.tasks.book import SHUT_DOWN, TaskRuntime
from wirespeed.server.tasks.participants import TaskWorker
from wirespeed.tasks.model import Task, TaskLimit, TaskStateError
from wirespeed.tasks.store import now_ms
from wirespeed.tasks.views import CANCELLED

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Call, Serving

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_error = msgspec.json.Decoder(dict[str, Any]).decode


class TaskForm(Protocol):
    """The differences between the two forms of tasks while a handler works."""

    def created(self, connection: Serving, task: Task) -> Body:
        """Return the answer to the request that has become a task."""

    def started(self, book: TaskRuntime, connection: Serving, task: Task) -> None:
        """The answer to the request was sent."""

    def tagged(self, task_id: str, method: str, params: bytes) -> bytes | None:
        """Return the params of a notification that the handler sends; None: it is not sent."""


class _Result(msgspec.Struct):
    """The members of a tool's result that a task needs."""

    isError: bool = False  # noqa: N815
    content: list[dict[str, Any]] = []
    meta: dict[str, msgspec.Raw] = msgspec.field(default={}, name="_meta")


_result = msgspec.json.Decoder(_Result).decode


class TaskSink(AnswerSink):
    """Receives the answer of a task's handler: see `Call.detach`."""

    __slots__ = ("_book", "_form", "_name", "_task_id", "_worker")

    def __init__(self, book: TaskRuntime, form: TaskForm, worker: TaskWorker, name: str) -> None:
        self._book = book
        self._form = form
        self._worker = worker
        self._name = name
        self._task_id = worker.task_id

    def result(self, data: bytes) -> None:
        """The handler ended with this result. A result that is not valid fails the task."""
        try:
            found = _result(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            logger.error("task of tool %s: its result is not valid: %s", self._name, exc)
            self.error(codes.INTERNAL_ERROR, "Internal error", None)
            return
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
        """The handler was cancelled because its task had ended."""
        self._book.done(self._worker, None)

    def tagged(self, method: str, params: bytes) -> bytes | None:
        """See `TaskForm.tagged`."""
        return self._form.tagged(self._task_id, method, params)


class TaskAsker:
    """Asks the client through a task, for the handler that works on it."""

    __slots__ = ("_book", "_connection", "_task_id")

    def __init__(self, book: TaskRuntime, connection: Serving, task_id: str) -> None:
        self._book = book
        self._connection = connection
        self._task_id = task_id

    async def ask(self, kind: str, method: str, params: bytes | None) -> bytes:
        """Send a request to the client, and return the JSON text of its result.

        RemoteError: the client refused. CancelledError: the task has ended. ProtocolError: the
        question cannot be stored; the log has the reason.
        """
        request = b'{"method":%b%b}' % (
            _encode(method),
            b"" if params is None else b',"params":' + params,
        )
        key = ""

        def asking(task: Task) -> Task:
            nonlocal key
            after, key = task.asking(request, now_ms())
            return after

        try:
            if await self._book.change(self._task_id, asking) is None:
                raise asyncio.CancelledError(CANCELLED)
            return await self._answer(key)
        except TaskStateError:
            raise asyncio.CancelledError(CANCELLED) from None
        except TaskLimit as exc:
            raise ProtocolError(codes.OVERLOADED, f"Too much to keep: {exc}") from None
        except (ProtocolError, RemoteError):
            raise
        except Exception:
            logger.exception("the task store failed")
            raise ProtocolError(codes.INTERNAL_ERROR, "Internal error") from None
        finally:
            # the handler has the answer, or has given up; the task may have ended
            self._book.spawn(self._withdraw(key))

    async def _answer(self, key: str) -> bytes:
        changes = self._book.changes(self._connection, self._task_id)
        async with contextlib.aclosing(changes):
            async for task in changes:
                text = task.answers.get(key)
                if text is not None:
                    return _taken(text)
        raise asyncio.CancelledError(CANCELLED)

    async def _withdraw(self, key: str) -> None:
        now = now_ms()
        with contextlib.suppress(TaskStateError):
            await self._book.change(
                self._task_id,
                lambda task: task if task.status.terminal else task.withdrawing(key, now),
            )


# Marks a stored answer that is an error object. No JSON text begins with this byte.
REFUSAL = b"!"


def refusal(exc: RemoteError | ProtocolError) -> bytes:
    """Return an error as a stored answer, which `TaskAsker` raises as `RemoteError`."""
    error: dict[str, Any] = {"code": exc.code, "message": exc.message}
    if exc.data is not None:
        error["data"] = exc.data
    return REFUSAL + _encode(error)


def _taken(text: bytes) -> bytes:
    if not text.startswith(REFUSAL):
        return text
    error = _error(text[1:])
    raise RemoteError(error["code"], error["message"], error.get("data"))


async def run_now(
    book: TaskRuntime, form: TaskForm, ttl: float | None, call: Call, work: Coroutine[Any, Any, Any]
) -> Any:
    """Run the handler of a call as a task. The handler starts once the task is stored."""
    connection: Any = call.connection
    try:
        task = await book.create(connection, call.operation.name, ttl)
    except BaseException:
        work.close()
        raise
    if _become(book, form, call, task).stopped:
        work.close()
        call.cancel()
        raise asyncio.CancelledError
    return await _worked(call, work)


async def run_soon(
    book: TaskRuntime, form: TaskForm, after: float, call: Call, work: Coroutine[Any, Any, Any]
) -> Any:
    """Run the handler of a call. After ``after`` seconds the call becomes a task."""
    over = False

    async def become() -> None:
        connection: Any = call.connection
        try:
            task = await book.create(connection, call.operation.name)
        except ProtocolError:
            return  # the task cannot be stored: the call goes on without one
        if over or call.ended or _asks(call):
            book.drop(task)
        elif _become(book, form, call, task).stopped:
            call.cancel()

    loop = asyncio.get_running_loop()
    timer = loop.call_later(after, lambda: book.spawn(become()))
    try:
        return await _worked(call, work)
    finally:
        over = True
        timer.cancel()


async def _worked(call: Call, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of the handler. If neither the client nor the time limit cancelled the
    handler, the server is shutting down, and the task fails."""
    try:
        return await work
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if call.detached and not (call.ended or call.timed_out) and this and this.cancelling():
            raise ProtocolError(codes.CUT_OFF, SHUT_DOWN) from None
        raise


def _asks(call: Call) -> bool:
    """Whether the request is about to be answered with questions (2026-07-28 basic/patterns/mrtr).
    The request then ends, and the client repeats it."""
    asker = getattr(call.context, "_asker", None)
    return bool(getattr(asker, "_asked", None))


def _become(book: TaskRuntime, form: TaskForm, call: Call, task: Task) -> TaskWorker:
    """Answer the request with the task. The handler goes on as the task's worker."""
    connection: Any = call.connection
    worker = book.begin(task, call.cancel)
    call.asker = TaskAsker(book, connection, task.id)
    call.detach(form.created(connection, task), TaskSink(book, form, worker, task.name))
    form.started(book, connection, task)
    return worker
