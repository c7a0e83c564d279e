"""Servers of both eras behind one endpoint: which of them clients of 2026-07-28 see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import VersionMismatch, WirespeedError

TOOLS = {"tools/list": {"result": {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}}}


@pytest.mark.parametrize("listen", ["http", "ws"])
@pytest.mark.parametrize("era", ["auto", "modern"])
async def test_a_legacy_server_with_the_default_isolation(
    tmp_path: Path, listen: str, era: Any
) -> None:
    """Each modern client has every server: the eras are translated."""
    lab = MergeLab(tmp_path, "red")
    lab.backends += [lab.scripted("old", TOOLS), lab.scripted("older", TOOLS, isolation="shared")]
    async with lab.serving(f"{listen}://127.0.0.1:0/mcp") as (url, *_):
        async with Client(url, era=era) as client:
            assert client.protocol_version == "2026-07-28"
            names = {tool.name.split("_")[0] for tool in await client.list_tools()}
            assert names == {"red", "old", "older"}
            assert (await client.call_tool("red_who")).data == "red:"
            assert not (await client.call_tool("old_x")).is_error
        async with Client(url.replace("/mcp", "/servers/old"), era=era) as client:
            assert [tool.name for tool in await client.list_tools()] == ["x"]


async def test_a_server_that_needs_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients of 2026-07-28 over HTTP have the others. The log names it and what to set, once."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.backend("own", isolation="session"))
    async with lab.serving("http://127.0.0.1:0/mcp") as (url, *_):
        for era, seen in (("modern", {"red"}), ("modern", {"red"}), ("legacy", {"red", "own"})):
            async with Client(url, era=era) as client:  # type: ignore[arg-type]
                assert {one.name.split("_")[0] for one in await client.list_tools()} == seen
        async with Client(url, era="modern") as client:
            with raises(WirespeedError):
                await client.call_tool("own_who")
        alone = Client(url.replace("/mcp", "/servers/own"), era="modern")
        with pytest.raises(VersionMismatch):
            await alone.open()
    (line,) = [one for one in caplog.messages if one.startswith("own: ")]
    assert 'set isolation to "auto", "shared" or "pool"' in line


async def test_no_server_for_clients_without_a_session(tmp_path: Path) -> None:
    """A client of both eras goes on with `initialize`."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend(name, isolation="session") for name in ("red", "blue")]
    async with lab.serving("http://127.0.0.1:0/mcp") as (url, *_), Client(url) as client:
        assert client.protocol_version == "2025-11-25"
        assert (await client.call_tool("blue_who")).data == "blue:"


@pytest.mark.parametrize("listen", ["http", "ws"])
async def test_a_server_that_is_not_translated(
    tmp_path: Path, listen: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Modern clients have the others."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.scripted("old", TOOLS, isolation="shared", translate=False))
    async with lab.serving(f"{listen}://127.0.0.1:0/mcp") as (url, *_), Client(url) as client:
        assert client.protocol_version == "2026-07-28"
        assert {tool.name.split("_")[0] for tool in await client.list_tools()} == {"red"}
    assert "old: its translate is off" in caplog.text
