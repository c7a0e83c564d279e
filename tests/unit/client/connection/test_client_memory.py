"""A client of a server in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest
from lab.client import Run, turns, until
from lab.wording import raises

from wirespeed import Client, Context, Server
from wirespeed.client.connection.connection import ClientConnection
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.errors import CallTimeout, ConnectionClosed, RemoteError
from wirespeed.limits import Limits
from wirespeed.protocol import codes

pytestmark = [pytest.mark.smoke, pytest.mark.compiled]


def lab(**options: Any) -> Server:
    server = Server("lab", "3", instructions="test", **options)

    @server.tool
    async def echo(value: Any) -> Any:
        await asyncio.sleep(0)
        return {"value": value}

    @server.tool
    def size(text: str) -> int:
        return len(text)

    @server.tool(inline=True)
    def fill(n: int) -> str:
        return "x" * n

    @server.tool
    async def fail() -> None:
        raise LookupError("nothing there")

    @server.tool
    async def steps(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i, n, f"step {i}")
            await ctx.log("warning", {"i": i})
        return "done"

    return server


async def test_all_of_it(era: Any) -> None:
    server = lab()
    seen: list[Any] = []
    logs: list[Any] = []
    async with Client(server, era=era, log_level="info", on_log=logs.append) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "modern": "2026-07-28"}[era]
        assert client.server_info == {"name": "lab", "version": "3"}
        assert client.instructions == "test"
        assert len(await client.list_tools()) == 5
        result = await client.call_tool("echo", {"value": [1, "ü", None]})
        assert result.structured_content == {"value": [1, "ü", None]}
        failed = await client.call_tool("fail")
        assert failed.is_error and failed.text == "nothing there"
        with raises(RemoteError, code=-32602):
            await client.call_tool("nope")
        await client.call_tool("steps", {"n": 3}, on_progress=lambda *s: seen.append(s))
        await client.ping()
    assert not server.service.connections
    assert seen == [(float(i), 3.0, f"step {i}") for i in range(3)]
    assert [entry.data for entry in logs] == [{"i": i} for i in range(3)]


async def test_auto_is_modern_and_a_legacy_server_legacy(once: Run) -> None:
    async with Client(lab()) as client:
        assert client.protocol_version == "2026-07-28"
    async with Client(lab(versions=["2024-11-05"])) as client:
        assert client.protocol_version == "2024-11-05"


async def test_large_payloads_both_ways(era: Any) -> None:
    async with Client(lab(), era=era) as client:
        text = "ü" * (4 << 20)  # 8 MiB
        assert (await client.call_tool("size", {"text": text})).structured_content == {
            "result": len(text)
        }
        assert len((await client.call_tool("fill", {"n": 8 << 20})).text) == 8 << 20
        echoed = await client.call_tool("echo", {"value": text})
        assert echoed.structured_content["value"] == text


async def test_back_pressure_both_ways() -> None:
    """Many large calls through small queues: slower, never stuck, never more than a bound."""
    limits = Limits(output_high=64 << 10, output_low=16 << 10, max_in_flight=4, max_waiting=8)
    server = lab(limits=limits)
    text = "x" * (200 << 10)
    most = 0
    async with Client(server, limits=limits) as client:

        async def one() -> None:
            nonlocal most
            result = await client.call_tool("echo", {"value": text})
            most = max(most, client.counters["bytes_queued"])
            assert result.structured_content["value"] == text

        await asyncio.gather(*(one() for _ in range(60)))
    # at most one message beyond the mark
    assert most <= limits.output_high + len(text) + 1000


async def test_many_small_calls_through_small_queues() -> None:
    limits = Limits(output_high=4096, output_low=1024, max_in_flight=2, max_waiting=2)
    async with Client(lab(limits=limits), limits=limits) as client:
        results = await asyncio.gather(
            *(client.call_tool("echo", {"value": i}) for i in range(2000))
        )
        assert [r.structured_content["value"] for r in results] == list(range(2000))


async def test_a_tool_removed_while_it_is_called(era: Any) -> None:
    server = lab()
    began, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        began.set()
        await go.wait()
        return "finished"

    async with Client(server, era=era) as client:
        call = asyncio.create_task(client.call_tool("slow"))
        await began.wait()
        server.remove_tool("slow")
        with raises(RemoteError, code=-32602):
            await client.call_tool("slow")
        go.set()
        assert (await call).text == "finished"


async def test_cancellation_reaches_the_handler(era: Any) -> None:
    server = lab()
    ended: list[str] = []
    began = asyncio.Event()

    @server.tool
    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async with Client(server, era=era) as client:
        call = asyncio.create_task(client.call_tool("hang"))
        await began.wait()
        call.cancel()
        await until(lambda: len(ended) == 1)
        with pytest.raises(CallTimeout):
            await client.call_tool("hang", timeout=0.01)
        await until(lambda: len(ended) == 2)
        began.clear()
        last = asyncio.create_task(client.call_tool("hang"))
        await began.wait()
    # a closed client waits for no grace time of the server
    assert len(ended) == 3
    with pytest.raises(ConnectionClosed):
        await last


async def test_a_handler_that_ignores_its_end(caplog: pytest.LogCaptureFixture) -> None:
    server = lab(shutdown_grace=0.05)
    began, end = asyncio.Event(), asyncio.Event()

    @server.tool
    async def stubborn() -> None:
        began.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    async with Client(server) as client:
        call = asyncio.create_task(client.call_tool("stubborn"))
        await began.wait()
    with pytest.raises(ConnectionClosed):
        await call
    end.set()
    await turns()
    assert "1 handlers of lab ignore their cancellation" in caplog.text


async def test_two_clients_of_one_server() -> None:
    server = lab()
    lists: dict[str, int] = {"a": 0, "b": 0}

    def count(name: str) -> Any:
        def changed(tools: Any) -> None:
            lists[name] += 1

        return changed

    async with (
        Client(server, era="legacy", on_tools_changed=count("a")) as a,
        Client(server, era="modern", on_tools_changed=count("b")) as b,
    ):
        results = await asyncio.gather(
            *(c.call_tool("echo", {"value": i}) for i in range(100) for c in (a, b))
        )
        assert [r.structured_content["value"] for r in results] == [
            i for i in range(100) for _ in "ab"
        ]
        server.remove_tool("size")
        await until(lambda: lists == {"a": 1, "b": 1})
        await a.close()
        assert (await b.call_tool("fill", {"n": 1})).text == "x"
        assert len(server.service.connections) == 1


async def test_handlers_that_call_other_servers() -> None:
    """A chain of servers, each asking the next with a client of its own, and back."""
    inner, middle = lab(), Server("middle")
    clients: dict[str, Client] = {}

    @middle.tool
    async def relay(value: int) -> Any:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(clients["inner"].call_tool("echo", {"value": value + i}))
                for i in range(3)
            ]
        return {"values": [call.result().structured_content["value"] for call in calls]}

    @inner.tool
    async def back(value: int) -> Any:
        return (await clients["middle"].call_tool("relay", {"value": value})).structured_content

    @middle.tool
    async def alone(value: int) -> Any:
        async with Client(inner) as client:  # opened and closed inside a handler
            return (await client.call_tool("echo", {"value": value})).structured_content

    async with Client(inner) as clients["inner"], Client(middle) as clients["middle"]:
        results = await asyncio.gather(
            *(clients["inner"].call_tool("back", {"value": i}) for i in range(50))
        )
        for i, result in enumerate(results):
            assert result.structured_content == {"values": [i, i + 1, i + 2]}
        result = await clients["middle"].call_tool("alone", {"value": 7})
        assert result.structured_content == {"value": 7}


async def test_a_handler_that_closes_its_own_client() -> None:
    server = lab()
    clients: list[Client] = []

    @server.tool
    async def hang_up() -> None:
        await clients[0].close()

    client = Client(server)
    clients.append(client)
    await client.open()
    with pytest.raises(ConnectionClosed):
        await client.call_tool("hang_up")
    await client.close()


async def test_a_server_that_ends_the_connection() -> None:
    server = lab()
    async with Client(server) as client:
        for connection in list(server.service.connections):
            connection.abort()
        with raises(ConnectionClosed):
            await client.call_tool("echo", {"value": 1})
        with raises(ConnectionClosed):
            await client.call_tool("echo", {"value": 1})
        await client.restart()
        assert (await client.call_tool("fill", {"n": 1})).text == "x"


async def test_a_server_that_drains_answers_first() -> None:
    server = lab()
    began, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        began.set()
        await go.wait()
        return "finished"

    async with Client(server) as client:
        call = asyncio.create_task(client.call_tool("slow"))
        await began.wait()
        for connection in list(server.service.connections):
            connection.drain()
        late = asyncio.create_task(client.call_tool("echo", {"value": 1}))
        await turns()
        go.set()
        assert (await call).text == "finished"
        with pytest.raises(RemoteError) as refused:
            await late
        assert refused.value.code == codes.SHUTTING_DOWN


async def test_nothing_is_kept() -> None:
    server = lab()

    for _ in range(5):
        async with Client(server) as client:
            await client.call_tool("echo", {"value": "x" * 100_000})
    del client
    await turns()
    gc.collect()
    kept = Client | Lifecycle | ClientConnection
    assert not [one for one in gc.get_objects() if isinstance(one, kept)]
    assert len(asyncio.all_tasks()) == 1
