"""Questions of the server that wait for the person at the page: forms, links, and requests for a
message of a model."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.cli.features.sampling import conversation
from wirespeed.cli.inspector.schema_form import (
    FormError,
    SchemaField,
    Sent,
    question_content,
    question_fields,
)

if TYPE_CHECKING:
    from wirespeed.types import ElicitParams, SampleParams

MAX_WAITING = 20  # questions at once
MAX_TEXT = 20_000  # characters of a question that are shown
_ACTIONS = ("accept", "decline", "cancel")


class WaitingQuestion(NamedTuple):
    """A question that nobody has answered yet.

    Attributes:
        number: Its number in this process.
        kind: form, url or sample.
        title: The heading.
        text: The server's message, or the conversation for a model.
        url: The link.
        fields: The fields of the form.
        about: The further parameters of a request for a model, as lines.
        asked: When it came, in Unix seconds.
    """

    number: int
    kind: str
    title: str
    text: str
    url: str
    fields: list[SchemaField]
    about: list[str]
    asked: float
    params: Any
    answer: asyncio.Future[Any]

    @property
    def is_web(self) -> bool:
        """Whether the link may be opened from the page."""
        return self.url.startswith(("https://", "http://"))


class Questions:
    """The questions that wait. Its handlers are those of a client.

    Args:
        changed: Called when a question came or went.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._waiting: dict[int, WaitingQuestion] = {}
        self._numbers = count(1)

    @property
    def waiting(self) -> list[WaitingQuestion]:
        """The questions, the oldest first."""
        return list(self._waiting.values())

    def handlers(self) -> dict[str, Any]:
        """Return the handlers for `wirespeed.Client`."""
        return {
            "on_elicit": self.elicit,
            "on_elicit_url": self.elicit,
            "on_sample": self.sample,
        }

    async def elicit(self, params: ElicitParams) -> Any:
        """Wait for the answer to a form or a link; too many questions are cancelled."""
        fields = question_fields(params.schema) if params.mode == "form" else []
        title = "The server asks" if params.mode == "form" else "The server asks to open a page"
        return await self._ask(
            params.mode, title, params.message, params.url, fields, [], params, "cancel"
        )

    async def sample(self, params: SampleParams) -> Any:
        """Wait for the message that the person writes in place of a model."""
        about = [f"at most {params.max_tokens:,.0f} tokens"]
        hints = params.model_preferences.hints if params.model_preferences is not None else None
        names = [one.name for one in hints or () if one.name]
        if names:
            about.append(f"model: {', '.join(names)[:200]}")
        if params.temperature is not None:
            about.append(f"temperature {params.temperature:g}")
        if params.stop_sequences:
            about.append(f"stops at {', '.join(map(repr, params.stop_sequences))[:200]}")
        title = "The server asks for a message of a model"
        text = conversation(params)
        return await self._ask("sample", title, text, "", [], about, params, "decline")

    async def _ask(
        self,
        kind: str,
        title: str,
        text: str,
        url: str,
        fields: list[SchemaField],
        about: list[str],
        params: Any,
        too_many: str,
    ) -> Any:
        if len(self._waiting) >= MAX_WAITING:
            return too_many
        answer = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
        with self._listed(
            WaitingQuestion(
                number, kind, title, text, url, fields, about, time.time(), params, answer
            )
        ):
            return await answer

    @contextlib.contextmanager
    def _listed(self, question: WaitingQuestion) -> Iterator[None]:
        self._waiting[question.number] = question
        self._changed()
        try:
            yield
        finally:  # it was answered, or the server cancelled it
            del self._waiting[question.number]
            self._changed()

    def answer(self, number: int, action: str, sent: Sent) -> None:
        """Answer a question. FormError: the question does not wait any more, or the answer is not
        valid."""
        question = self._waiting.get(number)
        if question is None or question.answer.done():
            raise FormError("this question does not wait any more")
        if action not in _ACTIONS:
            raise FormError("the answer is accept, decline or cancel")
        if question.kind == "sample":
            question.answer.set_result(_message(action, sent))
            return
        found: Any = action
        if action == "accept" and question.kind == "form":
            from wirespeed.client.answering.types import elicit_result

            found = question_content(question.params.schema, sent)
            try:
                elicit_result(found, question.params)
            except (TypeError, ValueError) as exc:
                raise FormError(str(exc)) from None
        question.answer.set_result(found)


def _message(action: str, sent: Sent) -> Any:
    """Return the message that a person wrote in place of a model."""
    from wirespeed.types import SampleResult

    if action != "accept":
        return "decline"
    text = next(iter(sent.get("text", ())), "").replace("\r\n", "\n")
    model = next(iter(sent.get("model", ())), "").strip()
    if not text:
        raise FormError("write the message")
    return SampleResult(content=text, model=model or "by hand")
