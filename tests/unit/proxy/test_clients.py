"""Clients and servers of this package with the proxy between them, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from lab.raw import modern, surroundings
from websockets.typing import Subprotocol

from wirespeed import Client, Stdio
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.types import Accept, ElicitParams, ToolsChanged

SERVER = """
import asyncio, os, signal
from wirespeed import Context, Server

server = Server("behind")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def count(n: int, ctx: Context) -> str:
    for i in range(n):
        await ctx.progress(i + 1, n)
    return "counted"

@server.tool
async def grow() -> str:
    async def more() -> str:
        return "more"
    server.add_tool(more)
    return "grown"

@server.tool
async def name(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", str)
    return answer.content

@server.tool
async def leave() -> str:
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
    return "leaving"

server.run()
"""


@contextlib.asynccontextmanager
async def proxied(folder: Path, isolation: Any) -> AsyncIterator[str]:
    script = folder / "server.py"
    script.write_text(SERVER)
    target = Stdio(sys.executable, [str(script)], env=surroundings())
    backend = BackendConfig(target=target, isolation=isolation)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/mcp",)))
    serving = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    try:
        yield await listening
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


@pytest.mark.parametrize(
    ("isolation", "era", "version"),
    [
        ("session", "auto", "2026-07-28"),
        ("session", "legacy", "2025-11-25"),
        ("shared", "auto", "2026-07-28"),
        ("shared", "legacy", "2025-11-25"),
    ],
)
async def test_calls_and_progress(tmp_path: Path, isolation: str, era: Any, version: str) -> None:
    async with proxied(tmp_path, isolation) as url:

        async def one(n: int) -> None:
            progress: list[float] = []
            async with Client(url, era=era) as client:
                assert client.protocol_version == version
                sums = await asyncio.gather(
                    *(client.call_tool("add", {"a": n, "b": k}) for k in range(50))
                )
                assert [result.data for result in sums] == [n + k for k in range(50)]
                counted = await client.call_tool(
                    "count", {"n": 3}, on_progress=lambda done, *_: progress.append(done)
                )
                assert counted.data == "counted"
                assert progress == [1, 2, 3]

        await asyncio.gather(*(one(n) for n in range(4)))


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_changes_and_questions(tmp_path: Path, era: Any) -> None:
    """With a server of its own, a client hears of changes, and is asked."""

    async def answer(request: ElicitParams) -> Accept:
        return Accept({"value": "Ada"})

    async with (
        proxied(tmp_path, "session") as url,
        Client(url, era=era, on_elicit=answer) as client,
    ):
        async with client.subscribe(tools=True) as events:
            assert (await client.call_tool("grow")).data == "grown"
            assert await anext(events) == ToolsChanged()
        assert (await client.call_tool("name")).data == "Ada"
        assert {tool.name for tool in await client.list_tools()} >= {"more", "name"}


async def test_the_server_ends_a_subscription(tmp_path: Path) -> None:
    """The last word on a subscription carries the id that the client gave it."""
    async with (
        proxied(tmp_path, "session") as url,
        websockets.connect(url, subprotocols=[Subprotocol("mcp")]) as ws,
    ):
        wanted = {"notifications": {"toolsListChanged": True}}
        await ws.send(json.dumps(modern("mine", "subscriptions/listen", wanted)))
        acknowledged = json.loads(await ws.recv())
        assert acknowledged["params"]["_meta"][META_SUBSCRIPTION_ID] == "mine"
        await ws.send(json.dumps(modern(2, "tools/call", {"name": "leave", "arguments": {}})))
        said = [json.loads(await ws.recv()) for _ in range(3)]
        (ended,) = [message for message in said if "method" in message]
        assert ended["params"] == {"requestId": "mine"}
        (last,) = [message for message in said if message.get("id") == "mine"]
        assert last["result"]["_meta"][META_SUBSCRIPTION_ID] == "mine"
