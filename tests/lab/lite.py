"""A LiteMCP peer made of bytes, as the pages describe it: it knows nothing of the package under
test. Servers under test run in this thread, over real sockets, or as children."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Self

from wirespeed import Stdio
from wirespeed.litemcp import LiteServer, serve
from wirespeed.litemcp.connection import LiteConnection
from wirespeed.transport.fd import FdLink
from wirespeed.transport.taskpool_choice import open_pool

CHILDREN = Path(__file__).resolve().parents[1] / "children"
# For waits that end at once unless something is broken.
FOREVER = 20.0
VERSION = [1, 0, 0]
END = b"\n\n\n"

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def get(id: Any, **more: Any) -> dict[str, Any]:
    return {"version": VERSION, "id": id, "type": "get", "data": {}, **more}


def call(id: Any, tool: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    data = {"version": VERSION, "tool": tool, "arguments": arguments}
    return {"version": VERSION, "id": id, "type": "call", "data": data, **more}


def encode(message: Any) -> bytes:
    """A frame; bytes are taken as they are."""
    return message if isinstance(message, bytes) else json.dumps(message).encode() + END


def content(answer: Any) -> list[tuple[str, str]]:
    """The contents of a result that is no error."""
    response = answer["data"]["response"]
    assert response["error"] is False, answer
    return [(c["type"], c["data"]) for c in response["content"]]


def failure(answer: Any) -> str:
    """The one text of a result that is an error, whose shape is that of any result."""
    assert answer["type"] == "result"
    assert set(answer["data"]) == {"version", "params", "response"}
    response = answer["data"]["response"]
    assert response["error"] is True, answer
    (piece,) = response["content"]
    assert set(piece) == {"type", "data"}
    assert piece["type"] == "text"
    text: str = piece["data"]
    return text


class Peer:
    """A client of bytes at one end of a socket; a context manager that closes it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()
        self.fences = 10**9

    async def send(self, *messages: Any) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.sock, b"".join(map(encode, messages)))

    async def frame(self) -> bytes:
        """The next frame, without its terminator; EOFError when there is none."""
        loop = asyncio.get_running_loop()
        while (end := self.buffer.find(END)) < 0:
            data = await loop.sock_recv(self.sock, 1 << 16)
            if not data:
                raise EOFError(bytes(self.buffer))
            self.buffer += data
        frame = bytes(self.buffer[:end])
        del self.buffer[: end + len(END)]
        assert frame.strip() == frame, "nothing but messages and terminators"
        return frame

    async def recv(self) -> Any:
        return json.loads(await self.frame())

    async def ask(self, message: Any) -> Any:
        """Send one message; the next answer, which must be to it."""
        await self.send(message)
        answer = await self.recv()
        if isinstance(message, dict):
            assert answer["id"] == message["id"]
        return answer

    async def answers(self, n: int) -> dict[Any, Any]:
        got = {}
        for _ in range(n):
            answer = await self.recv()
            assert answer["id"] not in got
            got[answer["id"]] = answer
        return got

    async def nothing_for(self, *messages: Any) -> None:
        """Send messages that must get no answer: the next one is to a get behind them."""
        self.fences += 1
        await self.send(*messages, get(self.fences))
        answer = await self.recv()
        assert answer["id"] == self.fences, answer
        assert answer["type"] == "info"

    async def at_end(self) -> bool:
        """Wait for the end of the stream; True if nothing came before it."""
        try:
            await self.frame()
        except EOFError as exc:
            return exc.args[0] == b""
        except ConnectionResetError:  # something that was sent was not read
            return not self.buffer
        return False

    def end_input(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


class Served(Peer):
    """A peer, and the connection that serves it."""

    connection: LiteConnection

    def __init__(self, sock: socket.socket, connection: LiteConnection) -> None:
        super().__init__(sock)
        self.connection = connection

    async def __aenter__(self) -> Self:
        return self


@contextlib.asynccontextmanager
async def served(server: LiteServer) -> AsyncIterator[Served]:
    """A connection of a server in this thread, over a socket pair."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    pool = open_pool(loop)
    for sock in (ours, theirs):
        sock.setblocking(False)
    connection = server.connect(
        lambda endpoint: FdLink(loop, endpoint, theirs.fileno(), theirs.fileno()),
        loop=loop,
        pool=pool,
    )
    connection.closed.add_done_callback(lambda _: theirs.close())
    assert connection.link is not None
    connection.link.start()
    try:
        yield Served(ours, connection)
    finally:
        connection.abort()
        await pool.aclose()
        await asyncio.sleep(0)
        ours.close()


def child(script: str, *args: str, **options: Any) -> Stdio:
    """A program of tests/children, with the package under test on its path."""
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # a build with sanitizers needs their libraries in every process
    env |= {n: v for n, v in os.environ.items() if n == "LD_PRELOAD" or n.endswith("SAN_OPTIONS")}
    options.setdefault("stderr", "discard")
    return Stdio(sys.executable, [str(CHILDREN / script), *args], env, **options)


@contextlib.asynccontextmanager
async def listening(
    services: Any,
    url: str = "ws://127.0.0.1:0",
    **options: Any,
) -> AsyncIterator[str]:
    """A server in this process; the URL of its first service."""
    ready: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve(url, services, on_listening=ready.set_result, **options))
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield ready.result()[0]
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    while not condition():
        await asyncio.sleep(0.005)


def calculator(**options: Any) -> LiteServer:
    """The tool of the pages."""
    server = LiteServer("Calculator", **options)

    @server.tool
    async def add(a: float, b: float) -> float:
        """A simple calculator

        Args:
            a: The first number (e.g. 2)
            b: The second number (e.g. 3)

        Example:
            Calculate the sum of 2 and 3
        """
        return a + b

    return server


LITE = """
import os
from wirespeed.litemcp import LiteServer
server = LiteServer("adder")

@server.tool
async def add(a: int, b: int) -> str:
    if a == 13:
        os._exit(3)
    return str(a + b)

server.run()
"""
