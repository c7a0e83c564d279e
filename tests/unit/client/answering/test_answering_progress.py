"""Handlers that say how far they are (basic/utilities/progress of the legacy revisions)."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from lab.peer import LEGACY_PEER, LinePeer, Talk
from lab.wording import raises

from wirespeed import Client, Context, Server, report_progress
from wirespeed.types import SampleResult

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SAMPLE = {"messages": [], "maxTokens": 9}
DONE = SampleResult(content="hello", model="m")


class Asking:
    """A server of one revision whose tool asks, and what it heard meanwhile."""

    def __init__(self, version: str) -> None:
        self.server = server = Server("asks", versions=[version])
        self.told: list[Any] = []

        @server.tool
        async def ask(ctx: Context) -> str:
            def tell(*how: Any) -> None:
                self.told.append(how)

            answer = await ctx.sample("Hi", max_tokens=9, on_progress=tell)
            return answer.text

        @server.tool
        async def plain(ctx: Context) -> str:
            return (await ctx.sample("Hi", max_tokens=9)).text


async def on_loop(request: Any) -> SampleResult:
    for n in (1, 2, 2, 1.5, 3):
        report_progress(n, 3, f"step {n}")
    await asyncio.sleep(0)
    report_progress(4)
    return DONE


def in_thread(request: Any) -> SampleResult:
    report_progress(1)
    report_progress(2)
    return DONE


@pytest.mark.parametrize("version", LEGACY)
async def test_a_handler_tells_how_far_it_is(version: str, recorder: Any) -> None:
    asking = Asking(version)
    async with Client(asking.server, on_sample=on_loop) as client:
        assert client.protocol_version == version
        assert (await client.call_tool("ask")).text == "hello"
    words = [f"step {n}" if version > "2025" else None for n in (1, 2, 3)]
    rising = list(zip((1, 2, 3), (3, 3, 3), words, strict=True))
    assert asking.told == [*rising, (4, None, None)]
    assert ("client", "notification", "notifications/progress") in recorder.judged(version)


async def test_a_handler_in_a_thread_does_so() -> None:
    asking = Asking("2025-11-25")
    async with Client(asking.server, on_sample=in_thread) as client:
        assert (await client.call_tool("ask")).text == "hello"
    assert asking.told == [(1, None, None), (2, None, None)]


@pytest.mark.parametrize(("version", "tool"), [("2025-11-25", "plain"), ("2026-07-28", "ask")])
async def test_nothing_is_told_where_nobody_asked(version: str, tool: str, recorder: Any) -> None:
    asking = Asking(version)
    async with Client(asking.server, on_sample=on_loop) as client:
        assert (await client.call_tool(tool)).text == "hello"
    assert asking.told == []
    assert ("client", "notification", "notifications/progress") not in recorder.judged()


async def test_outside_of_a_handler_and_after_it_nothing_is_told() -> None:
    report_progress(1)
    asking = Asking("2025-11-25")
    late: list[asyncio.Task[None]] = []
    gate = asyncio.Event()

    async def on_sample(request: Any) -> SampleResult:
        async def later() -> None:
            await gate.wait()
            report_progress(1)

        late.append(asyncio.ensure_future(later()))
        return DONE

    async with Client(asking.server, on_sample=on_sample) as client:
        assert (await client.call_tool("ask")).text == "hello"
        gate.set()
        await late[0]
        await client.ping()
    assert asking.told == []


async def test_a_handler_that_asks_another_server_tells_the_right_one() -> None:
    outer, inner = Asking("2025-11-25"), Asking("2026-07-28")

    async def model(request: Any) -> SampleResult:
        report_progress(5)  # of the inner question, which nobody wants to know
        return DONE

    async with Client(inner.server, on_sample=model) as other:

        async def on_sample(request: Any) -> SampleResult:
            report_progress(1)
            assert (await other.call_tool("ask")).text == "hello"
            report_progress(2)
            return DONE

        async with Client(outer.server, on_sample=on_sample) as client:
            assert (await client.call_tool("ask")).text == "hello"
    assert [how[0] for how in outer.told] == [1, 2] and inner.told == []


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not(number: float) -> None:
    with raises(ValueError):
        report_progress(number)
    with raises(ValueError):
        report_progress(1, number)


@pytest.mark.parametrize("token", [1.5, True, None, [1], {}])
async def test_tokens_that_are_none(token: Any) -> None:
    async def ask(talk: Talk, message: dict[str, Any]) -> None:
        params = SAMPLE | {"_meta": {"progressToken": token}}
        await talk.send(id="q", method="sampling/createMessage", params=params)
        await talk.text(message, "asked")

    async with (
        LinePeer(LEGACY_PEER | {"tools/call": ask}) as peer,
        Client(peer.url, era="legacy", on_sample=on_loop) as client,
    ):
        await client.call_tool("any")
        talk = await peer.talk(0)
        while not any(message.get("id") == "q" for message in talk.messages):
            await client.ping()
        assert talk.sent("notifications/progress") == []
