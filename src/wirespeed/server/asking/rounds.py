"""Rounds of questions: how a handler asks a client of 2026-07-28 (basic/patterns/mrtr)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from wirespeed.errors import InvalidResponse, ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import CREATE_MESSAGE, ELICIT, LIST_ROOTS
from wirespeed.protocol.revisions import META_SERVER_INFO
from wirespeed.schema.json_schema import describe_validation_error
from wirespeed.schema.python_types import enc_hook
from wirespeed.server.asking.asker import (
    Asker,
    DirectAsker,
    InputRequest,
    QuestionOptions,
    RootsRequest,
)
from wirespeed.server.asking.elicitation import ElicitRequest
from wirespeed.server.asking.request_state import RequestState, Sealer, binding_of, digest
from wirespeed.server.asking.sampling import SampleRequest

if TYPE_CHECKING:
    from wirespeed._core.slab import Lease
    from wirespeed.server.asking.input_required import InputRequired
    from wirespeed.server.requests.call import Call

logger = logging.getLogger("wirespeed.server")

# The methods of operations whose requests may be answered with questions.
_METHODS = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}

# In a request state a mark begins with a letter for the method. It is a capital letter for
# questions of `InputRequired`.
_LETTERS = {ELICIT: "e", CREATE_MESSAGE: "s", LIST_ROOTS: "r"}
_OF_LETTER: dict[str, type[InputRequest]] = {
    "e": ElicitRequest,
    "s": SampleRequest,
    "r": RootsRequest,
}

# A member that only results of one method have, and its letter.
_SHAPES = {"action": "E", "role": "S", "roots": "R"}

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Target(msgspec.Struct):
    """The members of params that a request state is bound to."""

    name: Any = None
    uri: Any = None
    arguments: Raw | msgspec.UnsetType = UNSET


_target = msgspec.json.Decoder(_Target).decode


class _InvalidAnswer(InvalidResponse, ProtocolError):
    """An answer in ``inputResponses`` that does not fit its question: an invalid request."""

    def __init__(self, message: str) -> None:
        ProtocolError.__init__(self, codes.INVALID_PARAMS, message)


class RoundsAsker(Asker):
    """Asks by answering the request with the questions: 2026-07-28.

    The first question without an answer waits for one turn of the loop, so that concurrent
    questions (`asyncio.gather`) are sent together. A question has a key (its kind and a number) and
    a mark (a digest of the question). An answer is valid for the same key and mark only, so a
    handler that asks another question in this round does not get a wrong answer.

    ProtocolError -32602: the request has an invalid ``requestState`` or ``inputResponses``.
    """

    def __init__(
        self, call: Call, capabilities: Mapping[str, Any], params: Lease | bytes | None
    ) -> None:
        super().__init__(call, capabilities)
        self._counts: dict[str, int] = {}
        self._asked: dict[str, tuple[InputRequest, str, bytes]] = {}
        self._waiting: list[asyncio.Future[bytes]] = []
        self._params = params
        self._binding: str | None = None
        self._answers: dict[str, tuple[str, Raw]] = {}
        self._given: dict[str, tuple[str, Raw]] = {}  # of the explicit form
        self._held: Raw | msgspec.UnsetType = UNSET
        self._unsealed: Mapping[str, Raw] = {}  # answers without a state
        brought = call.input
        if brought is not None:
            responses = brought.inputResponses or {}
            if brought.requestState is not None:
                self._take(brought.requestState, responses)
            elif not self._sealer.single_use:
                self._unsealed = responses

    # -- earlier rounds --------------------------------------------------------------------------

    @property
    def _sealer(self) -> Sealer:
        sealer: Sealer = self.call.connection.service.sealer
        return sealer

    def _bound(self) -> str:
        """The binding of the request states of this request."""
        if self._binding is None:
            call = self.call
            target = _target(b"{}" if self._params is None else self._params)
            self._binding = binding_of(
                call.connection.principal,
                _METHODS.get(call.operation.kind, call.operation.kind),
                target.uri if call.operation.kind == "resource" else target.name,
                None if target.arguments is UNSET else bytes(target.arguments),
            )
            self._params = None
        return self._binding

    def _take(self, text: str, responses: Mapping[str, Raw]) -> None:
        held = self._sealer.open(text, self._bound())
        self.call.first = held.use
        self._held = held.state
        if held.state is not UNSET:
            self.state = msgspec.json.decode(held.state)
        for known in (held.answers, held.given):
            for key, (mark, data) in known.items():
                self._know(key, mark, data)
        for key, mark in held.asked.items():
            if key in responses:  # otherwise the question is asked again
                self._know(key, mark, responses[key])

    def _know(self, key: str, mark: str, data: Raw) -> None:
        """Keep an answer. ProtocolError: it is malformed."""
        try:
            answer = _OF_LETTER[mark[0].lower()].decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            fault = describe_validation_error(exc, "member")
            raise ProtocolError(
                codes.INVALID_PARAMS, f"Invalid params: inputResponses.{key}: {fault}"
            ) from None
        if mark[0].isupper():
            self.responses[key] = answer
            self._given[key] = (mark, data)
        else:
            self._answers[key] = (mark, data)

    def answers(self) -> Mapping[str, Any]:
        unsealed, self._unsealed = self._unsealed, {}
        for key, data in unsealed.items():
            letter = _letter_of(data)
            if letter is not None:
                self._know(key, letter, data)
        return self.responses

    # -- questions of this round -----------------------------------------------------------------

    async def put(self, question: InputRequest, params: bytes, how: QuestionOptions) -> Any:
        number = self._counts[question.kind] = self._counts.get(question.kind, 0) + 1
        key = f"{question.kind}-{number}"
        mark = _LETTERS[question.method] + digest(params)
        known = self._answers.get(key)
        if known is not None:
            if known[0] == mark:
                try:
                    return question.answer(bytes(known[1]))
                except InvalidResponse as exc:
                    raise _InvalidAnswer(str(exc)) from exc
            logger.warning(
                "%s %s: question %s differs from the one of the round before, so it is asked again",
                self.call.operation.kind,
                self.call.operation.name,
                key,
            )
            del self._answers[key]
        if self.call.operation.kind not in _METHODS:
            raise RuntimeError(f"a {self.call.operation.kind} cannot ask its client anything")
        loop = self.call.connection.loop
        if not self._asked:
            loop.call_soon(self._finish)
        self._asked[key] = (question, mark, params)
        waiting: asyncio.Future[bytes] = loop.create_future()
        self._waiting.append(waiting)
        return question.answer(await waiting)  # usually cancelled with the handler

    def _finish(self) -> None:
        """The turn is over: answer the request with its questions."""
        waiting, self._waiting = self._waiting, []
        asked, self._asked = self._asked, {}
        if not self.call.ended:
            # in the next round, a handler that also returns InputRequired sees the same answers
            state = RequestState(
                asked={key: mark for key, (_, mark, _) in asked.items()},
                answers=self._answers,
                given=self._given,
                state=self._held,
            )
            requests = {key: (q.method, params) for key, (q, _, params) in asked.items()}
            try:
                self._answer(requests, state)
            except Exception as exc:
                for one in waiting:
                    if not one.done():
                        one.set_exception(exc)
                return
        for one in waiting:
            if self.call.context is not None:
                one.cancel()  # ends the tasks that the handler started, too
            elif not one.done():
                one.set_exception(self._over())

    async def require(self, required: InputRequired) -> bool:
        if self.call.asker is not None:
            return await self._drive(required)
        encoded = self._encoded(required)
        if self.call.operation.kind not in _METHODS:
            raise RuntimeError(f"a {self.call.operation.kind} cannot ask its client anything")
        state: RequestState | None = None
        if required.state is not None or self._answers or self._sealer.single_use:
            asked = {
                key: _LETTERS[question.method].upper() + digest(encoded[key])
                for key, question in required.requests.items()
            }
            state = RequestState(asked=asked, answers=self._answers)
            if required.state is not None:
                state.state = Raw(_encode(required.state))
        self._answer({key: (q.method, encoded[key]) for key, q in required.requests.items()}, state)
        return False

    def _answer(
        self, requests: Mapping[str, tuple[str, bytes]], state: RequestState | None
    ) -> None:
        """Answer the request with ``input_required``. LimitExceeded: the state is too large."""
        members = {"resultType": b'"input_required"'}
        if requests:
            members["inputRequests"] = _object(
                {
                    key: b'{"method":%b,"params":%b}' % (_encode(method), params)
                    for key, (method, params) in requests.items()
                }
            )
        if state is not None:
            members["requestState"] = _encode(self._sealer.seal(state, self._bound()))
        members["_meta"] = _object(
            {META_SERVER_INFO: self.call.connection.service.discovery.info_json}
        )
        self.call.ask_input(_object(members))


def asker_of(call: Call, capabilities: Mapping[str, Any], params: Lease | bytes | None) -> Asker:
    """The asker of a call with these params. ProtocolError -32602: see `RoundsAsker`."""
    if call.revision.modern:
        return RoundsAsker(call, capabilities, params)
    return DirectAsker(call, capabilities)


def _letter_of(result: Raw) -> str | None:
    """The letter of the method that a client's result belongs to; None for another value."""
    try:
        members = _members(result)
    except (msgspec.DecodeError, RecursionError):
        return None
    return next((letter for name, letter in _SHAPES.items() if name in members), None)


def _object(members: Mapping[str, bytes]) -> bytes:
    """A JSON object of members that are JSON text."""
    return b"{%b}" % b",".join(b"%b:%b" % (_encode(key), text) for key, text in members.items())
