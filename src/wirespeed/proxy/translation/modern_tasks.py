"""Tasks of a client of 2026-07-28 with a server of 2025-11-25.

A tool that only runs as a task is called as one. A client that declares the extension
``io.modelcontextprotocol/tasks`` gets the task. For any other client the proxy waits for the end.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.capabilities import understood
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import META_CLIENT_CAPABILITIES, META_SERVER_INFO
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.front import principal_of
from wirespeed.proxy.isolation.pool import Pool
from wirespeed.proxy.tags import whole
from wirespeed.proxy.translation.asking import ask
from wirespeed.proxy.translation.results import encode, members_of, raised, raised_error
from wirespeed.proxy.translation.rounds import (
    CAPABILITY_OF,
    MAX_QUESTIONS,
    MAX_ROUNDS,
    ROUND_TTL,
    identity,
)
from wirespeed.proxy.translation.running_task import RunningTask
from wirespeed.proxy.translation.task_shapes import (
    TaskState,
    created_task,
    has_extension,
    raised_task,
    task_state,
    unrelated,
)
from wirespeed.proxy.translation.task_tools import TaskTools
from wirespeed.tasks.model import TaskStatus
from wirespeed.tasks.views import RELATED_TASK, TaskParams

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.translation.kept_tasks import KeptTasks
    from wirespeed.proxy.translation.modern_client import ModernClient

# Tasks of one connection whose questions are known.
MAX_RUNNING = 1000
# What servers of 2025-11-25 say of a tool that only runs as a task ("Tool-Level Negotiation" and
# "Protocol Errors"). The call has not run.
REFUSALS = frozenset({codes.METHOD_NOT_FOUND, codes.INVALID_REQUEST})

_CAPABILITIES = f"params._meta.{META_CLIENT_CAPABILITIES}"
# Members of a call that belong to a round, or that 2026-07-28 ignores.
_OF_A_ROUND = ("requestState", "inputResponses", "task")


class UpdateParams(msgspec.Struct):
    """The params of tasks/update: answers by the keys of the questions."""

    taskId: str  # noqa: N815
    inputResponses: dict[str, Raw]  # noqa: N815


_task_params = msgspec.json.Decoder(TaskParams)
_update_params = msgspec.json.Decoder(UpdateParams)
_related = msgspec.json.Decoder(TaskParams).decode


class _Round:
    """A call whose client is asked by the task that it waits for."""

    timer: asyncio.TimerHandle

    def __init__(self, running: RunningTask, request: Message, principal: bytes | None) -> None:
        self.running = running
        self.principal = principal
        self.of = identity(request)


class ModernTasks:
    """The tasks of one client, or of the clients that share its connection.

    Args:
        client: The client.
        kept: What the proxy keeps of the tasks of the server.
        info: The server's name and version, or None.
        cancels: Whether the server has tasks/cancel.

    Attributes:
        tools: Which tools only run as tasks.
    """

    def __init__(self, client: ModernClient, kept: KeptTasks, info: object, cancels: bool) -> None:
        self._client = client
        self._front = client.front
        self._kept = kept
        self._info = info
        self._cancels = cancels
        self._running: dict[tuple[int, str], RunningTask] = {}  # by place and id
        self._rounds: dict[str, _Round] = {}
        self.tools = TaskTools(client, kept)
        inner = client.inner
        self._pool = inner.router if inner is not None and isinstance(inner.router, Pool) else None
        self.methods = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    # -- calls -----------------------------------------------------------------------------------

    def takes(self, message: Message) -> bool:
        """Whether a call of a tool was sent as a task: the tool only runs as one."""
        if not self.tools.requires(message):
            return False
        self._call(message)
        return True

    def again(self, message: Message, answer: Message) -> bool:
        """Whether a call was refused as plain calls of a tool are that only runs as a task. If the
        list of tools says so, too, the tool has not run, and is called as a task."""
        if answer.error is None:
            return False
        refusal = remote_error(answer.error)
        if refusal.code not in REFUSALS:
            return False
        self._client.work(message, self._again(message, refusal))
        return True

    async def _again(self, message: Message, refusal: RemoteError) -> None:
        await self.tools.refresh()
        if not self.takes(message):
            raise refusal

    def _call(self, message: Message) -> None:
        """Call a tool as a task."""
        params = members_of(message.params)
        for name in _OF_A_ROUND:
            params.pop(name, None)
        principal = principal_of(self._front)

        def after(answer: Message) -> Message | bytes | None:
            if answer.result is None:
                return raised_error(answer)
            try:
                found = created_task(bytes(answer.result))
            except msgspec.DecodeError as exc:
                raise ProtocolError(
                    codes.INTERNAL_ERROR, f"the server's task is malformed: {exc}"
                ) from None
            created = found.task
            if created is None:  # it ran at once
                return raised("tools/call", answer.result, self._info)
            running = self._begin(message, created.task_id)
            if running.is_awaited:
                self._client.work(message, self._wait(message, running, principal))
                return None
            shown = raised_task(created, self._sealed(running, principal), _first(created.status))
            return self._encoded({**shown, "resultType": "task"}, found.meta)

        text = whole("tools/call", {**params, "task": {}})
        self._front.pass_request(message, self._client.backend, text=text, after=after)

    def _begin(self, message: Message, task_id: str) -> RunningTask:
        running = RunningTask(task_id, self._place, _capabilities(message))
        if len(self._running) >= MAX_RUNNING:
            # those that the proxy waits for are bounded by the requests in flight
            first = next((key for key, one in self._running.items() if not one.is_awaited), None)
            if first is not None:
                self._forget(first)
        self._running[running.key] = running
        return running

    @property
    def _place(self) -> int:
        """Where the client's calls go: the place of a process in its pool."""
        if self._pool is None or self._client.inner is None:
            return 0
        return self._pool.home_of(self._client.inner)

    def _forget(self, key: tuple[int, str]) -> None:
        """Forget a task that has ended, or one of too many."""
        running = self._running.pop(key, None)
        if running is not None:
            running.drop()

    def _fetch_result(self, running: RunningTask) -> asyncio.Future[bytes]:
        """Return what waits for the result of a task."""
        done = running.fetching is not None and running.fetching.done()
        if running.fetching is None or (done and not running.is_awaited):
            running.fetching = asyncio.ensure_future(self._fetch(running.place, running.id))
            running.fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
        return running.fetching

    async def _wait(self, message: Message, running: RunningTask, principal: bytes | None) -> None:
        """Wait for the end of a task in the place of its client, which may be asked meanwhile. The
        client's cancellation cancels the task."""
        result = self._fetch_result(running)
        asked = asyncio.ensure_future(running.asked.wait())
        try:
            await asyncio.wait((result, asked), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                self._ask(message, running, principal)
                return
        except asyncio.CancelledError:
            self._let_go(running)
            raise
        finally:
            asked.cancel()
        self._forget(running.key)
        text = unrelated(result.result())
        self._client.answer(message, raised("tools/call", text, self._info))

    def _let_go(self, running: RunningTask) -> None:
        """Cancel a task whose id no client has: its call was given up."""
        self._forget(running.key)
        backend = self._server(running.place)
        if self._cancels and backend is not None and backend.link is not None:
            done = backend.ask("tasks/cancel", {"taskId": running.id})
            done.add_done_callback(lambda done: done.cancelled() or done.exception())

    # -- questions of a task that its client waits for ---------------------------------------------

    def _ask(self, message: Message, running: RunningTask, principal: bytes | None) -> None:
        """Answer a call with the questions of its task (basic/patterns/mrtr)."""
        if len(self._rounds) >= MAX_ROUNDS:
            self._let_go(running)
            raise ProtocolError(codes.OVERLOADED, "the client has too many questions to answer")
        handle = secrets.token_urlsafe(24)
        one = self._rounds[handle] = _Round(running, message, principal)
        one.timer = self._front.loop.call_later(ROUND_TTL, self._expire, handle)
        asked = {"inputRequests": running.input_requests(), "requestState": handle}
        self._client.answer(message, self._encoded({**asked, "resultType": "input_required"}))

    def resumes(self, message: Message, handle: str, responses: Raw | None) -> bool:
        """Whether a request goes on with a call whose client was asked. ProtocolError: it does not
        fit."""
        one = self._rounds.get(handle)
        if one is None or one.principal != principal_of(self._front):
            return False
        if one.of != identity(message):
            raise ProtocolError(codes.INVALID_PARAMS, "requestState belongs to another request")
        given = members_of(responses) if responses is not None else {}
        _check_objects(given)
        del self._rounds[handle]
        one.timer.cancel()
        one.running.take(given)
        self._client.work(message, self._wait(message, one.running, one.principal))
        return True

    def _expire(self, handle: str) -> None:
        """The client does not come back."""
        self._let_go(self._rounds.pop(handle).running)

    def asks(self, backend: Backend, question: Message) -> bool:
        """Whether a question of the server is one of a task that this connection has begun."""
        try:
            meta = members_of(members_of(question.params).get("_meta"))
            task_id = _related(meta.get(RELATED_TASK, b"{}")).taskId
        except (ProtocolError, msgspec.DecodeError):
            return False  # it is one of no task
        running = self._running.get((self._place, task_id))
        if running is None:
            return False
        if CAPABILITY_OF[question.method or ""] not in running.capabilities:
            backend.refuse(question, f"the client does not support {question.method}")
        elif len(running.questions) >= MAX_QUESTIONS:
            backend.refuse(question, "the client has too many questions to answer")
        else:
            running.n_asked += 1
            running.questions[str(running.n_asked)] = backend, question
            running.asked.set()
        return True

    # -- requests about tasks --------------------------------------------------------------------

    def require(self, message: Message) -> None:
        """ProtocolError -32021: a request of a client that does not declare the extension."""
        if not has_extension(_capabilities(message)):
            raise ProtocolError(
                codes.MISSING_CLIENT_CAPABILITY,
                f"the client did not declare the extension {TASKS_EXTENSION}",
                {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
            )

    def serve(self, message: Message) -> None:
        """Answer a request about a task. ProtocolError: the client does not declare the
        extension."""
        self.require(message)
        self._client.work(message, self.methods[message.method or ""](message))

    def _sealed(self, running: RunningTask, principal: bytes | None) -> str:
        return self._kept.seal(f"{running.place}~{running.id}", principal)

    def _server(self, place: int) -> Backend | None:
        """The connection to the process that has a task."""
        return self._client.backend if self._pool is None else self._pool.legacy[place].backend

    def _found(self, message: Message, decoder: Any) -> tuple[int, str, Any]:
        """Where the task of a request is, its id there, and the params. ProtocolError -32602: they
        are malformed, or the client has no such task."""
        try:
            params = decoder.decode(message.params or b"{}")
        except msgspec.DecodeError as exc:
            raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {exc}") from None
        place, _, task_id = self._kept.open(params.taskId, principal_of(self._front)).partition("~")
        return int(place), task_id, params

    async def _fetch(self, place: int, task_id: str, method: str = "tasks/result") -> bytes:
        return await ask(self._server(place), method, encode({"taskId": task_id}))

    async def _state(self, place: int, task_id: str) -> TaskState:
        """The state of a task at the server. RemoteError: the server's error."""
        state = task_state(await self._fetch(place, task_id, "tasks/get"))
        if state.task_id != task_id:
            raise ProtocolError(codes.INTERNAL_ERROR, "the server has answered for another task")
        return state

    def _encoded(self, members: dict[str, Any], meta: dict[str, Raw] | None = None) -> bytes:
        """A result of 2026-07-28 as text."""
        more: dict[str, Any] = {} if self._info is None else {META_SERVER_INFO: self._info}
        more |= meta or {}
        return encode({**members, "_meta": more} if more else members)

    async def _get(self, message: Message) -> None:
        """tasks/get: the state of a task, with its questions, its result or its error."""
        place, task_id, params = self._found(message, _task_params)
        state = await self._state(place, task_id)
        status, more = await self._details(state, place)
        shown = raised_task(state, params.taskId, status)
        self._client.answer(message, self._encoded({**shown, **more, "resultType": "complete"}))

    async def _details(self, state: TaskState, place: int) -> tuple[TaskStatus, dict[str, Any]]:
        """The status in the extension, and what belongs to it."""
        status, running = state.status, self._running.get((place, state.task_id))
        if not status.terminal:
            if running is not None and running.questions:
                return TaskStatus.INPUT_REQUIRED, {"inputRequests": running.input_requests()}
            if status is TaskStatus.INPUT_REQUIRED and running is not None:
                # servers send questions to those that wait ("Input Required Status")
                self._fetch_result(running)
            return TaskStatus.WORKING, {}  # until the question is here
        self._forget((place, state.task_id))
        if status is TaskStatus.CANCELLED:
            return status, {}
        try:
            result = unrelated(await self._fetch(place, state.task_id))
        except RemoteError as exc:
            error = {"code": exc.code, "message": exc.message}
            return TaskStatus.FAILED, {
                "error": error if exc.data is None else {**error, "data": exc.data}
            }
        state.result = Raw(result)
        if status is TaskStatus.FAILED and not state.is_error:
            text = msgspec.json.decode(bytes(state.status_message) or b'"The task failed"')
            return status, {"error": {"code": codes.INTERNAL_ERROR, "message": text}}
        return TaskStatus.COMPLETED, {"result": state.result}

    async def _update(self, message: Message) -> None:
        """tasks/update: answers to the questions of a task. Others are ignored."""
        place, task_id, params = self._found(message, _update_params)
        _check_objects(params.inputResponses)
        running = self._running.get((place, task_id))
        if running is None:
            await self._state(place, task_id)  # an error if there is no such task
        else:
            running.take(params.inputResponses)
        self._client.answer(message, self._encoded({"resultType": "complete"}))

    async def _cancel(self, message: Message) -> None:
        """tasks/cancel: acknowledged for a task that has ended, too, and by a server that cannot
        cancel tasks: it is a wish ("Task Cancellation")."""
        place, task_id, _ = self._found(message, _task_params)
        try:
            if self._cancels:
                await self._fetch(place, task_id, "tasks/cancel")
            else:
                await self._state(place, task_id)
        except RemoteError as exc:
            if exc.code != codes.INVALID_PARAMS:
                raise
            await self._state(place, task_id)  # an error if there is no such task
        self._forget((place, task_id))
        self._client.answer(message, self._encoded({"resultType": "complete"}))

    def close(self) -> None:
        """The client has left, or the server is gone."""
        self.tools.close()
        for one in self._rounds.values():
            one.timer.cancel()
            self._let_go(one.running)
        self._rounds.clear()
        for key in list(self._running):
            self._forget(key)


def _check_objects(responses: dict[str, Raw]) -> None:
    if not all(bytes(value).lstrip().startswith(b"{") for value in responses.values()):
        raise ProtocolError(codes.INVALID_PARAMS, "inputResponses must be objects")


def _capabilities(message: Message) -> dict[str, Any]:
    return understood(msgspec.json.decode(message.lease(_CAPABILITIES) or b"{}"))


def _first(status: TaskStatus) -> TaskStatus:
    """Return the status in the answer to a call. The client gets the end by tasks/get."""
    return status if status is TaskStatus.CANCELLED else TaskStatus.WORKING
