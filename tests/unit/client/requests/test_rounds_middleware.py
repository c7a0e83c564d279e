"""Middleware around the rounds of a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.asking import DONE, elicit, modern, required
from lab.client import text_result
from lab.peer import Talk, with_client
from lab.rounds import call, fail, name

from wirespeed.client.requests.middleware import OutboundNext, OutboundRequest
from wirespeed.errors import CallTimeout, InputNeeded, RemoteError
from wirespeed.types import ElicitParams


async def stamped(request: OutboundRequest, call_next: OutboundNext) -> Any:
    """Marks what passes with what it would have to sign."""
    params = json.loads(request.params) if request.params else {}
    request.meta["com.example/signed"] = sorted(params)
    return await call_next(request)


async def test_each_round_passes_the_middleware(tmp_path: Path) -> None:
    """Inside the passage of its call."""
    seen: list[Any] = []

    async def look(request: OutboundRequest, call_next: OutboundNext) -> Any:
        seen.append(("begins", request.method, request.name))
        try:
            result = await call_next(request)
        except InputNeeded as needed:
            seen.append(list(needed.requests))
            raise
        seen.append(result.text)
        return result

    results = [required({"a": elicit()}, "s1"), required({"b": elicit()}, "s2"), DONE]
    async with with_client(
        tmp_path, modern(results), on_elicit=name, middleware=[look, stamped]
    ) as (client, peer):
        await call(client, peer)
        begins = ("begins", "tools/call", "book")
        assert seen == [begins, begins, ["b"], begins, "done", "done"]
        signed = [m["params"]["_meta"]["com.example/signed"] for m in peer.sent("tools/call")]
        again = ["arguments", "inputResponses", "name", "requestState"]
        assert signed == [[], again, again]


async def test_a_round_that_is_tried_again_asks_nobody_again(tmp_path: Path) -> None:
    asked = 0

    async def count(request: ElicitParams) -> Any:
        nonlocal asked
        asked += 1
        return {"name": "octocat"}

    async def persistent(request: OutboundRequest, call_next: OutboundNext) -> Any:
        try:
            return await call_next(request)
        except RemoteError:
            return await call_next(request)

    results = iter([required({"a": elicit()}, "s"), None, DONE])

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        result = next(results)
        if result is None:
            await talk.send(id=message["id"], error={"code": -31000, "message": "busy"})
        else:
            await talk.result(message, result)

    rules = modern([]) | {"tools/call": give}
    async with with_client(tmp_path, rules, on_elicit=count, middleware=[persistent]) as (
        client,
        peer,
    ):
        _, second, third = await call(client, peer)
        assert second == third and asked == 1


async def test_what_is_resumed_passes_the_middleware(tmp_path: Path) -> None:
    results = [required({"a": elicit()}, "s"), DONE]
    options: Any = {"max_rounds": 0, "on_elicit": name, "middleware": [stamped]}
    async with with_client(tmp_path, modern(results), **options) as (client, peer):
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("book", {"seats": 2}, meta={"com.example/x": 1})
        result = await client.resume(caught.value, {"a": {"name": "octocat"}})
        assert result.text == "done"
        _, second = peer.sent("tools/call")
        assert second["params"]["_meta"]["com.example/x"] == 1
        assert "inputResponses" in second["params"]["_meta"]["com.example/signed"]


async def test_middleware_may_end_a_round(tmp_path: Path) -> None:
    """With an exception, a time limit, or a result of its own."""
    what: Any = None

    async def meddle(request: OutboundRequest, call_next: OutboundNext) -> Any:
        if request.params is None:
            return await call_next(request)
        if what == "fails":
            raise LookupError("no")
        if what == "hurries":
            request.timeout = 0.01
            return await call_next(request)
        return text_result("its own")

    first = required({"a": elicit()}, "s")

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        if "inputResponses" not in message["params"]:
            await talk.result(message, first)

    rules = modern([]) | {"tools/call": give}
    async with with_client(tmp_path, rules, on_elicit=name, middleware=[meddle]) as (client, peer):
        what = "fails"
        assert isinstance(await fail(client, peer), LookupError)
        what = "hurries"
        assert isinstance(await fail(client, peer), CallTimeout)
        what = "answers"
        assert await client.call_tool("book") == text_result("its own")
