"""The tap at the wires: what it shows is what goes over them, by every door and framing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.lite import listening
from wire_recorder import Recorder

from wirespeed import Client, Server, Socket, WebSocket
from wirespeed._core.session import Session
from wirespeed._core.wire import set_tap

pytestmark = pytest.mark.smoke

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


@pytest.fixture
def shown(recorder: Recorder) -> Iterator[list[tuple[Any, str, bytes]]]:
    """All that is shown, instead of to the recorder."""
    found: list[tuple[Any, str, bytes]] = []
    set_tap(lambda *what: found.append(what))
    yield found
    set_tap(None)


def echo() -> Server:
    server = Server("echo")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


def test_both_doors(shown: list[tuple[Any, str, bytes]]) -> None:
    session = Session(role="server")
    session.receive_data(memoryview(PING))
    (request,) = session.events()
    session.send_result(request, b"{}")
    sent = b"".join(bytes(chunk) for chunk in session.data_to_send())
    with session.get_buffer() as buffer:
        buffer[:5] = PING[:5]
    session.buffer_updated(5)
    assert [what for wire, *what in shown if wire is session] == [
        ["made", b""],
        ["received", PING],
        ["sent", sent],
        ["received", PING[:5]],
    ]
    set_tap(None)
    session.receive_data(PING[5:])
    assert len(shown) == 4


async def test_what_one_sends_the_other_receives(
    shown: list[tuple[Any, str, bytes]], tmp_path: Path
) -> None:
    """Over a socket, with messages that are read and written in many pieces."""
    text = "x日" * 300_000
    async with listening(echo(), f"unix:{tmp_path}/s") as url, Client(Socket(url)) as client:
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": each}) for each in (text, "short", text))
        )
    assert [result.text for result in results] == [text, "short", text]
    streams: dict[tuple[int, str], bytes] = {}
    for wire, what, data in shown:
        key = id(wire), what
        streams[key] = streams.get(key, b"") + data
    one, other = dict.fromkeys(number for number, _ in streams)
    assert len(streams[one, "sent"]) > 2 * len(text.encode())
    assert streams[one, "sent"] == streams[other, "received"]
    assert streams[other, "sent"] == streams[one, "received"]


@pytest.mark.parametrize("compression", [False, True])
async def test_websocket_is_heard(recorder: Recorder, compression: bool) -> None:
    async with (
        listening(echo(), compression=compression) as url,
        Client(WebSocket(url, compression=compression)) as client,
    ):
        for text in ("short", "long " * 50_000):
            assert (await client.call_tool("echo", {"text": text})).text == text
    assert recorder.problems == []
    assert {("client", "request", "tools/call"), ("server", "result", "tools/call")} <= (
        recorder.judged("2026-07-28")
    )
    for conversation in recorder.conversations:
        calls = [n for (_, method, _), n in conversation.judged.items() if method == "tools/call"]
        assert calls == [2]
