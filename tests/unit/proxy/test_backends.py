"""Servers behind the proxy that it reaches by a URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from lab.gateway import gateway
from lab.rows import every
from lab.web import MODERN_HTTP, Exchange, serving
from lab.wording import raises

from wirespeed import Client, Context, HeaderParam, Http, Server, Socket, WebSocket
from wirespeed.errors import RemoteError
from wirespeed.proxy import BackendConfig, HealthConfig, Proxy, ProxyConfig
from wirespeed.proxy.operation.snapshot import state_of
from wirespeed.types import ToolsChanged

CLIENTS_TOKEN, PROXYS_TOKEN = "clients-s3cret", "proxys-s3cret"
SERVER_LOST = -31004


class Behind:
    """A server that can end, and come back at the same place."""

    def __init__(self, *versions: str) -> None:
        self.server = Server("behind", versions=versions or None)
        self.seen: list[str | None] = []
        self.stuck = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.url = ""

        @self.server.tool
        async def add(a: int, b: int, ctx: Context) -> int:
            self.seen.append(ctx.headers.get("authorization"))
            await ctx.progress(1, 1)
            return a + b

        @self.server.tool
        async def hang() -> None:
            self.stuck.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

    async def begin(self, url: str) -> None:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options: Any = {"token": PROXYS_TOKEN} if url.startswith(("ws:", "http:")) else {}
        self.task = asyncio.ensure_future(
            self.server.serve(
                url, on_listening=lambda urls: listening.set_result(urls[0]), **options
            )
        )
        self.url = await listening

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait((self.task,))

    def target(self) -> Http | WebSocket | Socket:
        if self.url.startswith("http:"):
            return Http(self.url, token=PROXYS_TOKEN)
        if self.url.startswith("ws:"):
            return WebSocket(self.url, token=PROXYS_TOKEN)
        return Socket(self.url)


@contextlib.asynccontextmanager
async def proxied(behind: Behind, isolation: Any) -> AsyncIterator[WebSocket]:
    """The proxy's place, with the token that clients need."""
    backend = BackendConfig(target=behind.target(), name="behind", isolation=isolation)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/mcp",)))
    serving = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    try:
        yield WebSocket(await listening, token=CLIENTS_TOKEN, restart=0)
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


