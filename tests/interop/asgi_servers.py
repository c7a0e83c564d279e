"""ASGI servers of others, with our application below them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import peers

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


class Running:
    """A server at work.

    Attributes:
        port: Where it listens.
        said: What it wrote so far.
    """

    def __init__(self, child: asyncio.subprocess.Process, port: int) -> None:
        self.child = child
        self.port = port
        self.said = ""
        self._reading = asyncio.create_task(self._read())

    def url(self, path: str = "/mcp") -> str:
        """Of an endpoint."""
        return f"http://127.0.0.1:{self.port}{path}"

    async def _read(self) -> None:
        assert self.child.stdout is not None
        while data := await self.child.stdout.read(4096):
            self.said += data.decode(errors="replace")

    async def until(self, words: str, seconds: float = SECONDS) -> None:
        """Wait for these words of it."""
        async with asyncio.timeout(seconds):
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
    found = Running(child, port)
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
