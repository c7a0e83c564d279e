"""TLS: how the bytes of a request lie in records makes no difference."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

import pytest
from lab.raw import encode, initialize
from lab.serve import FOREVER, Answer, lab_server, serving

SECURE = "https://127.0.0.1:0/mcp"


async def shake_hands(
    tls: ssl.SSLObject,
    arrived: ssl.MemoryBIO,
    leaving: ssl.MemoryBIO,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """A handshake whose last bytes stay in `leaving`."""
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            writer.write(leaving.read())
            arrived.write(await reader.read(1 << 16))
        else:
            return


@pytest.mark.parametrize("size", [7, 5_000], ids=["records of 7", "head and body"])
async def test_records_that_come_with_the_end_of_the_handshake(
    size: int, any_loop: str, server_ssl: Any, client_ssl: Any
) -> None:
    body = encode(initialize(1))
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    async with serving(lab_server(), SECURE, ssl=server_ssl) as place, asyncio.timeout(FOREVER):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_ssl.wrap_bio(arrived, leaving, server_hostname="127.0.0.1")
        await shake_hands(tls, arrived, leaving, reader, writer)
        for part in (head, body):
            for start in range(0, len(part), size):
                tls.write(part[start : start + size])
        writer.write(leaving.read())
        answer = bytearray()
        while not answer.endswith(b"}") and (records := await reader.read(1 << 16)):
            arrived.write(records)
            with contextlib.suppress(ssl.SSLWantReadError):
                while data := tls.read(1 << 16):
                    answer += data
        assert Answer(bytes(answer)).status == 200, answer
        writer.close()
        await writer.wait_closed()
