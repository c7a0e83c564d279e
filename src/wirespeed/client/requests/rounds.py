"""Calls of several rounds: the server asks for input, and the client repeats the call with it.

Source: basic/patterns/mrtr of 2026-07-28. The request of each round is complete and has its own id,
so that another server process may answer the next round.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from wirespeed.client.requests.send import Request, Sender, meta_text, not_negotiated, rising
from wirespeed.client.results.decode import Unfinished
from wirespeed.client.timeouts import Timeout, timed_out
from wirespeed.errors import (
    CallTimeout,
    ConnectionClosed,
    InputNeeded,
    InvalidResponse,
    LimitExceeded,
    ProtocolError,
)
from wirespeed.transport.backoff import Backoff

if TYPE_CHECKING:
    from wirespeed.client.answering.answerer import Answering, Question
    from wirespeed.client.connection.handshake import Identity

__all__ = ["MAX_ROUNDS", "AskedInput", "InputRounds", "Paused", "end_handlers", "refuse_many"]

INPUT_REQUIRED = "input_required"

# The most rounds of one call, by default.
MAX_ROUNDS = 10
# The most questions in one result.
MAX_INPUT_REQUESTS = 1000
# Seconds that cancelled handlers have to end.
HANDLER_GRACE = 1.0

encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Any]).decode


class AskedInput(msgspec.Struct):
    """One of the ``inputRequests`` of a result or a task."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"null")


class _InputRequired(msgspec.Struct, rename="camel"):
    input_requests: dict[str, AskedInput] | None = None
    request_state: msgspec.Raw = msgspec.Raw(b"null")


