"""Clients of others resume the streams of our server, poll them, and speak HTTP+SSE."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.serve import serving
from pairings import follow

from wirespeed import Context, HttpOptions, MemoryEventStore, Server, SQLiteEventStore
from wirespeed.transport.net.listener import Listener

CLIENTS = ["python1", "python2", "ts1"]


SCRIPT = [["plain", "text", "plain", {}], ["change", "change"], ["logs", "logs"]]
BROKEN = [["poll", "text", "poll", {}], ["cut", "text", "cut", {}]]


def seen(report: dict[str, Any]) -> dict[str, Any]:
    """What the steps of the script gave."""
    assert report["closing"] and report["change"] is None
    return {key: report[key] for key in ("plain", "poll", "cut", "logs") if key in report}


class Place:
    """A server that breaks its connections."""

    url = ""
    listener: Listener

    def __init__(self) -> None:
        self.server = Server("streams", "1")
        server = self.server

        @server.tool
        async def plain(ctx: Context) -> str:
            await ctx.log("info", "plain")
            return "done"

        @server.tool
        async def poll(ctx: Context) -> str:
            """Work on while no connection waits."""
            closed = ctx.close_stream()
            await ctx.log("info", "nobody listens")
            await asyncio.sleep(0.5)
            await ctx.log("info", "somebody listens")
            return f"closed: {closed}"

        @server.tool
        async def cut(ctx: Context) -> str:
            """Lose all connections at work."""
            await ctx.log("info", "before")
            await asyncio.sleep(0.2)
            for served in self.listener.served():
                served.connection.abort()
            await ctx.log("info", "meanwhile")
            await asyncio.sleep(0.5)
            await ctx.log("info", "after")
            return "whole"

        @server.tool
        async def change() -> str:
            server.add_tool(lambda: "", name="more")
            return "changed"


@contextlib.asynccontextmanager
async def listening(http: HttpOptions) -> AsyncIterator[Place]:
    place = Place()
    async with serving(place.server, "http://127.0.0.1:0/mcp", http=http) as at:
        place.listener, place.url = at.listener, at.url
        yield place


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("peer", CLIENTS)
async def test_streams_are_resumed(peer: str, store: str, tmp_path: Path) -> None:
    events: Any = (
        MemoryEventStore() if store == "memory" else SQLiteEventStore(tmp_path / "events.db")
    )
    script = [SCRIPT[0], *BROKEN, *SCRIPT[1:]]
    async with listening(HttpOptions(event_store=events, retry=0.1)) as place:
        found = await follow(peer, tmp_path, script, url=place.url)
    assert seen(found) == {
        "plain": "done",
        "poll": "closed: True",
        "cut": "whole",
        "logs": ["plain", "nobody listens", "somebody listens", "before", "meanwhile", "after"],
    }


@pytest.mark.parametrize("peer", CLIENTS)
async def test_http_and_sse(peer: str, tmp_path: Path) -> None:
    async with listening(HttpOptions(sse_path="/sse")) as place:
        url = place.url.removesuffix("/mcp") + "/sse"
        found = await follow(peer, tmp_path, SCRIPT, url=url)
    assert seen(found) == {"plain": "done", "logs": ["plain"]}
