"""MCP over WebSocket with WebSocket libraries on the other side, which know nothing of MCP."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
import transcripts

from wirespeed import Client, WebSocket
from wirespeed.errors import ConnectionLost
from wirespeed.transport.loop import loop_factory

# library, whether permessage-deflate is wanted; picows' own API has none
LINKS = [
    ("websockets", False),
    ("websockets", True),
    ("picows", False),
    ("picows-api", False),
    ("picows-api", True),
]
ERAS = [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("modern", "2026-07-28")]
UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
CLIENT = str(peers.PROGRAMS / "ws_raw_client.py")
CERTIFICATE = peers.HERE.parent / "unit" / "client" / "certificate.pem"
SERVER = str(peers.PROGRAMS / "ws_raw_server.py")


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


@pytest.mark.parametrize(("library", "deflate"), LINKS)
def test_library_as_client(tmp_path: Path, library: str, deflate: bool) -> None:
    options = ("--compression",) if deflate else ()

    async def main() -> dict[str, Any]:
        async with pairings.listening(tmp_path, pairings.OUR_SERVER, options) as url:
            more = ["--deflate"] if deflate else []
            return await peers.report([peers.python("raw"), CLIENT, library, url, *more])

    check(run(main()), deflate)
    (life,) = transcripts.runs(tmp_path)
    assert life.exit == 0
    assert "internal error" not in life.stderr
    data = [frame for frame in life.frames if frame[1] in ("text", "continuation")]
    assert {frame[1] for frame in data if frame[0] == ">"} == {"text", "continuation"}
    assert {frame[1] for frame in data if frame[0] == "<"} == {"text"}
    assert ("deflated" in {frame[3] for frame in data}) == deflate
    closes = [(frame[0], frame[4]) for frame in life.frames if frame[1] == "close"]
    assert closes[:4] == [(">", "1000"), ("<", "1000")] * 2
    assert closes[4] == ("<", "1003")


def check(report: dict[str, Any], deflate: bool) -> None:
    """What the raw client must have seen of our server."""
    legacy = report["legacy"]
    assert "failed" not in legacy, legacy["failed"]
    extensions = legacy.pop("extensions")
    assert ("permessage-deflate" in extensions) if deflate else (extensions is None)
    assert legacy == {
        "subprotocol": "mcp",
        "version": ["2025-11-25", "hello"],
        "tools": ["add", "echo"],
        "add": {"result": 5},
        "unicode": True,
        "big": True,
        "fragments": True,
        "fail": [True, True],
        "progress": [1, 2, 3, 7],
        "bad_json": -32700,
        "ping": "pong",
        "many": 300,
        "cancelled": ["mine"],
    }
    modern = report["modern"]
    assert modern["versions"][0] == "2026-07-28"
    assert (modern["add"], modern["id"]) == ({"result": 5}, 2)
    assert report["binary"] == 1003


@pytest.mark.parametrize("library", ["websockets", "picows", "picows-api"])
def test_library_as_client_over_tls(library: str) -> None:
    async def main() -> dict[str, Any]:
        options = ("--tls", str(CERTIFICATE))
        async with pairings.listening(None, pairings.OUR_SERVER, options) as url:
            assert url.startswith("wss://")
            client = [peers.python("raw"), CLIENT, library, url, "--trust", str(CERTIFICATE)]
            return await peers.report(client)

    check(run(main()), False)


@pytest.mark.parametrize(("library", "deflate"), LINKS)
@pytest.mark.parametrize(("era", "version"), ERAS)
def test_library_as_server(
    tmp_path: Path, library: str, deflate: bool, era: str, version: str
) -> None:
    options = (library, "--deflate") if deflate else (library,)

    async def main() -> None:
        command = [peers.python("raw"), SERVER]
        async with pairings.listening(tmp_path, command, options) as url:
            target = WebSocket(url, compression=deflate)
            async with Client(target, era=era, timeout=20) as client:  # type: ignore[arg-type]
                assert client.protocol_version == version
                assert client.server_info == {"name": "raw", "version": "1.2.3"}
                assert [tool.name for tool in await client.list_tools()] == ["echo", "do"]

                async def echo(text: str, tool: str = "echo") -> bool:
                    result = await client.call_tool(tool, {"text": text})
                    return result.text == text

                assert await echo(UNICODE)
                assert await echo("x日🎉\n" * (1 << 19))
                assert all(await asyncio.gather(*(echo(f"text {i}") for i in range(300))))
                long = f"fragments {UNICODE * 1000}"
                tricks = ["ping", long, "spaces", "garbage"]
                assert all(await asyncio.gather(*(echo(text, "do") for text in tricks)))

    run(main())
    (life,) = transcripts.runs(tmp_path)
    assert life.exit == 0, life.stderr
    (_, request), (_, response) = life.heads
    assert request[0] == "GET /any/path HTTP/1.1"
    assert "Sec-WebSocket-Protocol: mcp" in request
    agreed = [line for line in response if line.lower().startswith("sec-websocket-extensions")]
    assert bool(agreed) == deflate
    ours = [frame for frame in life.frames if frame[0] == ">"]
    assert {frame[1] for frame in ours} == {"text", "pong", "close"}
    assert ("deflated" in {frame[3] for frame in ours}) == deflate
    assert ["<", "continuation"] in [frame[:2] for frame in life.frames]
    closes = [(frame[0], frame[4]) for frame in life.frames if frame[1] == "close"]
    assert closes == [(">", "1000"), ("<", "1000")]


@pytest.mark.parametrize("library", ["websockets", "picows"])
@pytest.mark.parametrize(
    ("trick", "code", "said"),
    [
        ("binary", 1003, "this side closed the connection: 1003"),
        ("close", 1001, "the server closed the connection: 1001"),
        ("vanish", 1006, "ws://"),
    ],
)
def test_library_as_server_ends_it(
    tmp_path: Path,
    library: str,
    trick: str,
    code: int,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        command = [peers.python("raw"), SERVER]
        async with pairings.listening(tmp_path, command, (library,)) as url:
            target = WebSocket(url, restart=0)
            async with Client(target, era="legacy", timeout=20) as client:
                with pytest.raises(ConnectionLost, match=re.escape(said)) as caught:
                    await client.call_tool("do", {"text": trick})
                assert caught.value.code == code

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno > 30] == []
