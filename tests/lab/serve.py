"""Servers that listen in this process, and clients of bare bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from lab.raw import call, encode, initialize, strict

from wirespeed import Server
from wirespeed._core.slab import slabs_live
from wirespeed.core import Session
from wirespeed.transport.net.listener import Listener
from wirespeed.transport.net.serve import plan
from wirespeed.transport.net.sockets import listen, resolve

LOOPBACK = "ws://127.0.0.1:0/mcp"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
FOREVER = 20.0
MAX_SPARE = 16  # blocks that a process keeps


class Place:
    """A listener at work."""

    def __init__(self, listener: Listener, task: asyncio.Task[None], services: Any) -> None:
        self.listener = listener
        self.waiting: list[Any] = getattr(services, "waiting", [])
        self.task = task
        self.url = listener.urls[0]
        self.port = listener.address.port

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop run until something holds."""
        async with asyncio.timeout(FOREVER):
            while not condition():
                await asyncio.sleep(0.002)

    async def at_work(self, name: str) -> Bare:
        """A client whose call of the tool `wait` is at work."""
        peer = await Bare.connect(self.port)
        await peer.handshake()
        n = len(self.waiting)
        peer.send(call(1, "wait", {"name": name}))
        await self.until(lambda: len(self.waiting) > n)
        return peer

    async def empty(self) -> None:
        """Until nobody is connected."""
        await self.until(lambda: self.listener.n_connections == 0)


@contextlib.asynccontextmanager
async def serving(services: Any, url: str = LOOPBACK, **options: Any) -> AsyncIterator[Place]:
    """Serve at a URL meanwhile; ends in order, and nothing may be left."""
    address, by_path, chosen = plan(url, services, None, options)
    tasks = asyncio.all_tasks()
    with listen(address, resolve(address), chosen) as listening:
        listener = Listener(listening, by_path, chosen)
        listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(listener.serve(listens.set_result))
        await listens
        try:
            yield Place(listener, task, services)
        finally:
            listener.abort()
            await asyncio.wait([task], timeout=FOREVER)
            if not task.cancelled():
                task.result()
            assert listener.n_connections == 0
            left = asyncio.all_tasks() - tasks
            assert not left, left


def descriptors() -> int:
    """Open descriptors of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def slabs() -> int:
    """Blocks of input memory that are alive, counted with all the spare ones that the process keeps
    for everybody: so that what is kept for the first time is no difference between two counts."""
    gc.collect()
    sessions = [Session(role="server") for _ in range(2 * MAX_SPARE)]
    for session in sessions:
        session.get_buffer()[:1] = b"\n"
        session.buffer_updated(1)
    for session in sessions:
        assert not list(session)  # which gives its block back
    return slabs_live()


def lab_server(**options: Any) -> Server:
    """A server with tools that wait for a word of the test."""
    server = Server("lab", "1", **options)
    server.waiting = []  # type: ignore[attr-defined]
    server.cancelled = []  # type: ignore[attr-defined]

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool(inline=True)
    def fill(size: int) -> str:
        return "x" * size

    @server.tool
    async def wait(name: str) -> str:
        ready = asyncio.get_running_loop().create_future()
        server.waiting.append(ready)  # type: ignore[attr-defined]
        try:
            await ready
        except asyncio.CancelledError:
            server.cancelled.append(name)  # type: ignore[attr-defined]
            raise
        return name

    return server


# -- HTTP ------------------------------------------------------------------------------------------


def upgrade(
    path: str = "/mcp",
    *,
    port: int = 80,
    drop: tuple[str, ...] = (),
    first: str | None = None,
    **fields: str | None,
) -> bytes:
    """A request for a WebSocket. Keyword arguments are header fields (``_`` for ``-``); None leaves
    one out."""
    named: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    for name, value in fields.items():
        named[name.replace("_", "-")] = value
    lines = [first or f"GET {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in named.items() if value is not None]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Answer:
    """An HTTP answer, read to the end of the stream."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = {
            name.lower(): value for name, _, value in (f.partition(": ") for f in fields)
        }

    @property
    def line(self) -> str:
        """The body, which must be one line."""
        text = self.body.decode()
        assert text.endswith("\n"), text
        assert "\n" not in text[:-1], text
        return text[:-1]


async def exchange(port: int, request: bytes) -> Answer:
    """Send a request; the answer, after which the server must close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return Answer(data)


# -- frames ----------------------------------------------------------------------------------------


class Bare:
    """A WebSocket client of bytes: it does nothing of its own accord."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    @classmethod
    async def connect(cls, port: int, **fields: str | None) -> Bare:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self = cls(reader, writer)
        fields.setdefault("Sec_WebSocket_Protocol", "mcp")
        writer.write(upgrade(port=port, **fields))  # type: ignore[arg-type]
        self.head = await reader.readuntil(b"\r\n\r\n")
        assert self.head.startswith(b"HTTP/1.1 101 "), self.head
        return self

    def send(self, message: Any) -> None:
        self.writer.write(frame(1, encode(message).rstrip(b"\n")))

    def frame(self, opcode: int, payload: bytes = b"") -> None:
        self.writer.write(frame(opcode, payload))

    async def recv(self) -> tuple[int, bytes]:
        """The next frame: its opcode and payload. EOFError at the end."""
        first, length = await self.reader.readexactly(2)
        assert first & 0x80
        assert not length & 0x80
        if length == 126:
            (length,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 15, await self.reader.readexactly(length)

    async def message(self) -> Any:
        opcode, payload = await self.recv()
        assert opcode == 1, (opcode, payload)
        return strict(payload)

    async def handshake(self) -> None:
        self.send(initialize("init"))
        assert (await self.message())["id"] == "init"

    async def close_code(self) -> tuple[int, str]:
        """The close frame, which must come next."""
        opcode, payload = await self.recv()
        assert opcode == 8, (opcode, payload)
        return struct.unpack("!H", payload[:2])[0], payload[2:].decode()

    async def at_end(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self.reader.read() == b""
        return True

    async def close(self) -> None:
        """Leave without a word."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def vanish(self) -> None:
        """Leave by a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def frame(opcode: int, payload: bytes) -> bytes:
    """A masked frame; the mask changes nothing."""
    n = len(payload)
    head = bytes([0x80 | opcode])
    if n < 126:
        head += bytes([0x80 | n])
    elif n < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", n)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", n)
    return head + b"\0\0\0\0" + payload
