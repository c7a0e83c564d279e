"""One task of a server, seen from its client: what `Client.start_tool` gives.

2025-11-25 basic/utilities/tasks: polled by tasks/get, the result by tasks/result, whose waiting
also brings what the server asks. The extension of 2026-07-28: polled by tasks/get, which brings
questions and the result too; answers go by tasks/update.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.calls import any_result, encode
from wirespeed.client.results import CallToolResult, Progress, Unfinished, decode_call_result
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InputNeeded,
    InvalidResponse,
    ProtocolError,
    RemoteError,
    TaskCancelled,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ErrorObject
from wirespeed.server.content import Text

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.answering import Question
    from wirespeed.client.calls import OnProgress
    from wirespeed.client.lifecycle import Lifecycle
    from wirespeed.client.task_calls import TaskCalls

__all__ = ["TaskState", "ToolTask", "call_progress", "list_of", "seen_of"]

logger = logging.getLogger("wirespeed.client")

# Seconds between two looks at a task: where the server says nothing, and the bounds of what it may
# say. While it tells of changes by itself they are looked for seldom.
POLL = 1.0
SHORTEST_POLL = 0.02
LONGEST_POLL = 300.0
POLL_WHILE_TOLD = 30.0

_FINAL = frozenset({"completed", "failed", "cancelled"})


class TaskState(msgspec.Struct, frozen=True):
    """How far a task is.

    Attributes:
        id: Its id; None for a call that was answered at once.
        status: "working", "input_required", "completed", "failed" or "cancelled".
        message: What the server says about it, for people.
        created_at, updated_at: Times in ISO 8601, as the server gives them.
        ttl: Seconds after its creation that the server keeps it; None for no end.
        poll_interval: Seconds to wait between two looks, or None.
    """

    id: str | None
    status: str
    message: str | None = None
    created_at: str = ""
    updated_at: str = ""
    ttl: float | None = None
    poll_interval: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing can follow."""
        return self.status in _FINAL


class _InputRequest(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"null")


class Seen(msgspec.Struct, rename="camel"):
    """A task as either form shows it."""

    task_id: str
    status: str
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, _InputRequest] = {}
    result: msgspec.Raw = msgspec.Raw(b"")
    error: ErrorObject | None = None

    @property
    def state(self) -> TaskState:
        """What of it is of interest to callers."""
        return TaskState(
            self.task_id,
            self.status,
            self.status_message,
            self.created_at,
            self.last_updated_at,
            _seconds(self.ttl if self.ttl_ms is None else self.ttl_ms),
            _seconds(
                self.poll_interval if self.poll_interval_ms is None else self.poll_interval_ms
            ),
        )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


_seen = msgspec.json.Decoder(Seen).decode
_progress = msgspec.json.Decoder(Progress).decode


def seen_of(data: Any) -> Seen:
    """What tasks/get, tasks/cancel of 2025-11-25, and notifications say of a task."""
    seen = _seen(bytes(data))
    if seen.status not in _FINAL and seen.status not in ("working", "input_required"):
        raise msgspec.ValidationError(f"a task has no status {seen.status!r}")
    return seen


class _List(msgspec.Struct, rename="camel"):
    tasks: list[Seen]
    next_cursor: str | None = None


_list = msgspec.json.Decoder(_List).decode


def list_of(data: Any) -> tuple[list[TaskState], str | None]:
    """What tasks/list says, and the cursor of the next page."""
    page = _list(data)
    return [seen.state for seen in page.tasks], page.next_cursor


