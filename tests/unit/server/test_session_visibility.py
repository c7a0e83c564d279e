"""What is enabled and disabled by tag and name: for all clients, and for one session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Server, User
from wirespeed.errors import RemoteError
from wirespeed.types import ToolInfo

pytestmark = pytest.mark.compiled


def markets() -> Server:
    server = Server("markets")

    @server.tool(tags=["finance", "read"])
    async def quote(name: str) -> str:
        return f"{name}: 7"

    @server.tool(tags=["finance"])
    async def trade() -> str:
        return "traded"

    @server.tool
    async def activate(ctx: Context, tags: list[str] = [], names: list[str] = []) -> None:  # noqa: B006
        await ctx.enable(tags=tags, names=names)

    @server.tool
    async def deactivate(ctx: Context, tags: list[str] = [], names: list[str] = []) -> None:  # noqa: B006
        await ctx.disable(tags=tags, names=names)

    @server.tool
    async def reset(ctx: Context) -> None:
        await ctx.reset_visibility()

    @server.prompt(tags=["finance"])
    async def advise() -> str:
        return "Buy"

    server.add_resource("markets://open", "yes", tags=["finance"])

    @server.resource("markets://rate/{n}", tags=["finance"])
    async def rate(n: str) -> str:
        return n

    return server


ALWAYS = ["activate", "deactivate", "reset"]


async def seen(client: Client) -> list[str]:
    """What a client sees besides the three tools that change it."""
    names = [tool.name for tool in await client.list_tools() if tool.name not in ALWAYS]
    names += [prompt.name for prompt in await client.list_prompts()]
    names += [one.uri for one in await client.list_resources()]
    return names + [one.uri_template for one in await client.list_resource_templates()]


ALL = ["quote", "trade", "advise", "markets://open", "markets://rate/{n}"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_is_disabled_does_not_exist(era: Any) -> None:
    server = markets()
    server.disable(tags=["finance"])
    async with Client(server, era=era, cache=False) as client:
        assert await seen(client) == []
        with raises(RemoteError, code=-32602):
            await client.call_tool("quote", {"name": "a"})
        with raises(RemoteError, code=-32602):
            await client.get_prompt("advise")
        with pytest.raises(RemoteError) as missing:
            await client.read_resource("markets://rate/7")
        assert missing.value.resource_missing
        server.enable(tags=["read"])
        assert await seen(client) == ["quote"]
        server.disable(names=["quote"])
        assert await seen(client) == []
        server.enable(tags=["finance"])
        assert await seen(client) == ALL


async def test_a_disabled_tool_that_was_called_before_is_gone_at_once() -> None:
    server = markets()
    async with Client(server) as client:
        for _ in range(3):
            assert (await client.call_tool("trade")).text == "traded"
        server.disable(names=["trade"])
        with raises(RemoteError, code=-32602):
            await client.call_tool("trade")
        server.enable(names=["trade"])
        assert (await client.call_tool("trade")).text == "traded"


async def test_a_session_shows_what_it_enables() -> None:
    server = markets()
    server.disable(tags=["finance"])
    changes: asyncio.Queue[list[str]] = asyncio.Queue()

    def changed(tools: list[ToolInfo]) -> None:
        changes.put_nowait([tool.name for tool in tools if tool.name not in ALWAYS])

    async with (
        Client(server, era="legacy", on_tools_changed=changed) as client,
        Client(server, era="legacy") as other,
    ):
        await client.call_tool("activate", {"tags": ["read"]})
        assert await asyncio.wait_for(changes.get(), 20) == ["quote"]
        assert await seen(client) == ["quote"]
        for _ in range(3):
            assert (await client.call_tool("quote", {"name": "a"})).text == "a: 7"
            with raises(RemoteError, code=-32602):
                await other.call_tool("quote", {"name": "a"})
        await client.call_tool("activate", {"tags": ["finance"]})
        assert await seen(client) == ALL
        assert await seen(other) == []
        assert (await client.read_resource("markets://rate/7")).text == "7"
        await client.call_tool("deactivate", {"names": ["trade", "markets://open"]})
        assert await seen(client) == ["quote", "advise", "markets://rate/{n}"]
        with raises(RemoteError, code=-32602):
            await client.call_tool("trade")
        await client.call_tool("reset")
        assert await seen(client) == []
        with raises(RemoteError, code=-32602):
            await client.call_tool("quote", {"name": "a"})


async def test_a_session_hides_what_others_see() -> None:
    server = markets()
    async with Client(server, era="legacy") as client, Client(server, era="legacy") as other:
        assert (await client.call_tool("trade")).text == "traded"
        await client.call_tool("deactivate", {"tags": ["finance"]})
        with raises(RemoteError, code=-32602):
            await client.call_tool("trade")
        assert (await other.call_tool("trade")).text == "traded"
        assert (await seen(client), await seen(other)) == ([], ALL)


async def test_tags_hold_where_the_server_is_mounted() -> None:
    inner, outer = markets(), Server("outer")
    outer.mount("m", inner)
    async with Client(outer, era="legacy") as client:
        assert (await client.call_tool("m_trade")).text == "traded"
        inner.disable(tags=["finance"])
        with raises(RemoteError, code=-32602):
            await client.call_tool("m_trade")
        await client.call_tool("m_activate", {"tags": ["read"]})
        assert (await client.call_tool("m_quote", {"name": "a"})).text == "a: 7"
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["m_quote", *(f"m_{name}" for name in ALWAYS)]


async def test_a_filter_hides_what_a_session_enables() -> None:
    server = Server("lab", filter=lambda user, entry: user == "ann" or entry.name != "secret")
    server.add_tool(lambda: "secret", name="secret", tags=["a"])

    @server.tool
    async def activate(ctx: Context) -> None:
        await ctx.enable(tags=["a"])

    for name, sees in (("ann", 2), ("bob", 1)):
        async with Client(server, era="legacy", user=User(name)) as client:
            await client.call_tool("activate")
            assert len(await client.list_tools()) == sees


async def test_what_cannot_be_said() -> None:
    server = markets()
    with raises(ValueError):
        server.disable()
    with raises(TypeError):
        server.disable(tags="finance")
    with raises(TypeError):
        server.add_tool(lambda: None, name="a", tags="finance")
    async with Client(server, era="legacy") as client:
        result = await client.call_tool("activate", {"tags": ["finanse"]})
        assert result.text == "nothing has the tags ['finanse'] or the names []"
        assert (await client.call_tool("activate")).is_error
    async with Client(server, era="modern") as client:
        result = await client.call_tool("activate", {"tags": ["finance"]})
        assert "2026-07-28 has no sessions" in result.text
        assert await seen(client) == ALL
