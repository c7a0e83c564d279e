"""Questions of a server of 2026-07-28 to a client of a legacy era: the rounds of one request.

The server answers a request with ``input_required``. The client is asked by requests of its own
revision, then the server gets the request again, with the answers (basic/patterns/mrtr).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol import codes
from wirespeed.proxy.translation.results import encode, members_of
from wirespeed.proxy.translation.rounds import mode_of, unoffered

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.front import Front

# Rounds of one request, questions of one round, and seconds before a round without questions.
MAX_ROUNDS = 16
MAX_QUESTIONS = 16
DELAY = 0.05


async def answers(
    front: Front, request: Message, result: dict[str, Raw], declared: dict[str, Any], n: int
) -> dict[str, Raw]:
    """Ask the client what a server wants to know. Returns what the next request has besides.

    ``n``: How many rounds there were. ProtocolError: the client cannot be asked, or does not
    answer; it is the answer to its request.
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
        await asyncio.sleep(min(DELAY * 2**n, 5.0))
        return more
    questions = [members_of(one) for one in inputs.values()]
    asked = [asyncio.ensure_future(put(front, request, one, declared)) for one in questions]
    try:
        given = await asyncio.gather(*asked)
    finally:
        for one in asked:  # those that are open when another one has failed
            one.cancel()
    more["inputResponses"] = Raw(encode(dict(zip(inputs, given, strict=True))))
    return more


async def put(
    front: Front, request: Message, question: dict[str, Raw], declared: dict[str, Any]
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
    version = "" if front.revision is None else front.revision.version
    if method == "elicitation/create":
        if mode_of(params) == "url":
            params.setdefault("elicitationId", Raw(encode(secrets.token_urlsafe(16))))
        elif version < "2025-11-25":
            params.pop("mode", None)
    try:
        answer = await front.ask(method, encode(params), request.ref)
    except RemoteError as exc:
        raise ProtocolError(exc.code, f"the client refused {method}: {exc.message}") from exc
    return answer
