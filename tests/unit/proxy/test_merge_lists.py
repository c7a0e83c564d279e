"""Merged lists: their pages, how long they may be kept, changes; prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab
from lab.proxy import call
from lab.raw import modern
from lab.wording import raises

from wirespeed import Client, Limits
from wirespeed.errors import RemoteError
from wirespeed.proxy import ToolsConfig


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


async def test_pages(tmp_path: Path, era: Any) -> None:
    """The cursors are the proxy's own."""
    lab = MergeLab(tmp_path, "red", "blue", page_size=5)
    async with lab.serving(), Client(lab.url, era=era) as client:
        tools = [tool.name for tool in await client.list_tools()]
        assert len(tools) == len(set(tools)) == 16
        assert [name.split("_")[0] for name in tools] == ["red"] * 8 + ["blue"] * 8


async def test_cursors(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, "red", "blue", page_size=10)
    async with lab.serving():
        client = await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        first = (await client.ask(ask))["result"]
        last = (await client.ask({**ask, "params": {"cursor": first["nextCursor"]}}))["result"]
        assert [len(first["tools"]), len(last["tools"])] == [10, 6]
        assert "nextCursor" not in last
        for cursor in ("bogus", 7, first["nextCursor"] + "=", None):
            error = (await client.ask({**ask, "params": {"cursor": cursor}})).get("error", {})
            assert error.get("code") == (None if cursor is None else -32602)


async def test_what_modern_results_say(tmp_path: Path) -> None:
    """How long a list may be kept is the least that its servers say."""
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect(None)
        for method, member in (("tools/list", "tools"), ("server/discover", "capabilities")):
            result = (await client.ask(modern(1, method)))["result"]
            assert result.keys() - {"instructions", "supportedVersions"} == {
                member, "resultType", "ttlMs", "cacheScope", "_meta",
            }  # fmt: skip
            assert result["resultType"] == "complete"
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")


async def test_a_change_is_told_and_asked_for(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red"), lab.inside("blue", isolation="shared")]
    async with lab.serving():
        client = await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for name in ("red", "blue"):
            before = {tool["name"] for tool in (await client.ask(ask))["result"]["tools"]}
            await client.send(call(2, f"{name}_grow"))
            said = [await client.recv() for _ in range(2)]
            (change,) = [one["method"] for one in said if "method" in one]
            assert change == "notifications/tools/list_changed"
            after = {tool["name"] for tool in (await client.ask(ask))["result"]["tools"]}
            assert after - before == {f"{name}_more"}


async def test_the_end_of_a_server_is_a_change(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.inside("blue")]
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "red_leave"))
        said = [await client.recv() for _ in range(4)]
        (failed,) = [one for one in said if "id" in one]
        assert failed["error"]["code"] == -31004
        assert {one["method"].split("/")[1] for one in said if "method" in one} == {
            "tools", "prompts", "resources",
        }  # fmt: skip


async def test_prompts(tmp_path: Path, era: Any) -> None:
    """Prompts have the prefix, and are not filtered as tools are."""
    lab = MergeLab(tmp_path)
    lab.backends = [
        lab.inside("red", prefix="r-", tools=ToolsConfig(allow=())),
        lab.inside("blue", isolation="shared" if era == "legacy" else "session"),
    ]
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert [prompt.name for prompt in await client.list_prompts()] == ["r-greet", "blue_greet"]
        assert {tool.name.split("_")[0] for tool in await client.list_tools()} == {"blue"}
        for name, prefix in (("red", "r-"), ("blue", "blue_")):
            got = await client.get_prompt(f"{prefix}greet", {"whom": "Ada"})
            assert got.messages[0].content.text == f"{name} greets Ada"  # type: ignore[union-attr]
        with raises(RemoteError, code=-32602):
            await client.get_prompt("greet", {"whom": "Ada"})


LONG = {"name": "x", "inputSchema": {"type": "object"}, "description": "x" * 40_000}


@pytest.mark.off_schema
@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"tools": [LONG] * 2, "nextCursor": "a"}, "tools/list has more than 100000 bytes"),
        (5, "the answer of s to tools/list is not an object"),
        ({"tools": 5}, "the tools of a page are not a list"),
    ],
)
async def test_a_list_that_is_not_valid(
    tmp_path: Path, page: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That of the other servers is shown."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.scripted("s", {"tools/list": {"result": page}}))
    lab.options["limits"] = Limits(max_message=100_000)
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert {tool["name"].split("_")[0] for tool in answer["result"]["tools"]} == {"red"}
    (line,) = [one for one in caplog.messages if one.startswith("s: ")]
    assert why in line


GOOD = {"name": "good", "inputSchema": {}}


@pytest.mark.off_schema
@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ({"name": "x"}, "'x': it has no inputSchema"),
        ({"name": "x", "inputSchema": None}, "'x': its inputSchema is not an object"),
        ({"name": "x", "inputSchema": {}, "outputSchema": []}, "'x': its outputSchema is not an"),
        ({"name": 7, "inputSchema": {}}, "7: its name is not a text"),
        ({"inputSchema": {}}, "one without a name: it has no name"),
        (None, "one without a name: it is not an object"),
    ],
)
async def test_a_tool_that_is_not_valid(
    tmp_path: Path, tool: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out with one warning, and none of the others."""
    page = {"result": {"tools": [GOOD, tool, {**GOOD, "name": "better", "title": None}]}}
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.scripted("s", {"tools/list": page}))
    async with lab.serving(), Client(lab.url, era="legacy") as client:
        for _ in range(2):
            names = {one.name for one in await client.list_tools()}
            assert {one for one in names if one.startswith("s_")} == {"s_good", "s_better"}
    (line,) = [one for one in caplog.messages if one.startswith("s: ")]
    assert f"s: some of its tools are not shown: {why}" in line


@pytest.mark.off_schema
@pytest.mark.parametrize("cursor", ["", 5, None])
async def test_a_cursor_that_leads_nowhere(tmp_path: Path, cursor: Any) -> None:
    """The list ends with what came."""
    lab = MergeLab(tmp_path, "red")
    page = {"result": {"tools": [GOOD], "nextCursor": cursor}}
    lab.backends = [lab.scripted("s", {"tools/list": page}), *lab.backends]
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert answer["result"]["tools"][0] == {**GOOD, "name": "s_good"}
        assert len(lab.seen("tools/list")) == 1


async def test_pages_in_a_circle(tmp_path: Path) -> None:
    """Each of them is asked for once."""
    lab = MergeLab(tmp_path, "red")
    tools = {
        key: {"result": {"tools": [{**LONG, "name": name}], "nextCursor": cursor}}
        for key, name, cursor in (
            ("tools/list", "x", "a"), ("tools/list a", "y", "b"), ("tools/list b", "z", "a"),
        )
    }  # fmt: skip
    lab.backends = [lab.scripted("s", tools), *lab.backends]
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        names = [tool["name"] for tool in answer["result"]["tools"]]
        assert names[:3] == ["s_x", "s_y", "s_z"]
        assert len(lab.seen("tools/list")) == 3
