"""wss://: the same over TLS, and what goes wrong before there is HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import struct
from typing import Any

import pytest
from lab.raw import call, initialize
from lab.serve import Answer, Bare, Place, descriptors, frame, lab_server, serving, slabs, upgrade
from lab.wording import raises
from websockets.asyncio.client import connect

from wirespeed import Client, WebSocket
from wirespeed.errors import TransportError, UpgradeRefused
from wirespeed.transport.address import parse
from wirespeed.transport.net.connect import connect_websocket

LOOPBACK = "ws://127.0.0.1:0/mcp"
SECURE = "wss://127.0.0.1:0/mcp"


@pytest.mark.parametrize(
    ("listens", "asked", "words"),
    [
        (LOOPBACK, "wss://127.0.0.1:{}/mcp", "TLS is reached at http:// or ws://"),
        (LOOPBACK, "tcp://127.0.0.1:{}", "the server speaks HTTP: use http:// or ws://"),
        (LOOPBACK, "http://127.0.0.1:{}/mcp", "the server speaks WebSocket there: use ws://"),
        (SECURE, "ws://127.0.0.1:{}/mcp", "use wss://"),
        ("tcp://127.0.0.1:0", "ws://127.0.0.1:{}/mcp", "if it speaks TLS, use wss://"),
        ("tcp://127.0.0.1:0", "wss://127.0.0.1:{}/mcp", "cannot connect to wss://"),
    ],
)
async def test_the_wrong_scheme_fails_at_once_and_names_the_right_one(
    listens: str, asked: str, words: str, server_ssl: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"ssl": server_ssl} if listens == SECURE else {}
    async with serving(lab_server(), listens, open_timeout=1000.0, **options) as place:
        with pytest.raises(TransportError) as caught:
            # the time limits of the client are not what ends it
            async with Client(asked.format(place.port)), asyncio.timeout(9):
                pass
        assert words in str(caught.value)
        assert "no answer within" not in str(caught.value)
    assert "skipped a line" not in caplog.text


@pytest.mark.parametrize("size", [10, 70_000, 3_000_000])
@pytest.mark.parametrize("compression", [False, True])
async def test_round_trip(size: int, compression: bool, server_ssl: Any, client_ssl: Any) -> None:
    options = {"ssl": server_ssl, "compression": compression}
    async with serving(lab_server(), SECURE, **options) as place:
        offer = "deflate" if compression else None
        async with connect(
            place.url, ssl=client_ssl, subprotocols=["mcp"], max_size=None, compression=offer
        ) as ws:
            await ws.send(json.dumps(initialize(0)))
            assert json.loads(await ws.recv())["id"] == 0
            text = "abcdefg\n" * (size // 8)
            for id in range(3):
                await ws.send(json.dumps(call(id, "echo", {"text": text})))
            for _ in range(3):
                answer = json.loads(await ws.recv())
                assert answer["result"]["content"][0]["text"] == text
        await place.empty()


async def test_a_refusal_is_read_to_its_end(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl, token="t") as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        writer.write(upgrade(port=place.port))
        answer = Answer(await reader.read())
        assert (answer.status, answer.line) == (401, "a bearer token is needed")
        writer.close()
        await place.empty()


async def test_what_comes_with_the_request_is_not_lost(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        writer.write(upgrade(port=place.port) + frame(1, json.dumps(initialize(0)).encode()))
        peer = Bare(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        assert (await peer.message())["id"] == 0
        writer.close()
        await place.empty()


async def test_what_comes_in_pieces_while_the_request_is_judged_stays_in_order(
    server_ssl: Any, client_ssl: Any
) -> None:
    asked, verdict = asyncio.Event(), asyncio.Event()

    async def authenticate(request: Any) -> bool:
        asked.set()
        await verdict.wait()
        return True

    async with serving(lab_server(), SECURE, ssl=server_ssl, authenticate=authenticate) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=client_ssl)
        first, second = (frame(1, json.dumps(initialize(id)).encode()) for id in (0, 1))
        writer.write(upgrade(port=place.port) + first[:20])
        await asked.wait()
        writer.write(first[20:] + second[:7])
        for _ in range(100):  # turns of the loop in which they arrive
            await asyncio.sleep(0)
        verdict.set()
        peer = Bare(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        assert (await peer.message())["id"] == 0
        writer.write(second[7:])
        assert (await peer.message())["id"] == 1
        writer.close()
        await place.empty()


async def test_drain_says_1001(server_ssl: Any, client_ssl: Any) -> None:
    server: Any = lab_server()
    async with serving(server, SECURE, ssl=server_ssl) as place:
        async with connect(place.url, ssl=client_ssl, subprotocols=["mcp"]) as ws:
            await ws.send(json.dumps(initialize(0)))
            await ws.recv()
            await ws.send(json.dumps(call(1, "wait", {"name": "last"})))
            await place.until(lambda: server.waiting)
            place.listener.drain()
            server.waiting[0].set_result(None)
            assert json.loads(await ws.recv())["id"] == 1
            await ws.wait_closed()
            assert ws.close_code == 1001
        await place.task


async def test_a_client_that_vanishes(server_ssl: Any, client_ssl: Any) -> None:
    server: Any = lab_server()
    async with serving(server, SECURE, ssl=server_ssl) as place:
        ws = await connect(place.url, ssl=client_ssl, subprotocols=["mcp"])
        await ws.send(json.dumps(initialize(0)))
        await ws.recv()
        await ws.send(json.dumps(call(1, "wait", {"name": "x"})))
        await place.until(lambda: server.waiting)
        ws.transport.abort()
        await place.empty()
        assert server.cancelled == ["x"]


async def test_a_slow_reader_is_cut_off(server_ssl: Any, client_ssl: Any) -> None:
    options: Any = {"slow_reader_timeout": 0.2, "close_timeout": 0.1, "ssl": server_ssl}
    async with serving(lab_server(), SECURE, **options) as place:
        ws = await connect(place.url, ssl=client_ssl, subprotocols=["mcp"], max_size=None)
        await ws.send(json.dumps(initialize(0)))
        await ws.recv()
        ws.transport.pause_reading()
        for id in range(150):
            await ws.send(json.dumps(call(id, "fill", {"size": 200_000})))
        await place.until(lambda: place.listener.served())
        await place.empty()
        ws.transport.abort()


# -- before there is HTTP --------------------------------------------------------------------------


async def refused(place: Place, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_tls_that_fails_is_one_line_in_the_log(
    server_ssl: Any, client_ssl: Any, caplog: Any
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(lab_server(), SECURE, ssl=server_ssl) as place:
        await refused(place, upgrade())  # plain HTTP
        await place.empty()
        assert len(caplog.records) == 1
        strangers = ssl.create_default_context()  # does not know the certificate
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", place.port, ssl=strangers)
        await place.empty()
        assert len(caplog.records) == 2
        async with connect(place.url, ssl=client_ssl, subprotocols=["mcp"]):
            pass
    lines = [r.getMessage() for r in caplog.records if r.name == "wirespeed.server"]
    assert all(line.startswith("refused 127.0.0.1:") for line in lines[:2])
    assert "TLS failed: http request" in lines[0]
    assert all(r.exc_info is None for r in caplog.records)
    assert "Traceback" not in caplog.text


async def test_a_silent_client_is_closed_in_time(server_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl, open_timeout=0.1) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        assert await reader.read() == b""
        await place.empty()
        writer.close()


async def test_tls_that_fails_leaves_nothing(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl) as place:

        async def visit(n: int) -> None:
            if n % 3 == 0:
                await refused(place, b"\x16\x03\x01nonsense" * 10)
            elif n % 3 == 1:
                ws = await connect(place.url, ssl=client_ssl, subprotocols=["mcp"])
                ws.transport.abort()
            else:
                sock = socket.create_connection(("127.0.0.1", place.port))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()

        async def round_of(n: int) -> None:
            await asyncio.gather(*(visit(i) for i in range(n)))
            await place.empty()

        await round_of(12)
        fds, before = descriptors(), slabs()
        for _ in range(3):
            await round_of(12)
        assert descriptors() <= fds
        assert slabs() <= before


# -- our own client --------------------------------------------------------------------------------


async def test_our_client_checks_the_certificate(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl, token="t") as place:
        address = parse(place.url)
        with raises(TransportError):
            await connect_websocket(address)
        other = parse(f"wss://127.0.0.2:{place.port}/mcp")
        with pytest.raises(TransportError):
            await connect_websocket(other, ssl=client_ssl)
        with pytest.raises(UpgradeRefused) as caught:
            await connect_websocket(address, ssl=client_ssl)
        assert (caught.value.status, caught.value.reason) == (401, "a bearer token is needed")
        opened = await connect_websocket(
            address,
            ssl=client_ssl,
            subprotocols=["mcp"],
            headers={"Authorization": "Bearer t"},
            compression=True,
        )
        assert opened.subprotocol == "mcp"
        assert opened.extension is None
        assert opened.peer == f"127.0.0.1:{place.port}"
        opened.close()
        await place.empty()


async def test_our_client_over_tls_calls(server_ssl: Any, client_ssl: Any) -> None:
    async with serving(lab_server(), SECURE, ssl=server_ssl) as place:
        async with Client(WebSocket(place.url, ssl=client_ssl)) as client:
            for size in (3, 100_000, 2_000_000):
                result = await client.call_tool("fill", {"size": size})
                assert len(result.text) == size
        await place.empty()
