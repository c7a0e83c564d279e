"""MemoryLink: two endpoints in one process, with the flow control of a real stream."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from lab.link import server_of

from wirespeed import Client
from wirespeed.errors import ConnectionClosed

pytestmark = pytest.mark.smoke


async def test_many_large_answers_pass_a_small_outbox() -> None:
    async with Client(server_of(output_high=10_000, output_low=100)) as client:
        results = await asyncio.gather(
            *(client.call_tool("fill", {"size": 8000 + i}) for i in range(100))
        )
        assert [len(r.content[0].text) for r in results] == [8000 + i for i in range(100)]


async def test_a_tool_that_waits_for_room_goes_on() -> None:
    async with Client(server_of(output_high=10_000, output_low=100)) as client:
        result = await client.call_tool("burst", {"n": 5}, timeout=20)
        assert result.content[0].text == "burst"


async def test_more_calls_than_the_limit_wait_their_turn() -> None:
    async with Client(server_of(max_in_flight=2, max_waiting=3)) as client:
        results = await asyncio.gather(*(client.call_tool("fill", {"size": i}) for i in range(200)))
        assert [len(r.content[0].text) for r in results] == list(range(200))


async def test_closing_the_client_ends_the_server_without_waiting() -> None:
    ended: list[str] = []
    server = server_of()

    @server.tool
    async def watch() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("watch")
        return "never"

    async with Client(server) as client:
        waiting = asyncio.create_task(client.call_tool("watch", {}))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    while server.service.connections:
        await asyncio.sleep(0.001)
    assert ended == ["watch"]


async def test_a_drain_sends_what_is_held_back_and_then_closes() -> None:
    """Not only when the grace time is over."""
    server = server_of()
    server.service.shutdown_grace = 3600
    client = Client(server)
    await client.open()
    await client.list_tools()  # all that the handshake says has arrived
    calls = [asyncio.create_task(client.call_tool("fill", {"size": 300_000})) for _ in range(3)]
    (connection,) = server.service.connections
    before = connection.session.counters["messages_in"]
    while connection.session.counters["messages_in"] < before + 3:
        await asyncio.sleep(0)
    connection.drain()
    await connection.closed
    for result in await asyncio.gather(*calls):
        assert len(result.content[0].text) == 300_000
    with contextlib.suppress(ConnectionClosed):
        await client.close()


async def test_a_server_that_is_gone_fails_the_calls() -> None:
    server = server_of()
    client = Client(server)
    await client.open()
    waiting = asyncio.create_task(client.call_tool("hang", {}))
    await asyncio.sleep(0.01)
    (connection,) = server.service.connections
    connection.abort()
    with pytest.raises(ConnectionClosed):
        await waiting
    await client.close()


async def test_two_clients_of_one_server_do_not_mix() -> None:
    server = server_of()
    async with Client(server) as one, Client(server) as other:
        results = await asyncio.gather(
            *(c.call_tool("fill", {"size": n}) for n in range(50) for c in (one, other))
        )
        assert [len(r.content[0].text) for r in results] == [n // 2 for n in range(100)]
        assert len(server.service.connections) == 2
