"""tools/list: pages, and being told of changes in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lab.client import LEGACY, MODERN, Fake, Run, text_result, turns, until
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.client import feature_requests as lists_module
from wirespeed.errors import InvalidResponse
from wirespeed.types import ToolInfo

Make = Callable[..., Fake]


def page(*names: str, cursor: str | None = None) -> list[list[Any]]:
    result: dict[str, Any] = {"tools": [{"name": n, "inputSchema": {}} for n in names]}
    if cursor is not None:
        result["nextCursor"] = cursor
    return [["result", result]]


def paged(*pages: list[list[Any]], base: Any = LEGACY) -> dict[str, Any]:
    rules = dict(base)
    del rules["tools/list"]
    return rules | {f"tools/list#{i}": actions for i, actions in enumerate(pages, 1)}


def cursors(server: Fake) -> list[Any]:
    return [m["params"].get("cursor") for m in server.sent("tools/list")]


async def test_pages_are_asked_for_when_they_are_needed(once: Run, fake: Make) -> None:
    server = fake(paged(page("a", "b", cursor="1"), page("c", cursor="2"), page("d")))
    async with Client(server.target, era="legacy") as client:
        tools = client.iter_tools()
        assert cursors(server) == []
        assert (await anext(tools)).name == "a"
        assert (await anext(tools)).name == "b"
        assert cursors(server) == [None]
        assert (await anext(tools)).name == "c"
        assert cursors(server) == [None, "1"]
        await tools.aclose()
        await client.ping()
        assert cursors(server) == [None, "1"]


async def test_an_empty_cursor_goes_on(once: Run, fake: Make) -> None:
    server = fake(paged(page("a", cursor=""), page("b")))
    async with Client(server.target, era="legacy") as client:
        assert (await client.list_tools_page()).next_cursor == ""
        assert (await client.list_tools_page("")).next_cursor is None
    assert cursors(server) == [None, ""]


@pytest.mark.parametrize("loop", [["x", "x"], ["x", "y", "x"], ["", ""]])
async def test_pages_in_a_circle_end_the_list(
    once: Run, fake: Make, loop: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What came is kept, each item once."""
    names = ["t", "u", "t"]
    server = fake(
        paged(*(page(name, cursor=cursor) for name, cursor in zip(names, loop, strict=False)))
    )
    async with Client(server.target, era="legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == names[: min(len(loop), 2)]
        (record,) = [one for one in caplog.records if one.name == "wirespeed.client"]
        assert "tools/list ends early: its next page is one before it" in record.getMessage()
    assert cursors(server) == [None, *loop[:-1]]


async def test_a_last_page_that_names_itself(once: Run, fake: Make) -> None:
    server = fake(paged(*[page("t", cursor="8")] * 4))
    async with Client(server.target, era="legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == ["t"]
        assert [tool.name async for tool in client.iter_tools()] == ["t"]


async def test_an_empty_cursor_that_the_server_refuses(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = fake(paged(page("a", cursor=""), [["error", {"code": -32602, "message": "cursor"}]]))
    async with Client(server.target, era="legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == ["a"]
    assert [one.getMessage() for one in caplog.records if one.name == "wirespeed.client"] == [
        'tools/list ends with the cursor "", which the server refuses'
    ]
    assert cursors(server) == [None, ""]


async def test_pages_without_end(once: Run, fake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_module, "MAX_PAGES", 5)
    server = fake(paged(*(page("t", cursor=str(i)) for i in range(10))))
    async with Client(server.target, era="legacy") as client:
        with raises(InvalidResponse):
            await client.list_tools()
    assert len(cursors(server)) == 5


async def test_what_a_tool_says(once: Run, fake: Make) -> None:
    full = {
        "name": "odd näme/1",
        "title": "T",
        "description": "d",
        "inputSchema": {"type": "object", "x": [1]},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "title": "A"},
        "icons": [{"src": "data:,"}],
        "execution": {"taskSupport": "optional"},
        "_meta": {"m": 1},
        "unknown": 1,
    }
    tools = [full, {"name": "b", "inputSchema": {}, "annotations": {"title": "B"}}]
    result = {"tools": tools, "ttlMs": 5, "cacheScope": "public", "_meta": {"p": 1}}
    server = fake(LEGACY | {"tools/list": [["result", result]]})
    async with Client(server.target, era="legacy") as client:
        got = await client.list_tools_page()
        # which are members of 2026-07-28
        assert (got.ttl_ms, got.cache_scope, got.meta) == (0, "private", {"p": 1})
        assert got.tools[0] == ToolInfo(
            name="odd näme/1", input_schema=full["inputSchema"], title="T", description="d",
            output_schema={"type": "object"}, annotations=full["annotations"],
            icons=full["icons"], execution=full["execution"], meta={"m": 1},
        )  # fmt: skip
        assert [tool.display_name for tool in got.tools] == ["T", "B"]


@pytest.mark.parametrize(
    "result", [{}, {"tools": None}, {"tools": {}}, {"tools": [], "nextCursor": 5}]
)
async def test_an_invalid_list(once: Run, fake: Make, result: Any) -> None:
    server = fake(LEGACY | {"tools/list": [["result", result]]})
    async with Client(server.target, era="legacy") as client:
        with raises(InvalidResponse):
            await client.list_tools()


# -- changes ---------------------------------------------------------------------------------------

CHANGED = ["raw", '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}']


async def test_nobody_listens_who_does_not_want_to_know(once: Run, fake: Make) -> None:
    server = fake(MODERN | {"tools/call": [CHANGED, ["result", text_result()]]})
    async with Client(server.target) as client:
        await client.call_tool("echo")
        await client.ping()
    assert set(server.methods) == {"server/discover", "tools/call"}


async def test_changes_in_a_row_are_fetched_in_order(fake: Make) -> None:
    """One fetch at a time, and at least one that began after the last change."""
    slow = [["later", page(str(i))] for i in range(4)]
    server = fake(
        paged(*([actions] for actions in slow))
        | {
            "tools/call": [CHANGED, CHANGED, CHANGED, ["result", text_result()]],
            "ping": [["release"], ["result", {}]],
        }
    )
    lists: list[str] = []
    async with Client(
        server.target, era="legacy", on_tools_changed=lambda tools: lists.append(tools[0].name)
    ) as client:
        await client.call_tool("echo")
        await server.got("tools/list")
        await client.call_tool("echo")
        await turns(20)
        assert len(cursors(server)) == 1
        await client.ping()
        await server.got("tools/list", 2)
        await client.ping()
        await until(lambda: len(lists) == 2)
        await client.ping()
        assert len(cursors(server)) == 2
    assert lists == ["0", "1"]


async def test_a_change_callback_that_raises(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = fake(LEGACY | {"tools/call": [CHANGED, ["result", text_result()]]})
    seen: list[Any] = []

    def changed(tools: list[ToolInfo]) -> None:
        seen.append(tools)
        raise ZeroDivisionError("mine")

    async with Client(server.target, era="legacy", on_tools_changed=changed) as client:
        for n in (1, 2):
            await client.call_tool("echo")
            await until(lambda n=n: len(seen) == n)  # type: ignore[misc]
    assert caplog.text.count("ZeroDivisionError: mine") == 2


async def test_changes_of_a_real_server(era: Any) -> None:
    server = Server("s")
    lists: list[list[str]] = []

    async def extra() -> None: ...

    async with Client(
        server, era=era, on_tools_changed=lambda tools: lists.append([t.name for t in tools])
    ) as client:
        await client.ping()
        server.add_tool(extra)
        await until(lambda: lists == [["extra"]])
        server.remove_tool("extra")
        await until(lambda: lists == [["extra"], []])
        await asyncio.to_thread(server.add_tool, extra)  # from any thread
        await until(lambda: len(lists) == 3)
