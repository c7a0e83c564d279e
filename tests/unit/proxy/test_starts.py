"""Starts of servers: how many at once, how long a client waits for one that never starts."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import Lab
from lab.raw import surroundings

from wirespeed import Client, Stdio
from wirespeed.errors import WirespeedError
from wirespeed.proxy import BackendConfig
from wirespeed.proxy.supervision.supervisor import Starting

SLOW = """
import sys, time
log = sys.argv[1]
def note(text):
    with open(log, "a") as file:
        print(text, file=file)
note("begin")
time.sleep(0.3)
note("end")
from wirespeed import Server
server = Server("slow")

@server.tool
async def who() -> str:
    return "slow"

server.run()
"""


@pytest.fixture
def one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use one processor."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)


@pytest.mark.parametrize("isolation", ["auto", "session", "shared"])
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_client_waits_for_one_start_at_most(
    tmp_path: Path, isolation: Any, era: Any
) -> None:
    """Of a server that says nothing, at the path of that server."""
    lab = Lab(tmp_path, isolation, era=era)
    mute = BackendConfig(
        target=Stdio("sleep", ["1000"], shutdown_grace=0.1), name="mute", isolation=isolation,
        era=era, start_timeout=1.0,
    )  # fmt: skip
    object.__setattr__(lab.proxy.config, "backends", (lab.proxy.config.backends[0], mute))
    object.__setattr__(lab.proxy.config, "listen", ("ws://127.0.0.1:0/mcp",))
    lab.proxy = type(lab.proxy)(lab.proxy.config)
    async with lab.serving():
        url = lab.urls[0].replace("/mcp", "/servers/mute")
        meter = lab.proxy.services["mute"].meter
        with pytest.raises(WirespeedError):
            await Client(url, era="legacy").open()
        assert meter.starts["starts"] <= 2  # the next one has begun


async def test_starts_take_turns(tmp_path: Path, one_processor: None) -> None:
    """Two at once, and none of them is late because of the others."""
    script, log = tmp_path / "slow.py", tmp_path / "log"
    script.write_text(SLOW)
    lab = Lab(tmp_path, "shared")
    target = Stdio(sys.executable, [str(script), str(log)], env=surroundings())
    backends = tuple(
        BackendConfig(target=target, name=f"s{n}", isolation="shared") for n in range(8)
    )
    object.__setattr__(lab.proxy.config, "backends", backends)
    lab.proxy = type(lab.proxy)(lab.proxy.config)
    async with lab.serving():
        while any(one.supervisors[0].status.state != "ready" for one in assignments(lab)):
            await asyncio.sleep(0.05)
        assert all(not one.supervisors[0].status.restarts for one in assignments(lab))
    n, most = 0, 0
    for line in log.read_text().split():
        n += 1 if line == "begin" else -1
        most = max(most, n)
    assert most == 2


def assignments(lab: Lab) -> list[Any]:
    return [one.assignment for one in lab.proxy.services.values()]


async def test_a_start_that_takes_long_holds_up_nobody(one_processor: None) -> None:
    async with Starting(0.05), Starting(0.05), Starting(0.05):
        pass  # the third began while the first two went on


async def test_clients_that_say_nothing_hold_up_nobody(tmp_path: Path, one_processor: None) -> None:
    """A server whose client asks nothing has nothing to answer."""
    delays = {"start": 1000.0, "first_answer": 1000.0}
    lab = Lab(tmp_path, "session", era="legacy", delays=delays)
    async with lab.serving():
        for _ in range(4):
            await lab.connect(None)
        assert "result" in await (await lab.connect(None)).initialize()
