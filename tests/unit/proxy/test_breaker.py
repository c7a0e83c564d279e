"""Servers that fail again and again get no requests for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lab.proxy import MODERN, Lab, call, said

from wirespeed.proxy import BreakerConfig

pytestmark = pytest.mark.off_schema

LOST, TIMEOUT = -31004, -31005
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}},
}
ERAS = [("2025-11-25", ""), (MODERN, MODERN)]


@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_requests_are_refused_and_then_tried(
    tmp_path: Path, version: str, versions: str
) -> None:
    config = {"breaker": BreakerConfig(failures=2, pause=0.5), "request_timeout": 0.1}
    lab = Lab(tmp_path, "shared", versions=versions, config=config)
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        for n in (1, 2, 3):
            answer = await one.ask(call(n, "hold", **{"as": n}))
            assert answer["error"]["code"] == TIMEOUT
            if n == 1:  # an answer ends the row
                assert "result" in await one.ask(call(n, "echo"))
        for client in (one, two):
            error = (await client.ask(call(5, "echo")))["error"]
            assert error["code"] == LOST
            assert error["message"] == (
                "the server b is down: it failed 2 times in a row, so it gets no requests for 0.5 s"
            )
        await asyncio.sleep(0.6)
        # one is let through, and fails; meanwhile others are refused
        await one.send(call(6, "hold", **{"as": 6}))
        await lab.until_read("tools/call", len(lab.read("tools/call")) + 1)
        assert (await two.ask(call(7, "echo")))["error"]["code"] == LOST
        assert (await one.recv())["error"]["code"] == TIMEOUT
        assert (await one.ask(call(8, "echo")))["error"]["code"] == LOST
        await asyncio.sleep(0.6)
        assert said(await two.ask(call(9, "echo", nonce=1)))["nonce"] == 1
        assert said(await one.ask(call(10, "echo", nonce=2)))["nonce"] == 2


async def test_a_subscription_is_no_trial(tmp_path: Path) -> None:
    """It has no answer that would end the trial."""
    lab = Lab(tmp_path, "shared", versions=MODERN, config={"breaker": BreakerConfig(failures=1)})
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        assert said(await one.ask(call(1, "echo", nonce=1)))["nonce"] == 1
        (instance,) = lab.assignment.modern
        instance.failed()
        instance.breaker._half()  # the pause is over
        for n in (1, 2):
            params = {"notifications": {"toolsListChanged": True}}
            listen = {"jsonrpc": "2.0", "id": f"s{n}", "method": "subscriptions/listen"}
            await one.send({**listen, "params": params})
            acknowledged = await one.recv()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert instance.breaker.state == "half open"
        assert said(await two.ask(call(2, "echo", nonce=2)))["nonce"] == 2
        assert said(await one.ask(call(3, "echo", nonce=3)))["nonce"] == 3
        assert instance.breaker.state == "closed"


async def test_crashes_open_it(tmp_path: Path) -> None:
    config = {"breaker": BreakerConfig(failures=2, pause=30)}
    lab = Lab(tmp_path, "shared", config=config)
    async with lab.serving():
        one = await lab.connect()
        assert (await one.ask(call(1, "crash")))["error"]["code"] == LOST
        assert (await one.ask(call(2, "crash")))["error"]["code"] == LOST
        while "2 times in a row" not in str(answer := await one.ask(call(3, "hold"))):
            assert answer["error"]["code"] == LOST


async def test_new_clients_are_refused(tmp_path: Path) -> None:
    """With a server for each client, whose starts fail."""
    config = {"breaker": BreakerConfig(failures=2, pause=0.5)}
    lab = Lab(tmp_path, "session", config=config)
    async with lab.serving():
        well = await lab.connect()
        script = tmp_path / "backend.py"
        text = script.read_text()
        script.write_text("raise SystemExit(5)")
        for _ in range(2):
            one = await lab.connect(None)
            error = (await one.ask(HELLO))["error"]
            assert error == {"code": LOST, "message": "the server b ended before it answered"}
        began = len(lab.read("initialize"))
        script.write_text(text)
        refused = await lab.connect(None)
        error = (await refused.ask(HELLO))["error"]
        assert error["code"] == LOST and "2 times in a row" in error["message"]
        assert len(lab.read("initialize")) == began
        assert said(await well.ask(call(1, "echo", nonce=1)))["nonce"] == 1
        await asyncio.sleep(0.6)
        again = await lab.connect()
        assert said(await again.ask(call(1, "echo", nonce=1)))["nonce"] == 1


async def test_crashes_of_the_servers_of_clients_open_it(tmp_path: Path) -> None:
    """The answer to ``initialize`` does not end the row, and that to another request does."""
    config = {"breaker": BreakerConfig(failures=2, pause=30)}
    lab = Lab(tmp_path, "session", config=config)
    async with lab.serving():
        for n in range(3):
            one = await lab.connect()
            if n == 1:
                assert "result" in await one.ask(call("well", "echo"))
            assert (await one.ask(call(n, "crash")))["error"]["code"] == LOST
            await one.ended()
        refused = await lab.connect(None)
        error = (await refused.ask(HELLO))["error"]
        assert error["code"] == LOST and "2 times in a row" in error["message"]


async def test_a_bad_process_is_ejected_from_a_pool(tmp_path: Path) -> None:
    """Requests go to the others while these are well."""
    config = {"breaker": BreakerConfig(failures=2, pause=30), "request_timeout": 0.5}
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2, config=config)
    async with lab.serving():
        one = await lab.connect(MODERN)
        # two processes: the second is started while the first has work
        await one.send(call("h", "hold", 1, **{"as": "x"}))
        await one.recv()
        pids: set[int] = set()
        while len(pids) < 2:
            answer = await one.ask(call(1, "echo"))
            if "result" in answer:
                pids.add(said(answer)["pid"])
            if len(pids) == 1 and answer["id"] == "h":
                await one.send(call("h", "hold", 1, **{"as": "x"}))
        bad, well = lab.assignment.modern
        for _ in range(2):
            bad.failed()
        assert bad.breaker.state == "open"
        for n in range(10):
            got = await one.ask(call(f"n{n}", "echo"))
            while got.get("id") != f"n{n}":
                got = await one.recv()
            assert said(got)["pid"] == lab.assignment.supervisors[1].status.pid
        assert well.breaker is None
