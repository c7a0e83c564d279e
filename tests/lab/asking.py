"""What tests of answering share: servers that ask, in both eras."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.client import text_result, until
from lab.peer import LEGACY_PEER, MODERN_PEER, LinePeer, Rules, Talk, nothing

from wirespeed import Client

LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ELICIT = {"message": "Your name?", "requestedSchema": FORM}
URL = {
    "mode": "url",
    "message": "Go there",
    "url": "https://example.com/x",
    "elicitationId": "e1",
}
SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "2 + 2?"}}],
    "maxTokens": 10,
}


def legacy(version: str = "2025-11-25") -> Rules:
    """Rules of a legacy server that speaks one revision."""
    rules = copy.deepcopy(LEGACY_PEER)
    assert isinstance(rules["initialize"], dict)
    rules["initialize"]["protocolVersion"] = version
    return rules


def declared(peer: LinePeer) -> dict[str, Any]:
    """What a client declared to a legacy server."""
    [message] = peer.sent("initialize")
    capabilities: dict[str, Any] = message["params"]["capabilities"]
    return capabilities


async def answer(talk: Talk, id: Any) -> dict[str, Any]:
    """The client's answer to a request of this id, when it is there."""

    def found() -> list[dict[str, Any]]:
        return [m for m in talk.messages if "method" not in m and m.get("id") == id]

    await until(found)
    return found()[0]


async def ask(talk: Talk, method: str, params: Any = None, id: Any = 7) -> dict[str, Any]:
    """Ask the client something, and wait for its answer."""
    more = {} if params is None else {"params": params}
    await talk.send(id=id, method=method, **more)
    return await answer(talk, id)


async def asked(
    folder: Path,
    *questions: tuple[str, Any],
    version: str = "2025-11-25",
    **options: Any,
) -> list[dict[str, Any]]:
    """What a client with these options answers a legacy server, one question after another."""
    async with LinePeer(legacy(version), folder) as peer, Client(peer.url, **options):
        talk = await peer.talk(0)
        return [await ask(talk, *question, id=n) for n, question in enumerate(questions)]


def required(
    requests: Mapping[str, Any] | None = None, state: Any = None, **more: Any
) -> dict[str, Any]:
    """A result that wants input."""
    result: dict[str, Any] = {"resultType": "input_required", **more}
    if requests is not None:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


def elicit(**params: Any) -> dict[str, Any]:
    """An input request."""
    return {"method": "elicitation/create", "params": ELICIT | params}


DONE = text_result("done") | {"resultType": "complete"}


def modern(results: Iterable[dict[str, Any]], method: str = "tools/call") -> Rules:
    """Rules of a modern server that answers one method with one result after another; with none
    once these are used up."""
    rest = iter(results)

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        result = next(rest, None)
        if result is not None:
            await talk.result(message, result)

    return MODERN_PEER | {method: give, "notifications/cancelled": nothing}


def params_of(peer: LinePeer, method: str = "tools/call") -> list[dict[str, Any]]:
    """The params of each request of a method, without ``_meta``."""
    sent = []
    for message in peer.sent(method):
        params = dict(message["params"])
        params.pop("_meta", None)
        sent.append(params)
    return sent


class Gate:
    """A handler that waits until it is let on, and notes what became of it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.begun = 0
        self.cancelled = 0
        self.open = asyncio.Event()

    async def __call__(self, request: Any) -> Any:
        self.begun += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.answer

    async def wait(self, n: int = 1) -> None:
        await until(lambda: self.begun >= n)
