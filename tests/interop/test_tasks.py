"""Tasks of 2025-11-25 with the SDKs that have them: mcp 1 and sdk 1.x, both ways.

The servers have ``slow``, which gives "done" after a moment, ``endless``, and ``ask``, which asks
for a name before it gives "accept NAME" (not on the TypeScript SDK). All must be called as tasks.
Those of 2026-07-28 are a row of the matrix: see `features`.
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

from wirespeed import Client, Stdio

OUR_SERVER = [sys.executable, str(peers.PROGRAMS / "our_tasks_server.py")]
ALL = {"slow": "required", "endless": "required", "ask": "required"}
STATES = {"working": "working", "listed": True, "cancelled": "cancelled"}


def command(peer: str, role: str) -> list[str]:
    if peer == "ts1":
        return peers.node(f"ts1_tasks_{role}.mjs")
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