class ToolTask:
    """A call of a tool as a task: see `Client.start_tool`, `Client.get_task`.

    As an asynchronous iterator it gives the task's `TaskState` now, and after each change until it
    is over. It looks as often as the server asks for, and sooner when the server tells of a change.
    What the server asks meanwhile goes to the client's handlers, as with any call.

    Attributes:
        tool: The name of the tool; None where it is not known.
        state: What was last heard of the task.
    """

    def __init__(
        self,
        client: TaskCalls,
        tool: str | None,
        found: Seen | Unfinished | CallToolResult,
        *,
        modern: bool,
        token: str | None = None,
    ) -> None:
        self._client = client
        self._modern = modern
        self._token = token
        self._answered: set[str] = set()
        self._wake = asyncio.Event()
        self._told = False  # the server tells of changes by itself
        self._waiting: asyncio.Future[CallToolResult] | None = None  # tasks/result
        self._holders = 0  # who need that
        self._result: CallToolResult | None = None
        self._seen: Seen | None = None
        self.tool = tool
        if isinstance(found, CallToolResult):
            self._result = found
            self.state = TaskState(None, "failed" if found.is_error else "completed")
            self._over()
            return
        try:
            seen = seen_of(found.text) if isinstance(found, Unfinished) else found
        except msgspec.DecodeError as exc:
            raise InvalidResponse(f"the task that the server made is not valid: {exc}") from exc
        self.state = TaskState(seen.task_id, "working")
        if not modern:
            client._task_news.setdefault(seen.task_id, set()).add(self)
        self._take(seen)

    def __repr__(self) -> str:
        return f"<ToolTask {self.id}: {self.state.status}>"

    @property
    def id(self) -> str | None:
        """The task's id, by which `Client.get_task` finds it again; None for a call that was
        answered at once."""
        return self.state.id

    # -- what callers do -------------------------------------------------------------------------

    async def status(self, *, timeout: float | None = -1.0) -> TaskState:
        """Ask how far it is. RemoteError -32602: the server has forgotten it."""
        if self.id is not None:
            self._take(await self._request("tasks/get", seen_of, timeout))
        return self.state

    async def result(self, *, timeout: float | None = None) -> CallToolResult:
        """Wait until it is over; the result of the tool.

        ``timeout``: seconds, None for no limit (a task may take long); the task goes on when they
        have passed. Answers what the server asks meanwhile.

        Raises:
            CallTimeout: It is not over in time.
            TaskCancelled: It was cancelled.
            RemoteError: The call itself ended with an error, or the server has forgotten the task.
            InputNeeded: The client has no handler for what the server asks: see `answer`.
            WirespeedError: As of `Client.call_tool`.
        """
        try:
            async with asyncio.timeout(timeout):
                return await (self._follow() if self._modern else self._fetch())
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout("the task is not over within the time limit") from None

    async def cancel(self, *, timeout: float | None = -1.0) -> TaskState:
        """Ask the server to end it; its state after that. In 2026-07-28 the server need not, and
        takes its time. RemoteError -32602: it is over already (2025-11-25), or forgotten."""
        if self.id is None:
            return self.state
        if not self._modern:
            self._take(await self._request("tasks/cancel", seen_of, timeout))
            return self.state
        await self._request("tasks/cancel", any_result, timeout)
        return await self.status(timeout=timeout)

    async def answer(self, answers: Mapping[str, Any], *, timeout: float | None = -1.0) -> None:
        """Answer by hand what the task asks (2026-07-28): by the keys of `InputNeeded.requests`,
        what handlers would give. TypeError, ValueError: an answer does not fit its request."""
        from wirespeed.client.answering import answer_text

        questions = self._questions()
        texts: dict[str, bytes] = {}
        for key, answer in answers.items():
            if key not in questions:
                raise ValueError(f"the server does not ask for {key!r}")
            texts[key] = answer_text(questions[key], answer)
        await self._update(texts, timeout)

    async def __aiter__(self) -> AsyncIterator[TaskState]:
        seen: TaskState | None = None
        async with self._news(), self._holding():
            while True:
                self._wake.clear()
                heard = self._seen
                state = self.state
                if seen is None or (state.status, state.message) != (seen.status, seen.message):
                    seen = state
                    yield state
                if state.over:
                    return
                if state.status == "input_required":
                    await self._help()
                if not await self._heard_more(heard):
                    await self.status()

    # -- following -------------------------------------------------------------------------------

    async def _follow(self) -> CallToolResult:
        """2026-07-28: the task brings its result itself."""
        if self._result is None:
            async for _ in self:
                pass
            if self._result is None and not self._has_reason:
                await self.status()  # it was over before anybody said what came of it
            if self._result is None:
                seen = self._seen
                if seen is not None and seen.error is not None:
                    raise RemoteError(seen.error.code, seen.error.message, seen.error.data)
                if self.state.status == "cancelled":
                    text = self.state.message or "The task was cancelled"
                    raise TaskCancelled(codes.TASK_CANCELLED, text)
                raise InvalidResponse(f"the task is {self.state.status}, and has no result")
        return self._result

    @property
    def _has_reason(self) -> bool:
        """Whether it is known why there is no result."""
        failed = self._seen is not None and self._seen.error is not None
        return failed or self.state.status == "cancelled"

    async def _fetch(self) -> CallToolResult:
        """2025-11-25: tasks/result waits, and brings what the server asks. It is sent once, for
        however many wait here."""
        if self._result is not None:
            return self._result
        try:
            async with self._holding():
                result = await asyncio.shield(self._ask_for_result())
            if result.content or result.structured_content is not None or result.is_error:
                return result
            return await self._told_apart(result)
        except RemoteError as exc:
            if self.state.status != "cancelled":
                with contextlib.suppress(WirespeedError):
                    await self.status()
            if self.state.status == "cancelled":
                raise TaskCancelled(exc.code, exc.message, exc.data) from exc
            raise

    async def _told_apart(self, result: CallToolResult) -> CallToolResult:
        """An empty result: some servers give that for a task that failed or was cancelled."""
        if not self.state.over:
            await self.status()
        message = self.state.message
        if self.state.status == "cancelled":
            self._result = None
            raise TaskCancelled(codes.TASK_CANCELLED, message or "The task was cancelled")
        if self.state.status == "failed":
            result.is_error = True
            result.content = [Text(text=message or "The task failed")]
        return result

    def _ask_for_result(self) -> asyncio.Future[CallToolResult]:
        if self._waiting is None:
            work = self._request("tasks/result", decode_call_result, None)
            self._waiting = asyncio.ensure_future(work)
            self._waiting.add_done_callback(self._fetched)
        return self._waiting

    @contextlib.asynccontextmanager
    async def _holding(self) -> AsyncIterator[None]:
        """While this lasts tasks/result may wait for the end; it is cancelled with the last who
        wants to know."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders and self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    def _fetched(self, waiting: asyncio.Future[CallToolResult]) -> None:
        if waiting.cancelled():
            return
        self._wake.set()
        if waiting.exception() is None:
            self._result = waiting.result()

    async def _help(self) -> None:
        """The task waits for something that this side has."""
        if not self._modern:
            self._ask_for_result()
            return
        answering = self._client._identity.answering
        questions = {
            key: question
            for key, question in self._questions().items()
            if key not in self._answered
        }
        for question in questions.values():
            if answering is None or not answering.can(question):
                raise InputNeeded(
                    "the task waits for input, and there is no handler for what it asks",
                    {key: question.request for key, question in questions.items()},
                    None,
                )
        if questions:
            assert answering is not None
            asked = [answering.answer(question) for question in questions.values()]
            texts = dict(zip(questions, await asyncio.gather(*asked), strict=True))
            await self._update(texts, -1.0)

    def _questions(self) -> dict[str, Question]:
        """What the task asks now. InvalidResponse: it must not."""
        from wirespeed.client.answering import question_of

        version = self._client._agreed.revision.version
        capabilities = self._client._identity.declared(version)
        requests = {} if self._seen is None else self._seen.input_requests
        questions: dict[str, Question] = {}
        for key, one in requests.items():
            params = None if bytes(one.params) == b"null" else one.params
            try:
                questions[key] = question_of(one.method, params, capabilities, version)
            except ProtocolError as exc:
                raise InvalidResponse(
                    f"the task asks for what it must not ({key}): {exc.message}"
                ) from None
        return questions

    async def _update(self, texts: Mapping[str, bytes], timeout: float | None) -> None:
        answers = {key: msgspec.Raw(text) for key, text in texts.items()}
        self._answered |= texts.keys()
        try:
            await self._request("tasks/update", any_result, timeout, inputResponses=answers)
        except BaseException:
            self._answered -= texts.keys()
            raise

    async def _request(self, method: str, decode: Any, timeout: float | None, **more: Any) -> Any:
        params = encode({"taskId": self.id, **more})
        return await self._client._call(method, params, decode, timeout, None, None)

    # -- hearing of it ---------------------------------------------------------------------------

    def told(self, seen: Seen) -> None:
        """The server told of a change by itself."""
        self._take(seen)
        self._wake.set()

    def _take(self, seen: Seen) -> None:
        if self.state.over and seen.status != self.state.status:
            return  # it was said before the end, and comes late
        self._seen = seen
        self.state = seen.state
        if bytes(seen.result):
            try:
                result = decode_call_result(seen.result)
            except msgspec.DecodeError as exc:
                raise InvalidResponse(f"the task's result is not valid: {exc}") from exc
            if isinstance(result, Unfinished):
                raise InvalidResponse(f"the task's result has resultType {result.result_type!r}")
            self._result = result
        if self.state.over:
            self._over()

    def _over(self) -> None:
        self._wake.set()
        client = self._client
        if self._token is not None:
            client._task_progress.pop(self._token, None)
        if self.id is not None and (tasks := client._task_news.get(self.id)) is not None:
            tasks.discard(self)
            if not tasks:
                del client._task_news[self.id]

    @contextlib.asynccontextmanager
    async def _news(self) -> AsyncIterator[None]:
        """Be told of changes while this lasts, where the server does that."""
        listening: asyncio.Future[None] | None = None
        if self._modern and self.id is not None and not self.state.over:
            listening = self._client._life.spawn(self._listen())
        try:
            yield
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def _listen(self) -> None:
        from wirespeed.client.events import Notice

        try:
            async with self._client.subscribe(more={"taskIds": [self.id]}) as events:
                honoured = events.honoured
                if honoured is None or self.id not in honoured.more.get("taskIds", ()):
                    return
                self._told = True
                async for event in events:
                    if not isinstance(event, Notice):
                        self._wake.set()  # something may have been missed: look
                    elif event.method == "notifications/tasks":
                        self.told(seen_of(encode(event.params)))
        except asyncio.CancelledError:
            self._wake.set()  # the client may be closing: the next look says so
            raise
        except (ConnectionClosed, TransportError):
            self._wake.set()
        except (WirespeedError, msgspec.DecodeError) as exc:
            # polling goes on, and says what is wrong
            logger.debug("the server does not tell of task changes: %s", exc)
        finally:
            self._told = False

    async def _heard_more(self, heard: Seen | None) -> bool:
        """Wait until something may have changed; whether it was told what, since `heard`."""
        if self._seen is not heard:
            return True
        wait = self.state.poll_interval
        wait = POLL if wait is None else min(max(wait, SHORTEST_POLL), LONGEST_POLL)
        if self._told:
            wait = max(wait, POLL_WHILE_TOLD)
        try:
            async with asyncio.timeout(wait * random.uniform(1.0, 1.1)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return self._seen is not heard

    async def let_go(self) -> None:
        """Nobody waits for it any more: tell the server, whatever comes of that."""
        with contextlib.suppress(WirespeedError):
            await self._request("tasks/cancel", any_result, -1.0)


def call_progress(life: Lifecycle, on_progress: OnProgress, message: Message) -> None:
    """Hand on the progress of a task. What the callback raises is logged."""
    raw = message.params
    try:
        progress = _progress(b"{}" if raw is None else raw)
    except msgspec.DecodeError as exc:
        logger.warning("a progress notification is not valid: %s", exc)
        return
    try:
        outcome = on_progress(progress.progress, progress.total, progress.message)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        logger.exception("the progress callback of a task failed")
    else:
        life.spawn_outcome(outcome)
