"""`Server.use_tool_search`: a short list, a search, and calls that are those of the tool itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Server, ToolSearch, User
from wirespeed.errors import RemoteError
from wirespeed.types import CallNext, InboundRequest, Reply

pytestmark = pytest.mark.compiled

ERAS = ("legacy", "modern")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def shop(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    async def order_cake(kind: str, ctx: Context) -> str:
        """Order a cake from the bakery."""
        await ctx.progress(1, 2)
        return f"{kind} by {ctx.request_id!r}"

    @server.tool(tags=["inner"])
    async def close_shop() -> str:
        """Close the shop for the night."""
        return "closed"

    @server.tool(scopes=["till"])
    async def open_till() -> str:
        """Open the till of the shop."""
        return "open"

    @server.tool
    async def status() -> str:
        return "fine"

    return server


async def found(client: Client, query: str, **more: Any) -> list[str]:
    result = await client.call_tool("search_tools", {"query": query, **more})
    assert not result.is_error, result.text
    return [tool["name"] for tool in json.loads(result.text)["tools"]]


async def test_lists_and_calls(era: Any) -> None:
    server = shop()
    server.use_tool_search(ToolSearch(visible=("stat*",), limit=2))
    async with Client(server, era=era) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["status", "search_tools", "call_tool"]
        assert await found(client, "bakery") == ["order_cake"]
        assert len(await found(client, "shop")) == 2
        assert len(await found(client, "shop", limit=1)) == 1
        assert await found(client, "search tools") == []  # it does not find itself
        told: list[Any] = []
        given = {"name": "order_cake", "arguments": {"kind": "plum"}}
        result = await client.call_tool(
            "call_tool", given, on_progress=lambda *progress: told.append(progress)
        )
        assert result.text.startswith("plum by ")
        assert told
        assert (await client.call_tool("order_cake", {"kind": "plum"})).text[:4] == "plum"
        for arguments, code in (
            ({"name": "none"}, -32602),
            ({"name": "call_tool"}, -32602),
            ({"name": "order_cake", "arguments": "x"}, -32602),
            ({}, -32602),
        ):
            with raises(RemoteError, code=code):
                await client.call_tool("call_tool", arguments)
        wrong = await client.call_tool("search_tools", {"query": ""})
        assert (wrong.is_error, wrong.text) == (True, "query is a text of 1 to 1000 characters")
        wrong = await client.call_tool("call_tool", {"name": "order_cake", "arguments": {"a": 1}})
        assert wrong.is_error


async def test_rights(era: Any) -> None:
    """A search finds what a list shows, and a call by the meta tool is checked as any other."""

    def sees(user: User | None, entry: Any) -> bool:
        return entry.name != "order_cake" or user is not None

    server = shop(filter=sees)
    server.use_tool_search()
    server.disable(tags=["inner"])
    async with Client(server, era=era) as client:
        assert await found(client, "cake shop till") == ["open_till"]
        for name in ("order_cake", "close_shop"):
            with raises(RemoteError, code=-32602):
                await client.call_tool("call_tool", {"name": name, "arguments": {"kind": "x"}})
    anne = User("anne")
    async with Client(server, era=era, user=anne) as client:
        assert "order_cake" in await found(client, "cake")
        with raises(RemoteError, code=-31003):
            await client.call_tool("call_tool", {"name": "open_till"})
    async with Client(server, era=era, user=User("bob", frozenset({"till"}))) as client:
        assert (await client.call_tool("call_tool", {"name": "open_till"})).text == "open"


async def test_middleware_sees_the_tool(era: Any) -> None:
    server = shop()
    server.use_tool_search()
    seen: list[Any] = []

    @server.add_middleware
    async def watch(request: InboundRequest, call_next: CallNext) -> Reply | None:
        if request.method == "tools/call":
            seen.append((request.name, request.arguments))
        return await call_next(request)

    async with Client(server, era=era) as client:
        await client.call_tool("call_tool", {"name": "order_cake", "arguments": {"kind": "plum"}})
        await client.call_tool("order_cake", {"kind": "plum"})
        assert seen == [("order_cake", {"kind": "plum"})] * 2
        await found(client, "cake")
        assert seen[-1][0] == "search_tools"
        with raises(RemoteError, code=-32602):
            await client.call_tool("call_tool", {"name": 5})


async def test_changes_and_mounts() -> None:
    server = shop()
    server.use_tool_search()
    with pytest.raises(RuntimeError, match="already"):
        server.use_tool_search()
    outer = Server("outer")
    outer.mount("in", server)
    async with Client(server) as client, Client(outer) as other:
        names = {tool.name for tool in await other.list_tools()}
        assert names == {"in_order_cake", "in_close_shop", "in_open_till", "in_status"}

        @server.tool
        async def unicorn() -> str:
            return "here"

        assert await found(client, "unicorn") == ["unicorn"]
        server.remove_tool("unicorn")
        assert await found(client, "unicorn") == []
    late = shop()
    outer.mount("late", late)
    late.use_tool_search()
    assert not any(name.startswith("late_search") for name in outer.tools)
    taken = Server("taken")

    @taken.tool
    async def call_tool() -> None: ...

    with pytest.raises(ValueError, match="already"):
        taken.use_tool_search()
