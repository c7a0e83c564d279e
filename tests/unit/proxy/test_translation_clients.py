"""Our own clients and servers of one era each, through the proxy, over WebSocket and HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lab.eras import OTHER, elicited, serving

from wirespeed import Client
from wirespeed.errors import RemoteError, VersionMismatch

pytestmark = pytest.mark.off_schema

SERVER = """
import sys
from wirespeed import Context, Server

server = Server("travel", "3", instructions="go", versions=sys.argv[1].split(","))


@server.tool
async def book(to: str, ctx: Context) -> str:
    await ctx.log("info", f"to {to}")
    await ctx.progress(1, 2, "asking")
    answer = await ctx.elicit("Which seat?", int)
    roots = await ctx.roots()
    greeting = await ctx.sample("Welcome", max_tokens=5)
    return f"{to}: {answer.content} {len(roots)} {greeting.text}"


@server.tool
async def plain(n: int, ctx: Context) -> int:
    await ctx.progress(n)
    return n + 1


@server.tool
async def change(ctx: Context) -> str:
    server.resource_updated("memo://1")
    server.remove_tool("gone")
    return "changed"


@server.tool
def gone() -> None: ...


@server.resource("memo://1")
def memo() -> str:
    return "text"


@server.prompt
def greet(name: str) -> str:
    return f"Hello {name}"


server.run()
"""


async def sampled(request: Any) -> Any:
    from wirespeed.types import SampleResult

    return SampleResult(content="Welcome!", model="m")


@pytest.mark.parametrize("listen", ["ws", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_every_client_uses(tmp_path: Path, era: str, listen: str) -> None:
    """``era``: the server's."""
    updated: asyncio.Queue[str] = asyncio.Queue()
    async with (
        serving(tmp_path, SERVER, "shared", era, listen) as url,
        Client(url, era=OTHER[era], on_resource_updated=updated.put_nowait) as client,
    ):
        assert client.server_info is not None
        assert client.server_info["name"] == "travel"
        assert client.instructions == "go"
        assert {one.name for one in await client.list_tools()} >= {"plain", "change"}
        reports: list[Any] = []
        found = await asyncio.gather(
            *(
                client.call_tool("plain", {"n": n}, on_progress=lambda n, *_: reports.append(n))
                for n in range(20)
            )
        )
        assert [one.text for one in found] == [str(n + 1) for n in range(20)]
        assert sorted(reports) == [float(n) for n in range(20)]
        read = await client.read_resource("memo://1")
        assert read.text == "text"
        with pytest.raises(RemoteError) as failed:
            await client.read_resource("memo://2")
        assert failed.value.resource_missing
        assert failed.value.code == (-32602 if era == "legacy" else -32002)
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert prompt.messages[0].content.text == "Hello Ann"  # type: ignore[union-attr]
        await client.subscribe_resource("memo://1")
        assert (await client.call_tool("change")).text == "changed"
        assert await asyncio.wait_for(updated.get(), 5) == "memo://1"


@pytest.mark.parametrize(
    ("era", "isolation", "listen"),
    [
        ("legacy", "session", "ws"),
        ("modern", "session", "ws"),
        ("modern", "session", "http"),
        ("modern", "shared", "ws"),
        ("modern", "shared", "http"),
    ],
)
async def test_a_handler_that_asks(tmp_path: Path, era: str, isolation: str, listen: str) -> None:
    reports: list[Any] = []
    async with (
        serving(tmp_path, SERVER, isolation, era, listen) as url,
        Client(
            url, era=OTHER[era], on_elicit=elicited, on_sample=sampled, roots=["file:///a"]
        ) as client,
    ):
        got = await client.call_tool(
            "book", {"to": "Rome"}, on_progress=lambda *one: reports.append(one)
        )
    assert got.text == "Rome: 12 1 Welcome!"
    assert reports[0] == (1.0, 2.0, "asking")


async def test_a_legacy_server_of_each_client_over_http(tmp_path: Path) -> None:
    """Requests of 2026-07-28 come one by one there: none has a server of its own."""
    async with serving(tmp_path, SERVER, "session", "legacy", "http") as url:
        with pytest.raises(VersionMismatch):
            async with Client(url, era="modern"):
                pass


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_log_lines(tmp_path: Path, era: str) -> None:
    lines: list[Any] = []
    async with (
        serving(tmp_path, SERVER, "session", era, "ws") as url,
        Client(
            url, era=OTHER[era], on_elicit=elicited, on_sample=sampled, roots=["file:///a"],
            log_level="info", on_log=lambda line: lines.append(line.data),
        ) as client,
    ):  # fmt: skip
        await client.call_tool("book", {"to": "Rome"})
    assert lines
    assert set(lines) == {"to Rome"}
