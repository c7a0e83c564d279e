"""The opening handshake from the client's side, and what servers may answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.raw import encode, initialize
from lab.rows import every
from lab.serve import lab_server, serving
from lab.wording import raises
from websockets.utils import accept_key

from wirespeed._core.framing.line import LineFramer
from wirespeed._core.framing.websocket import WebSocketFramer
from wirespeed._core.streams import FrameStream
from wirespeed.errors import TransportError, UpgradeRefused
from wirespeed.transport.address import Address, parse
from wirespeed.transport.headers import Headers
from wirespeed.transport.link import Endpoint
from wirespeed.transport.net.connect import connect_stream, connect_websocket
from wirespeed.transport.websocket.upgrade import (
    ClientHandshake,
    MessageDeflate,
    Refused,
    ServerHandshake,
)

SECRET = "s3cret"


class Ear(Endpoint):
    """An endpoint that keeps what comes."""

    def __init__(self, framer: Any) -> None:
        self.wire = FrameStream(framer)
        self.frames: list[bytes] = []
        self.heard = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def on_data(self) -> None:
        for frame in self.wire:  # type: ignore[attr-defined]
            if frame is None:
                break
            self.frames.append(bytes(frame))
            self.heard.set()

    def on_eof(self) -> None:
        assert self.link is not None
        self.link.close()

    def on_lost(self, exc: BaseException | None) -> None:
        self.lost.set_result(exc)


@contextlib.asynccontextmanager
async def answering(answer: bytes, *, close: bool = True) -> AsyncIterator[Address]:
    """A server that answers every request with these bytes; ``KEY`` in them is made right."""

    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
            writer.write(answer.replace(b"KEY", accept_key(key.decode()).encode()))
            if not close:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:  # the loop may end first
            writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield parse(f"ws://127.0.0.1:{port}/mcp?key={SECRET}")
    finally:
        # A connection that just came gets its task. asyncio leaves those open whose transports it
        # makes after the server was closed.
        for _ in range(10):
            await asyncio.sleep(0)
        server.close()
        await asyncio.gather(*tasks)  # they end when the client has left
        await server.wait_closed()


GOOD = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: KEY\r\nX-Served-By: us\r\n"
)


async def test_an_open_one() -> None:
    hello = b"\x81\x05hello"  # what a server may send at once
    async with answering(
        GOOD + b"Sec-WebSocket-Protocol: b\r\n\r\n" + hello, close=False
    ) as address:
        opened = await connect_websocket(address, subprotocols=["a", "b"])
        assert opened.response_headers["x-served-by"] == "us"
        assert opened.subprotocol == "b"
        assert opened.extension is None
        assert opened.peer == f"127.0.0.1:{address.port}"
        ear = Ear(WebSocketFramer("client", max_message=1000, binary=True))
        link = opened.attach(ear)
        await ear.heard.wait()
        assert ear.frames == [b"hello"]
        link.close()
        assert await ear.lost is None
        opened.close()
        opened.close()  # harmless


async def test_compression() -> None:
    extension = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=10\r\n\r\n"
    async with answering(GOOD + extension, close=False) as address:
        opened = await connect_websocket(address, compression=True)
        assert isinstance(opened.extension, MessageDeflate)
        opened.close()
        with raises(TransportError):
            await connect_websocket(address)


@every(
    ("answer", "status", "reason", "words"),
    [
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 10\r\n\r\nwho is it?",
            401,
            "who is it?",
            "401 who is it?",
        ),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, "Not Found", "Not Found"),
        (b"HTTP/1.1 503 \r\n\r\n\r\nfull\nsecond line", 503, "full", "503 full"),
        (
            b"HTTP/1.1 403 No\r\nContent-Type: text/html\r\n\r\n<!doctype html><p>go away</p>",
            403,
            "No",
            "403 No",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: ws://evil.example/\r\nContent-Length: 0\r\n\r\n",
            302,
            "Found",
            "redirects are not followed",
        ),
        (
            b"HTTP/1.1 400 B\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
            400,
            "bad",
            "400 bad",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\x1b[m", 200, " [m", "200"),
    ],
)
@every("close", [True, False])
async def test_refused(answer: bytes, status: int, reason: str, words: str, close: bool) -> None:
    if not close and b"Length" not in answer and b"chunked" not in answer:
        close = True  # its body ends with the connection
    async with answering(answer, close=close) as address:
        with pytest.raises(UpgradeRefused) as caught:
            await connect_websocket(address, headers={"Authorization": f"Bearer {SECRET}"})
        assert caught.value.status == status
        assert caught.value.reason == reason
        assert words in str(caught.value)
        assert str(address) in str(caught.value)
        assert SECRET not in str(caught.value)


@every(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.0 200 OK\r\n\r\n", "not HTTP/1.1"),
        (b"", "closed the connection during the opening handshake"),
        (b"HTTP/1.1 101", "closed the connection during the opening handshake"),
        (b"x" * 20_000, "not an opening handshake"),
        (GOOD.replace(b"KEY", b"wrong") + b"\r\n", "Sec-WebSocket-Accept"),
        (GOOD.replace(b"Upgrade: websocket\r\n", b"") + b"\r\n", "Upgrade"),
        (GOOD + b"Sec-WebSocket-Protocol: other\r\n\r\n", "unsupported subprotocol"),
        (GOOD + b"Sec-WebSocket-Extensions: x\r\n\r\n", "extension"),
    ],
)
async def test_no_websocket_server(answer: bytes, words: str) -> None:
    async with answering(answer) as address:
        with pytest.raises(TransportError) as caught:
            await connect_websocket(address, subprotocols=["mcp"])
        assert not isinstance(caught.value, UpgradeRefused)
        assert str(caught.value).startswith(f"cannot connect to {address}: ")
        assert words in str(caught.value)
        assert SECRET not in str(caught.value)


async def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]  # bound, and nobody listens
        for url, words in (
            (f"ws://127.0.0.1:{port}/mcp", "connection refused"),
            (f"ws://localhost:{port}/mcp", "connection refused"),
            ("ws://nobody.invalid/mcp", ""),
        ):
            with pytest.raises(TransportError) as caught:
                await connect_websocket(parse(url))
            assert str(caught.value).startswith(f"cannot connect to {parse(url)}: {words}")
        for url, words in (
            (f"tcp://127.0.0.1:{port}", "connection refused"),
            (f"unix:{tmp_path}/s", "no such file or directory"),
        ):
            with pytest.raises(TransportError) as caught:
                await connect_stream(parse(url))
            text = f"cannot connect to {url}: {words}; start a server there, or correct the URL"
            assert str(caught.value) == text


async def test_a_server_that_says_nothing() -> None:
    async with answering(b"", close=False) as address:
        with raises(TransportError):
            await connect_websocket(address, open_timeout=0.05)


async def test_giving_up_leaves_nothing() -> None:
    async with answering(b"", close=False) as address:
        task = asyncio.ensure_future(connect_websocket(address))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # an open socket would be a warning, which is a failure


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_streams(kind: str, tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/s" if kind == "unix" else "tcp://127.0.0.1:0"
    async with serving(lab_server(), url) as place:
        opened = await connect_stream(place.listener.address)
        ear = Ear(LineFramer(100_000))
        link = opened.attach(ear)
        ear.wire.send(encode(initialize(7)).rstrip(b"\n"))  # type: ignore[attr-defined]
        link.wrote()
        await ear.heard.wait()
        assert b'"id":7' in ear.frames[0]
        place.listener.drain()
        await ear.lost
        opened.close()


def test_what_a_client_asks_for() -> None:
    handshake = ClientHandshake(
        parse("ws://[::1]:81/a?b=c"),
        subprotocols=["mcp"],
        headers={"Authorization": "Bearer t", "Host": "other.example", "Origin": "http://x"},
    )
    first, *lines = handshake.request.decode().rstrip().split("\r\n")
    assert first == "GET /a?b=c HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in lines)
    assert fields["Host"] == "other.example"
    assert fields["Authorization"] == "Bearer t"
    assert fields["Origin"] == "http://x"
    assert fields["Sec-WebSocket-Protocol"] == "mcp"
    assert fields["User-Agent"].startswith("wirespeed/")
    assert "Sec-WebSocket-Extensions" not in fields


def test_websockets_logs_nothing(caplog: Any) -> None:
    """It would log every header field, tokens too."""
    caplog.set_level(logging.DEBUG)
    handshake = ClientHandshake(parse("ws://h/"), headers={"Authorization": f"Bearer {SECRET}"})
    lines = handshake.request.decode().split("\r\n")[1:-2]
    asked = Headers([(name, value) for name, _, value in (line.partition(": ") for line in lines)])
    assert ServerHandshake(asked).accept(None, {}).startswith(b"HTTP/1.1 101 ")
    with pytest.raises(Refused):
        ServerHandshake(Headers({"Authorization": SECRET}))
    assert caplog.records == []
