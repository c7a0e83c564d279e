"""Every message of every revision, sent by our server and our client, and judged."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import features
import ours
import pytest
import wire_shapes
from wire_check import row
from wire_recorder import Recorder

from wirespeed import Context, Server, report_progress
from wirespeed.errors import CallTimeout
from wirespeed.protocol.asking import Root

PROGRAM = Path(__file__).resolve().parents[1] / "interop" / "programs" / "our_features_server.py"
LEGACY = [version for version in wire_shapes.CODES if version < "2026"]
# What only clients say that run tasks for servers: see tests/unit/test_method_table.py.
NEVER = {("client", "notification", "notifications/tasks/status")}


# The handshake asks for the newest revision, and is answered with an older one.
NEVER_IN = {version: {("client", "request", "initialize")} for version in LEGACY[:-1]}


def offered(version: str) -> set[tuple[str, str, str]]:
    """Everything that a revision has, but tasks on the client's side."""
    code = wire_shapes.CODES[version]
    found: set[tuple[str, str, str]] = set()
    sides = [
        ("client", "server", wire_shapes.CLIENT_REQUESTS, wire_shapes.CLIENT_NOTIFICATIONS),
        ("server", "client", wire_shapes.SERVER_REQUESTS, wire_shapes.SERVER_NOTIFICATIONS),
    ]
    for side, other, requests, notifications in sides:
        for method in requests:
            if row(requests, method, code) and not (side == "server" and "tasks/" in method):
                found |= {(side, "request", method), (other, "result", method)}
        for method in notifications:
            if row(notifications, method, code):
                found.add((side, "notification", method))
    return found


def program(version: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The server of the features, for one revision."""
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--versions", version])
    spec = importlib.util.spec_from_file_location(f"features_{version}", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def add_rarities(server: Server) -> None:
    """Tools whose messages the features of the interoperability tests do not show."""

    @server.tool
    async def hurry(ctx: Context) -> str:
        try:
            await ctx.sample("Take your time.", max_tokens=5, timeout=0.01)
        except CallTimeout:
            return "late"
        return "in time"

    @server.tool
    async def patiently(ctx: Context) -> str:
        await ctx.ping()
        answer = await ctx.sample("Hm?", max_tokens=6, on_progress=lambda *how: None)
        return answer.text

    @server.tool
    async def complete(ctx: Context) -> None:
        ctx.elicitation_complete("e-1")

    @server.tool(task="optional", task_after=0)
    async def endless() -> None:
        await asyncio.sleep(30)

    @server.tool(task="optional", task_after=0)
    async def ask_in_task(ctx: Context) -> str:
        return (await ctx.sample("Capital of France?", max_tokens=50)).text


class Session(ours.Ours):
    """The features, and what is rare."""

    async def on_sample(self, request: Any) -> Any:
        if request.max_tokens == 5:
            await asyncio.sleep(30)
        report_progress(1)
        return await super().on_sample(request)

    async def rarities(self) -> None:
        client = self.client
        await client.add_root(Root(uri="file:///more"))
        await client.call_tool("complete")
        await client.call_tool("patiently")
        if not self.modern:
            assert (await client.call_tool("hurry")).text == "late"
            if client.protocol_version < "2025-11-25":
                return
            await client.list_tasks()
        task = await client.start_tool("ask_in_task", {})
        assert (await task.result()).text == "Paris"
        endless = await client.start_tool("endless", {})
        assert (await endless.status()).status == "working"
        await endless.cancel()

    async def ending(self, server: Server) -> None:
        """What a modern client is told when a server is shut down."""
        async with self.client, self.client.subscribe(tools=True) as events:
            for connection in list(server.service.connections):
                connection.drain()
            assert [event async for event in events] == []


@pytest.mark.parametrize("version", list(wire_shapes.CODES))
async def test_every_message_of_a_revision(
    version: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = program(version, monkeypatch).server
    add_rarities(server)
    era = "modern" if version > "2026" else "legacy"
    steps = [name for name, feature in features.FEATURES.items() if era in feature.eras]

    report = await Session(server, era, [*steps, "rarities"]).hold()
    assert report["rarities"] is None
    if era == "modern":
        await Session(server, era, []).ending(server)
    never = NEVER | NEVER_IN.get(version, set())
    assert sorted(offered(version) - never - recorder.judged(version)) == []
