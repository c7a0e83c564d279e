"""Servers that do not read: callers wait, memory is bounded, closing releases all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lab.client import LEGACY, Fake, alive, text_result, turns, until
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import CallTimeout, ConnectionClosed
from wirespeed.limits import Limits

pytestmark = pytest.mark.compiled

Make = Callable[..., Fake]

LIMITS = Limits(output_high=256 << 10, output_low=64 << 10)
PAYLOAD = {"data": "x" * (64 << 10)}

# Reads no more after the first call; what the pipe holds is all that it ever takes.
STOPS = LEGACY | {"tools/call:stop": [["result", text_result()], ["stop"]]}


async def stuck(client: Client, n: int) -> list[asyncio.Task[Any]]:
    """n calls at a server that has stopped to read; the link is full afterwards."""
    await client.call_tool("stop")
    calls = [asyncio.create_task(client.call_tool("echo", PAYLOAD)) for _ in range(n)]
    await until(lambda: client.counters["bytes_queued"] >= LIMITS.output_high)
    await turns()
    return calls


async def test_callers_wait_and_memory_is_bounded(fake: Make) -> None:
    server = fake(STOPS, shutdown_grace=0.05)
    client = Client(server.target, era="legacy", limits=LIMITS, timeout=None)
    await client.open()
    calls = await stuck(client, 500)
    counters = client.counters
    assert counters["bytes_queued"] <= LIMITS.output_high + (66 << 10)
    # the others were not even encoded
    assert counters["requests_outstanding"] < 50
    assert not any(call.done() for call in calls)
    await client.close()
    for call in calls:
        with pytest.raises(ConnectionClosed):
            await call
    assert not any(map(alive, server.pids))


async def test_a_timeout_holds_while_a_call_waits_for_room(fake: Make) -> None:
    server = fake(STOPS, shutdown_grace=0.05)
    async with Client(server.target, era="legacy", limits=LIMITS, timeout=None) as client:
        calls = await stuck(client, 50)
        for request in (
            client.call_tool("echo", timeout=0.02),
            client.list_tools(timeout=0.02),
            client.ping(timeout=0.02),
        ):
            with raises(CallTimeout):
                await request
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_waiting_calls_go_on_in_their_order(fake: Make) -> None:
    server = fake(LEGACY | {"tools/call:slow": [["sleep", 0.2], ["result", text_result()]]})
    async with Client(server.target, era="legacy", limits=LIMITS, timeout=None) as client:
        slow = asyncio.create_task(client.call_tool("slow"))
        await turns(1)
        calls = [
            asyncio.create_task(client.call_tool("echo", PAYLOAD | {"i": i})) for i in range(100)
        ]
        await turns()
        given_up = calls[40:60]
        for call in given_up:
            call.cancel()
        await asyncio.wait([slow, *calls])
        assert all(call.cancelled() for call in given_up)
        assert all(c.result().text == "ok" for c in calls if c not in given_up)
    sent = [m["params"]["arguments"]["i"] for m in server.sent("tools/call")[1:]]
    assert sent == sorted(sent)
    assert set(sent) >= set(range(40)) | set(range(60, 100))


async def test_callers_are_released_by_a_crash(fake: Make) -> None:
    server = fake(
        LEGACY | {"tools/call:stop": [["result", text_result()], ["sleep", 0.2], ["exit", 3]]}
    )
    async with Client(server.target, era="legacy", limits=LIMITS, timeout=None) as client:
        calls = await stuck(client, 50)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {str(r).partition(":")[0] for r in results} <= {
            "the server closed its output",
            "the link to the server broke ([Errno 32] Broken pipe)",
        }
        assert all("status 3" in str(r) for r in results)


async def test_answers_and_pings_pass_while_calls_wait(fake: Make) -> None:
    """A server that answers but is slow to read; its own ping is answered meanwhile."""
    ping = ["raw", '{"jsonrpc":"2.0","id":"p","method":"ping"}']
    server = fake(
        LEGACY | {"tools/call:slow": [ping, ["sleep", 0.1], ["result", text_result("slow")]]}
    )
    async with Client(server.target, era="legacy", limits=LIMITS, timeout=None) as client:
        slow = asyncio.create_task(client.call_tool("slow"))
        await turns(1)
        calls = [asyncio.create_task(client.call_tool("echo", PAYLOAD)) for _ in range(60)]
        assert (await slow).text == "slow"
        await asyncio.wait(calls)
    assert {"jsonrpc": "2.0", "id": "p", "result": {}} in server.lines


async def test_a_flood_of_notifications(fake: Make) -> None:
    server = fake(LEGACY | {"tools/call": [["flood", 20_000], ["result", text_result()]]})
    seen: list[Any] = []
    async with Client(
        server.target, era="legacy", on_log=lambda entry: seen.append(entry.data)
    ) as client:
        assert (await client.call_tool("echo")).text == "ok"
    assert seen == list(range(20_000))
