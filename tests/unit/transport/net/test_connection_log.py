"""The access log of WebSockets and stream sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Server, Socket, WebSocket
from wirespeed.transport.options import User

server = Server("logged")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("kind", ["ws", "http", "unix", "tcp"])
@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_line_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, form: Any
) -> None:
    caplog.set_level(logging.INFO, "wirespeed.access")
    url = f"unix:{tmp_path}/s" if kind == "unix" else f"{kind}://127.0.0.1:0"
    options: dict[str, Any] = {"access_log": form}
    has_users = kind in ("ws", "http")
    if has_users:
        url += "/mcp"
        options["authenticate"] = lambda request: User('anne "\n')
    listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(server.serve(url, on_listening=listening.set_result, **options))
    (place,) = await listening
    target: Any = WebSocket(place.replace("http", "ws")) if has_users else Socket(place)
    async with Client(target, era="legacy") as client:
        for n in range(3):
            assert (await client.call_tool("add", {"a": n, "b": 1})).data == n + 1
    task.cancel()
    await asyncio.wait([task])
    lines = [one.message for one in caplog.records if one.name == "wirespeed.access"]
    assert len(lines) == 2
    assert not any("\n" in line for line in lines)
    if form == "text":
        opened, closed = lines
        who = r' user "anne \"\n"' if has_users else ""
        assert opened.endswith(f" {kind} opened{who}")
        assert f" {kind} closed{who} messages 6 bytes_in " in closed
        return
    first, last = map(json.loads, lines)
    assert (first["event"], last["event"]) == ("opened", "closed")
    assert first["scheme"] == last["scheme"] == kind
    assert first["peer"] == last["peer"]
    assert first.get("user") == ('anne "\n' if has_users else None)
    assert last["messages"] == 6  # initialize, initialized, a list, three calls
    assert last["bytes_in"] > 300
    assert last["bytes_out"] > 300
    assert last["ms"] > 0


async def test_other_words_are_refused() -> None:
    with raises(ValueError):
        await server.serve("ws://127.0.0.1:0/mcp", access_log="xml")  # type: ignore[arg-type]
