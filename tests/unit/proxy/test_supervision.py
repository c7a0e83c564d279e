"""Servers that hang, take too long, write garbage or end: what clients get, and what is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said

from wirespeed.proxy import HealthConfig
from wirespeed.proxy.upstream import BAD_MESSAGE, MAX_GARBAGE, UNKNOWN_ID

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LOST, TIMEOUT = -31004, -31005
ERAS = [("2025-11-25", ""), (MODERN, MODERN)]


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_a_server_that_hangs_is_ended(tmp_path: Path, version: str, versions: str) -> None:
    """Its requests fail once, with the reason, and the next server answers."""
    health = HealthConfig(interval=0.2, timeout=0.3)
    lab = Lab(tmp_path, "shared", versions=versions, config={"health": health})
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        pid = said(await one.ask(call(1, "echo")))["pid"]
        (supervisor,) = lab.assignment.supervisors
        assert (supervisor.status.state, supervisor.status.pid) == ("ready", pid)
        await two.send(call("also", "hang"))
        await one.send(call(2, "hang"))
        reason = "the server b was ended: it did not answer a ping within 0.3 s"
        assert (await one.recv())["error"] == {"code": LOST, "message": reason}
        assert (await two.recv())["error"] == {"code": LOST, "message": reason}
        assert said(await one.ask(call(3, "echo")))["pid"] != pid
        await one.silent()
        assert supervisor.status.restarts == 1
        assert supervisor.status.error == "it was ended: it did not answer a ping within 0.3 s"
    assert supervisor.status.state == "stopped"
    assert supervisor.status.pid is None


async def test_a_hanging_server_of_one_client(tmp_path: Path) -> None:
    """Its client gets the reason, and is disconnected."""
    health = HealthConfig(interval=0.2, timeout=0.3)
    lab = Lab(tmp_path, "session", config={"health": health})
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        await one.send(call(1, "hang"))
        error = (await one.recv())["error"]
        assert error["message"].endswith("was ended: it did not answer a ping within 0.3 s")
        assert await one.reader.read() == b""
        assert said(await two.ask(call(1, "echo", nonce=1)))["nonce"] == 1


async def test_a_server_that_works_is_left_alone(tmp_path: Path) -> None:
    """It answers the pings, however long a request takes. Nobody asks an idle server."""
    health = HealthConfig(interval=0.05, timeout=5.0)
    lab = Lab(tmp_path, "shared", config={"health": health})
    async with lab.serving():
        one = await lab.connect()
        await asyncio.sleep(0.2)
        assert lab.read("ping") == []
        await one.send(call(1, "hold", 1, **{"as": "x"}))
        await one.recv()
        while len(lab.read("ping")) < 3:
            await asyncio.sleep(0.02)
        await one.send(call(2, "free", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 2
        assert said(await one.recv()) == {"said": "x"}
        assert (await one.recv())["id"] == 2
        assert lab.assignment.supervisors[0].status.restarts == 0


@pytest.mark.parametrize("isolation", ["shared", "session", "pool"])
@pytest.mark.parametrize(("version", "versions"), ERAS)
async def test_a_request_that_takes_too_long(
    tmp_path: Path, version: str, versions: str, isolation: str
) -> None:
    """The client gets an error, the server a cancellation, and a late answer reaches nobody."""
    lab = Lab(tmp_path, isolation, versions=versions, config={"request_timeout": 1.0})
    async with lab.serving():
        one = await lab.connect(version)
        assert said(await one.ask(call(0, "echo", nonce="x")))["nonce"] == "x"
        await one.send(call(1, "hold", "t", **{"as": "x"}))
        assert (await one.recv())["params"]["progressToken"] == "t"
        error = {"code": TIMEOUT, "message": "no answer within 1 s"}
        assert await one.recv() == {"jsonrpc": "2.0", "id": 1, "error": error}
        (cancelled,) = await lab.until_read("notifications/cancelled", 1)
        (held,) = [m for m in lab.read("tools/call") if m["params"]["name"] == "hold"]
        assert cancelled["params"] == {"requestId": held["id"], "reason": "it took too long"}
        assert said(await one.ask(call(1, "echo", nonce="y")))["nonce"] == "y"
        await one.send(call(2, "free", **{"as": "x"}))
        assert (await one.recv())["id"] == 2
        await one.silent()


async def test_a_subscription_has_no_deadline(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=MODERN, config={"request_timeout": 0.2})
    async with lab.serving():
        one = await lab.connect(MODERN)
        await one.send(request("s", "subscriptions/listen", notifications={}))
        assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        await asyncio.sleep(0.5)
        assert (await one.ask(call(1, "change")))["id"] == 1
        assert (await one.recv())["method"] == "notifications/tools/list_changed"


async def test_garbage_is_counted_by_kind(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        for text in ("no JSON", '{"id":1}', '{"jsonrpc":"2.0","id":1048599,"result":{}}'):
            await one.ask(call(1, "raw", text=text))
        # a late answer to a cancelled request is not an error
        await one.send(call("c", "hold", 1, **{"as": "x"}))
        await one.recv()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await one.send({**cancel, "params": {"requestId": "c"}})
        await lab.until_read("notifications/cancelled", 1)
        await one.ask(call(2, "free", **{"as": "x"}))  # answers twice, once more than is due
        (supervisor,) = lab.assignment.supervisors
        counts = {BAD_MESSAGE: 2, UNKNOWN_ID: 2}
        assert supervisor.upstream.garbage.counts == counts
        assert supervisor.status.restarts == 0


async def test_a_flood_of_garbage_ends_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path, "shared")
    flood = "no JSON\n" * (MAX_GARBAGE + 1)
    async with lab.serving():
        one = await lab.connect()
        answer = await one.ask(call(1, "raw", text=flood))
        assert answer["error"]["code"] == LOST
        assert "it wrote more than 1000 bad messages within 10 s" in answer["error"]["message"]
        assert said(await one.ask(call(2, "echo", nonce=1)))["nonce"] == 1
    assert sum("bad message" in one.getMessage() for one in caplog.records) < 30


async def test_half_a_message_at_the_end(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        half = '{"jsonrpc":"2.0","id":$id,"result":{"secret":'
        await one.send(call(1, "half", text=half))
        answer = await one.recv()
        assert answer["id"] == 1 and answer["error"]["code"] == LOST
        assert "secret" not in str(answer)
        assert said(await one.ask(call(2, "echo", nonce=1)))["nonce"] == 1


async def test_a_crash_loop_is_shown(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect()
        (tmp_path / "backend.py").write_text("raise SystemExit(5)")
        await one.ask(call(0, "crash"))
        assert (await one.ask(call(1, "echo")))["error"]["code"] == LOST
        (supervisor,) = lab.assignment.supervisors
        assert supervisor.status.state == "crash loop"
        assert "status 5" in supervisor.status.error
        assert supervisor.status.restarts >= 3
        assert supervisor.status.pid is None
