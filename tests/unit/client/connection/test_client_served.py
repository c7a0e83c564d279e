"""Our client on our own server, over each kind of URL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.client import open_fds, until
from lab.wording import raises

from wirespeed import Client, Context, Server, WebSocket
from wirespeed.errors import CallTimeout, ConnectionLost, TransportError, UpgradeRefused

pytestmark = pytest.mark.compiled

KINDS = pytest.mark.parametrize("kind", ["ws", "wss", "unix", "tcp"])


class Hosted:
    """A server with a few tools, and the URL that it listens at."""

    def __init__(self) -> None:
        self.url = ""
        self.cancelled = 0
        self.started = asyncio.Event()
        self.over: asyncio.Future[None]
        self.server = Server("hosted", version="1", shutdown_grace=0.05)

        @self.server.tool
        async def echo(text: str) -> str:
            """Says it again."""
            await asyncio.sleep(0)
            return text

        @self.server.tool
        async def work(ctx: Context, steps: int) -> str:
            """Tells how far it is."""
            for n in range(steps):
                await ctx.progress(n + 1, steps)
            return "done"

        @self.server.tool
        async def wait() -> str:
            """Never ends."""
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return ""


@contextlib.asynccontextmanager
async def hosted(
    kind: str, folder: Path, certificate: Path, **options: Any
) -> AsyncIterator[Hosted]:
    host = Hosted()
    urls = {
        "ws": "ws://127.0.0.1:0/mcp",
        "wss": "wss://127.0.0.1:0/mcp",
        "unix": f"unix:{folder}/s",
        "tcp": "tcp://127.0.0.1:0",
    }
    if kind == "wss":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        options["ssl"] = context
    listening = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        host.server.serve(urls[kind], on_listening=listening.set_result, **options)
    )
    await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    [host.url] = await listening
    host.over = serving
    try:
        yield host
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def client_of(host: Hosted, certificate: Path, **options: Any) -> Client:
    if not host.url.startswith("wss:"):
        return Client(host.url, **options)
    trust = ssl.create_default_context(cafile=str(certificate))
    return Client(WebSocket(host.url, ssl=trust), **options)


@KINDS
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_everything_at_once(tmp_path: Path, certificate: Path, kind: str, era: Any) -> None:
    async with (
        hosted(kind, tmp_path, certificate) as host,
        client_of(host, certificate, era=era) as client,
    ):
        assert client.protocol_version == ("2026-07-28" if era == "auto" else "2025-11-25")
        assert {tool.name for tool in await client.list_tools()} == {"echo", "work", "wait"}
        texts = [str(n) * (n * 10 + 1) for n in range(300)]
        got = await asyncio.gather(*(client.call_tool("echo", {"text": t}) for t in texts))
        assert [result.text for result in got] == texts
        big = "ä" * 3_000_000
        assert (await client.call_tool("echo", {"text": big})).text == big
        steps: list[Any] = []
        done = await client.call_tool(
            "work", {"steps": 3}, on_progress=lambda *step: steps.append(step)
        )
        assert done.text == "done" and [step[0] for step in steps] == [1, 2, 3]


@KINDS
async def test_cancelled_and_timed_out(tmp_path: Path, certificate: Path, kind: str) -> None:
    async with hosted(kind, tmp_path, certificate) as host, client_of(host, certificate) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await host.started.wait()
        call.cancel()
        await until(lambda: host.cancelled == 1)
        with pytest.raises(CallTimeout):
            await client.call_tool("wait", timeout=0.02)
        await until(lambda: host.cancelled == 2)


@KINDS
async def test_the_client_goes_away(tmp_path: Path, certificate: Path, kind: str) -> None:
    """What it asked for is cancelled, and nothing of it is left."""
    async with hosted(kind, tmp_path, certificate) as host:
        async with client_of(host, certificate):
            pass
        fds = open_fds()
        for n in range(3):
            host.started.clear()
            async with client_of(host, certificate) as client:
                call = asyncio.create_task(client.call_tool("wait"))
                await host.started.wait()
            await asyncio.wait((call,))
            assert call.exception() is not None
            await until(lambda: host.cancelled == n + 1)  # noqa: B023
        await until(lambda: open_fds() == fds)


@KINDS
async def test_the_server_is_shut_down(
    tmp_path: Path, certificate: Path, kind: str, connections: list[Any]
) -> None:
    async with hosted(kind, tmp_path, certificate) as host:
        client = client_of(host, certificate, timeout=None)
        await client.open()
        calls = [asyncio.create_task(client.call_tool("wait")) for _ in range(5)]
        await host.started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await host.over
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, Exception) for error in errors)
    if kind in ("ws", "wss"):
        await until(lambda: connections[0].lost_error)
        lost = connections[0].lost_error
        assert isinstance(lost, ConnectionLost) and lost.code == 1001
        assert "the server closed the connection: 1001 going away" in str(lost)
    await client.close()


async def test_tokens(tmp_path: Path, certificate: Path) -> None:
    async with hosted("ws", tmp_path, certificate, token="s3cret") as host:
        for wrong in (WebSocket(host.url), WebSocket(host.url, token="other")):
            with pytest.raises(UpgradeRefused) as caught:
                await Client(wrong).open()
            assert caught.value.status == 401 and "s3cret" not in str(caught.value)
        with pytest.raises(UpgradeRefused) as caught:
            await Client(WebSocket(host.url + "/other", token="s3cret")).open()
        assert caught.value.status == 404
        async with Client(WebSocket(host.url, token="s3cret")) as client:
            assert (await client.call_tool("echo", {"text": "in"})).text == "in"


async def test_an_origin_that_is_not_allowed(tmp_path: Path, certificate: Path) -> None:
    async with hosted("ws", tmp_path, certificate) as host:
        with pytest.raises(UpgradeRefused) as caught:
            await Client(WebSocket(host.url, headers={"Origin": "https://evil"})).open()
        assert caught.value.status == 403


async def test_compression(tmp_path: Path, certificate: Path) -> None:
    async with (
        hosted("ws", tmp_path, certificate, compression=True) as host,
        Client(WebSocket(host.url, compression=True)) as client,
    ):
        text = "a" * 200_000
        assert (await client.call_tool("echo", {"text": text})).text == text
        assert client.counters["bytes_in"] < 20_000


async def test_plain_client_on_a_server_behind_tls(tmp_path: Path, certificate: Path) -> None:
    async with hosted("wss", tmp_path, certificate) as host:
        with pytest.raises(TransportError, match=r"during the opening handshake|is no WebSocket"):
            await Client(host.url.replace("wss:", "ws:")).open()
        with raises(TransportError):
            await Client(host.url).open()
