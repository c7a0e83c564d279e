"""Others' clients at three hosts with one store, behind a balancer that sends each request to the
next host. One host is drained in the middle of a session, and one is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import balancers
import features
import pairings
import peers
import pytest
from lab.hosts import Deployment
from lab.process import free_port
from lab.store import MakeServer

PROGRAM = str(peers.PROGRAMS / "our_server_of_hosts.py")
MORE = pytest.mark.full("clients of the same kind, and the other era")
CLIENTS = [
    [("python2", "legacy"), ("ts2", "legacy")],
    pytest.param([("python2", "modern"), ("ts2", "modern")], marks=MORE),
    pytest.param([("fastmcp", "legacy"), ("fastmcp", "modern")], marks=MORE),
    pytest.param([("python1", "legacy"), ("ts1", "legacy")], marks=MORE),
]
# What the older versions of the SDKs have steps for.
FEW = [
    *("tools", "structured", "progress", "logging", "cancellation", "tools_changed"),
    *("elicitation_form", "ping"),
]
STEPS = {"python1": FEW, "ts1": FEW}
PHASES = {"well": None, "drained": "drain", "died": "die"}
CHANGES = {
    # often, but a busy host is not one that is gone
    "default-server check": "default-server check inter 100ms fall 1\n    timeout check 10s",
}


@asynccontextmanager
async def balanced(folder: Path, store: str) -> AsyncIterator[str]:
    """The URL of a balancer in front of three hosts."""
    ports = {name: free_port() for name in ("a", "b", "c")}
    hosts = Deployment(folder, store)
    try:
        async with asyncio.TaskGroup() as starting:
            for name, port in ports.items():
                others = [one for one in ports.values() if one != port]
                starting.create_task(
                    hosts.begin(name, name, program=PROGRAM, port=port, others=others)
                )
        await hosts.know_each_other()
        servers = [str(port) for port in ports.values()]
        async with balancers.behind("any.cfg", folder / "balancer", servers, CHANGES) as port:
            yield f"http://127.0.0.1:{port}/mcp"
    finally:
        await hosts.end()


def fits(feature: str, seen: Any, expected: Any) -> bool:
    """Whether a client saw what it was to see."""
    if feature.endswith("_changed"):  # the list grew at another host, and the client was told
        return isinstance(seen, bool)
    if feature == "missing_resource":  # some clients tell the code of one era as the other's
        return seen in (-32002, -32602)
    if feature == "cancellation":  # maybe not for the first time
        return "wait" in seen
    return bool(seen == expected)


async def use(peer: str, era: str, folder: Path, store: str) -> None:
    """Have a client go through all features, again after each fault."""
    found = STEPS.get(peer, features.FEATURES)
    names = [name for name in found if era in features.FEATURES[name].eras]
    script: list[Any] = []
    expected: dict[str, Any] = {}
    for phase, tool in PHASES.items():
        if tool is not None:
            script.append([phase, "ended", tool])
            expected[phase] = None
        script += [[f"{phase} {name}", name] for name in names]
        expected |= {f"{phase} {name}": features.FEATURES[name].expected for name in names}
        script.append([f"{phase} resumed", "noted", "resumed", {}])
        expected[f"{phase} resumed"] = [[1, 2], [2, 2]]
    mode = "legacy" if era == "legacy" else "auto"
    async with balanced(folder, store) as url:
        report = await pairings.follow(peer, folder, script, url=url, mode=mode, features=[])
    assert "failed" not in report, report["failed"]
    absent = {key for key, seen in report.items() if isinstance(seen, dict) and "absent" in seen}
    assert {
        key: report[key]
        for key in expected.keys() - absent
        if not fits(key.partition(" ")[2], report[key], expected[key])
    } == {}
    assert report["closing"] is True


@pytest.mark.parametrize("clients", CLIENTS, ids=str)
async def test_features(
    clients: list[tuple[str, str]], tmp_path: Path, new_store_server: MakeServer
) -> None:
    """Of two clients at once, each at hosts of its own."""
    async with asyncio.TaskGroup() as sessions:
        for peer, era in clients:
            folder = tmp_path / f"{peer}-{era}"
            folder.mkdir()
            sessions.create_task(use(peer, era, folder, new_store_server().url))
