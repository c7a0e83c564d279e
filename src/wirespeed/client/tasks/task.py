"""The client's handle of one task of a server: see `Client.start_tool`.

2025-11-25 basic/utilities/tasks: tasks/get polls; tasks/result waits for the result, and the server
sends its questions meanwhile. The extension of 2026-07-28: the answer to tasks/get contains the
questions and the result; tasks/update sends the answers, which the client's handlers give while a
caller follows the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wirespeed._exports import set_public_home
from wirespeed.client.requests.rounds import (
    AskedInput,
    InputRounds,
    Paused,
    end_handlers,
    refuse_many,
)
from wirespeed.client.requests.send import any_result, encode
from wirespeed.client.results.decode import Unfinished, decode_call_result
from wirespeed.client.subscriptions.subscription import Notice, Subscription, SubscriptionFilter
from wirespeed.client.tasks.messages import Seen, TaskState, seen_of
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, shown, timed_out
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InputNeeded,
    InvalidResponse,
    RemoteError,
    TaskCancelled,
    TransportError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.blocks import Text
from wirespeed.protocol.results import CallToolResult

if TYPE_CHECKING:
    from wirespeed.client.answering.answerer import Question
    from wirespeed.client.output_checks import Check
    from wirespeed.client.tasks.calls import ProgressSink, TaskCalls

__all__ = ["TaskHandles", "ToolTask"]

logger = logging.getLogger("wirespeed.client")

# The polling interval in seconds if the server advises none, its bounds, and the interval while the
# server reports changes itself.
POLL = 1.0
SHORTEST_POLL = 0.02
LONGEST_POLL = 300.0
POLL_WHILE_TOLD = 30.0


class TaskHandles:
    """The handles of one task of 2025-11-25, which receive its changes together. Only the handles
    refer to this object, so that notifications of tasks without handles are ignored."""

    __slots__ = ("__weakref__", "handles")

    def __init__(self) -> None:
        self.handles: weakref.WeakSet[ToolTask] = weakref.WeakSet()


class _PausedTask(msgspec.Struct):
    """A task that waits for answers: see `Paused`."""

    task: ToolTask
    questions: Mapping[str, Question]

    @property
    def tool(self) -> str | None:
        return self.task.tool if self.task._private else None

    async def go_on(self, by: TaskCalls, answers: Mapping[str, bytes], limit: float) -> Any:
        until = by.sender.until(limit)
        task = self.task
        if task._tasks is not by and task.id is not None:
            private, task = task._private, await by.get(task.id)
            task._private = private
        await task._questions.send(answers, by.sender.rest(until))
        return await by.wait_for(task, until, limit)


class ToolTask:
    """A call of a tool as a task: see `Client.start_tool`, `Client.get_task`.

    As an asynchronous iterator it yields the task's `TaskState` now, and after each change until
    the end. It polls at the interval that the server advises, and at once when the server reports a
    change. Questions of the server go to the client's handlers, as with any call.

    Attributes:
        tool: The name of the tool; None if it is not known.
        state: The last known state of the task.
    """

    def __init__(
        self,
        tasks: TaskCalls,
        tool: str | None,
        found: Seen | Unfinished | CallToolResult,
        *,
        modern: bool,
        check: Check | None = None,
        sink: ProgressSink | None = None,
    ) -> None:
        self._tasks = tasks
        self._modern = modern
        self._check = check  # of the task's result
        self._sink = sink
        self._handles: TaskHandles | None = None
        self._private = False  # only the call that became this task knows it
        self._wake = asyncio.Event()
        self._questions = TaskQuestions(
            tasks.rounds, self._update, self._wake.set, lambda open_: _PausedTask(self, open_)
        )
        self._told = False  # the server reports changes
        self._waiting: asyncio.Future[CallToolResult] | None = None  # tasks/result
        self._holders = 0  # callers that wait for the task
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
            raise InvalidResponse(f"the task that the server created is not valid: {exc}") from exc
        self.state = TaskState(seen.task_id, "working")
        if not modern:
            self._handles = tasks.handles.setdefault(seen.task_id, TaskHandles())
            self._handles.handles.add(self)
        self._take(seen)

    def __repr__(self) -> str:
        return f"<ToolTask {self.id}: {self.state.status}>"

    @property
    def id(self) -> str | None:
        """The task's id, for `Client.get_task`; None for a call that was answered at once."""
        return self.state.id

    # -- what callers do -------------------------------------------------------------------------

    async def status(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """Get the state. RemoteError -32602: the server has forgotten the task."""
        if self.id is not None:
            self._answered(await self._request("tasks/get", seen_of, timeout))
        return self.state

    async def result(self, *, timeout: Timeout = None) -> CallToolResult:
        """Wait for the end of the task, and return the tool's result. The client's handlers answer
        questions of the server meanwhile.

        ``timeout``: seconds, None for no limit (a task may take long). With 0 or below the call
        fails at once, unless the result is here already. After a timeout the task continues on the
        server.

        Raises:
            CallTimeout: The task has not ended in time.
            TaskCancelled: The task was cancelled.
            RemoteError: The call ended with an error, or the server has forgotten the task.
            InputNeeded: The client has no handler for a question, or answered ``max_rounds`` times:
                see `answer`, and `Client.resume`.
            HandlerFailed, Declined: A handler failed or declined.
            WirespeedError: As of `Client.call_tool`.
        """
        sender, check = self._tasks.sender, self._check
        limit = sender.seconds(timeout)
        if limit <= 0 and self._result is None:
            raise timed_out("task" if self.tool is None else f"tool {self.tool}", limit)
        until = sender.until(limit)
        try:
            async with asyncio.timeout(None if limit == math.inf else limit):
                result = await (self._follow() if self._modern else self._fetch())
                if sender.checks is not None and check is not None and self.tool is not None:
                    await sender.checks.verify(self.tool, check, result)
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout(f"the task has not ended within {shown(limit)}") from None
        return await sender.listed.mark(self.tool, result, until)

    async def cancel(self, *, timeout: Timeout = CLIENT_DEFAULT) -> TaskState:
        """Request the cancellation, and return the state after that. In 2026-07-28 the server may
        continue for a while. RemoteError -32602: the task has ended (2025-11-25), or the server has
        forgotten it."""
        if self.id is None:
            return self.state
        if not self._modern:
            self._answered(await self._request("tasks/cancel", seen_of, timeout))
            return self.state
        await self._request("tasks/cancel", any_result, timeout)
        return await self.status(timeout=timeout)

    async def answer(
        self, answers: Mapping[str, Any], *, timeout: Timeout = CLIENT_DEFAULT
    ) -> None:
        """Answer questions of the task without handlers (2026-07-28). ``answers`` are values that a
        handler may return, by the keys of `InputNeeded.requests`. TypeError, ValueError: an answer
        does not fit its request."""
        from wirespeed.client.answering.answerer import answer_text

        questions = (
            {} if self._seen is None else self._questions.questions(self._seen.input_requests)
        )
        texts: dict[str, bytes] = {}
        for key, answer in answers.items():
            if key not in questions:
                raise ValueError(f"the server does not ask for {key!r}")
            texts[key] = answer_text(questions[key], answer)
        await self._questions.send(texts, timeout)

    async def __aiter__(self) -> AsyncIterator[TaskState]:
        seen: TaskState | None = None
        async with self._listening(), self._holding():
            while True:
                self._wake.clear()
                heard = self._seen
                state = self.state
                if seen is None or (state.status, state.message) != (seen.status, seen.message):
                    seen = state
                    yield state
                if state.over:
                    return
                self._help(state)
                if not await self._heard_more(heard) and not self._questions.failed:
                    self._answered(await self._insist("tasks/get", seen_of, CLIENT_DEFAULT))

    # -- following -------------------------------------------------------------------------------

    async def _follow(self) -> CallToolResult:
        """2026-07-28: the answer to tasks/get contains the result."""
        if self._result is None:
            async for _ in self:
                pass
            if self._result is None and not self._has_reason:
                # the task had ended before it was first polled
                self._answered(await self._insist("tasks/get", seen_of, CLIENT_DEFAULT))
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
        """Whether the reason for a missing result is known."""
        failed = self._seen is not None and self._seen.error is not None
        return failed or self.state.status == "cancelled"

    async def _fetch(self) -> CallToolResult:
        """2025-11-25: tasks/result waits. All callers share one request."""
        if self._result is not None:
            return self._result
        try:
            async with self._holding():
                result = await asyncio.shield(self._ask_for_result())
            if result.content or result.structured_content is not UNSET or result.is_error:
                return result
            return await self._checked(result)
        except RemoteError as exc:
            if self.state.status != "cancelled":
                with contextlib.suppress(WirespeedError):
                    await self.status()
            if self.state.status == "cancelled":
                raise TaskCancelled(exc.code, exc.message, exc.data) from exc
            raise

    async def _checked(self, result: CallToolResult) -> CallToolResult:
        """Check an empty result, which some servers send for a task that failed or was
        cancelled."""
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
            work = self._insist("tasks/result", decode_call_result, None)
            self._waiting = asyncio.ensure_future(work)
            self._waiting.add_done_callback(self._fetched)
        return self._waiting

    @contextlib.asynccontextmanager
    async def _holding(self) -> AsyncIterator[None]:
        """A caller waits for the task within the block. After the last caller, tasks/result and the
        handlers are cancelled."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                if self._waiting is not None:
                    self._waiting.cancel()
                    self._waiting = None
                await self._questions.stop()

    def _fetched(self, waiting: asyncio.Future[CallToolResult]) -> None:
        if waiting.cancelled():
            return
        self._wake.set()
        if waiting.exception() is None:
            self._result = waiting.result()
            self._sink = None

    def _help(self, state: TaskState) -> None:
        """Start to answer the questions of the task, or stop."""
        waits = state.status == "input_required"
        if self._modern:
            asked = self._seen.input_requests if waits and self._seen is not None else {}
            self._questions.look(asked)
        elif waits:
            self._ask_for_result()

    async def _update(self, texts: Mapping[str, bytes], timeout: Timeout) -> None:
        answers = {key: msgspec.Raw(text) for key, text in texts.items()}
        await self._insist("tasks/update", any_result, timeout, inputResponses=answers)

    async def _request(self, method: str, decode: Any, timeout: Timeout, **more: Any) -> Any:
        params = encode({"taskId": self.id, **more})
        return await self._tasks.sender.send(method, params, decode, timeout)

    async def _insist(self, method: str, decode: Any, timeout: Timeout, **more: Any) -> Any:
        """Send a request, and repeat it over the next connection if a connection is lost: the task
        outlives its connection."""
        while True:
            try:
                return await self._request(method, decode, timeout, **more)
            except (ConnectionClosed, TransportError):
                # raises the reason if no connection follows
                sender = self._tasks.sender
                await sender.ready(method, sender.seconds(timeout))

    # -- notifications ---------------------------------------------------------------------------

    def _hear(self, seen: Seen) -> None:
        """The server reported a change."""
        if seen.task_id == self.id:
            self._take(seen)
            self._wake.set()

    def _answered(self, seen: Seen) -> None:
        if seen.task_id != self.id:
            raise InvalidResponse(
                f"the server was asked about the task {self.id!r:.80} and returned another task"
            )
        self._take(seen)

    def _take(self, seen: Seen) -> None:
        if self.state.over and seen.status != self.state.status:
            return  # sent before the end, and delivered late
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
        self._sink = None
        if self._handles is not None:
            self._handles.handles.discard(self)
            self._handles = None

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Subscribe to changes within the block, if the server supports it."""
        listening: asyncio.Future[None] | None = None
        if self._modern and self.id is not None and not self.state.over:
            listening = self._tasks.sender.life.spawn(self._listen())
        try:
            yield
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def _listen(self) -> None:
        try:
            wanted = SubscriptionFilter(more={"taskIds": [self.id]})
            async with Subscription(self._tasks.router, wanted) as events:
                honoured = events.honoured
                told = None if honoured is None else honoured.more.get("taskIds")
                if not isinstance(told, list) or self.id not in told:
                    return
                self._told = True
                async for event in events:
                    if not isinstance(event, Notice):
                        self._wake.set()  # a change may have been missed: poll
                    elif event.method == "notifications/tasks":
                        self._hear(seen_of(encode(event.params)))
        except asyncio.CancelledError:
            self._wake.set()  # the client may be closing, which the next poll reports
            raise
        except (ConnectionClosed, TransportError):
            self._wake.set()
        except (WirespeedError, msgspec.DecodeError) as exc:
            # polling continues, and raises an error that persists
            logger.debug("the server reports no task changes: %s", exc)
        finally:
            self._told = False

    async def _heard_more(self, heard: Seen | None) -> bool:
        """Wait for a change since `heard`, or until the next poll is due. Returns whether the
        server reported a change."""
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

    async def _let_go(self) -> None:
        """Cancel a task whose caller was cancelled or failed, and ignore errors."""
        with contextlib.suppress(WirespeedError):
            await self._request("tasks/cancel", any_result, CLIENT_DEFAULT)


class _Batch:
    """Questions that arrived together. Their answers are sent together."""

    __slots__ = ("keys", "sending", "task")

    task: asyncio.Future[None]

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.sending = False  # the handlers have ended


class TaskQuestions:
    """The questions of one task (2026-07-28), each answered once: a key keeps its meaning.

    The handlers run while the caller polls the task, which may end, or withdraw its questions,
    before a person has answered.

    Args:
        rounds: Runs the handlers.
        send: Sends answers, the JSON text by key, within a time limit as of `call_tool`.
        wake: Called when a handler failed and `look` has an error to raise.
        pause: Returns the `Paused` object from which an `InputNeeded` with the open questions
            continues.
    """

    def __init__(
        self,
        rounds: InputRounds,
        send: Callable[[Mapping[str, bytes], Timeout], Awaitable[None]],
        wake: Callable[[], None],
        pause: Callable[[Mapping[str, Question]], Paused],
    ) -> None:
        self._by = rounds
        self._send = send
        self._wake = wake
        self._pause = pause
        self._answered: set[str] = set()
        self._batches: set[_Batch] = set()
        self._rounds = 0
        self._error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether `look` has an error to raise."""
        return self._error is not None

    def questions(self, asked: Mapping[str, AskedInput]) -> dict[str, Question]:
        """The questions of the task. InvalidResponse: one of them is not allowed. LimitExceeded:
        there are too many questions."""
        refuse_many(len(asked))
        return self._by.questions(asked)

    def look(self, asked: Mapping[str, AskedInput]) -> None:
        """Start the handlers of new questions, and cancel those of withdrawn questions.

        Raises the error of a handler, or of sending its answers; InputNeeded for a question without
        a handler, and after ``max_rounds`` batches; InvalidResponse, LimitExceeded as of
        `questions`.
        """
        if self._error is not None:
            raise self._error
        for batch in tuple(self._batches):
            if not batch.sending and not batch.keys & asked.keys():
                self._batches.discard(batch)
                batch.task.cancel()
        if not asked:
            return
        under_way: set[str] = set().union(*(batch.keys for batch in self._batches))
        new = asked.keys() - self._answered - under_way
        if not new:
            return
        refuse_many(len(new) + len(under_way))
        questions = self.questions({key: one for key, one in asked.items() if key in new})
        answering = self._by.identity.answering
        if answering is None or not all(map(answering.can, questions.values())):
            raise self._needed("the client has no handler for it", asked)
        if self._rounds >= self._by.max_rounds:
            raise self._needed(f"max_rounds of {self._by.max_rounds} are used up", asked)
        self._rounds += 1
        batch = _Batch(frozenset(questions))
        self._batches.add(batch)
        batch.task = self._by.sender.life.spawn(self._answer(batch, questions))

    def _needed(self, why: str, asked: Mapping[str, AskedInput]) -> InputNeeded:
        """InputNeeded with all questions that have no answer yet."""
        open_ = self.questions(
            {key: one for key, one in asked.items() if key not in self._answered}
        )
        requests = {key: question.request for key, question in open_.items()}
        return InputNeeded(f"the task asks for input: {why}", requests, None, self._pause(open_))

    async def _answer(self, batch: _Batch, questions: Mapping[str, Question]) -> None:
        answering = self._by.identity.answering
        assert answering is not None
        try:
            answers = await self._by.answer_all(answering, questions)
            batch.sending = True
            await self.send(answers)
        except Exception as exc:
            self._error = exc
        finally:
            self._batches.discard(batch)
            self._wake()

    async def send(self, answers: Mapping[str, bytes], timeout: Timeout = CLIENT_DEFAULT) -> None:
        """Send answers. If they cannot be sent, `look` runs the handlers again."""
        self._answered |= answers.keys()
        try:
            await self._send(answers, timeout)
        except BaseException:
            self._answered -= answers.keys()
            raise

    async def stop(self) -> None:
        """No caller follows the task: cancel the handlers, and wait a moment for their cleanup. The
        next caller starts them again."""
        self._error = None
        self._rounds = 0
        tasks = [batch.task for batch in self._batches]
        self._batches.clear()
        await end_handlers(tasks)


set_public_home(globals())
