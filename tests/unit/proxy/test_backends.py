"""Servers behind the proxy that it reaches by a URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed import Client, Context, Server, Socket, WebSocket
from wirespeed.errors import RemoteError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

pytestmark = pytest.mark.compiled

CLIENTS_TOKEN, PROXYS_TOKEN = "clients-s3cret", "proxys-s3cret"
SERVER_LOST = -31004


class Behind:
    """A server that can end, and come back at the same place."""

    def __init__(self) -> None:
        self.server = Server("behind")
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
        options: Any = {"token": PROXYS_TOKEN} if url.startswith("ws:") else {}
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

    def target(self) -> WebSocket | Socket:
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


@pytest.fixture(params=["ws", "unix", "tcp"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "ws": "ws://127.0.0.1:0/mcp",
        "unix": f"unix:{tmp_path / 's'}",
        "tcp": "tcp://127.0.0.1:0",
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
    bearer = f"Bearer {PROXYS_TOKEN}" if place.startswith("ws:") else None
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
