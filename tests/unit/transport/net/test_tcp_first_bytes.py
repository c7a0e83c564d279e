"""tcp://: a connection that does not begin with JSON is closed before anything runs.

A web page can have the browser send HTTP to any port of the machine. The lines of the request are
not messages, but its body may be one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from lab.raw import modern
from lab.serve import Place, serving

from wirespeed import Server
from wirespeed.litemcp import LiteServer

ANYWHERE = "tcp://127.0.0.1:0"
MARK = b"\xef\xbb\xbf"
HTTP = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n"
TLS = bytes.fromhex("16030100a5010000a10303")
LITE_CALL = {
    "version": [1, 0, 0],
    "id": 1,
    "type": "call",
    "data": {"version": [1, 0, 0], "tool": "act", "arguments": []},
}


def service(kind: str, ran: list[str]) -> tuple[Server | LiteServer, bytes]:
    """A server with one tool, and a message that calls the tool."""

    async def act() -> str:
        ran.append("act")
        return "done"

    if kind == "lite":
        lite = LiteServer("act")
        lite.tool(act)
        return lite, json.dumps(LITE_CALL).encode() + b"\n\n\n"
    server = Server("lab", "1")
    server.add_tool(act)
    call = modern(1, "tools/call", {"name": "act", "arguments": {}})
    return server, json.dumps(call).encode() + b"\n"


async def said(place: Place, *pieces: bytes) -> bytes:
    """What the server answers to pieces that come one by one, until it closes."""
    address = place.listener.address
    if address.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    data = b""
    with contextlib.suppress(OSError):  # the server may have closed
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof()
        async with asyncio.timeout(20):
            data = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return data


@pytest.fixture(params=["mcp", "lite"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "before",
    [
        HTTP,
        b"\r\n\r\n\r\n" + HTTP,
        b" \t" + HTTP,
        MARK + HTTP,
        MARK + MARK,
        HTTP + b"\n\n\n",
        TLS,
        b"null\n\n\n",
        b"\xef\xbb",
        b"\x00",
    ],
    ids=["http", "newlines", "blanks", "mark", "marks", "frame", "tls", "null", "half", "nul"],
)
async def test_nothing_runs_behind_what_is_not_json(kind: str, before: bytes, caplog: Any) -> None:
    ran: list[str] = []
    server, message = service(kind, ran)
    async with serving(server, ANYWHERE) as place:
        for pieces in ((before + message,), (before, message)):
            caplog.clear()
            with caplog.at_level(logging.INFO):
                assert await said(place, *pieces) == b""
                await place.empty()
            (record,) = caplog.records
            assert record.levelno == logging.WARNING
            assert "its first bytes are not JSON" in record.getMessage()
    assert ran == []


@pytest.mark.parametrize("before", [b"", b"\r\n \t\n", MARK, b"\n" + MARK + b" \n"])
async def test_messages_behind_blanks_and_a_byte_order_mark(kind: str, before: bytes) -> None:
    ran: list[str] = []
    server, message = service(kind, ran)
    async with serving(server, ANYWHERE) as place:
        whole = before + message + message.replace(b'"id": 1', b'"id": 2')
        for pieces in ((whole,), [bytes([byte]) for byte in whole[:12]] + [whole[12:]]):
            answer = await said(place, *pieces)
            assert b"done" in answer
            assert b"error" not in answer.replace(b'"error":false', b"")
        await place.empty()
    assert ran == ["act"] * 4


async def test_a_connection_that_says_nothing_is_not_logged(kind: str, caplog: Any) -> None:
    server, _ = service(kind, [])
    async with serving(server, ANYWHERE) as place:
        with caplog.at_level(logging.DEBUG, "wirespeed"):
            assert await said(place, b"\n \n") == b""
            await place.empty()
    assert [record for record in caplog.records if record.name.startswith("wirespeed")] == []


async def test_blanks_without_end_take_no_memory(kind: str) -> None:
    ran: list[str] = []
    server, message = service(kind, ran)
    async with serving(server, ANYWHERE) as place:
        assert b"done" in await said(place, *[b"\n \r\n" * 65536] * 40, message)
    assert ran == ["act"]


@pytest.mark.off_schema  # an error without an id is from 2025-11-25 on
async def test_a_line_that_is_not_json_is_answered_over_unix(tmp_path: Path) -> None:
    """No web page reaches the file of a UNIX socket."""
    ran: list[str] = []
    server, message = service("mcp", ran)
    async with serving(server, f"unix:{tmp_path}/s") as place:
        answer = await said(place, b"null and void\n" + message)
        assert b"-32700" in answer
        assert b"done" in answer
    assert ran == ["act"]
