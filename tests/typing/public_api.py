"""What a type checker sees of the public API: read by mypy in .ci/run, never run."""

from __future__ import annotations

from typing import Any, assert_type

import wirespeed
from wirespeed import Client, Context, Limits, Server, Stdio, SyncClient, core
from wirespeed.client import CallToolResult, ToolInfo
from wirespeed.config import ServerConfig, load
from wirespeed.litemcp import LiteClient, LiteServer
from wirespeed.server.tool import Tool

server = Server("typing", version="1.0.0", limits=Limits(max_depth=32))


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool(title="Shout", inline=True, timeout=1.5)
def shout(text: str, ctx: Context) -> str:
    assert_type(ctx.request_id, int | str)
    assert_type(ctx.protocol_version, str)
    assert_type(ctx.client_info, dict[str, Any] | None)
    assert_type(ctx.cancelled, bool)
    return text.upper()


async def decorators_keep_the_signature() -> None:
    assert_type(await add(1, 2), int)
    await add("1", 2)  # type: ignore[arg-type]
    shout("a")  # type: ignore[call-arg]


def registering() -> None:
    assert_type(server.add_tool(print, name="p"), Tool)
    assert_type(server.tool_raw("raw", {"type": "object"}, lambda arguments: b"{}"), Tool)
    assert_type(server.run(), None)
    server.tool(tilte="?")  # type: ignore[call-overload]


async def asking() -> None:
    async with Client(Stdio("server", ["--flag"], env={"A": "b"}), era="modern") as client:
        assert_type(client, Client)
        assert_type(await client.list_tools(), list[ToolInfo])
        async for tool in client.iter_tools():
            assert_type(tool, ToolInfo)
        result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=5)
        assert_type(result, CallToolResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        await client.call_tool("add", [1, 2])  # type: ignore[arg-type]
    Client(server, era="old")  # type: ignore[arg-type]


def asking_without_a_loop() -> None:
    with SyncClient(server) as client:
        assert_type(client, SyncClient)


def configuring() -> None:
    assert_type(load("servers.json"), dict[str, ServerConfig])


def engine() -> None:
    level: str = core.simd_level()
    assert level
    assert_type(core.parse(b"{}"), core.Message)
    assert_type(wirespeed.get_include(), str)
    session = core.Session(limits=Limits(), role="client")
    session.receive_data(b"{}\n")
    session.receive_eof()


async def targets_and_urls() -> None:
    far = wirespeed.WebSocket("wss://tools.example/mcp", token="t", headers={"X-Tenant": "a"})
    assert_type(far.where, str)
    async with Client(far) as client:
        assert_type(await client.call_tool("add", {"a": 1, "b": 2}), CallToolResult)
    async with Client(wirespeed.Socket("unix:tools.sock")):
        pass
    await server.serve("ws://127.0.0.1:0/mcp", token="t", max_connections=10)
    await wirespeed.serve("ws://127.0.0.1:0", {"/mcp": server, "/convert": lite})


lite = LiteServer()


@lite.tool
async def convert(value: float, unit: str, to: str) -> float:
    return value


async def lite_calls() -> None:
    async with LiteClient("ws://127.0.0.1:8765/convert") as client:
        assert_type(await client.prompt(), str)
        assert_type((await client.call("1", "mi", "km")).error, bool)
