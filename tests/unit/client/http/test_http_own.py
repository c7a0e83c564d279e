"""Our client and our server over HTTP: what only both together show."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.client import until
from lab.wording import raises

from wirespeed import Client, Context, Http, HttpOptions, Server, SyncClient
from wirespeed.errors import CallTimeout, ConnectionLost, RemoteError, TransportError
from wirespeed.types import ResourceUpdated, ToolsChanged

ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])


def lab() -> tuple[Server, list[str]]:
    """A server, and what its tools noticed."""
    server = Server("lab")
    noticed: list[str] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(n: int, ctx: Context) -> int:
        for i in range(n):
            await ctx.progress(i + 1, n)
        return n

    @server.tool
    async def wait() -> str:
        noticed.append("began")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            noticed.append("cancelled")
            raise
        return "waited"

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    @server.tool
    async def grow(ctx: Context) -> str:
        server.add_tool(late)
        return "grown"

    async def late() -> str:
        return "late"

    @server.resource("note://one")
    async def one() -> str:
        return "1"

    @server.tool
    async def touch() -> str:
        await server.resource_updated("note://one")
        return "touched"

    return server, noticed


@contextlib.asynccontextmanager
async def serving(server: Server, **options: Any) -> AsyncIterator[str]:
    """The URL of a server that is served."""
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        server.serve(
            "http://127.0.0.1:0/mcp",
            http=HttpOptions(**options),
            on_listening=listens.set_result,
        )
    )
    try:
        await asyncio.wait((listens, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield listens.result()[0]
    finally:
        task.cancel()
        await asyncio.wait((task,))


@ERAS
@pytest.mark.parametrize(
    "options", [{}, {"response": "sse"}, {"response": "json"}, {"stateless": True}], ids=str
)
async def test_calls(era: Any, options: dict[str, Any]) -> None:
    server, _ = lab()
    async with serving(server, **options) as url, Client(url, era=era, timeout=10) as client:
        calls = (client.call_tool("add", {"a": i, "b": 1}) for i in range(50))
        assert [result.data for result in await asyncio.gather(*calls)] == list(range(1, 51))
        seen: list[float] = []
        counted = await client.call_tool(
            "count", {"n": 20}, on_progress=lambda done, *_: seen.append(done)
        )
        assert counted.data == 20
        assert seen == ([] if options.get("response") == "json" else list(range(1, 21)))
        assert len(await client.list_tools()) == 6
        with pytest.raises(RemoteError):
            await client.read_resource("note://two")
        assert (await client.read_resource("note://one")).contents[0].text == "1"
        big = "ü" * 500_000
        with pytest.raises(RemoteError):
            await client.get_prompt("none", {"text": big})


@ERAS
async def test_cancelling(era: Any) -> None:
    server, noticed = lab()
    async with serving(server) as url, Client(url, era=era) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=1.0)
        await until(lambda: noticed == ["began", "cancelled"])
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await until(lambda: len(noticed) == 3)
        calling.cancel()
        await until(lambda: noticed[3:] == ["cancelled"])
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@ERAS
async def test_questions(era: Any) -> None:
    server, _ = lab()
    async with serving(server) as url, Client(url, era=era, roots=["file:///here"]) as client:
        assert (await client.call_tool("where")).data == ["file:///here"]


@ERAS
async def test_changes(era: Any) -> None:
    server, _ = lab()
    async with serving(server) as url, Client(url, era=era) as client:
        async with client.subscribe(tools=True, uris=["note://one"]) as events:
            await client.call_tool("touch")
            assert await events.next_event(5) == ResourceUpdated("note://one")
            await client.call_tool("grow")
            assert await events.next_event(5) == ToolsChanged()
        assert (await client.call_tool("late")).data == "late"


async def test_http_and_sse() -> None:
    server, noticed = lab()
    async with serving(server, sse_path="/sse") as url:
        target = Http(url.replace("/mcp", "/sse"))
        async with Client(target, roots=["file:///here"], timeout=10) as client:
            assert client.protocol_version == "2025-11-25"
            calls = (client.call_tool("add", {"a": i, "b": 1}) for i in range(20))
            assert [result.data for result in await asyncio.gather(*calls)] == list(range(1, 21))
            assert (await client.call_tool("where")).data == ["file:///here"]
            with pytest.raises(CallTimeout):
                await client.call_tool("wait", timeout=1.0)
            await until(lambda: noticed == ["began", "cancelled"])


async def test_a_server_that_is_replaced(caplog: Any) -> None:
    server, _ = lab()
    async with serving(server) as url:
        moved = url
    # another server at the same place does not know the session
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    first = asyncio.ensure_future(server.serve(moved, on_listening=listens.set_result))
    await listens
    client = Client(Http(moved), era="legacy", timeout=10)
    await client.open()
    first.cancel()
    await asyncio.wait((first,))
    listens = asyncio.get_running_loop().create_future()
    second = asyncio.ensure_future(lab()[0].serve(moved, on_listening=listens.set_result))
    await listens
    with contextlib.suppress(ConnectionLost):  # unless its stream found out before
        await client.call_tool("add", {"a": 1, "b": 2})
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    await client.close()
    second.cancel()
    await asyncio.wait((second,))
    caplog.clear()


@ERAS
async def test_a_blocking_client(era: Any) -> None:
    server, _ = lab()
    async with serving(server) as url:

        def call() -> Any:
            with SyncClient(url, era=era) as client:
                return client.call_tool("add", {"a": 1, "b": 2}).data

        assert await asyncio.to_thread(call) == 3


async def test_tls(certificate: Path) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    server, _ = lab()
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        server.serve("https://127.0.0.1:0/mcp", ssl=served, on_listening=listens.set_result)
    )
    (url,) = await listens
    trusting = ssl.create_default_context(cafile=certificate)
    async with Client(Http(url, ssl=trusting)) as client:
        calls = (client.call_tool("add", {"a": i, "b": 1}) for i in range(10))
        assert [result.data for result in await asyncio.gather(*calls)] == list(range(1, 11))
    with raises(TransportError):
        await Client(url).open()
    task.cancel()
    await asyncio.wait((task,))


async def test_few_connections() -> None:
    server, _ = lab()
    async with serving(server) as url, Client(Http(url, max_connections=2)) as client:
        calls = (client.call_tool("add", {"a": i, "b": 1}) for i in range(300))
        assert [result.data for result in await asyncio.gather(*calls)] == list(range(1, 301))