@pytest.fixture(params=["ws", "unix", "tcp", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "ws": "ws://127.0.0.1:0/mcp",
        "unix": f"unix:{tmp_path / 's'}",
        "tcp": "tcp://127.0.0.1:0",
        "http": "http://127.0.0.1:0/mcp",
    }[request.param]


@pytest.mark.parametrize("isolation", ["session", "shared"])
async def test_calls_of_two_clients(place: str, isolation: str) -> None:
    behind = Behind()
    await behind.begin(place)
    async with (
        proxied(behind, isolation) as target,
        Client(target) as one,
        Client(target) as two,
    ):
        told: list[float] = []
        clients = (one, two) * 20
        sums = await asyncio.gather(
            *(
                client.call_tool(
                    "add", {"a": n, "b": 1}, on_progress=lambda done, *_: told.append(done)
                )
                for n, client in enumerate(clients)
            )
        )
        assert [result.data for result in sums] == [n + 1 for n in range(40)]
        assert len(told) == 40
        call = asyncio.ensure_future(one.call_tool("hang"))
        await behind.stuck.wait()
        call.cancel()
        await behind.cancelled.wait()
    await behind.end()
    # the client's token stays with the proxy, which has one of its own for the server
    bearer = f"Bearer {PROXYS_TOKEN}" if place.startswith(("ws:", "http:")) else None
    assert set(behind.seen) == {bearer}


async def test_a_shared_server_that_comes_back(place: str) -> None:
    behind = Behind()
    await behind.begin(place)
    async with proxied(behind, "shared") as target, Client(target) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await behind.stuck.wait()
        await behind.end()
        with pytest.raises(RemoteError) as caught:
            await call
        assert caught.value.code == SERVER_LOST
        waiting = asyncio.ensure_future(client.call_tool("add", {"a": 1, "b": 2}))
        await behind.begin(behind.url)
        assert (await waiting).data == 3
    await behind.end()


# -- over HTTP ---------------------------------------------------------------------------------


@every("isolation", ["session", "shared", "pool"])
@every("era", ["legacy", "modern"])
async def test_a_server_over_http(isolation: str, era: Any) -> None:
    """Answers, errors, progress, changes of lists and cancellations, in both eras."""
    behind = Behind()

    @behind.server.tool
    async def where(ctx: Context, region: Annotated[str, HeaderParam("Region")]) -> str | None:
        return ctx.headers.get("mcp-param-region")

    @behind.server.tool
    async def grow() -> str:
        behind.server.add_tool(lambda: "more", name="more")
        return "grown"

    await behind.begin("http://127.0.0.1:0/mcp")
    async with proxied(behind, isolation) as target, Client(target, era=era) as client:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        told: list[float] = []
        added = await client.call_tool(
            "add", {"a": 1, "b": 2}, on_progress=lambda done, *_: told.append(done)
        )
        assert (added.data, told) == (3, [1])
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("no such tool")
        assert caught.value.code == -32602
        async with client.subscribe(tools=True) as events:
            await client.call_tool("grow")
            assert await anext(events) == ToolsChanged()
        if era == "modern" and isolation != "session":
            found = await client.call_tool("where", {"region": "north"})
            assert found.data == "north"
        call = asyncio.ensure_future(client.call_tool("hang"))
        await behind.stuck.wait()
        call.cancel()
        await behind.cancelled.wait()
    await behind.end()


@pytest.mark.off_schema("legacy clients get members that they ignore")
@pytest.mark.parametrize("isolation", ["shared", "session", "auto"])
@pytest.mark.parametrize(("era", "version"), [("legacy", "2026-07-28"), ("modern", "2025-11-25")])
async def test_a_server_of_the_other_era(
    place: str, isolation: Any, era: Any, version: str
) -> None:
    """Its clients are translated, with each isolation and over each transport."""
    behind = Behind(version)
    await behind.begin(place)
    async with proxied(behind, isolation) as target, Client(target, era=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("no such tool")
        assert caught.value.code == -32602
    await behind.end()


async def test_a_server_over_http_that_is_not_there_at_first() -> None:
    """The proxy asks again for its eras, until it answers."""
    behind = Behind()
    await behind.begin("http://127.0.0.1:0/mcp")
    await behind.end()
    backend = BackendConfig(target=behind.target(), name="behind", isolation="shared")
    other = Server("other")
    place = Behind()
    place.server = other
    await place.begin("http://127.0.0.1:0/mcp")
    backends = (backend, BackendConfig(target=place.target(), name="other", isolation="shared"))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = Proxy(ProxyConfig(backends=backends, listen=("ws://127.0.0.1:0/mcp",)))
    serving = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    url = (await listening).replace("/mcp", "/servers/behind")
    await asyncio.sleep(0.3)
    await behind.begin(behind.url)
    async with Client(WebSocket(url, token=CLIENTS_TOKEN), era="modern") as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    serving.cancel()
    await asyncio.wait((serving,))
    await behind.end()
    await place.end()


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_server_over_http_that_dies(version: str, idle: bool) -> None:
    """It is not called up. When it is back, no call fails any more. With `health`, nobody has to
    call it for that."""
    behind = Behind(version)
    await behind.begin("http://127.0.0.1:0/mcp")
    health = HealthConfig(interval=0.2, timeout=5) if idle else None
    backend = BackendConfig(
        target=behind.target(), name="behind", isolation="shared", health=health
    )
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/mcp",)))
    serving = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    (service,) = proxy.services.values()
    async with Client(WebSocket(await listening, token=CLIENTS_TOKEN), era="modern") as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        await behind.end()
        if not idle:
            with pytest.raises(RemoteError):
                await client.call_tool("add", {"a": 1, "b": 2})
        while state_of(service) == "up":
            await asyncio.sleep(0.01)
        await behind.begin(behind.url)
        while state_of(service) != "up":
            await asyncio.sleep(0.01)
        for n in range(5):
            assert (await client.call_tool("add", {"a": n, "b": 2})).data == n + 2
    serving.cancel()
    await asyncio.wait((serving,))
    await behind.end()


@pytest.mark.parametrize("fields", [{}, {"retry_after": "0"}])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_that_a_server_puts_off_fails(status: int, fields: dict[str, str]) -> None:
    """The client of the proxy decides whether it calls again."""

    async def put_off(exchange: Exchange, message: dict[str, Any]) -> None:
        exchange.reply(status, "busy", **fields)

    listed: Any = {**MODERN_HTTP["tools/list"], "ttlMs": 0, "cacheScope": "private"}  # type: ignore[dict-item]
    rules = {**MODERN_HTTP, "tools/list": listed, "tools/call:busy": put_off}
    async with serving(rules) as peer:
        backend = BackendConfig(target=Http(peer.url), name="b", isolation="shared")
        async with gateway(backend) as gate, gate.client(timeout=5) as client:
            with raises(RemoteError, code=SERVER_LOST):
                await client.call_tool("busy")
        assert len(peer.sent("tools/call")) == 1
