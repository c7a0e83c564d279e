"""What a result has besides what the protocol knows survives each hop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN
from lab.translation import EraLab, tool

from wirespeed import Socket
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

META = {"vendor.example/trace": {"deep": [1, {"x": None}]}, "io.modelcontextprotocol/other": "1"}
RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": "t", "_meta": {"in": "content"}, "unknown": 1}],
    "structuredContent": {"_meta": {"taskId": "9"}},
    "_meta": META,
    "vendor": {"unknown": [True, 1e3, "é"]},
    "isError": True,
}
LEGACY = ("2025-03-26", "2025-06-18", "2025-11-25")


def has_all(result: Any, version: str) -> bool:
    """Whether a result has what the server gave; a translator adds members."""
    assert result["_meta"].items() >= META.items()
    assert result["vendor"] == RESULT["vendor"] and result["isError"] is True
    (content,) = result["content"]
    assert content["_meta"] == {"in": "content"} and content["unknown"] == 1
    return version < "2025-06-18" or bool(result["structuredContent"] == {"_meta": {"taskId": "9"}})


@pytest.mark.parametrize("isolation", ["session", "shared", "pool", "auto"])
@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_isolations_and_eras(
    tmp_path: Path, isolation: str, server: str, version: str
) -> None:
    lab = EraLab(tmp_path, isolation, modern=server == "modern", size=2)
    async with lab.serving():
        client = await lab.connect(version)
        answer = await client.ask(tool(1, "raw", result=RESULT))
        assert has_all(answer["result"], version)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_two_proxies_and_several_servers(tmp_path: Path, version: str) -> None:
    """A proxy before a proxy, each with the endpoint of several servers."""
    lab = EraLab(tmp_path, "shared", modern=version == MODERN)
    config = lab.proxy.config
    other = replace(config.backends[0], name="other")
    lab.proxy = Proxy(replace(config, backends=(*config.backends, other)))
    path = tmp_path / "second"
    async with lab.serving():
        backends = tuple(
            BackendConfig(target=Socket(f"unix:{lab.path}"), name=name, isolation="shared")
            for name in ("x", "y")
        )
        second = Proxy(ProxyConfig(backends=backends, listen=(f"unix:{path}",)))
        listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(second.serve(on_listening=listening.set_result))
        await listening
        lab.path = path
        client = await lab.connect(version)
        answer = await client.ask(tool(1, "x_b_raw", result=RESULT))
        assert has_all(answer["result"], version)
        await client.close()
        serving.cancel()
        await asyncio.wait((serving,))
