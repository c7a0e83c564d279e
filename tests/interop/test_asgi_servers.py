"""Our application below the ASGI servers that people use, alone and mounted in FastAPI."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import peers
import pytest

from wirespeed import Client

SECONDS = 60.0
PROGRAMS = Path(__file__).parent / "programs"

COMMANDS = {
    "uvicorn": ["uvicorn", "{app}", "--port", "{port}", "--timeout-graceful-shutdown", "2"],
    "granian": [
        *("granian", "{app}", "--interface", "asgi", "--port", "{port}"),
        *("--workers-kill-timeout", "5"),
    ],
    "hypercorn": ["hypercorn", "{app}", "--bind", "127.0.0.1:{port}", "--graceful-timeout", "2"],
}
FACTORY = {"uvicorn": ["--factory"], "granian": ["--factory"], "hypercorn": []}
WITHOUT_LIFESPAN = {"uvicorn": ["--lifespan", "off"], "granian": ["--interface", "asginl"]}


class Running:
    """A server at work.

    Attributes:
        url: Of the endpoint.
        said: What it wrote so far.
    """

    def __init__(self, child: asyncio.subprocess.Process, url: str) -> None:
        self.child = child
        self.url = url
        self.said = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.child.stdout is not None
        while data := await self.child.stdout.read(4096):
            self.said += data.decode(errors="replace")

    async def until(self, words: str) -> None:
        """Wait for these words of it."""
        async with asyncio.timeout(SECONDS):
            while words not in self.said:
                assert not self._reading.done(), self.said
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Tell it to end."""
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self.child.wait(), SECONDS)
        await self._reading


@contextlib.asynccontextmanager
async def running(peer: str, *more: str, app: str = "asgi_app:app") -> AsyncIterator[Running]:
    """Our application below a server."""
    interpreter = Path(await asyncio.to_thread(peers.python, "asgi"))
    packages = interpreter.parents[1].glob("lib/python*/site-packages")
    paths = [*map(str, packages), str(PROGRAMS), *filter(None, sys.path)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.format(app=app, port=port) for word in COMMANDS[peer]]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words, *more),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    path = "/mcp" if app == "asgi_app:app" else "/tools/mcp"
    found = Running(child, f"http://127.0.0.1:{port}{path}")
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                assert child.returncode is None, found.said
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield found
    finally:
        await found.end()


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
        await use(server.url, era)
    assert server.said.count("started") == server.said.count("ended") == 1, server.said


@pytest.mark.parametrize("peer", COMMANDS)
async def test_mounted_in_fastapi(peer: str) -> None:
    app = "asgi_app:mounted" if FACTORY[peer] else "asgi_app:mounted()"
    async with running(peer, *FACTORY[peer], app=app) as server:
        for era in ("modern", "legacy"):
            await use(server.url, era)
    assert server.said.count("own began") == server.said.count("own has gone") == 1, server.said
    assert server.said.count("started") == server.said.count("ended") == 1, server.said


@pytest.mark.parametrize("peer", WITHOUT_LIFESPAN)
async def test_without_a_lifespan(peer: str) -> None:
    async with running(peer, *WITHOUT_LIFESPAN[peer]) as server:
        assert "started" not in server.said
        await use(server.url, "modern")
        await server.until("started")


@pytest.mark.parametrize("peer", COMMANDS)
async def test_a_client_that_leaves_cancels_its_call(peer: str) -> None:
    async with running(peer) as server, Client(server.url, era="modern") as client:
        began = asyncio.Event()
        call = asyncio.create_task(client.call_tool("wait", {}, on_progress=lambda *_: began.set()))
        await asyncio.wait_for(began.wait(), SECONDS)
        call.cancel()
        await server.until("cancelled")
