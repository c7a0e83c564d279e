"""Questions of a legacy server to a client of 2026-07-28.

Such a client is asked in the answer to a request of its own (basic/patterns/mrtr of 2026-07-28).
The request stays open at the server. The client gets a handle as ``requestState``. Its next request
with that handle brings the answers, and takes the place of the first one.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.capabilities import understood
from wirespeed.protocol.revisions import LATEST_MODERN, META_CLIENT_CAPABILITIES, REVISIONS
from wirespeed.proxy.front import principal_of
from wirespeed.proxy.translation.results import encode, members_of
from wirespeed.proxy.translation.suspended import Suspended, open_requests

if TYPE_CHECKING:
    import asyncio

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.front import Front

# Rounds that wait for a client at a time, questions that wait for a round, and seconds that a
# client has for an answer.
MAX_ROUNDS = 64
MAX_QUESTIONS = 64
ROUND_TTL = 600.0

INPUT_METHODS = REVISIONS[LATEST_MODERN].input_methods
# The capability that a client declares for a question.
CAPABILITY_OF = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_NOBODY = "no request of the client is open that may be answered with this question"
# Members of questions that 2026-07-28 does not have.
_LEGACY_ONLY = ("_meta", "task", "elicitationId")
_CAPABILITIES = f"params._meta.{META_CLIENT_CAPABILITIES}"


class Rounds:
    """The open rounds of one client."""

    def __init__(self, front: Front, end: bytes) -> None:
        self._front = front
        self._end = end
        self._open: dict[str, _Round] = {}
        self._questions: deque[tuple[Backend, Message]] = deque()

    def ask(self, backend: Backend, question: Message) -> None:
        """The server has a question: ask the client in the answer to one of its requests."""
        for request in open_requests(self._front):
            if request.method in INPUT_METHODS and _declares(request, question):
                if len(self._open) >= MAX_ROUNDS:
                    backend.refuse(question, "the client has too many questions to answer")
                else:
                    self._begin(request, [(backend, question)])
                return
        if self._open and len(self._questions) < MAX_QUESTIONS:
            self._questions.append((backend, question))  # the client will be back
        else:
            backend.refuse(question, _NOBODY)

    def _begin(self, request: Message, questions: list[tuple[Backend, Message]]) -> None:
        """Answer a request with questions."""
        handle = secrets.token_urlsafe(24)
        asked = {str(n): embedded(one) for n, (_, one) in enumerate(questions, 1)}
        parts = encode({"inputRequests": asked, "requestState": handle})
        result = parts[:-1] + b',"resultType":"input_required"' + self._end + b"}"
        one = _Round(request, Suspended(self._front, request, result), questions)
        one.principal = principal_of(self._front)
        one.timer = self._front.loop.call_later(ROUND_TTL, self._expire, handle)
        self._open[handle] = one

    def resume(self, message: Message, handle: str, responses: Raw | None) -> None:
        """A request brings the answers of the client. ProtocolError: it does not fit."""
        one = self._open.get(handle)
        if one is None or one.principal != principal_of(self._front):
            raise ProtocolError(
                codes.INVALID_PARAMS, "requestState is not known here, or has expired"
            )
        if not one.fits(message):
            raise ProtocolError(codes.INVALID_PARAMS, "requestState belongs to another request")
        given = members_of(responses) if responses is not None else {}
        if not all(bytes(value).lstrip().startswith(b"{") for value in given.values()):
            raise ProtocolError(codes.INVALID_PARAMS, "inputResponses must be objects")
        del self._open[handle]
        one.timer.cancel()
        missing = []
        for n, (backend, question) in enumerate(one.questions, 1):
            response = given.get(str(n))
            if response is None:
                missing.append((backend, question))
            elif backend.link is not None:
                backend.session.send_result(question, bytes(response))
                backend.link.wrote()
        if not one.suspended.is_open:
            raise ProtocolError(
                codes.SERVER_LOST, "the server ended before it had answered the first request"
            )
        one.suspended.resume(message)
        while self._questions and self._front.is_open(message):
            backend, question = self._questions.popleft()
            if _declares(message, question):
                missing.append((backend, question))
            else:
                backend.refuse(question, _NOBODY)
        if missing and self._front.is_open(message):
            self._begin(message, missing)

    def _expire(self, handle: str) -> None:
        """The client does not come back."""
        one = self._open.pop(handle)
        for backend, question in one.questions:
            decline(backend, question)
        one.suspended.drop()

    def close(self) -> None:
        """The client has left, or the server is gone."""
        for handle in list(self._open):
            self._open[handle].timer.cancel()
            self._expire(handle)
        while self._questions:
            decline(*self._questions.popleft())


class _Round:
    principal: Any
    timer: asyncio.TimerHandle

    def __init__(
        self, request: Message, suspended: Suspended, questions: list[tuple[Backend, Message]]
    ) -> None:
        self.suspended = suspended
        self.questions = questions
        self._of = identity(request)

    def fits(self, message: Message) -> bool:
        """Whether a request is the same as the first one."""
        return identity(message) == self._of


def identity(request: Message) -> tuple[str | None, str | None]:
    """What all requests of one round have in common."""
    target = "params.uri" if request.method == "resources/read" else "params.name"
    return request.method, request.text(target)


def _declares(request: Message, question: Message) -> bool:
    """Whether the client of a request declares what a question needs."""
    lease = request.lease(_CAPABILITIES)
    declared = understood(None if lease is None else msgspec.json.decode(lease))
    return unoffered(declared, question.method, members_of(question.params)) is None


def unoffered(declared: dict[str, Any], method: object, params: dict[str, Raw]) -> str | None:
    """Return what a question needs that the capabilities of a client do not have; None: nothing."""
    if not isinstance(method, str) or CAPABILITY_OF.get(method) not in declared:
        return str(method)
    offered = declared[CAPABILITY_OF[method]]
    offered = offered if isinstance(offered, dict) else {}
    if method == "elicitation/create":
        mode = mode_of(params)
        # a client that names no mode has forms
        if mode not in (offered or ("form",)):
            return f"{method} in the mode {mode}"
    elif method == "sampling/createMessage" and {"tools", "toolChoice"} & {*params}:
        return None if "tools" in offered else f"{method} with tools"
    return None


def mode_of(params: dict[str, Raw]) -> str:
    """Return the mode of an elicitation, by the params of the question."""
    return str(msgspec.json.decode(params.get("mode", b'"form"')))


def embedded(question: Message) -> dict[str, Any]:
    """A question as an entry of ``inputRequests``."""
    params = members_of(question.params)
    for name in _LEGACY_ONLY:
        params.pop(name, None)
    return {"method": question.method, "params": params}


def decline(backend: Backend, question: Message) -> None:
    """Answer a question in place of the client."""
    if backend.link is None:
        return
    if question.method == "elicitation/create":
        backend.session.send_result(question, msgspec.json.encode({"action": "cancel"}))
    else:
        backend.session.send_error(question, codes.USER_REJECTED, "the client does not answer")
    backend.link.wrote()
