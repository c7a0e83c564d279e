"""What others built on the SDKs: the published mcp-server-time, and FastMCP both ways."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
import transcripts

from wirespeed import Client, Stdio
from wirespeed.client import LogMessage
from wirespeed.errors import RemoteError

pytestmark = pytest.mark.full("what others built on the SDKs that test_*_sdk.py speaks with")
ERAS = [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("modern", "2026-07-28")]


def launched(place: Path, command: list[str], said: list[str]) -> Stdio:
    """A server whose wire is written down in a folder."""
    spy = pairings.spied(place, command)
    return Stdio(spy[0], spy[1:], stderr=said.append)


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_time_server(tmp_path: Path, era: str, version: str) -> None:
    said: list[str] = []
    target = launched(tmp_path, pairings.server_command("time"), said)

    async def main() -> None:
        async with Client(target, era=era, timeout=20) as client:  # type: ignore[arg-type]
            assert client.protocol_version == version
            assert client.server_info is not None
            assert client.server_info["name"] == "mcp-time"
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert set(tools) == {"get_current_time", "convert_time"}
            assert tools["convert_time"].annotations is not None
            assert tools["convert_time"].annotations["readOnlyHint"] is True
            schema = tools["convert_time"].input_schema
            assert set(schema["required"]) == {"source_timezone", "time", "target_timezone"}

            now = await client.call_tool("get_current_time", {"timezone": "Asia/Tokyo"})
            assert not now.is_error
            assert now.structured_content["timezone"] == "Asia/Tokyo"
            assert now.structured_content["datetime"].endswith("+09:00")

            async def convert(minute: int) -> None:
                question = {
                    "source_timezone": "UTC",
                    "time": f"12:{minute:02}",
                    "target_timezone": "Asia/Kathmandu",
                }
                result = await client.call_tool("convert_time", question)
                assert result.structured_content["time_difference"] == "+5.75h"
                assert f"T12:{minute:02}:00" in result.structured_content["source"]["datetime"]
                assert json.loads(result.text) == result.structured_content

            await asyncio.gather(*map(convert, range(50)))

            wrong = await client.call_tool("get_current_time", {"timezone": "Nowhere/Land"})
            assert wrong.is_error
            assert "Nowhere/Land" in wrong.text
            missing = await client.call_tool("get_current_time", {})
            assert missing.is_error
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("no such tool")
            assert caught.value.code == -32602

    asyncio.run(main())
    (run,) = transcripts.runs(tmp_path)
    assert run.exit == 0
    assert said == []


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_fastmcp_server(tmp_path: Path, era: str, version: str) -> None:
    said: list[str] = []
    logged: list[LogMessage] = []
    program = str(peers.PROGRAMS / "fastmcp_server.py")
    target = launched(tmp_path, [peers.python("fastmcp"), program], said)
    options: dict[str, Any] = {"era": era, "log_level": "info", "on_log": logged.append}

    async def main() -> None:
        async with Client(target, timeout=20, **options) as client:
            assert client.protocol_version == version
            assert client.server_info is not None
            assert client.server_info["version"] == "1.2.3"
            assert client.instructions == "Call the tools."
            assert {t.name for t in await client.list_tools()} == {"add", "count", "fail"}

            async def add(i: int) -> int:
                result = await client.call_tool("add", {"a": i, "b": 1})
                answer: int = result.structured_content["result"]
                return answer

            sums = await asyncio.gather(*map(add, range(50)))
            assert sums == list(range(1, 51))
            steps: list[tuple[float, float | None, str | None]] = []
            result = await client.call_tool(
                "count", {"n": 3}, on_progress=lambda *values: steps.append(values)
            )
            assert result.text == "3"
            assert steps == [(i, 3, f"step {i}") for i in (1, 2, 3)]
            failed = await client.call_tool("fail")
            assert failed.is_error
            assert failed.text == "boom"
            wrong = await client.call_tool("add", {"a": "x", "b": 1})
            assert wrong.is_error

    asyncio.run(main())
    assert [(entry.level, entry.data["msg"]) for entry in logged] == [("warning", "counted")]
    (run,) = transcripts.runs(tmp_path)
    assert run.exit == 0
    assert run.errors() == []
    assert said == []


@pytest.mark.parametrize(
    ("mode", "version", "options"),
    [
        ("auto", "2026-07-28", ()),
        ("legacy", "2025-11-25", ()),
        ("auto", "2025-06-18", pairings.only("2025-06-18")),
    ],
)
def test_fastmcp_client(tmp_path: Path, mode: str, version: str, options: tuple[str, ...]) -> None:
    program = str(peers.PROGRAMS / "fastmcp_client.py")
    server = pairings.spied(tmp_path, pairings.OUR_SERVER, options)
    done = subprocess.run(
        [peers.python("fastmcp"), program, mode, *server],
        env=peers.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=pairings.PROGRAM_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["version"] == version
    assert report["server"] == "interop"
    assert len(report["tools"]) == 12
    assert report["add"] == {"result": 5}
    assert report["person"] == {"name": "Ada", "age": 30, "colour": "red", "tags": ["a"]}
    assert report["steps"] == [[i, 3, f"step {i}"] for i in (1, 2, 3)]
    assert report["blocks"] == ["text", "image", "audio", "resource_link", "resource", "resource"]
    assert "boom" in report["fail"]
    assert report["unknown"] == -32602
    assert report["many"] == 50
    run = transcripts.runs(tmp_path)[-1]
    assert run.exit == 0
    probe = [("server/discover", -32022)] if mode == "auto" and version < "2026" else []
    assert run.errors() == [*probe, ("tools/call", -32602)]
