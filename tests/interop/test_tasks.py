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


ENDLESS, UNKNOWN = ["endless", "endless"], ["unknown", "unknown_task"]
HANDSHAKE = {"version", "server_info", "instructions", "capabilities", "closing"}


def theirs(peer: str, folder: Path, script: list[Any], mode: str) -> dict[str, Any]:
    """What a peer's client saw of our server."""
    wire = folder / "wire"
    wire.mkdir()
    job = {"mode": mode, "command": pairings.spied(wire, OUR_SERVER), "tasks": True}
    report = asyncio.run(pairings.follow(peer, folder, script, **job))
    assert report["closing"]
    return {key: value for key, value in report.items() if key not in HANDSHAKE}


@pytest.mark.parametrize("peer", ["python1", "ts1"])
def test_their_client(tmp_path: Path, peer: str) -> None:
    script = [["support", "support"], ["slow", "task", "slow"], ["ask", "task", "ask"], ENDLESS]
    report = theirs(peer, tmp_path, script, "legacy")
    assert report == {"support": ALL, "slow": "done", "ask": "accept Ada", "endless": STATES}
    (run,) = transcripts.runs(tmp_path / "wire")
    assert run.exit == 0
    assert run.errors() == []
    assert pairings.unfit(run, serving=True) == []


@pytest.mark.parametrize("peer", ["python1", "ts1"])
def test_their_server(tmp_path: Path, peer: str) -> None:
    spy = pairings.spied(tmp_path, pairings.server_command(peer), ("--tasks",))
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


# The steps of their clients. FastMCP's, and that of mcp 2 with an extension, wait by themselves.
SLOW, ASK = ["slow", "text", "slow", {}], ["ask", "text", "ask", {}]
EXTENSION: dict[str, list[Any]] = {
    "python2": [SLOW, ASK],
    "fastmcp": [SLOW, ["ask", "task", "ask"]],
    "ts2": [["by_itself", "by_itself", "slow"], ["slow", "task", "slow"], ["ask", "task", "ask"]],
}
DONE = {"slow": "done", "ask": "accept Ada", "working": "working", "cancelled": "cancelled"}
# By itself the TypeScript client takes no result that says it is a task.
MORE = {"ts2": {"by_itself": "UNSUPPORTED_RESULT_TYPE task"}}


@pytest.mark.parametrize("peer", EXTENSION)
def test_their_client_of_the_extension(tmp_path: Path, peer: str) -> None:
    report = theirs(peer, tmp_path, [*EXTENSION[peer], ENDLESS, UNKNOWN], "auto")
    assert report.pop("unknown")["code"] == -32602
    ended = {"working": "working", "cancelled": "cancelled"}
    expected = {"slow": "done", "ask": "accept Ada", "endless": ended}
    assert report == expected | MORE.get(peer, {})
    found = transcripts.runs(tmp_path / "wire")
    assert [error for run in found for error in run.errors()] == [("tasks/get", -32602)]
    for run in found:
        assert pairings.unfit(run, serving=True) == []
        assert not run.requests("notifications/cancelled")


@pytest.mark.parametrize("peer", EXTENSION)
def test_their_server_of_the_extension(tmp_path: Path, peer: str) -> None:
    spy = pairings.spied(tmp_path, pairings.server_command(peer), ("--tasks",))
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
