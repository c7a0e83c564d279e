"""Many calls at once through every door of HTTP, with limits that make most of them wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lab.serve import serving

from wirespeed import Client, Context, Http, HttpOptions, Limits, Server

N = 40
DOORS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "modern": ({}, "/mcp", "modern"),
    "legacy": ({}, "/mcp", "legacy"),
    "stateless": ({"stateless": True}, "/mcp", "legacy"),
    "sse": ({"sse_path": "/sse"}, "/sse", "legacy"),
}
LIMITS = {
    "one": Limits(max_in_flight=1),
    "two, and two wait": Limits(max_in_flight=2, max_waiting=2),
    "bytes": Limits(max_in_flight_bytes=1_000, max_waiting_bytes=1_000),
    "output": Limits(output_high=4_000, output_low=1_000),
}
doors = pytest.mark.parametrize("door", DOORS)
limits = pytest.mark.parametrize("limit", LIMITS)


def make(limit: str) -> Server:
    server = Server("doors", limits=LIMITS[limit])

    @server.tool
    async def double(n: int, text: str) -> str:
        await asyncio.sleep(n % 3 / 1000)
        return text + text

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        for i in range(n):
            await ctx.progress(i + 1, message="x" * 500)
        return "counted"

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    return server


@asynccontextmanager
async def client(door: str, limit: str, **more: Any) -> AsyncIterator[Client]:
    options, path, era = DOORS[door]
    served = serving(make(limit), "http://127.0.0.1:0/mcp", http=HttpOptions(**options))
    async with asyncio.timeout(40), served as place:
        target = Http(f"http://127.0.0.1:{place.port}{path}", **more)
        async with Client(target, era=era) as found:
            yield found


@limits
@doors
async def test_every_call_ends(door: str, limit: str) -> None:
    async with client(door, limit) as one:
        calls = [one.call_tool("double", {"n": n, "text": f"{n}" * 300}) for n in range(N)]
        texts = [result.text for result in await asyncio.gather(*calls)]
        assert texts == [f"{n}" * 600 for n in range(N)]


@doors
async def test_every_call_of_a_client_with_few_connections_ends(door: str) -> None:
    async with client(door, "one", max_connections=2) as one:
        calls = [one.call_tool("double", {"n": n, "text": f"{n}"}) for n in range(N)]
        texts = [result.text for result in await asyncio.gather(*calls)]
        assert texts == [f"{n}{n}" for n in range(N)]


@limits
@doors
async def test_every_call_that_reports_progress_ends(door: str, limit: str) -> None:
    seen: list[list[float]] = [[] for _ in range(8)]
    async with client(door, limit) as one:
        calls = [
            one.call_tool("count", {"n": 20}, on_progress=lambda n, *_, to=to: to.append(n))
            for to in seen
        ]
        assert [result.text for result in await asyncio.gather(*calls)] == ["counted"] * 8
    assert all(numbers == [*range(1, 21)] for numbers in seen)


@pytest.mark.parametrize("limit", ["one", "bytes", "output"])
@doors
async def test_calls_behind_calls_that_are_given_up_end(door: str, limit: str) -> None:
    async with client(door, limit) as one:
        for _ in range(3):
            stuck = [asyncio.ensure_future(one.call_tool("wait", {})) for _ in range(6)]
            calls = [one.call_tool("double", {"n": n, "text": "x"}) for n in range(6)]
            rest = asyncio.gather(*calls)
            await asyncio.sleep(0.05)
            for call in stuck:
                call.cancel()
            assert [result.text for result in await rest] == ["xx"] * 6
