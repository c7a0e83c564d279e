"""LiteMCP over WebSocket with WebSocket libraries on the other side."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
import transcripts

from wirespeed import WebSocket
from wirespeed.errors import ConnectionLost, UpgradeRefused
from wirespeed.litemcp import LiteClient
from wirespeed.transport.loop import loop_factory

LIBRARIES = ["websockets", "picows-api"]
OUR_LITE_SERVER = [sys.executable, str(peers.PROGRAMS / "our_lite_server.py")]
CLIENT = str(peers.PROGRAMS / "ws_lite_client.py")
SERVER = str(peers.PROGRAMS / "ws_lite_server.py")


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_as_client(tmp_path: Path, library: str) -> None:
    async def main() -> dict[str, Any]:
        async with pairings.listening(tmp_path, OUR_LITE_SERVER) as url:
            return await peers.report([peers.python("raw"), CLIENT, library, url])

    report = run(main())
    assert report["doors"] == {
        "nothing": 403,
        "wrong": 403,
        "Authorization": 101,
        "Authentication": 101,
        "scheme in lower case": 101,
        "both": 101,
        "both, one wrong": 403,
    }
    calculator = report["calculator"]
    assert "failed" not in calculator, calculator["failed"]
    parameters = [
        {"name": name, "type": "number", "description": f"The {place} number", "example": example}
        for name, place, example in (("a", "first", "2"), ("b", "second", "3"))
    ]
    assert calculator["info"] == {
        "version": [1, 0, 0],
        "id": 1,
        "type": "info",
        "data": {
            "version": [1, 0, 0],
            "name": "Calculator",
            "description": "A simple calculator",
            "example": "Calculate the sum of 2 and 3",
            "parameters": parameters,
        },
    }
    result = calculator["result"]
    (content,) = result["data"]["response"].pop("content")
    assert content["type"] == "number"
    assert float(content["data"]) == 5
    assert result == {
        "version": [1, 0, 0],
        "id": 2,
        "type": "result",
        "data": {
            "version": [1, 0, 0],
            "params": {"a": "2", "b": "3"},
            "response": {"error": False},
        },
    }
    for step, number in (("wrong", 3), ("unknown", 4)):
        refused = calculator[step]
        assert (refused["id"], refused["type"]) == (number, "result")
        assert refused["data"]["response"]["error"] is True
        assert refused["data"]["response"]["content"]
    assert report["echo"] == {
        "subprotocol": "whatever",
        "unicode": True,
        "big": True,
        "fail": [True, True],
        "many": True,
        "closed": 1003,
    }
    (life,) = transcripts.runs(tmp_path)
    assert life.exit == 0
    assert "internal error" not in life.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_as_server(tmp_path: Path, library: str) -> None:
    async def main() -> None:
        command = [peers.python("raw"), SERVER]
        async with pairings.listening(tmp_path, command, (library,)) as url:
            for token, tenant in (("guess", "blue"), ("secret", "red")):
                headers = {"X-Tenant": tenant}
                refused = LiteClient(url, token=token, headers=headers, both_headers=True)
                with pytest.raises(UpgradeRefused) as caught:
                    await refused.open()
                assert caught.value.status == 403
            target = WebSocket(url, restart=0)
            async with LiteClient(
                target, token="secret", headers={"X-Tenant": "blue"}, both_headers=True, timeout=20
            ) as client:
                tool = await client.info()
                assert (tool.name, tool.description) == ("Calculator", "A simple calculator")
                assert [(p.name, p.type, p.example) for p in tool.parameters or ()] == [
                    ("a", "number", "2"),
                    ("b", "number", "3"),
                ]
                assert "Calculator" in await client.prompt()
                result = await client.call(2, b=3)
                assert (result.text, result.error) == ("5", False)
                assert result.params == {"a": "2", "b": "3"}
                failed = await client.call("日本語 🎉", "\n\n\n")
                assert failed.error
                assert "日本語 🎉" in failed.text
                assert failed.params == {"a": "日本語 🎉", "b": "\n\n\n"}
                late = asyncio.create_task(client.call(-7, 7))
                many = await asyncio.gather(*(client.call(i, 1) for i in range(100)))
                assert [answer.text for answer in many] == [str(i + 1) for i in range(100)]
                assert (await late).text == "0"  # others overtook it
                with pytest.raises(ConnectionLost) as lost:
                    await client.call(-2, 1)
                assert lost.value.code == 1001

    run(main())
    (life,) = transcripts.runs(tmp_path)
    assert life.exit == 0, life.stderr
    assert life.heads[0][1][0] == "GET /calculator?lang=en HTTP/1.1"
    assert [lines[0].split()[1] for side, lines in life.heads if side == "<"] == [
        "403",
        "403",
        "101",
    ]
    ours = [frame for frame in life.frames if frame[0] == ">"]
    assert {frame[1] for frame in ours} == {"text", "close"}
