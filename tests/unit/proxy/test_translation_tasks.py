"""Tasks are not translated between the eras: the other era gets tools that run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.eras import OTHER, serving

from wirespeed import Client
from wirespeed.errors import RemoteError

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

SERVER = """
import sys
from wirespeed import Server

server = Server("mill", "1", versions=sys.argv[1].split(","))
server.use_tasks()


@server.tool(task="optional")
async def grind(bags: int) -> int:
    return bags


@server.tool(task="required")
async def harvest() -> None:
    pass


server.run()
"""


@pytest.mark.parametrize(
    ("era", "isolation", "listen"),
    [
        ("modern", "shared", "ws"),
        ("modern", "session", "http"),
        ("legacy", "shared", "http"),
        ("legacy", "session", "ws"),
    ],
)
async def test_the_other_era_has_no_tasks(
    tmp_path: Path, era: str, isolation: str, listen: str
) -> None:
    """``era``: the server's."""
    async with (
        serving(tmp_path, SERVER, isolation, era, listen) as url,
        Client(url, era=OTHER[era]) as client,
    ):
        assert "tasks" not in client.server_capabilities
        assert not client.server_capabilities.get("extensions")
        assert {tool.name for tool in await client.list_tools()} == {"grind", "harvest"}
        task = await client.start_tool("grind", {"bags": 3})
        assert task.id is None
        assert (await task.result()).text == "3"
        with pytest.raises(RemoteError) as refused:
            await client.call_tool("harvest")
        # of 2025-11-25 "Tool-Level Negotiation", and for -32021, which legacy clients do not know
        assert refused.value.code == {"legacy": -32601, "modern": -32602}[era]


@pytest.mark.parametrize(("era", "of"), [("modern", "2026-07-28"), ("legacy", "a legacy era")])
async def test_requests_about_tasks_are_refused(tmp_path: Path, era: str, of: str) -> None:
    async with (
        serving(tmp_path, SERVER, "shared", era, "ws") as url,
        Client(url, era=OTHER[era]) as client,
    ):
        with pytest.raises(
            RemoteError, match=f"of {of}, whose tasks are not translated"
        ) as refused:
            await client.request("tasks/get", {"taskId": "x"})
        assert refused.value.code == -32601


async def test_a_call_for_a_task_is_a_plain_call(tmp_path: Path) -> None:
    """'Receivers that do not declare the task capability … MUST process … normally'."""
    async with (
        serving(tmp_path, SERVER, "shared", "modern", "ws") as url,
        Client(url, era="legacy") as client,
    ):
        call: Any = {"name": "grind", "arguments": {"bags": 3}, "task": {"ttl": 1000}}
        result = await client.request("tools/call", call)
        assert result["content"] == [{"type": "text", "text": "3"}]
