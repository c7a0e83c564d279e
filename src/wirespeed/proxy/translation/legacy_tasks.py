"""Tasks of a client of 2025-11-25 with a server of 2026-07-28.

The client asks for a task, and the server decides (extension ``io.modelcontextprotocol/tasks``).
Where the server makes none, the proxy holds its result as a task that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.proxy.front import principal_of
from wirespeed.proxy.tags import is_code, whole
from wirespeed.proxy.translation.asking import ask
from wirespeed.proxy.translation.kept_tasks import MAX_TTL
from wirespeed.proxy.translation.questions import MAX_QUESTIONS, answers, put
from wirespeed.proxy.translation.results import (
    encode,
    lowered,
    lowered_error,
    malformed,
    members_of,
)
from wirespeed.proxy.translation.task_shapes import (
    POLL,
    TaskState,
    error_in,
    lowered_task,
    task_state,
    unrelated,
    with_extension,
)
from wirespeed.tasks import views
from wirespeed.tasks.model import Task, TaskStatus, new_task_id
from wirespeed.tasks.store import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wirespeed._core.envelope import Message
    from wirespeed._core.slab import Lease
    from wirespeed.proxy.translation.kept_tasks import KeptTasks
    from wirespeed.proxy.translation.legacy_client import LegacyClient

# Tasks of one client whose changes it is told, and milliseconds for which a cancelled task is held
# at most.
MAX_FOLLOWED = 1000
LONG_TTL = 30 * 86_400_000

_task_params = msgspec.json.Decoder(views.TaskParams).decode


class LegacyTasks:
    """The tasks of one client.

    Args:
        client: The client.
        kept: What the proxy keeps of the tasks of the server.
    """

    def __init__(self, client: LegacyClient, kept: KeptTasks) -> None:
        self._client = client
        self._front = client.front
        self._kept = kept
        self._principal = principal_of(client.front)
        self._owner = os.urandom(16) if self._principal is None else self._principal
        self._told: dict[str, tuple[Any, ...]] = {}  # by the server's id: the last state
        self._waiters: dict[str, set[asyncio.Event]] = {}  # by the server's id
        self._asking: set[tuple[str, str]] = set()  # the server's id, and the key of a question
        self.methods = {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/cancel": self._cancel,
        }

    # -- calls -----------------------------------------------------------------------------------

    def takes(self, message: Message) -> bool:
        """Whether a call of a tool asks for a task. If so, it was sent with the extension declared,
        and without ``task``. ProtocolError: ``task`` is malformed."""
        params = members_of(message.params)
        wish = msgspec.json.decode(params.pop("task", b"null"))
        if wish is None:
            return False
        if not isinstance(wish, dict):
            raise ProtocolError(codes.INVALID_PARAMS, "params.task must be an object")
        ttl = views.ttl_of(wish)
        self._call(message, params, MAX_TTL if ttl is None else max(1, int(min(ttl, MAX_TTL))))
        return True

    def _call(self, message: Message, params: dict[str, Raw], ttl: int, n: int = 0) -> None:
        """Send a call. ``n``: How many rounds there were."""
        began = now_ms()
        own = params.get("_meta", b"")
        meta = members_of(own) if bytes(own).startswith(b"{") else {}
        sent = {**params, "_meta": with_extension(self._client.meta()) | meta}

        def after(answer: Message) -> Message | None:
            if answer.error is not None:
                return lowered_error(message, answer)
            assert answer.result is not None
            try:
                self._answered(message, params, ttl, n, began, answer.result)
            except msgspec.DecodeError as exc:
                raise malformed(exc) from None
            return None

        text = whole("tools/call", sent)
        self._front.pass_request(message, self._client.backend, text=text, after=after)

    def _answered(
        self, message: Message, params: dict[str, Raw], ttl: int, n: int, began: int, result: Lease
    ) -> None:
        """Give the client a task for what the server has answered."""
        members = members_of(bytes(result))
        kind = msgspec.json.decode(members.get("resultType", b'"complete"'))
        if kind == "task":
            state = task_state(bytes(result))
            work = self._give(message, state, members.get("_meta"))
        elif kind == "input_required":
            work = self._round(message, params, ttl, n, members)
        elif kind == "complete":
            assert self._front.revision is not None
            text = lowered("tools/call", members, self._front.revision.version)
            work = self._hold(message, text, ttl, began)
        else:
            raise ProtocolError(
                codes.INTERNAL_ERROR, f"the server's result is of an unknown type: {kind!r}"
            )
        self._client.work(message, work)

    async def _give(self, message: Message, state: TaskState, meta: Raw | None) -> None:
        """The server has made a task."""
        task_id = state.task_id
        if state.status is TaskStatus.COMPLETED:  # whether the tool failed is in its result
            state = await self._ask(task_id)
        created: dict[str, Any] = {"task": lowered_task(state, self._sealed(task_id))}
        if meta is not None:
            created["_meta"] = meta
        self._client.answer(message, encode(created))
        if not state.status.terminal and len(self._told) < MAX_FOLLOWED:
            self._told[task_id] = _told(state)
            self._client.follow(task_id)

    async def _hold(self, message: Message, result: bytes, ttl: int, began: int) -> None:
        """The server has made no task: the proxy holds the result as one that has ended."""
        now = now_ms()
        task = self._new(new_task_id(), began, now - began + ttl)
        task = await self._kept.hold(task.completed(result, now, is_error=error_in(result)))
        self._client.answer(message, encode({"task": views.view(task)}))

    def _new(self, id: str, created: int, ttl: int) -> Task:
        return Task(
            id=id,
            owner=self._owner,
            principal=self._principal is not None,
            created=created,
            updated=created,
            ttl=ttl,
            poll=int(1000 * POLL),
        )

    async def _round(
        self, message: Message, params: dict[str, Raw], ttl: int, n: int, result: dict[str, Raw]
    ) -> None:
        """Ask the client what the server wants to know before it makes a task, then send the call
        again."""
        more = await answers(self._front, message, result, self._client.capabilities, n)
        self._call(message, {**params, **more}, ttl, n + 1)

    # -- requests about tasks --------------------------------------------------------------------

    def _sealed(self, task_id: str) -> str:
        return self._kept.seal(task_id, self._principal)

    def _named(self, message: Message) -> str:
        """The id that a request names. ProtocolError: it names none."""
        try:
            return _task_params(message.params or b"{}").taskId
        except msgspec.DecodeError as exc:
            raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {exc}") from None

    async def _held(self, id: str) -> Task | None:
        return await self._kept.held(id, self._owner, self._principal is not None)

    async def _send(self, method: str, task_id: str, **more: Any) -> bytes:
        """Ask the server about a task. Returns the result. ProtocolError: the server's error."""
        meta = with_extension(self._client.meta())
        params = encode({"taskId": task_id, **more, "_meta": meta})
        try:
            return await ask(self._client.backend, method, params)
        except RemoteError as exc:
            code = codes.INTERNAL_ERROR if exc.code in codes.MODERN_ERRORS else exc.code
            raise ProtocolError(code, exc.message, exc.data) from None

    async def _ask(self, task_id: str) -> TaskState:
        state = task_state(await self._send("tasks/get", task_id))
        if state.task_id != task_id:
            raise ProtocolError(codes.INTERNAL_ERROR, "the server has answered for another task")
        self._note(state)
        return state

    async def _get(self, message: Message) -> None:
        """tasks/get: the state of a task."""
        id = self._named(message)
        held = await self._held(id)
        if held is not None:
            self._client.answer(message, encode(views.view(held)))
            return
        state = await self._ask(self._kept.open(id, self._principal))
        self._client.answer(message, encode(lowered_task(state, id)))

    async def _cancel(self, message: Message) -> None:
        """tasks/cancel: the task is cancelled before the answer, and stays so ("Task
        Cancellation"). In the extension a cancellation is a wish. So the proxy holds a cancelled
        task in place of one that its server goes on with."""
        id = self._named(message)
        held = await self._held(id)
        if held is not None:
            raise views.cannot_cancel(held)
        task_id = self._kept.open(id, self._principal)
        state = await self._ask(task_id)
        if not state.status.terminal:
            await self._send("tasks/cancel", task_id)
            with contextlib.suppress(ProtocolError):  # the server may have forgotten it already
                state = await self._ask(task_id)
            if not state.status.terminal:
                state = await self._hold_cancelled(state, id)
            if state.status is TaskStatus.CANCELLED:
                self._client.answer(message, encode(lowered_task(state, id)))
                return
        status = lowered_task(state, id)["status"]
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Cannot cancel task: already in terminal status '{status}'"
        )

    async def _hold_cancelled(self, state: TaskState, id: str) -> TaskState:
        """Hold a cancelled task as long as its server may have it."""
        if await self._held(id) is None:  # else another request was faster
            now = now_ms()
            ttl = msgspec.json.decode(state.ttl_ms)
            ttl = min(int(ttl), LONG_TTL) if isinstance(ttl, int | float) else LONG_TTL
            await self._kept.hold(self._new(id, now, ttl).cancelled(views.CANCELLED, now))
        state.status = TaskStatus.CANCELLED
        state.status_message = Raw(encode(views.CANCELLED))
        self._note(state)
        self._wake(state.task_id)
        return state

    async def _result(self, message: Message) -> None:
        """tasks/result: wait for the end of a task, ask its questions meanwhile, and return what
        the call would have returned ("Result Retrieval")."""
        id = self._named(message)
        asked: dict[str, asyncio.Task[None]] = {}
        task_id = ""
        try:
            while True:
                held = await self._held(id)
                if held is not None:
                    self._client.answer(message, views.result_of(held))
                    return
                task_id = task_id or self._kept.open(id, self._principal)
                with self._waiting(task_id) as changed:
                    try:
                        state = await self._ask(task_id)
                    except ProtocolError as exc:
                        if exc.code != codes.OVERLOADED:
                            raise
                        await asyncio.sleep(POLL)  # the task is there all the same
                        continue
                    if state.status.terminal:
                        self._client.answer(message, self._outcome(state, id))
                        return
                    self._put_questions(message, id, state, asked)
                    await _any(changed, asked, state.poll)
        finally:
            for key, one in asked.items():
                one.cancel()
                self._asking.discard((task_id, key))

    def _outcome(self, state: TaskState, id: str) -> bytes:
        """The result of a task that has ended. ProtocolError: it has none."""
        if state.status is TaskStatus.CANCELLED:
            text = msgspec.json.decode(bytes(state.status_message) or b"null")
            raise ProtocolError(codes.TASK_CANCELLED, str(text or views.CANCELLED))
        if state.status is TaskStatus.FAILED:
            error = msgspec.json.decode(bytes(state.error) or b"{}")
            if not isinstance(error, dict) or not is_code(error.get("code")):
                raise ProtocolError(codes.INTERNAL_ERROR, "the failed task has no error")
            raise ProtocolError(error["code"], str(error.get("message", "")), error.get("data"))
        if not bytes(state.result):
            raise ProtocolError(codes.INTERNAL_ERROR, "the completed task has no result")
        assert self._front.revision is not None
        version = self._front.revision.version
        text = lowered("tools/call", members_of(state.result), version)
        return views.with_related(text, id)

    # -- questions -------------------------------------------------------------------------------

    def _put_questions(
        self, message: Message, id: str, state: TaskState, asked: dict[str, asyncio.Task[None]]
    ) -> None:
        """Ask the client what a task wants to know: each question once, while it is open. Raises
        what an earlier question has raised."""
        for key in [key for key in asked if key not in state.input_requests]:
            asked.pop(key).cancel()
            self._asking.discard((state.task_id, key))
        for one in asked.values():
            if one.done():
                one.result()
        for key, question in state.input_requests.items():
            if sum(not one.done() for one in asked.values()) >= MAX_QUESTIONS:
                return  # the others follow when one of these has its answer
            if key not in asked and (state.task_id, key) not in self._asking:
                self._asking.add((state.task_id, key))
                work = self._put(message, id, state.task_id, key, question)
                one = asked[key] = asyncio.ensure_future(work)
                one.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _put(self, message: Message, id: str, task_id: str, key: str, question: Raw) -> None:
        """Ask the client one question, and give the server the answer. ProtocolError: there is
        none."""
        answer = await put(
            self._front, message, members_of(question), self._client.capabilities, id
        )
        given = Raw(unrelated(bytes(answer)))
        await self._send("tasks/update", task_id, inputResponses={key: given})

    # -- changes ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _waiting(self, task_id: str) -> Iterator[asyncio.Event]:
        """Yield what is set when the server tells of a change, or the client cancels the task."""
        changed = asyncio.Event()
        waiters = self._waiters.setdefault(task_id, set())
        waiters.add(changed)
        try:
            yield changed
        finally:
            waiters.discard(changed)
            if not waiters:
                self._waiters.pop(task_id, None)

    def said(self, params: bytes) -> None:
        """The server tells of a task. DecodeError: the task is malformed."""
        self._note(task_state(params))

    def _note(self, state: TaskState) -> None:
        """The state of a task is known: if it is new, tell the client, and wake those that wait."""
        task_id = state.task_id
        if self._told.get(task_id, _told(state)) == _told(state):
            return
        self._told[task_id] = _told(state)
        self._wake(task_id)
        shown = lowered_task(state, self._sealed(task_id))
        self._front.say("notifications/tasks/status", encode(shown))
        if state.status.terminal:
            del self._told[task_id]
            self._client.unfollow(task_id)

    def _wake(self, task_id: str) -> None:
        for changed in self._waiters.get(task_id, ()):
            changed.set()


async def _any(
    changed: asyncio.Event, asked: dict[str, asyncio.Task[None]], seconds: float
) -> None:
    """Wait for a change, an answer, or the time of the next look."""
    change = asyncio.ensure_future(changed.wait())
    try:
        open_ = [one for one in asked.values() if not one.done()]
        await asyncio.wait([change, *open_], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()


def _told(state: TaskState) -> tuple[Any, ...]:
    """Return what clients are told of a state. A state with the same is not told again."""
    return state.status, bytes(state.status_message), *state.input_requests
