"""Tasks of 2025-11-25 (basic/utilities/tasks, experimental): the client requests them.

The questions of a task are requests of the server, marked with the task. They are sent to a client
that waits in tasks/result, or that polls with tasks/get.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import InvalidResponse, LocalError, ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import PARAMS, missing_capability
from wirespeed.server.requests.call import Handshake
from wirespeed.server.requests.operation import cursor_of, params_of
from wirespeed.server.requests.reply import Body
from wirespeed.server.tasks.book import TaskRuntime
from wirespeed.server.tasks.run import refusal, run_now
from wirespeed.tasks import views
from wirespeed.tasks.model import Task, TaskStateError

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.requests.call import Call, Serving
    from wirespeed.server.tasks.catalog import AsTask

PAGE_SIZE = 100  # tasks on a page, if the server has no page size

_encode = msgspec.json.Encoder().encode


class _Request(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


_task_params = msgspec.json.Decoder(views.TaskParams)
_request = msgspec.json.Decoder(_Request).decode


class _Form:
    """See `wirespeed.server.tasks.run.TaskForm`."""

    def created(self, connection: Serving, task: Task) -> Body:
        return _encode({"task": views.view(task)})

    def started(self, book: TaskRuntime, connection: Serving, task: Task) -> None:
        def tell(task: Task) -> None:
            if connection.link is not None and connection.handshake == Handshake.INITIALIZED:
                connection.send_notification(
                    "notifications/tasks/status", _encode(views.view(task))
                )
                connection.wrote()

        book.listen(connection, task, tell)

    def tagged(self, task_id: str, method: str, params: bytes) -> bytes | None:
        return views.with_related(params, task_id)


_FORM = _Form()


def as_task(book: TaskRuntime, wish: Mapping[str, Any]) -> AsTask:
    """Return how a call becomes the task that its client requests. ProtocolError: ``wish``, the
    call's ``task`` member, is malformed."""
    ttl = views.ttl_of(wish)

    def start(call: Call, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return run_now(book, _FORM, ttl, call, work)

    return start


# -- requests -------------------------------------------------------------------------------------


def _book(connection: Serving) -> TaskRuntime:
    service = connection.service.tasks.service
    assert service is not None  # otherwise the server has no such method
    return service.book(connection.loop)


async def get(call: Call, message: Message) -> Body:
    """tasks/get: the state of a task.

    A task that waits for input also asks its questions over this connection, unless a tasks/result
    has asked them: some clients only poll, and never call tasks/result before the task has ended.
    """
    connection, version = call.connection, call.revision.version
    task_id = params_of(message, _task_params).taskId
    book = _book(connection)
    task = await book.find(connection, task_id)
    for key, request in task.requests.items():
        if _may_ask(connection, request, version) and book.claim(task_id, key):
            book.spawn(_ask_while_wanted(connection, book, task_id, key, request))
    return _encode(views.view(task))


async def cancel(call: Call, message: Message) -> Body:
    """tasks/cancel: cancel a task and return its state. ProtocolError -32602: it has ended."""
    connection = call.connection
    task_id = params_of(message, _task_params).taskId
    book = _book(connection)
    task = await book.find(connection, task_id)
    try:
        return _encode(views.view(await book.cancel(task)))
    except TaskStateError:
        raise views.cannot_cancel(await book.find(connection, task_id)) from None


async def list_page(call: Call, message: Message) -> Body:
    """tasks/list: the tasks of the principal, or of the connection if it has no principal."""
    connection = call.connection
    cursor = cursor_of(message)
    book = _book(connection)
    await book.ready()
    owner, _ = book.owner(connection)
    return await views.list_page(
        book.store, owner, cursor, connection.service.page_size or PAGE_SIZE
    )


async def result(call: Call, message: Message) -> Body:
    """tasks/result: wait until the task has ended, then return what the request would have returned
    without a task ("Result Retrieval")."""
    connection, version = call.connection, call.revision.version
    task_id = params_of(message, _task_params).taskId
    book = _book(connection)
    asked: dict[str, asyncio.Task[Any]] = {}
    async with contextlib.aclosing(book.changes(connection, task_id)) as changes:
        async for task in changes:
            for key in asked.keys() - task.requests.keys():
                asked.pop(key).cancel()  # the question was withdrawn
            for key, request in task.requests.items():
                if (
                    key not in asked
                    and _may_ask(connection, request, version)
                    and book.claim(task_id, key)
                ):
                    asked[key] = book.spawn(_ask(connection, book, task_id, key, request))
    return views.result_of(task)


def _may_ask(connection: Serving, request: bytes, version: str) -> bool:
    """Whether the client of this connection declared the capability that a question needs. Another
    client may have started the task."""
    found = _request(request)
    params = msgspec.json.decode(found.params, type=PARAMS[found.method])
    capabilities = connection.state.capabilities
    return missing_capability(found.method, params, capabilities, version) is None


async def _ask_while_wanted(
    connection: Serving, book: TaskRuntime, task_id: str, key: str, request: bytes
) -> None:
    """Run `_ask`, and cancel it when the task no longer waits for the answer."""
    asking = book.spawn(_ask(connection, book, task_id, key, request))
    try:
        async with contextlib.aclosing(book.changes(connection, task_id)) as changes:
            async for task in changes:
                if asking.done() or key not in task.requests:
                    return
    except ProtocolError:
        pass  # the task was forgotten
    finally:
        asking.cancel()


async def _ask(
    connection: Serving, book: TaskRuntime, task_id: str, key: str, request: bytes
) -> None:
    """Send one question of a task to this connection's client, and store its answer."""
    try:
        found = _request(request)
        params = views.with_related(bytes(found.params), task_id)
        try:
            answer = await connection.ask(found.method, params)
        except RemoteError as exc:
            answer = refusal(exc)
        except InvalidResponse as exc:
            answer = refusal(ProtocolError(codes.INTERNAL_ERROR, str(exc)))
        except LocalError:
            return  # the next tasks/get or tasks/result sends the question again
        await book.answer(task_id, {key: answer})
    finally:
        book.unclaim(task_id, key)
