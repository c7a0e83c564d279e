"""Questions of a server to a client of another era.

A client of 2026-07-28 is asked in the answer to a request of its own (basic/patterns/mrtr of
2026-07-28). The request stays open at the legacy server. The client gets a handle as
``requestState``. Its next request with that handle brings the answers, and takes the place of the
first one.

A legacy client is asked by requests of its own revision. The server of 2026-07-28 has answered the
client's request with ``input_required``, and gets it again, with the answers.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    CAPABILITY_OF,
    LATEST_MODERN,
    META_CLIENT_CAPABILITIES,
    REVISIONS,
    understood,
)
from wirespeed.proxy.downstream import principal_of
from wirespeed.proxy.translation.request_edits import Suspended, open_requests
from wirespeed.proxy.translation.results import encode, members_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.upstream import Upstream
    from wirespeed.transport.backoff import Backoff

# Of a client of 2026-07-28: rounds that wait for it at a time, and questions that wait for a round.
MAX_OPEN_ROUNDS = 64
MAX_WAITING = 64
# Of a legacy client: rounds of one request, and questions of one round.
MAX_ROUNDS = 16
MAX_QUESTIONS = 16

INPUT_METHODS = REVISIONS[LATEST_MODERN].input_methods
_NOBODY = "no request of the client is open that may be answered with this question"
# Members of questions that 2026-07-28 does not have.
_LEGACY_ONLY = ("_meta", "task", "elicitationId")
META_CAPABILITIES = f"params._meta.{META_CLIENT_CAPABILITIES}"


class InputRequests:
    """The questions of legacy servers to one client of 2026-07-28, in rounds. It has ``seconds`` to
    answer one."""

    def __init__(self, downstream: Downstream, end: bytes, seconds: float) -> None:
        self._downstream = downstream
        self._seconds = seconds
        self._end = end
        self._open: dict[str, _Round] = {}
        self._questions: deque[tuple[Upstream, Message]] = deque()

    def ask(self, upstream: Upstream, question: Message) -> None:
        """The server has a question: ask the client in the answer to one of its requests."""
        for request in open_requests(self._downstream):
            if request.method in INPUT_METHODS and _declares(request, question):
                if len(self._open) >= MAX_OPEN_ROUNDS:
                    upstream.refuse(question, "the client has too many questions to answer")
                else:
                    self._begin(request, [(upstream, question)])
                return
        if self._open and len(self._questions) < MAX_WAITING:
            self._questions.append((upstream, question))  # the client will be back
        else:
            upstream.refuse(question, _NOBODY)

    def _begin(self, request: Message, questions: list[tuple[Upstream, Message]]) -> None:
        """Answer a request with questions."""
        handle = secrets.token_urlsafe(24)
        asked = {str(n): embedded(one) for n, (_, one) in enumerate(questions, 1)}
        parts = encode({"inputRequests": asked, "requestState": handle})
        result = parts[:-1] + b',"resultType":"input_required"' + self._end + b"}"
        self._open[handle] = _Round(
            identity(request),
            principal_of(self._downstream),
            questions,
            Suspended(self._downstream, request, result),
            self._downstream.loop.call_later(self._seconds, self._expire, handle),
        )

    def resume(self, message: Message, handle: str, responses: Raw | None) -> None:
        """A request brings the answers of the client. ProtocolError: it does not fit."""
        one = self._open.get(handle)
        if one is None or one.principal != principal_of(self._downstream):
            raise ProtocolError(
                codes.INVALID_PARAMS, "requestState is not known here, or has expired"
            )
        if one.identity != identity(message):
            raise ProtocolError(codes.INVALID_PARAMS, "requestState belongs to another request")
        given = members_of(responses) if responses is not None else {}
        if not all(bytes(value).lstrip().startswith(b"{") for value in given.values()):
            raise ProtocolError(codes.INVALID_PARAMS, "inputResponses must be objects")
        del self._open[handle]
        one.timer.cancel()
        missing = []
        for n, (upstream, question) in enumerate(one.questions, 1):
            response = given.get(str(n))
            if response is None:
                missing.append((upstream, question))
            elif upstream.link is not None:
                upstream.session.send_result(question, bytes(response))
                upstream.link.wrote()
        if not one.suspended.is_open:
            raise ProtocolError(
                codes.SERVER_LOST, "the server ended before it had answered the first request"
            )
        one.suspended.resume(message)
        while self._questions and self._downstream.is_open(message):
            upstream, question = self._questions.popleft()
            if _declares(message, question):
                missing.append((upstream, question))
            else:
                upstream.refuse(question, _NOBODY)
        if missing and self._downstream.is_open(message):
            self._begin(message, missing)

    def _expire(self, handle: str) -> None:
        """The client does not come back."""
        one = self._open.pop(handle)
        for upstream, question in one.questions:
            decline(upstream, question)
        one.suspended.drop()

    def close(self) -> None:
        """The client has left, or the server is gone."""
        for handle in list(self._open):
            self._open[handle].timer.cancel()
            self._expire(handle)
        while self._questions:
            decline(*self._questions.popleft())


class _Round(NamedTuple):
    identity: tuple[str | None, str | None]
    principal: bytes | None
    questions: list[tuple[Upstream, Message]]
    suspended: Suspended
    timer: asyncio.TimerHandle


def identity(request: Message) -> tuple[str | None, str | None]:
    """Return what all requests of one round have in common."""
    target = "params.uri" if request.method == "resources/read" else "params.name"
    return request.method, request.text(target)


def _declares(request: Message, question: Message) -> bool:
    """Whether the client of a request declares what a question needs."""
    lease = request.lease(META_CAPABILITIES)
    declared = understood(None if lease is None else msgspec.json.decode(lease))
    return unoffered(declared, question.method, members_of(question.params)) is None


def embedded(question: Message) -> dict[str, Any]:
    """Make an entry of ``inputRequests`` of a question."""
    params = members_of(question.params)
    for name in _LEGACY_ONLY:
        params.pop(name, None)
    return {"method": question.method, "params": params}


def decline(upstream: Upstream, question: Message) -> None:
    """Answer a question in place of the client."""
    if upstream.link is None:
        return
    if question.method == "elicitation/create":
        upstream.session.send_result(question, msgspec.json.encode({"action": "cancel"}))
    else:
        upstream.session.send_error(question, codes.USER_REJECTED, "the client does not answer")
    upstream.link.wrote()


# -- a legacy client -------------------------------------------------------------------------------


async def input_responses(
    downstream: Downstream,
    request: Message,
    result: dict[str, Raw],
    declared: dict[str, Any],
    n: int,
    pauses: Backoff,
) -> dict[str, Raw]:
    """Ask the client what a server wants to know. Returns what the next request has besides.

    ``n``: How many rounds there were. ``pauses``: Before rounds without questions. ProtocolError:
    the client cannot be asked, or does not answer; it is the answer to its request.
    """
    if n >= MAX_ROUNDS:
        raise ProtocolError(
            codes.INTERNAL_ERROR, f"the server wants input for the {n + 1}th time: it gets no more"
        )
    inputs = members_of(result.get("inputRequests"))
    if len(inputs) > MAX_QUESTIONS:
        raise ProtocolError(codes.INTERNAL_ERROR, "the server has too many questions at once")
    more: dict[str, Raw] = {}
    if "requestState" in result:
        more["requestState"] = result["requestState"]
    if not inputs:
        await asyncio.sleep(pauses.pause(n))
        return more
    questions = [members_of(one) for one in inputs.values()]
    asked = [
        asyncio.ensure_future(ask_client(downstream, request, one, declared)) for one in questions
    ]
    try:
        given = await asyncio.gather(*asked)
    finally:
        for one in asked:  # those that are open when another one has failed
            one.cancel()
    more["inputResponses"] = Raw(encode(dict(zip(inputs, given, strict=True))))
    return more


async def ask_client(
    downstream: Downstream, request: Message, question: dict[str, Raw], declared: dict[str, Any]
) -> Raw:
    """Ask the client one question, and return its answer. ProtocolError: the client cannot be
    asked, or does not answer."""
    method = msgspec.json.decode(question.get("method", b"null"))
    params = members_of(question.get("params"))
    what = unoffered(declared, method, params)
    if what is not None:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"the server asks for {what}, which the client does not offer"
        )
    version = "" if downstream.revision is None else downstream.revision.version
    if method == "elicitation/create":
        if mode_of(params) == "url":
            params.setdefault("elicitationId", Raw(encode(secrets.token_urlsafe(16))))
        elif version < "2025-11-25":
            params.pop("mode", None)
    try:
        answer = await downstream.ask(method, encode(params), request.ref)
    except RemoteError as exc:
        raise ProtocolError(exc.code, f"the client refused {method}: {exc.message}") from exc
    return answer


# -- both ------------------------------------------------------------------------------------------


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
