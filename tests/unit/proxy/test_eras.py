"""A shared server of one era or both, and clients of both eras."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said

from wirespeed import Client, Stdio
from wirespeed.errors import VersionMismatch
from wirespeed.proxy import Proxy, RecycleConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LEGACY = "2024-11-05 2025-03-26 2025-06-18 2025-11-25"
BOTH = f"{LEGACY} {MODERN}"


async def pid(client: Any, id: int = 1) -> int:
    found: int = said(await client.ask(call(id, "echo")))["pid"]
    return found


async def test_a_server_of_both_eras_has_a_process_for_each(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=BOTH)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        modern = await pid(one)
        assert await pid(two) == modern
        assert lab.read("initialize") == []
        three, four = await lab.connect(), await lab.connect("2024-11-05")
        legacy = await pid(three)
        assert await pid(four) == legacy != modern
        assert await pid(one, 2) == modern
    assert len(lab.read("initialize")) == 1
    assert len(lab.read("server/discover")) == 1


async def test_a_client_that_probes_and_then_initializes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=BOTH)
    async with lab.serving():
        one = await lab.connect(MODERN)
        answer = await one.ask({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
        assert answer["result"]["supportedVersions"] == BOTH.split()
        modern = await pid(one)
        one.is_modern = False
        assert (await one.initialize())["result"]["protocolVersion"] == "2025-11-25"
        assert await pid(one) != modern
        one.is_modern = True
        assert (await one.ask(call(3, "echo")))["error"]["code"] == -32022


async def test_a_client_that_initializes_with_an_open_subscription(tmp_path: Path) -> None:
    """The next process of its modern server gets the subscription, and no other request."""
    lab = Lab(tmp_path, "shared", versions=BOTH, config={"recycle": RecycleConfig(max_requests=3)})
    async with lab.serving():
        one = await lab.connect(MODERN)
        listen = {"id": "s", "method": "subscriptions/listen", "params": {"notifications": {}}}
        await one.send({"jsonrpc": "2.0", **listen})
        assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        one.is_modern = False
        await one.initialize()
        legacy = await pid(one)
        other = await lab.connect(MODERN)
        modern = await pid(other)
        while (new := await pid(other)) == modern:
            await asyncio.sleep(0.05)
        assert len(await lab.until_read("subscriptions/listen", 2)) == 2
        assert new != legacy
        assert await pid(one, 2) == legacy


async def test_a_modern_server_refuses_initialize(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=MODERN, translate=False)
    async with lab.serving():
        one = await lab.connect(None)
        assert (await one.initialize())["error"] == {
            "code": -32022,
            "message": f"the server speaks {MODERN}; b: its translate is off",
            "data": {"supported": [MODERN], "requested": "2025-11-25"},
        }
        assert (await one.ask(call(1, "echo")))["error"]["code"] == -32602
        again = await one.initialize()
        assert again["error"]["code"] == -32022
        one.is_modern = True
        assert await pid(one)
        with pytest.raises(VersionMismatch):
            async with Client(f"unix:{lab.path}", era="legacy"):
                pass


async def test_a_server_that_does_not_name_its_legacy_versions(tmp_path: Path) -> None:
    """As the official SDKs: `initialize` is tried."""
    lab = Lab(tmp_path, "shared", versions=f"{MODERN} more")
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect()
        assert await pid(one) != await pid(two)


@pytest.mark.parametrize("versions", ["dies", "silent", ""])
async def test_the_probe_of_a_legacy_server(tmp_path: Path, versions: str) -> None:
    lab = Lab(tmp_path, "shared", versions=versions, translate=False)
    if versions == "silent":
        object.__setattr__(lab.proxy.config.backends[0], "start_timeout", 1.0)
    async with lab.serving():
        one = await lab.connect()
        assert await pid(one)
        two = await lab.connect(MODERN)
        error = (await two.ask(call(1, "echo")))["error"]
        assert error["code"] == -32022
        assert error["data"]["supported"] == LEGACY.split()
    assert len(lab.read("server/discover")) == 1


@pytest.mark.parametrize(("era", "versions"), [("legacy", BOTH), ("modern", BOTH)])
async def test_an_era_that_is_configured(tmp_path: Path, era: str, versions: str) -> None:
    lab = Lab(tmp_path, "shared", versions=versions, era=era, translate=False)
    async with lab.serving():
        one = await lab.connect(MODERN if era == "modern" else "2025-11-25")
        assert await pid(one)
        two = await lab.connect(None)
        two.is_modern = era == "legacy"
        if two.is_modern:
            answer = await two.ask(call(1, "echo"))
        else:
            answer = await two.initialize()
        assert answer["error"]["code"] == -32022
    assert len(lab.read("server/discover")) == (era == "modern")


async def test_requests_of_before_the_eras_are_known(tmp_path: Path) -> None:
    """They wait, also where the other servers do not wait for this one."""
    lab = Lab(tmp_path, "shared", versions=BOTH, translate=False)
    first = lab.proxy.config.backends[0]
    assert isinstance(first.target, Stdio)
    program = first.target.command, first.target.args
    other = replace(first, name="other", target=Stdio(*program, {"VERSIONS": "silent"}))
    config = replace(lab.proxy.config, backends=(first, replace(other, start_timeout=1.0)))
    lab.proxy = Proxy(config)
    async with lab.serving():
        one, two = await lab.connect(None), await lab.connect(MODERN)
        hello, found = await asyncio.gather(
            one.initialize(), two.ask({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
        )
    assert hello["result"]["serverInfo"]["name"] == "wirespeed-proxy"
    assert found["result"]["supportedVersions"] == BOTH.split()  # the silent server is left out


async def test_a_crash_of_a_modern_server(tmp_path: Path) -> None:
    """What was asked fails. What is asked meanwhile waits for the next process."""
    lab = Lab(tmp_path, "shared", versions=MODERN)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        first = await pid(one)
        await two.send(call(1, "hold", "t", **{"as": "x"}))
        await two.recv()
        assert (await one.ask(call(2, "crash")))["error"]["code"] == -31004
        lost = await two.recv()
        assert (lost["id"], lost["error"]["code"]) == (1, -31004)
        second = await pid(one)
        assert await pid(two) == second != first


async def test_a_log_message_of_a_modern_server(tmp_path: Path) -> None:
    """It names no request, so only a client that is alone gets it."""
    lab = Lab(tmp_path, "shared", versions=MODERN)
    line = {"level": "warning", "data": "secret of one"}
    async with lab.serving():
        one = await lab.connect(MODERN)
        await one.send(call(1, "note", method="message", params=line))
        assert (await one.recv())["params"] == line
        assert (await one.recv())["id"] == 1
        two = await lab.connect(MODERN)
        await pid(two)
        assert (await one.ask(call(1, "note", method="message", params=line)))["id"] == 1
        await one.ask(call(1, "note", method="tools/list_changed", params={}))
        await one.silent()
        await two.silent()
        pool: Any = lab.proxy.services["b"].assignment
        assert pool.modern[0].dropped["not attributed"] == 1
        assert pool.modern[0].dropped["no subscriber"] == 1
