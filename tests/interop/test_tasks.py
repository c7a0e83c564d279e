"""Tasks with the SDKs of others, both ways.

Those of 2025-11-25 with mcp 1 and sdk 1.x, which have them. Those of 2026-07-28, an extension,
with FastMCP (fastmcp-tasks), and with mcp 2 and the TypeScript SDK 2.x, which have none of their
own: the programs write them on what these SDKs have for extensions, so that it is seen all the same
what our messages become in them.

The servers have ``slow``, which gives "done" after a moment, ``endless``, and ``ask``, which asks
for a name before it gives "accept NAME" (not on sdk 1.x). All are only called as tasks.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
import transcripts

from wirespeed import TASKS, Client, Stdio
from wirespeed.errors import RemoteError, TaskCancelled

OUR_SERVER = [sys.executable, str(peers.PROGRAMS / "our_tasks_server.py")]
ALL = {"slow": "required", "endless": "required", "ask": "required"}
STATES = {"working": "working", "listed": True, "cancelled": "cancelled"}


def command(peer: str, role: str) -> list[str]:
    if peer in ("ts1", "ts2"):
        return peers.node(f"{peer}_tasks_{role}.mjs")
    return [peers.python(peer), str(peers.PROGRAMS / f"{peer}_tasks_{role}.py")]


@pytest.mark.parametrize("peer", ["python1", "ts1"])
def test_their_client(tmp_path: Path, peer: str) -> None:
    report = asyncio.run(
        peers.report([*command(peer, "client"), *pairings.spied(tmp_path, OUR_SERVER)])
    )
    assert report == {"support": ALL, "slow": "done", "ask": "accept Ada", **STATES}
    (run,) = transcripts.runs(tmp_path)
    assert run.exit == 0
    assert run.errors() == []
    assert pairings.unfit(run, serving=True) == []


@pytest.mark.parametrize("peer", ["python1", "ts1"])
def test_their_server(tmp_path: Path, peer: str) -> None:
    spy = pairings.spied(tmp_path, command(peer, "server"))
    asks = peer == "python1"
    report: dict[str, Any] = {}

    async def main() -> None:
        target = Stdio(spy[0], spy[1:], stderr="discard")
        options: dict[str, Any] = {"on_elicit": lambda request: {"name": "Ada"}}
        async with Client(target, era="legacy", timeout=20, **options) as client:
            tools = await client.list_tools()
            report["support"] = {t.name: (t.execution or {}).get("taskSupport") for t in tools}
            for name in ("slow", "ask") if asks else ("slow",):
                task = await client.start_tool(name, {}, ttl=60)
                assert task.id is not None
                report[name] = (await task.result(timeout=20)).text
            endless = await client.start_tool("endless", {}, ttl=60)
            report["working"] = (await endless.status()).status
            report["listed"] = endless.id in [state.id for state in await client.list_tasks()]
            report["cancelled"] = (await endless.cancel()).status

    asyncio.run(main())
    expected = {"support": dict(ALL), "slow": "done", "ask": "accept Ada", **STATES}
    if not asks:
        del expected["ask"], expected["support"]["ask"]
    assert report == expected
    (run,) = transcripts.runs(tmp_path)
    assert pairings.unfit(run, serving=False) == []
    assert run.errors() == []


EXTENSION = ["python2", "fastmcp", "ts2"]
DONE = {"slow": "done", "ask": "accept Ada", "working": "working", "cancelled": "cancelled"}
# By itself the TypeScript client takes no result that says it is a task.
MORE = {"ts2": {"by_itself": "UNSUPPORTED_RESULT_TYPE task"}}


@pytest.mark.parametrize("peer", EXTENSION)
def test_their_client_of_the_extension(tmp_path: Path, peer: str) -> None:
    report = asyncio.run(
        peers.report([*command(peer, "client"), *pairings.spied(tmp_path, OUR_SERVER)])
    )
    assert report == DONE | {"unknown": -32602} | MORE.get(peer, {})
    found = transcripts.runs(tmp_path)
    assert [error for run in found for error in run.errors()] == [("tasks/get", -32602)]
    for run in found:
        assert pairings.unfit(run, serving=True) == []
        assert not run.requests("notifications/cancelled")


@pytest.mark.parametrize("peer", EXTENSION)
def test_their_server_of_the_extension(tmp_path: Path, peer: str) -> None:
    spy = pairings.spied(tmp_path, command(peer, "server"))
    report: dict[str, Any] = {}

    async def main() -> None:
        target = Stdio(spy[0], spy[1:], stderr="discard")
        options: dict[str, Any] = {"on_elicit": lambda request: {"name": "Ada"}}
        async with Client(
            target, era="modern", timeout=20, extensions=[TASKS], **options
        ) as client:
            assert (await client.call_tool("slow")).text == "done"
            for name in ("slow", "ask"):
                task = await client.start_tool(name, {})
                assert task.id is not None
                report[name] = (await task.result(timeout=20)).text
            endless = await client.start_tool("endless", {})
            again = await client.get_task(str(endless.id))
            report["working"] = again.state.status
            report["cancelled"] = (await endless.cancel()).status
            with pytest.raises(TaskCancelled):
                await again.result(timeout=20)
            with pytest.raises(RemoteError) as caught:
                await client.get_task("nobody's")
            report["unknown"] = caught.value.code

    asyncio.run(main())
    assert report == DONE | {"unknown": -32602}
    (run,) = transcripts.runs(tmp_path)
    assert pairings.unfit(run, serving=False) == []
    # that a server tells of no changes by itself is known by asking for it
    refused = [error for error in run.errors() if error[0] != "subscriptions/listen"]
    assert refused == [("tasks/get", -32602)]
    (update,) = run.requests("tasks/update")
    assert len(update["params"]["inputResponses"]) == 1
