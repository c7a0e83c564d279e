"""A broken item costs a list that item; null counts as absent in what servers return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab.client import LEGACY, MODERN, Fake, Run, text_result

from wirespeed import Client

Make = Callable[..., Fake]

pytestmark = pytest.mark.off_schema

GOOD = {"name": "good", "inputSchema": {"type": "object"}}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "wirespeed.client"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("schema", [{}, {"inputSchema": None}, {"inputSchema": []}])
async def test_a_tool_without_a_schema(
    once: Run, fake: Make, era: Any, schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rules = LEGACY if era == "legacy" else MODERN
    result = {"tools": [GOOD, {"name": "bare", **schema}], "resultType": "complete"}
    server = fake(rules | {"tools/list": [["result", result]] * 2})
    async with Client(server.target, era=era) as client:
        found = {tool.name: tool.input_schema for tool in await client.list_tools()}
        await client.list_tools()
    assert found["good"] == {"type": "object"}
    assert found["bare"] in ({"type": "object"}, {})
    if schema != {"inputSchema": []}:
        assert warnings(caplog) == 2 * [
            "tools/list: the tool 'bare' has no inputSchema: it may take any arguments"
        ]


async def test_broken_items_are_left_out(
    once: Run, fake: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [{"name": 5, "inputSchema": {}}, 1, {}, {**GOOD, "description": []}, GOOD]
    prompts = [{"name": "p", "arguments": [{"name": "a", "required": "no"}]}, {"name": "q"}]
    resources = [{"name": "no uri"}, {"uri": "x:y", "name": "r"}]
    templates = [{"uriTemplate": None, "name": "t"}, {"uriTemplate": "x:{a}", "name": "u"}]
    server = fake(
        LEGACY
        | {
            "tools/list": [["result", {"tools": tools}]],
            "prompts/list": [["result", {"prompts": prompts}]],
            "resources/list": [["result", {"resources": resources}]],
            "resources/templates/list": [["result", {"resourceTemplates": templates}]],
        }
    )
    async with Client(server.target, era="legacy") as client:
        assert [one.name for one in await client.list_tools()] == ["good"]
        assert [one.name for one in await client.list_prompts()] == ["q"]
        assert [one.name for one in await client.list_resources()] == ["r"]
        assert [one.name for one in await client.list_resource_templates()] == ["u"]
    said = warnings(caplog)
    assert len(said) == 7
    assert any("left out 'good', which is broken: Expected `str" in text for text in said)
    assert any("resources/list: left out 'no uri'" in text for text in said)


async def test_null_is_absent_in_results(once: Run, fake: Make) -> None:
    tool = {**GOOD, "annotations": None, "_meta": None, "title": None, "icons": None}
    prompt = {"name": "p", "arguments": None}
    called = {
        "content": [{"type": "text", "text": "ok", "annotations": None}],
        "isError": None,
        "_meta": None,
        "structuredContent": {"kept": None},
    }
    rules = {
        "tools/list": [["result", {"tools": [tool], "nextCursor": None, "ttlMs": None}]],
        "prompts/list": [["result", {"prompts": [prompt]}]],
        "tools/call": [["result", called]],
        "tools/call#2": [["result", text_result() | {"structuredContent": None}]],
    }
    server = fake(LEGACY | rules)
    async with Client(server.target, era="legacy") as client:
        assert [one.name for one in await client.list_tools()] == ["good"]
        assert (await client.list_prompts())[0].arguments == []
        result = await client.call_tool("good")
        assert (result.is_error, result.text) == (False, "ok")
        assert result.structured_content == {"kept": None}
        assert (await client.call_tool("good")).structured_content is None


@pytest.mark.parametrize("offered", [[], None])
async def test_capabilities(once: Run, fake: Make, offered: Any) -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": [], "prompts": offered, "logging": None},
        "serverInfo": {"name": "x", "version": "1"},
    }
    server = fake(LEGACY | {"initialize": [["result", hello]]})
    async with Client(server.target, era="legacy") as client:
        meant = {"tools": {}} if offered is None else {"tools": {}, "prompts": {}}
        assert client.server_capabilities == meant
    found = {"supportedVersions": ["2026-07-28"], "capabilities": offered, "_meta": offered}
    server = fake(MODERN | {"server/discover": [["result", {**found, "resultType": None}]]})
    async with Client(server.target) as client:
        assert client.server_capabilities == {}
        assert client.protocol_version == "2026-07-28"
