"""Answers to the questions of a server: from the person at the terminal, from options, or from a
program that is a model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.auth.client.browser import browser, has_terminal, in_daemon
from wirespeed.cli.failures import Exit, Failure, complain, printable, usage
from wirespeed.cli.features.arguments import read_json
from wirespeed.cli.features.sampling import SampleCommand
from wirespeed.errors import HandlerFailed, InputNeeded, RemoteError

if TYPE_CHECKING:
    from wirespeed.types import ElicitParams, SampleParams

_WORDS = ("accept", "decline", "cancel")
_EXAMPLE = "write --answer '{\"field\": 1}', accept, decline or cancel"
_NAMES = re.compile(r"\b(elicit|sampling|roots)", re.IGNORECASE)
_REFUSAL = re.compile(r"client|capabilit|support|declare|available", re.IGNORECASE)
_HINTS = {
    "elicit": "the server asks its user a question: run the command on a terminal, or give "
    "--answer JSON, accept or decline",
    "sampling": "the server asks for an answer of a model: give --sample-command COMMAND",
    "roots": "the server asks for directories: give --root PATH",
}


class Answers:
    """The answers of one command to the questions of its server.

    Args:
        answers: Those of ``--answer``, in order; the last one answers all further questions.
        sample_command: Of ``--sample-command``.
        roots: Those of ``--root``.
        before: Called before a person is asked: clears what would disturb.
    """

    def __init__(
        self,
        answers: Sequence[str] = (),
        sample_command: str | None = None,
        roots: Sequence[str] = (),
        before: Callable[[], None] | None = None,
    ) -> None:
        self._given = [_read(answer) for answer in answers]
        self._next = 0
        self._model = None if sample_command is None else SampleCommand(sample_command)
        self._roots = list(roots)
        self._before = before
        self._one_at_a_time = asyncio.Lock()
        self._failure: Failure | None = None

    def options(self) -> dict[str, Any]:
        """Return the handlers for `wirespeed.Client`. The client declares only what can be
        answered."""
        found: dict[str, Any] = {}
        if self._given or has_terminal():
            found |= {"on_elicit": self._elicit, "on_elicit_url": self._elicit}
        if self._model is not None:
            found["on_sample"] = self._sample
        if self._roots:
            found["roots"] = self._roots
        return found

    async def _sample(self, request: SampleParams) -> Any:
        assert self._model is not None
        try:
            return await self._model.answer(request)
        except Failure as exc:
            self._failure = exc
            raise

    async def _elicit(self, question: ElicitParams) -> Any:
        if not self._given:
            async with self._one_at_a_time:
                return await self._ask(question)
        answer = self._given[min(self._next, len(self._given) - 1)]
        self._next += 1
        if question.mode == "url" and answer == "accept":
            complain(f"open {printable(question.url)}", level="note")
        try:
            from wirespeed.client.answering.types import elicit_result

            elicit_result(answer, question)
        except (TypeError, ValueError) as exc:
            self._failure = usage(
                f"--answer does not fit the question {printable(question.message)!r}: {exc}"
            )
            raise self._failure from None
        return answer

    async def _ask(self, question: ElicitParams) -> Any:
        """Let the person answer."""
        from wirespeed.cli.features import form

        if self._before is not None:
            self._before()
        person = form.Person()
        person.say()
        person.say("The server asks:", "1;36")
        person.say(question.message)
        try:
            if question.mode == "url":
                return await self._open(person, question.url)
            content = await form.fill_in(person, question.schema)
        except form.Cancelled:
            return "cancel"
        return "decline" if content is None else content

    @staticmethod
    async def _open(person: Any, url: str) -> str:
        person.say()
        person.say(f"  {url}", "1")
        if not await person.agrees("Open this page?", default=False):
            return "decline"
        if not url.startswith(("https://", "http://")) or not await in_daemon(lambda: browser(url)):
            person.say("Open the address in a browser.", "2")
        return "accept"

    # -- failures --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the failure of an answer that did not fit: a server may hide it in a result."""
        if self._failure is not None:
            raise self._failure

    def explained(self, exc: Exception) -> Exception:
        """Return the failure of a call, with what the person can do where the server asked a
        question."""
        if isinstance(exc, HandlerFailed) and isinstance(exc.__cause__, Failure):
            return exc.__cause__
        if self._failure is not None:
            return self._failure
        if isinstance(exc, RemoteError | InputNeeded):
            hint = self.hint(f"{exc} {getattr(exc, 'data', '')}")
            if hint:
                exc.add_note(hint)
        return exc

    def hint(self, text: str) -> str:
        """Return what to do about a refusal for want of an answer; "" for any other text."""
        declared = self.options()
        lacks = {
            "elicit": "on_elicit" not in declared,
            "sampling": "on_sample" not in declared,
            "roots": "roots" not in declared,
        }
        for found in _NAMES.findall(text) if _REFUSAL.search(text) else ():
            if lacks[found.lower()]:
                return _HINTS[found.lower()]
        return ""


def _read(answer: str) -> Any:
    """Read an answer of the command line: a word, or JSON."""
    word = answer.strip().lower()
    if word in _WORDS:
        return word
    try:
        return read_json(answer, (dict,), "an object", _EXAMPLE)[1]
    except Failure as exc:
        raise Failure(f"--answer: {exc}", Exit.USAGE, "UsageError") from None
