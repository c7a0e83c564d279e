"""A server of ours that asks clients on mcp 1 and sdk 1.x by tasks (2025-11-25)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pairings
import peers
import pytest
import transcripts

OUR_SERVER = [sys.executable, str(peers.PROGRAMS / "our_asking_server.py")]


@pytest.mark.parametrize("peer", ["python1", "ts1"])
def test_their_client(tmp_path: Path, peer: str) -> None:
    if peer == "ts1":
        client = peers.node("ts1_asked_client.mjs")
    else:
        client = [peers.python(peer), str(peers.PROGRAMS / f"{peer}_asked_client.py")]
    report = asyncio.run(peers.report([*client, *pairings.spied(tmp_path, OUR_SERVER)]))
    assert json.loads(report.pop("listed")) == ["completed", "completed", "cancelled"]
    assert report == {"ask": "accept Ada", "sample": "Paris", "hurry": "too late"}
    (run,) = transcripts.runs(tmp_path)
    assert run.exit == 0
    assert run.errors() == []
    assert pairings.unfit(run, serving=True) == []
    assert not run.requests("notifications/cancelled")
    assert len(run.requests("tasks/get")) >= 2
    assert len(run.requests("tasks/result")) == 2
    assert len(run.requests("tasks/cancel")) == len(run.requests("tasks/list")) == 1
