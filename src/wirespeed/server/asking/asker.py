"""How a question of a handler reaches the client, and how the answer reaches the handler.

In the legacy eras a question is a request of the server, and the handler waits for the response
(`DirectAsker`). In 2026-07-28 a server sends no requests (basic/patterns/mrtr, `RoundsAsker`): it
answers the client's own request with the questions and cancels the handler. The client repeats the
request with the answers, and the handler runs again from its start. It gets the answers to its
earlier questions at once, from the sealed ``requestState``, and so reaches its next question.

A handler that works on a task asks through the task (`call.asker`), in every era.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from wirespeed.errors import LimitExceeded, LocalError
from wirespeed.schema.python_types import enc_hook
from wirespeed.server.asking.input_request import InputRequest

if TYPE_CHECKING:
    from wirespeed.server.asking.client_progress import OnProgress
    from wirespeed.server.asking.input_required import InputRequired
    from wirespeed.server.context import Context
    from wirespeed.server.requests.call import Call

__all__ = ["MAX_ROUNDS", "Asker", "DirectAsker", "How"]

MAX_ROUNDS = 10
"""How often a handler that returns `InputRequired` may ask during one request (legacy eras)."""

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


class How(NamedTuple):
    """How a question is asked: see `Context.elicit`."""

    timeout: float | None = None
    on_progress: OnProgress | None = None


class Asker:
    """Asks the client of one call."""

    def __init__(self, context: Context, call: Call) -> None:
        self.call = call
        self.capabilities: Mapping[str, Any] = context.client_capabilities
        self.version: str = call.revision.version
        self.responses: dict[str, Any] = {}  # of the explicit form, typed
        self.state: Any = None
        self._rounds = 0

    async def ask(self, question: InputRequest, how: How) -> Any:
        """The client's answer, typed. MissingCapability: the client cannot be asked this."""
        params = question.encoded(self.capabilities, self.version)
        self._check_running()
        if self.call.asker is not None:
            return question.answer(
                await self.call.asker.ask(question.kind, question.method, params)
            )
        return await self.put(question, params, how)

    def answers(self) -> Mapping[str, Any]:
        """The answers of the last round, typed, for the explicit form."""
        return self.responses

    def _check_running(self) -> None:
        """LocalError: the handler has ended. CancelledError: the handler was cancelled, caught
        that, and goes on."""
        if self.call.context is None:
            raise self._over()
        if self.call.ended and self.call.asker is None:
            raise asyncio.CancelledError

    def _over(self) -> LocalError:
        operation = self.call.operation
        return LocalError(
            f"the {operation.kind} {operation.name!r} has ended, so its client cannot be asked"
        )

    async def put(self, question: InputRequest, params: bytes, how: How) -> Any:
        """Ask in the form of the era."""
        raise NotImplementedError

    async def require(self, required: InputRequired) -> bool:
        """Ask the questions of an `InputRequired`. Returns whether to call the handler again."""
        return await self._drive(required)

    async def _drive(self, required: InputRequired) -> bool:
        """Ask all questions at once, and keep the answers for the handler."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise LimitExceeded(f"the handler asked more than {MAX_ROUNDS} times")
        if not required.requests:  # the handler polls
            await asyncio.sleep(min(1.0, 0.05 * 2 ** (self._rounds - 1)))
        encoded = self._encoded(required)
        self._check_running()
        waiting = [
            asyncio.ensure_future(self._send(required.requests[key], params))
            for key, params in encoded.items()
        ]
        try:
            answers = await asyncio.gather(*waiting)
        finally:
            for one in waiting:  # after an error the others are withdrawn
                one.cancel()
        self.responses = dict(zip(encoded, answers, strict=True))
        self.state = None if required.state is None else _as_json(required.state)
        return True

    async def _send(self, question: InputRequest, params: bytes) -> Any:
        if self.call.asker is not None:
            data = await self.call.asker.ask(question.kind, question.method, params)
        else:
            data = await self._request(question, params, How())
        return question.plain_answer(data)

    async def _request(self, question: InputRequest, params: bytes, how: How) -> bytes:
        """The result of a request of the server (legacy eras)."""
        connection, method = self.call.connection, question.method
        if how.on_progress is not None:
            from wirespeed.server.asking.client_progress import heard

            with heard(connection, params, how.on_progress) as params:
                return await self._request(question, params, how._replace(on_progress=None))
        return await connection.questions.ask(
            method, params, timeout=how.timeout, about=self.call.ref
        )

    def _encoded(self, required: InputRequired) -> dict[str, bytes]:
        return {
            key: question.encoded(self.capabilities, self.version)
            for key, question in required.requests.items()
        }


class DirectAsker(Asker):
    """Asks by requests to the client: the legacy eras."""

    async def put(self, question: InputRequest, params: bytes, how: How) -> Any:
        return question.answer(await self._request(question, params, how))


def _as_json(value: Any) -> Any:
    """A value after a round trip through JSON, as in the modern era."""
    return msgspec.json.decode(_encode(value))
