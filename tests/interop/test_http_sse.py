"""Our client calls servers of HTTP+SSE (2024-11-05) that others wrote."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pairings
import pytest

from wirespeed import Client, Http
from wirespeed.errors import CallTimeout, HttpStatusError


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("peer", ["python1", "python2", "ts1"])
async def test_http_and_sse(peer: str, era: Any) -> None:
    command = await asyncio.to_thread(pairings.server_command, peer)
    async with pairings.listening(None, command, (), "sse") as url:
        async with Client(url, era=era, timeout=10) as client:
            assert client.protocol_version == pairings.LATEST_LEGACY
            assert client.server_info is not None and client.server_info["name"] == "interop"
            texts = [f"é{i}" for i in range(20)]
            calls = (client.call_tool("echo", {"text": text, "ms": 5}) for text in texts)
            assert [result.text for result in await asyncio.gather(*calls)] == texts
            seen: list[float] = []
            await client.call_tool(
                "count", {"n": 3}, on_progress=lambda done, *_: seen.append(done)
            )
            assert seen == [1.0, 2.0, 3.0]
            with pytest.raises(CallTimeout):
                await client.call_tool("wait", timeout=1.0)
            async with asyncio.timeout(10):
                while not json.loads((await client.call_tool("noticed")).text):
                    await asyncio.sleep(0.05)
            # the server asks, too
            assert (await client.call_tool("ask")).text in ("answered", "-32601")
        with pytest.raises(HttpStatusError):
            await Client(Http(url, sse=False), era=era).open()
