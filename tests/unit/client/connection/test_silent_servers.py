"""Servers that answer late, or not at all: which era they are of, and how long an opening takes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import LEGACY, META, MODERN, Fake, Run, alive, initialized, until

from wirespeed import Client, Stdio
from wirespeed.client.connection import handshake
from wirespeed.errors import CallTimeout, ConnectionClosed

Make = Callable[..., Fake]
SLOW: dict[str, Any] = {"start": [["sleep", 3.0]]}


async def test_silence_to_the_probe_costs_a_second(once: Run, fake: Make) -> None:
    """As rmcp's servers do: they ignore what comes before ``initialize``."""
    server = fake(LEGACY | {"server/discover": []})
    began = asyncio.get_running_loop().time()
    async with Client(server.target, probe_timeout=60, handshake_timeout=60) as client:
        # far from `probe_timeout`, however slow the machine is
        assert asyncio.get_running_loop().time() - began < 30
        assert client.protocol_version == "2025-11-25"
        assert (await client.call_tool("echo")).text == "ok"
    assert server.methods[:4] == [
        "server/discover", "initialize", "notifications/initialized", "tools/call",
    ]  # fmt: skip
    meta = server.sent("initialize")[0]["params"]["_meta"]
    assert meta[META + "protocolVersion"] == "2026-07-28"
    assert len(server.pids) == 1


@pytest.mark.parametrize(
    ("rules", "version"), [(LEGACY, "2025-11-25"), (MODERN, "2026-07-28")], ids=["legacy", "modern"]
)
async def test_a_slow_start(once: Run, fake: Make, rules: Any, version: str) -> None:
    server = fake(rules | SLOW)
    async with Client(server.target) as client:
        assert client.protocol_version == version
        assert (await client.call_tool("echo")).text == "ok"
    assert len(server.pids) == 1
    assert server.methods[:2] == ["server/discover", "initialize"]


async def test_a_slow_server_of_ours_stays_modern(once: Run, tmp_path: Path) -> None:
    """It speaks both eras, and refuses an ``initialize`` of a modern client."""
    script = tmp_path / "server.py"
    script.write_text(
        "import time\ntime.sleep(3)\nfrom wirespeed import Server\nserver = Server('slow')\n"
        "@server.tool\ndef pid() -> int:\n    import os\n    return os.getpid()\nserver.run()\n"
    )
    async with Client(Stdio(sys.executable, [str(script)])) as client:
        assert client.protocol_version == "2026-07-28"
        assert (await client.call_tool("pid")).data


async def test_a_server_that_accepts_both_is_started_again(once: Run, fake: Make) -> None:
    """It may serve the era of ``initialize`` alone on that connection."""
    both = MODERN | {"initialize": initialized()}
    server = fake(both | SLOW, both)
    async with Client(server.target) as client:
        assert client.protocol_version == "2026-07-28"
        assert (await client.call_tool("echo")).text == "ok"
    assert len(server.pids) == 2
    assert server.methods.count("initialize") == 1


async def test_a_late_answer_to_the_probe_is_dropped(once: Run, fake: Make) -> None:
    found = MODERN["server/discover"]
    server = fake(
        LEGACY | {"server/discover": [["later", found]], "ping": [["release"], ["result", {}]]}
    )
    async with Client(server.target) as client:
        await client.ping()
        assert client.protocol_version == "2025-11-25"
        assert (await client.call_tool("echo")).text == "ok"


async def test_the_greeting_is_refused_by_a_slow_legacy_server(once: Run, fake: Make) -> None:
    """Then it is greeted once more, without the envelope of the other era."""
    refused = [["error", {"code": -32602, "message": "_meta"}]]
    rules = {k: v for k, v in LEGACY.items() if k != "initialize"}
    server = fake(rules | SLOW | {"initialize#1": refused, "initialize": initialized()})
    async with Client(server.target) as client:
        assert client.protocol_version == "2025-11-25"
    first, second = server.sent("initialize")
    assert "_meta" in first["params"] and "_meta" not in second["params"]


async def test_an_error_without_an_id_is_that_of_the_probe(once: Run, fake: Make) -> None:
    error = '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"?"}}'
    server = fake(LEGACY | SLOW | {"server/discover": [["raw", error]]})
    async with Client(server.target) as client:
        assert client.protocol_version == "2025-11-25"
    assert len(server.sent("initialize")) == 1


async def test_an_answer_in_the_turn_of_the_greeting_is_the_only_one(once: Run) -> None:
    """The greeting would set the connection to a legacy era, after the answer has set it."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()
    greetings = []

    async def probe() -> str:
        return await answered

    async def greet() -> None:
        greetings.append(answered.done())

    loop.call_later(0.03, answered.set_result, "modern")
    loop.call_soon(time.sleep, 0.1)  # the silence is over, and the answer is there, in one turn
    verdict = await handshake.first_answer(probe(), greet, silence=0.01)
    assert verdict == handshake.Verdict(True, "modern")
    assert not greetings


# -- the limit of the handshake --------------------------------------------------------------------

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[2] == "launcher":
    inner = subprocess.Popen([sys.executable, sys.argv[0], sys.argv[1], "server"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
while True:
    time.sleep(60)
"""


def stubborn(folder: Path, kind: str) -> tuple[Stdio, Path]:
    """A program that ignores its input and SIGTERM, and where it writes who it is."""
    script, pids = folder / "stubborn.py", folder / "pids"
    script.write_text(STUBBORN)
    return Stdio(sys.executable, [str(script), str(pids), kind], stderr="discard"), pids


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("era", ["auto", "legacy", "modern"])
async def test_the_limit_of_the_handshake_holds(
    once: Run, tmp_path: Path, era: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the child is not waited for: it would take twice its `shutdown_grace`."""
    target, pids = stubborn(tmp_path, "launcher")
    loop = asyncio.get_running_loop()
    until_now = loop.time()
    client = Client(target, era=era, handshake_timeout=2.0, probe_timeout=10.0)
    with pytest.raises(CallTimeout, match="no handshake"):
        await client.open()
    assert loop.time() - until_now < 5.0 + 2.0  # far less than the grace of a shutdown
    await until(lambda: len(pids_in(pids)) == 2)
    await until(lambda: not any(map(alive, pids_in(pids))))
    await client.close()


async def test_a_cancelled_opening_leaves_nobody(once: Run, tmp_path: Path) -> None:
    target, pids = stubborn(tmp_path, "launcher")
    client = Client(target)
    opening = asyncio.ensure_future(client.open())
    await until(lambda: len(pids_in(pids)) == 2)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: not any(map(alive, pids_in(pids))))
    with pytest.raises(ConnectionClosed):
        await client.ping()


def test_the_patience_is_short() -> None:
    assert handshake.SILENCE == 1.0
