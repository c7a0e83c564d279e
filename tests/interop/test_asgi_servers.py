"""Our application below the ASGI servers that people use, alone and mounted in FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from typing import Any

import pytest
from asgi_servers import COMMANDS, SECONDS, running

from wirespeed import Client

FACTORY = {"uvicorn": ["--factory"], "granian": ["--factory"], "hypercorn": []}
WITHOUT_LIFESPAN = {"uvicorn": ["--lifespan", "off"], "granian": ["--interface", "asginl"]}


async def use(url: str, era: Any) -> None:
    """Calls with a result, with a stream of events before it, and many at once."""
    seen: list[float] = []
    async with Client(url, era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        result = await client.call_tool(
            "count", {"n": 20}, on_progress=lambda progress, total, message: seen.append(progress)
        )
        assert result.data == 20
        calls = [client.call_tool("add", {"a": i, "b": i}) for i in range(50)]
        assert [result.data for result in await asyncio.gather(*calls)] == [
            2 * i for i in range(50)
        ]
    assert seen == [float(i + 1) for i in range(20)]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("peer", COMMANDS)
async def test_calls(peer: str, era: str) -> None:
    async with running(peer) as server:
        await use(server.url(), era)
    assert server.said.count("started") == server.said.count("ended") == 1, server.said


@pytest.mark.parametrize("peer", COMMANDS)
async def test_mounted_in_fastapi(peer: str) -> None:
    app = "asgi_app:mounted" if FACTORY[peer] else "asgi_app:mounted()"
    async with running(peer, *FACTORY[peer], app=app) as server:
        for era in ("modern", "legacy"):
            await use(server.url("/tools/mcp"), era)
    assert server.said.count("own began") == server.said.count("own has gone") == 1, server.said
    assert server.said.count("started") == server.said.count("ended") == 1, server.said


SLASHES = {
    "/tools/mcp": 200,  # of `asgi()`, mounted at "/tools"
    "/tools/mcp/": 200,
    "/exact": 200,  # of a route
    "/exact/": 307,
    "/below/": 200,  # of `asgi("/")`, mounted at "/below"
    "/below": 307,
}


def status_of(port: int, path: str) -> int:
    """The status of the response to the first message of a client."""
    client = {"name": "c", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status


async def test_slashes_in_starlette() -> None:
    """A mount of Starlette takes the paths below its own, so the own path needs a slash."""
    async with running("uvicorn", "--factory", app="asgi_app:in_starlette") as server:
        for path, status in SLASHES.items():
            assert await asyncio.to_thread(status_of, server.port, path) == status
            for era in ("modern", "legacy"):
                await use(server.url(path), era)  # our client follows redirects
    assert server.said.count("started") == server.said.count("ended") == 1, server.said


@pytest.mark.parametrize("peer", WITHOUT_LIFESPAN)
async def test_without_a_lifespan(peer: str) -> None:
    async with running(peer, *WITHOUT_LIFESPAN[peer]) as server:
        assert "started" not in server.said
        await use(server.url(), "modern")
        await server.until("started")


@pytest.mark.parametrize("peer", COMMANDS)
async def test_a_client_that_leaves_cancels_its_call(peer: str) -> None:
    async with running(peer) as server, Client(server.url(), era="modern") as client:
        began = asyncio.Event()
        call = asyncio.create_task(client.call_tool("wait", {}, on_progress=lambda *_: began.set()))
        await asyncio.wait_for(began.wait(), SECONDS)
        call.cancel()
        await server.until("cancelled")
