"""What others built on the SDKs: the published mcp-server-time. FastMCP is in `test_sdks.py`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pairings
import pytest
import transcripts

from wirespeed import Client, Stdio
from wirespeed.errors import RemoteError

pytestmark = pytest.mark.full("what others built on the SDKs that test_sdks.py speaks with")
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
