"""Either end of the connection between two hosts of ``children/host.py``, which a test plays: it
writes frames by hand."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from lab.http import LEGACY, META, MODERN, call, message
from lab.raw import FOREVER

from wirespeed.transport.http.members import MemberProofs

PROOF, REQUEST, GONE, PAUSE, RESUME, STATE, ANSWER, PART, END, CUT, LAST, DRAIN = range(1, 13)
KEY = hmac.digest(b"s" * 16, b"wirespeed session hosts 1\0shop", "sha256")


def said(
    *,
    address: str = "127.0.0.1:1",
    user: str | None = None,
    principal: bytes | None = None,
    expires: float | None = None,
    worker: int = 0,
    far: bool = True,
    streams: bool = False,
) -> bytes:
    """What is said of a client."""
    client = address, user, (), principal, expires, worker, far, streams
    return msgspec.msgpack.encode(client)


def request_of(head: bytes, body: bytes, client: bytes) -> bytes:
    """What follows the head of a REQUEST."""
    return struct.pack("<I", len(client)) + client + head + body


def tool_call(session: str, tool: str, client: bytes, **arguments: Any) -> bytes:
    """The same, for a call of a tool in a session."""
    body = call(tool, arguments, 1, _meta={"progressToken": 1})
    head = (
        "POST /mcp HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
        f"Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {LEGACY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return request_of(head.encode(), body, client)


def subscription(client: bytes) -> bytes:
    """The same, for a subscription of 2026-07-28."""
    method = "subscriptions/listen"
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = message(method, params, 1)
    head = (
        "POST /mcp HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return request_of(head.encode(), body, client)


def answer_of(status: int, length: int, fields: bytes = b"") -> bytes:
    """What follows the head of an ANSWER."""
    return status.to_bytes(4, "little") + length.to_bytes(8, "little", signed=True) + fields


class End:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, kind: int, number: int = 0, data: bytes = b"") -> None:
        self.writer.write(struct.pack("<IIB", len(data), number, kind) + data)

    async def frame(self) -> tuple[int, int, bytes]:
        """The next frame: kind, number, and what follows."""
        async with asyncio.timeout(FOREVER):
            n, number, kind = struct.unpack("<IIB", await self.reader.readexactly(9))
            return kind, number, await self.reader.readexactly(n)

    async def answer(self, number: int) -> tuple[int, bytes, bytes]:
        """The answer to a request: status, fields, body."""
        status, fields, body = 0, b"", b""
        while True:
            kind, of, data = await self.frame()
            assert of == number
            if kind == ANSWER:
                status, fields = struct.unpack("<I", data[:4])[0], data[12:]
            elif kind == PART:
                body += data
            else:
                assert kind == END
                return status, fields, body

    async def over(self) -> None:
        """Until the other end has closed the connection."""
        async with asyncio.timeout(FOREVER):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass


async def head_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(FOREVER):
        return (await reader.readuntil(b"\r\n\r\n"))[:-4]


@contextlib.asynccontextmanager
async def asking(
    port: int, name: str = "a", key: bytes = KEY, proof: bytes | None = None
) -> AsyncIterator[End]:
    """The end that asks, of a host. ``proof``: In place of the right one."""
    sock = socket.socket()
    sock.setblocking(False)
    # The kernel takes little, so that what waits is at the other end.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    end = End(*await asyncio.open_connection(sock=sock))
    try:
        request, asked = MemberProofs(key).request("127.0.0.1")
        end.writer.write(request)
        head = await head_of(end.reader)
        right = MemberProofs(key).proof_of(name, asked, head)
        end.send(PROOF, 0, right if proof is None else proof)
        yield end
    finally:
        end.writer.close()


@contextlib.asynccontextmanager
async def answering(
    serve: Callable[[End], Awaitable[Any]], name: str = "x", key: bytes = KEY
) -> AsyncIterator[str]:
    """A host that answers as a test says. Gives its URL."""

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await head_of(reader)).decode()
            (asked,) = (
                line.partition(": ")[2] for line in head.split("\r\n") if "Member: " in line
            )
            answer, is_proof = MemberProofs(key).answer(name, asked)
            writer.write(answer)
            end = End(reader, writer)
            kind, _, proof = await end.frame()
            assert kind == PROOF and is_proof(proof)
            await serve(end)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(come, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
