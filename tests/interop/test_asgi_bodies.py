"""Bodies whose length is not what they say, below the ASGI servers that people use, by raw bytes.

Some servers let a request pass that can be read in two ways. Whatever they let pass, nothing that
lies behind the end of a body becomes a request of another client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asgi_servers
import pytest

SECONDS = 20.0
SERVERS = {
    "uvicorn": ("uvicorn", "--http", "httptools"),
    "uvicorn-h11": ("uvicorn", "--http", "h11"),
    "granian": ("granian",),
    "hypercorn": ("hypercorn",),
}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: tools.example\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: %b\r\n"
)


def call(id: int, tool: str, **arguments: Any) -> tuple[bytes, bytes]:
    """The head of a call, without the length and the empty line, and its body."""
    params = {"name": tool, "arguments": arguments, "_meta": MODERN}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return HEAD % tool.encode(), json.dumps(message).encode()


def length(n: int) -> bytes:
    return b"Content-Length: %d\r\n" % n


def whole(id: int, tool: str, **arguments: Any) -> bytes:
    """A call as it should be."""
    head, body = call(id, tool, **arguments)
    return head + length(len(body)) + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
EVIL = whole(666, "mark", name="evil")
TAILS = {"a request": EVIL, "a head": b"DELETE /mcp HTTP/1.0\r\nx: ", "a line": b"PUT / HTTP/1.1"}


class Connection:
    """One connection to the server, and what came by it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self) -> tuple[int, Any]:
        """The next response: its status, and its JSON if it has a result."""
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            body = b""
            if b"transfer-encoding: chunked" in head:
                while n := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(n + 2))[:-2]
                await self.reader.readline()
            elif found := re.search(rb"content-length: (\d+)", head):
                body = await self.reader.readexactly(int(found[1]))
        status = int(head.split()[1])
        return status, json.loads(body) if status == 200 else None

    async def rest(self) -> list[int]:
        """The statuses of all further responses, until the server closes."""
        async with asyncio.timeout(SECONDS):
            data = await self.reader.read()
        return [
            int(status) for status in re.findall(rb"^HTTP/1\.[01] (\d{3}) ?", data, re.MULTILINE)
        ]


class Site:
    """Our application below a server, and connections to it."""

    def __init__(self, server: asgi_servers.Running, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self._stack = stack

    async def connect(self) -> Connection:
        """Another connection, until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self._stack.callback(writer.close)
        return Connection(reader, writer)


@contextlib.asynccontextmanager
async def running(peer: str) -> AsyncIterator[Site]:
    async with (
        asgi_servers.running(*SERVERS[peer]) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        yield Site(server, stack)


async def check(connection: Connection, n: int) -> None:
    """A call by a connection gets its own answer."""
    await connection.send(whole(n, "add", a=n, b=n))
    status, answer = await connection.response()
    assert (status, answer["id"]) == (200, n)
    assert answer["result"]["structuredContent"] == {"result": 2 * n}


Attack = Callable[[Site, bytes], Awaitable[None]]


async def chunks_beside_a_length(site: Site, tail: bytes) -> None:
    """The chunk goes on behind the length."""
    head, body = call(1, "add", a=1, b=1)
    chunk = body + tail
    connection = await site.connect()
    framed = b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk)
    await connection.send(head + length(len(body)) + CHUNKED + framed)
    status, _ = await connection.response()
    assert status == 400


async def two_lengths(site: Site, tail: bytes) -> None:
    """The longer one has the tail in it."""
    head, body = call(1, "add", a=1, b=1)
    for first, second in ((0, len(tail)), (len(tail), 0)):
        lengths = length(len(body) + first) + length(len(body) + second)
        connection = await site.connect()
        await connection.send(head + lengths + b"\r\n" + body + tail)
        status, _ = await connection.response()
        assert status == 400


async def short(site: Site, tail: bytes) -> None:
    """The body ends within its length, and its client leaves."""
    head, body = call(1, "add", a=1, b=1)
    for data in (body[:-1], body + tail[:5], b""):
        connection = await site.connect()
        await connection.send(head + length(len(body) + 50) + b"\r\n" + data)
        connection.writer.write_eof()
        # The application gets no end of the body, so granian finds no answer: 500.
        assert set(await connection.rest()) <= {400, 500}


ATTACKS: dict[str, Attack] = {
    "chunks-beside-a-length": chunks_beside_a_length,
    "two-lengths": two_lengths,
    "short": short,
}


@pytest.mark.parametrize("peer", SERVERS)
async def test_no_byte_behind_a_body_reaches_another_client(peer: str) -> None:
    async with running(peer) as site:
        kept = await site.connect()
        n = 1
        for attack in ATTACKS.values():
            for tail in TAILS.values():
                await attack(site, tail)
                for connection in (kept, await site.connect()):
                    n += 1
                    await check(connection, n)
    assert "marked" not in site.server.said, site.server.said


@pytest.mark.parametrize("peer", SERVERS)
async def test_what_lies_behind_a_length_is_the_next_request_of_its_own_client(peer: str) -> None:
    """A server reads it as HTTP says: a request is served, and all else is refused."""
    async with running(peer) as site:
        kept = await site.connect()
        connection = await site.connect()
        await connection.send(whole(1, "add", a=1, b=1) + whole(2, "mark", name="own"))
        assert (await connection.response())[1]["id"] == 1
        assert (await connection.response())[1]["id"] == 2
        await check(connection, 3)
        await connection.send(whole(4, "add", a=1, b=1) + b'{"jsonrpc": "2.0"}\r\n\r\n')
        assert await connection.rest() in ([200, 400], [200], [400])
        await check(kept, 5)
    assert site.server.said.count("marked own") == 1, site.server.said


@pytest.mark.parametrize("peer", SERVERS)
async def test_a_short_body_takes_the_beginning_of_the_next_request(peer: str) -> None:
    """As behind a proxy whose connection is shared: the first request is not JSON then, and what
    is left of the second begins within its head, so it is refused."""
    head, body = call(1, "add", a=1, b=1)
    async with running(peer) as site:
        kept = await site.connect()
        connection = await site.connect()
        await connection.send(head + length(len(body) + 100) + b"\r\n" + body)
        await connection.send(whole(2, "mark", name="next"))
        assert (await connection.response())[0] == 400
        assert set(await connection.rest()) <= {400}
        await check(kept, 3)
    assert "marked" not in site.server.said, site.server.said


@pytest.mark.parametrize("peer", SERVERS)
async def test_pipelined_requests(peer: str) -> None:
    """Each gets its own answer, in order, also in pieces and beside those of another client."""
    async with running(peer) as site:
        connections = [await site.connect() for _ in range(2)]
        for n, connection in enumerate(connections):
            data = b"".join(whole(i, "add", a=i, b=n) for i in range(20))
            for at in range(0, len(data), 777):
                await connection.send(data[at : at + 777])
        for n, connection in enumerate(connections):
            for i in range(20):
                status, answer = await connection.response()
                assert (status, answer["id"]) == (200, i)
                assert answer["result"]["structuredContent"] == {"result": i + n}
