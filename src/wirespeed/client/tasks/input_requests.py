"""The questions of a task of 2026-07-28, answered by the client's handlers while a caller follows
the task (extension ``io.modelcontextprotocol/tasks``: ``inputRequests``, tasks/update)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from wirespeed.client.requests.rounds import AskedInput, end_handlers, refuse_many
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.errors import InputNeeded

if TYPE_CHECKING:
    from wirespeed.client.answering.answerer import Question
    from wirespeed.client.requests.rounds import InputRounds, Paused

__all__ = ["TaskQuestions"]


class _Batch:
    """Questions that arrived together. Their answers are sent together."""

    __slots__ = ("keys", "sending", "task")

    task: asyncio.Future[None]

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.sending = False  # the handlers have ended


class TaskQuestions:
    """The questions of one task, each answered once: a key keeps its meaning for the task's life.

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