class _Named(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(_Named).decode
_input_required = msgspec.json.Decoder(_InputRequired).decode


class _Asked(msgspec.Struct):
    """The input that one answer asks for. ``state`` is JSON text, which is echoed byte for byte."""

    questions: dict[str, Question] | None
    state: bytes | None

    def params(self, request: Request, answers: Mapping[str, bytes]) -> bytes:
        """The params of the next round: those of the first round, and the answers of this one."""
        parts = [request.params[1:-1].strip()]
        if self.questions is not None:
            members = b",".join(encode(key) + b":" + text for key, text in answers.items())
            parts.append(b'"inputResponses":{' + members + b"}")
        if self.state is not None:
            parts.append(b'"requestState":' + self.state)
        return b"{" + b",".join(part for part in parts if part) + b"}"


# The time limits that the present task is within.
_limits: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("limits", default=())


class _StandingStill:
    """The time limits of a call stand still while the user's handlers answer: they may ask a
    person.

    Attributes:
        stood: How many seconds that took.
    """

    stood = 0.0

    def __enter__(self) -> Self:
        self._began = asyncio.get_running_loop().time()
        self._limits = [(limit, limit.when()) for limit in _limits.get()]
        for limit, _ in self._limits:
            limit.reschedule(None)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stood = asyncio.get_running_loop().time() - self._began
        for limit, when in self._limits:
            limit.reschedule(None if when is None else when + self.stood)


class Paused(Protocol):
    """The call or task that an `InputNeeded` interrupted."""

    @property
    def questions(self) -> Mapping[str, Question]:
        """The open questions."""

    @property
    def tool(self) -> str | None:
        """The tool whose result is checked; None for other requests, and if the task checks it."""

    async def go_on(self, by: Any, answers: Mapping[str, bytes], limit: float) -> Any:
        """The result after these answers, within *limit* seconds. ``by`` is the `TaskCalls` of the
        client that resumes it."""


class _PausedCall(msgspec.Struct):
    """A request that is repeated."""

    request: Request
    asked: _Asked

    @property
    def questions(self) -> Mapping[str, Question]:
        return self.asked.questions or {}

    @property
    def tool(self) -> str | None:
        return _named(self.request.params).name if self.request.method == "tools/call" else None

    async def go_on(self, by: Any, answers: Mapping[str, bytes], limit: float) -> Any:
        rounds: InputRounds = by.rounds
        until = rounds.sender.until(limit)
        members = msgspec.structs.asdict(self.request) | {"until": until, "limit": limit}
        request = Request(**members)  # of `start_tool`, too: the caller wants the result
        return await rounds.within(request, rounds.again(request, self.asked, answers))


class InputRounds:
    """The rounds of calls whose answers ask for input.

    Attributes:
        sender: Sends each round.
        identity: The client's capabilities and handlers.
        max_rounds: The most rounds of one call that the handlers answer.
        pauses: The pauses between rounds without questions.
    """

    def __init__(
        self, sender: Sender, identity: Identity, max_rounds: int, pauses: Backoff
    ) -> None:
        self.sender = sender
        self.identity = identity
        self.max_rounds = max_rounds
        self.pauses = pauses

    async def resume(
        self,
        by: Any,
        needed: InputNeeded,
        answers: Mapping[str, Any] | None,
        timeout: Timeout,
    ) -> Any:
        """See `Client.resume`."""
        from wirespeed.client.answering.answerer import answer_text

        paused: Paused | None = needed._call
        if paused is None:
            raise ValueError("this InputNeeded does not belong to a call")
        questions = paused.questions
        texts: dict[str, bytes] = {}
        for key, answer in ({} if answers is None else answers).items():
            if key not in questions:
                raise ValueError(f"the server does not ask for {key!r}")
            texts[key] = answer_text(questions[key], answer)
        limit = self.sender.seconds(timeout)
        until = self.sender.until(limit)
        result = await paused.go_on(by, texts, limit)
        name = paused.tool
        checks = self.sender.checks
        if checks is not None and name is not None:
            check = await checks.of(name, until)
            if check is not None:
                await checks.verify(name, check, result, until)
        return result if name is None else await self.sender.listed.mark(name, result, until)

    async def finish(self, request: Request, answer: Unfinished) -> Any:
        """The result of a call whose answer asks for input."""
        if answer.result_type != INPUT_REQUIRED or not self.sender.agreed.revision.modern:
            raise not_negotiated(answer)
        return await self.within(request, self._drive(request, answer))

    async def within(self, request: Request, work: Any) -> Any:
        """Wait for the rounds of a call, within the one time limit of all rounds."""
        try:
            until = None if request.until == math.inf else request.until
            async with asyncio.timeout_at(until) as limit:
                outer = _limits.set((*_limits.get(), limit))
                try:
                    return await work
                finally:
                    _limits.reset(outer)
        except TimeoutError as exc:
            if isinstance(exc, CallTimeout) and self.sender.seconds_until(request.until) > 0:
                raise
            raise timed_out(request.what, request.limit) from None

    async def _drive(self, request: Request, answer: Unfinished) -> Any:
        """Answer the questions and send the request again, as long as the server asks for input."""
        answering = self.identity.answering
        idle = 0
        for _ in range(self.max_rounds):
            asked = self._asked(answer)
            answers: dict[str, bytes] = {}
            if asked.questions:
                idle = 0
                for question in asked.questions.values():
                    if answering is None or not answering.can(question):
                        raise _needed("the client has no handler for it", request, asked)
                assert answering is not None
                with _StandingStill() as clock:
                    answers = await self.answer_all(answering, asked.questions)
                request = msgspec.structs.replace(request, until=request.until + clock.stood)
            else:
                await asyncio.sleep(self.pauses.pause(idle))
                idle += 1
            result = await self._send_again(request, asked.params(request, answers))
            if not isinstance(result, Unfinished):
                return result
            if result.result_type != INPUT_REQUIRED:
                return await self.sender.continuation.finish(request, result)
            answer = result
        text = f"max_rounds of {self.max_rounds} are used up"
        raise _needed(text, request, self._asked(answer))

    async def again(self, request: Request, asked: _Asked, answers: Mapping[str, bytes]) -> Any:
        """One round with the caller's answers, then further rounds with those of the handlers."""
        result = await self._send_again(request, asked.params(request, answers))
        if isinstance(result, Unfinished):
            return await self.sender.continuation.finish(request, result)
        return result

    async def _send_again(self, request: Request, params: bytes) -> Any:
        """One round: the result, or an `Unfinished` one. Each round passes the middleware as a
        request; the middleware call of the whole call is around all of its rounds."""
        request = msgspec.structs.replace(request, params=params)
        through = self.sender.middleware
        if through is None:
            return await self.send_once(request)
        from wirespeed.client.requests.middleware import OutboundRequest

        asks: tuple[InputNeeded, Unfinished] | None = None

        async def send(passed: OutboundRequest) -> Any:
            nonlocal asks
            until = self.sender.until(self.sender.seconds(passed.timeout))
            changed = msgspec.structs.replace(
                request,
                params=b"{}" if passed.params is None else passed.params,
                meta=meta_text(passed.meta),
                until=min(until, request.until),
            )
            result = await self.send_once(changed)
            if not isinstance(result, Unfinished):
                return result
            if result.result_type != INPUT_REQUIRED:
                return await self.sender.continuation.finish(request, result)
            # middleware gets a result, or an exception that names the missing input
            needed = _needed("there is another round", request, self._asked(result))
            asks = needed, result
            raise needed

        meta = None if request.meta is None else _members(b"{" + request.meta + b"}")
        outbound = OutboundRequest(
            self.sender,
            request.method,
            None,
            params,
            None,
            meta,
            self.sender.rest(request.until),
        )
        try:
            return await through.run(outbound, send)
        except InputNeeded as exc:
            if asks is None or exc is not asks[0]:
                raise
            return asks[1]

    async def send_once(self, request: Request, *, further: bool = True) -> Any:
        """Send a request past all middleware: the result, or an `Unfinished` one. ``further``: this
        is not the first round."""
        left = self.sender.seconds_until(request.until)
        connection, left = await self.sender.ready(request.what, left)
        revision = connection.revision
        if further and (revision is None or not revision.modern):
            raise InvalidResponse("the server that asked for input now speaks a legacy revision")
        waiter = connection.request(
            request.method,
            request.params,
            request.decode,
            timeout=left,
            on_progress=None if request.on_progress is None else rising(request.on_progress),
            meta=request.meta,
            tasks=request.tasks,
        )
        try:
            result = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            elif request.method == "tools/call":
                self.sender.continuation.unwanted(waiter.future)
            raise
        self.sender.life.crashes = 0
        return result

    def _asked(self, answer: Unfinished) -> _Asked:
        """The input that an answer asks for. InvalidResponse: the answer is malformed, or asks a
        question that the client did not declare."""
        try:
            result = _input_required(answer.text)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise InvalidResponse(f"the inputRequests of the result are not valid: {exc}") from exc
        state: bytes | None = bytes(result.request_state).strip()
        if state == b"null":
            state = None
        elif state[:1] != b'"':  # type: ignore[index]
            raise InvalidResponse("requestState is not a string")
        if result.input_requests is None:
            if state is None:
                raise InvalidResponse(
                    "the result has resultType 'input_required', but neither inputRequests nor"
                    " requestState"
                )
            return _Asked(None, state)
        refuse_many(len(result.input_requests))
        return _Asked(self.questions(result.input_requests), state)

    def questions(self, requests: Mapping[str, AskedInput]) -> dict[str, Question]:
        """The questions in ``inputRequests``. InvalidResponse: the client did not declare the
        capability for a question."""
        from wirespeed.client.answering.answerer import question_of

        version = self.sender.agreed.revision.version
        capabilities = self.identity.declared(version)
        questions: dict[str, Question] = {}
        for key, one in requests.items():
            params = None if bytes(one.params) == b"null" else one.params
            try:
                questions[key] = question_of(one.method, params, capabilities, version)
            except ProtocolError as exc:
                raise InvalidResponse(
                    f"the server asks a question that is not allowed ({key}): {exc.message}"
                ) from None
        return questions

    async def answer_all(
        self, answering: Answering, questions: Mapping[str, Question]
    ) -> dict[str, bytes]:
        """Run the handlers of all questions at once. The first failure cancels the others."""
        tasks = {
            self.sender.life.spawn(_outcome(answering, question)): key
            for key, question in questions.items()
        }
        answers = dict.fromkeys(questions, b"")
        waiting: set[asyncio.Future[bytes | Exception]] = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.cancelled():
                        raise ConnectionClosed("the client was closed")
                    outcome = task.result()
                    if isinstance(outcome, Exception):
                        raise outcome
                    answers[tasks[task]] = outcome
        finally:
            await end_handlers(waiting)
        return answers


async def _outcome(answering: Answering, question: Question) -> bytes | Exception:
    try:
        return await answering.answer(question)
    except Exception as exc:
        return exc


def refuse_many(count: int) -> None:
    """LimitExceeded: *count* questions are too many for one result."""
    if count > MAX_INPUT_REQUESTS:
        raise LimitExceeded(
            f"the server asks {count} questions at once (the limit is {MAX_INPUT_REQUESTS})"
        )


async def end_handlers(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel handlers, and wait a moment for their cleanup."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=HANDLER_GRACE)


def _needed(why: str, request: Request, asked: _Asked) -> InputNeeded:
    import json  # accepts lone surrogates in strings

    requests = {key: question.request for key, question in (asked.questions or {}).items()}
    state = None if asked.state is None else json.loads(asked.state)
    return InputNeeded(
        f"the server asks for input for {request.method}: {why}",
        requests,
        state,
        _PausedCall(request, asked),
    )
