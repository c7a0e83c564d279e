"""LiteMCP servers behind the proxy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from lab.lite import LITE
from lab.merge import MergeLab
from lab.raw import surroundings

from wirespeed import Client, Stdio
from wirespeed.proxy import BackendConfig

pytestmark = pytest.mark.off_schema


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_its_tool_is_one_of_several_servers(tmp_path: Path, era: Any) -> None:
    script = tmp_path / "lite.py"
    script.write_text(LITE)
    target = Stdio(sys.executable, [str(script)], env=surroundings(), restart=True)
    lab = MergeLab(tmp_path)
    lab.backends = [
        lab.backend("a", isolation="shared"),
        BackendConfig(target=target, name="lite", protocol="litemcp"),
    ]
    async with lab.serving(), Client(lab.url, era=era) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert {"a_who", "lite_adder"} <= set(tools)
        assert set(tools["lite_adder"].input_schema["properties"]) == {"a", "b"}
        result = await client.call_tool("lite_adder", {"a": "1", "b": "2"})
        assert result.text == "3"
        failed = await client.call_tool("lite_adder", {"a": "13", "b": "2"})
        assert failed.is_error
        assert (await client.call_tool("lite_adder", {"a": "2", "b": "2"})).text == "4"


async def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [
        lab.backend("a", isolation="shared"),
        BackendConfig(target=Stdio("/no/such"), name="lite", protocol="litemcp"),
    ]
    async with lab.serving(), Client(lab.url, era="legacy") as client:
        names = {tool.name for tool in await client.list_tools()}
        assert "a_who" in names
        assert not any(name.startswith("lite_") for name in names)
