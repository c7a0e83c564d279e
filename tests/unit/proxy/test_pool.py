"""Several processes of one server for all clients."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.gateway import gateway
from lab.proxy import MODERN, Lab, Raw, call, said
from lab.translation import EraLab, tool
from lab.wording import raises

from wirespeed import Stdio
from wirespeed.errors import RemoteError
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy import BackendConfig
from wirespeed.proxy.affinity import Seals
from wirespeed.proxy.hosts.membership import Membership
from wirespeed.proxy.isolation.pool import Pool

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

SEALS = Seals("b", Membership(), is_process=True)
LISTEN = {"notifications": {"toolsListChanged": True}}


def asked(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def grown(lab: Lab, size: int) -> dict[int, Raw]:
    """Have as many processes as the pool may have. Returns clients with a request in flight by the
    process that works on it."""
    found: dict[int, Raw] = {}
    holders = []
    while len(found) < size:
        client = await lab.connect(MODERN)
        pid = said(await client.ask(call(1, "echo")))["pid"]
        name = f"{pid}/{len(holders)}"
        await client.send(call(2, "hold", "t", **{"as": name}))
        await client.recv()
        holders.append(client)
        found[pid] = client
        pool = lab.assignment
        while len(pool.supervisors) > sum(one.upstream is not None for one in pool.modern):
            await asyncio.sleep(0.01)
    return found


async def test_requests_go_to_the_process_with_the_fewest(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pool", versions=MODERN, size=3)
    async with lab.serving():
        one = await lab.connect(MODERN)
        pids = {said(await one.ask(call(n, "echo")))["pid"] for n in range(20)}
        assert len(pids) == 1  # a process that has nothing to do is enough
        await grown(lab, 3)
        for n in range(20):
            pids.add(said(await one.ask(call(n, "echo")))["pid"])
        assert len(pids) <= 3
    assert len(lab.read("server/discover")) == 3


async def test_which_requests_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each process can take requests, `Choice` decides, but for what may belong to one."""
    looked_at: list[str] = []
    route = Pool.route

    def routed(pool: Pool, front: Any, message: Any) -> Any:
        looked_at.append(message.method)
        return route(pool, front, message)

    monkeypatch.setattr(Pool, "route", routed)
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2)
    async with lab.serving():
        found = await grown(lab, 2)
        one = await lab.connect(MODERN)
        looked_at.clear()
        pids = set()
        for n in range(2):  # the first request to a process
            pids.add(said(await one.ask(call(n, "echo")))["pid"])
            await one.send(call(f"held {n}", "hold", "t", **{"as": n}))
            await one.recv()
        assert pids == found.keys()
        assert "tools/call" in looked_at
        looked_at.clear()
        for n in range(20):
            assert said(await one.ask(call(n, "echo", nonce=str(n))))["nonce"] == str(n)
        assert looked_at == []
        brought = [
            call(1, "want") | {"method": "tools/list"},
            asked(2, "tools/list", cursor="0~0~1"),
            asked(3, "tasks/get", taskId=SEALS.seal("1~job", None)),
            asked(4, "x", requestState="0~s"),
            asked(5, "x", other={"State": 1}),
        ]
        for request in brought:
            await one.ask(request)
        assert looked_at == ["tools/list", "tasks/get", "x", "x"]
        looked_at.clear()
        os.kill(min(pids), signal.SIGKILL)
        assert (await one.recv())["error"]["code"] == -31004  # what was held there
        assert said(await one.ask(call(1, "echo")))["pid"] == max(pids)
        assert looked_at == ["tools/call"]
        while any(server.upstream is None for server in lab.assignment.modern):
            await asyncio.sleep(0.01)
        assert said(await one.ask(call(1, "echo")))["pid"] not in pids
        assert looked_at == ["tools/call"]


async def test_what_a_process_gave_comes_back_to_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pool", versions=MODERN, size=3)
    async with lab.serving():
        await grown(lab, 3)
        one = await lab.connect(MODERN)
        for n in range(12):
            wanted = (await one.ask(call(1, "want")))["result"]
            tag, _, state = wanted["requestState"].partition("~")
            assert tag in "012" and state.startswith("state of ")
            # others are less busy now, or more
            busy = await lab.connect(MODERN)
            await busy.send(call(1, "hold", n, **{"as": n}))
            again = call(2, "want")
            again["params"]["requestState"] = wanted["requestState"]
            answer = said(await one.ask(again))
            assert answer == {"state": state, "pid": int(state.removeprefix("state of "))}

            first = (await one.ask(asked(3, "tools/list")))["result"]
            second = (await one.ask(asked(4, "tools/list", cursor=first["nextCursor"])))["result"]
            assert first["nextCursor"] == second["nextCursor"]
            assert first["nextCursor"].endswith(f"~{second['_meta']['cursor']}")
            pid = second["_meta"]["cursor"].partition("~")[0]
            k = first["nextCursor"].partition("~")[0]
            id = SEALS.seal(f"{k}~job", None)
            task = (await one.ask(asked(5, "tasks/get", taskId=id)))["result"]
            assert (task["taskId"], str(task["_meta"]["pid"])) == (id, pid)


@pytest.mark.parametrize("value", ["99~x", "x", "~", "1", 7, None, {"a": 1}, "-1~x"])
async def test_what_no_process_gave(tmp_path: Path, value: Any) -> None:
    """It goes to any process as it is, which says what is wrong with it."""
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2)
    async with lab.serving():
        one = await lab.connect(MODERN)
        answer = await one.ask(asked(1, "tools/list", cursor=value))
        assert answer["result"]["_meta"]["cursor"] == value


async def test_a_subscription_is_at_all_processes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pool", versions=MODERN, size=3)
    async with lab.serving():
        early = await lab.connect(MODERN)
        await early.send(asked("s", "subscriptions/listen", **LISTEN))
        assert (await early.recv())["method"] == "notifications/subscriptions/acknowledged"
        busy = await grown(lab, 3)
        late = await lab.connect(MODERN)
        await late.send(asked("s", "subscriptions/listen", **LISTEN))
        acknowledged = await late.recv()
        assert acknowledged["params"]["_meta"][META_SUBSCRIPTION_ID] == "s"
        await lab.until_read("subscriptions/listen", 6)

        changed = set()
        other = await lab.connect(MODERN)
        for n in range(60):
            pid = said(await other.ask(call(n, "change")))["pid"]
            for client in (early, late):
                told = {m["method"]: m["params"] for m in [await client.recv() for _ in range(2)]}
                assert all(one["_meta"][META_SUBSCRIPTION_ID] == "s" for one in told.values())
                assert "notifications/tools/list_changed" in told
                task = told["notifications/tasks"]["taskId"]
                assert task.partition("~")[2] == str(pid)
            changed.add(pid)
            await (await lab.connect(MODERN)).send(call(1, "hold", n, **{"as": f"c{n}"}))
            if len(changed) == 3:
                break
        assert changed == set(busy)

        # a process that is started anew has the subscriptions, too
        await other.send(call(99, "crash"))
        assert (await other.recv())["error"]["code"] == -31004
        await lab.until_read("subscriptions/listen", 8)
        for client in (early, late):
            await client.silent()

        await early.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}}
        )
        await lab.until_read("notifications/cancelled", 3)
        await late.close()
        await lab.until_read("notifications/cancelled", 6)


async def test_a_change_that_all_processes_tell_of_is_told_once(tmp_path: Path) -> None:
    """Each process tells of it: the client reads again once, when none is behind."""
    delays = {"gather": 3600.0}
    lab = EraLab(tmp_path, "pool", modern=True, size=3, delays=delays)

    async def tell(process: int, method: str, **params: Any) -> None:
        told = tool("tell", "change", method=method, params=params)
        told["params"]["requestState"] = f"{process}~"
        assert (await teller.ask(told))["id"] == "tell"

    async with lab.serving():
        legacy, teller = await lab.connect(), await lab.connect(MODERN)
        while any(server.upstream is None for server in lab.assignment.modern):
            busy = await lab.connect(MODERN)
            await busy.send(tool(1, "hold"))
            await asyncio.sleep(0.1)
        one = await lab.connect(MODERN)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["u:1", "u:2"]}
        await one.send(asked("s", "subscriptions/listen", notifications=wanted))
        assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        for uri in ("u:1", "u:2"):
            assert "result" in await legacy.ask(asked("u", "resources/subscribe", uri=uri))
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("resources/updated", {"uri": "u:1"}),
            ("resources/updated", {"uri": "u:2"}),
            ("tools/list_changed", {}),
        ]
        for process in (1, 0, 1):  # twice: the client would read again once, all the same
            for method, params in kinds:
                await tell(process, method, **params)
        for client in (one, legacy):
            await client.silent()
        for method, params in kinds:
            await tell(2, method, **params)
        for client in (one, legacy):
            told = [await client.recv() for _ in kinds]
            assert [m["method"].removeprefix("notifications/") for m in told] == [
                method for method, _ in kinds
            ]
            assert [m["params"].get("uri") for m in told] == ["u:1", "u:2", None]
            await client.silent()
        # the others have nothing to tell
        lab.assignment.changes.seconds = 0.01
        await tell(1, "tools/list_changed")
        for client in (one, legacy):
            assert (await client.recv())["method"] == "notifications/tools/list_changed"
            await client.silent()


async def test_a_subscription_is_at_an_ejected_process_too(tmp_path: Path) -> None:
    """That one runs, and gets requests again after a pause."""
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2)
    async with lab.serving():
        await grown(lab, 2)
        ejected = lab.assignment.modern[1]
        while ejected.is_free:
            ejected.failed()
        one = await lab.connect(MODERN)
        await one.send(asked("s", "subscriptions/listen", **LISTEN))
        assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        await lab.until_read("subscriptions/listen", 2)


REFUSES = """
import json, os, sys, time
place = sys.argv[1]
is_first = not os.path.exists(place + "/first")
open(place + "/first", "w").close()
open_ = []

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked["method"], asked.get("id")
    if method == "server/discover":
        found = {"resultType": "complete", "supportedVersions": ["2026-07-28"]}
        found |= {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        say(id=id, result=found)
    elif method == "subscriptions/listen" and "full" in sys.argv:
        place_for = 2 if is_first else 9
        if len(open_) == place_for:
            error = {"code": -31000, "message": "full", "data": {"open": len(open_)}}
            say(id=id, error=error)
            continue
        open_.append(id)
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        say(method="notifications/subscriptions/acknowledged", params=params)
    elif method == "notifications/cancelled" and asked["params"]["requestId"] in open_:
        open_.remove(asked["params"]["requestId"])
        with open(place + "/cancelled", "a") as file:
            file.write("x")
    elif method == "subscriptions/listen" and is_first:
        while not os.path.exists(place + "/acknowledged"):
            time.sleep(0.01)
        say(id=id, error={"code": -32603, "message": "not here"})
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        say(method="notifications/subscriptions/acknowledged", params=params)
        open(place + "/acknowledged", "w").close()
    elif method == "tools/list":
        say(id=id, result={"resultType": "complete", "tools": []})
    elif id is not None and asked["params"]["name"] != "hold":
        say(id=id, result={"resultType": "complete", "content": []})
        open(place + ("/one" if is_first else "/two"), "w").close()
"""


async def test_a_subscription_that_one_process_refuses(tmp_path: Path) -> None:
    """Another one has it: the client is told so, whichever answers first."""
    (tmp_path / "server.py").write_text(REFUSES)
    target = Stdio(sys.executable, [str(tmp_path / "server.py"), str(tmp_path)])
    backend = BackendConfig(target=target, name="x", isolation="pool", size=2)
    async with (
        gateway(backend, listen="ws://127.0.0.1:0/mcp", ready_within=60) as lab,
        lab.client(path="/servers/x") as busy,
        lab.client(path="/servers/x") as one,
    ):
        held = asyncio.ensure_future(busy.call_tool("hold"))
        while not (tmp_path / "two").exists():
            await busy.call_tool("other")
        async with asyncio.timeout(10), one.subscribe(tools=True):
            pass
        held.cancel()
        await asyncio.wait((held,))


async def test_a_subscription_that_ends_for_another_client(tmp_path: Path) -> None:
    """One process is full: the client of the subscription that has to go is told, and no process
    has it any more."""
    (tmp_path / "server.py").write_text(REFUSES)
    target = Stdio(sys.executable, [str(tmp_path / "server.py"), str(tmp_path), "full"])
    backend = BackendConfig(target=target, name="x", isolation="pool", size=2)
    async with (
        gateway(backend, listen="ws://127.0.0.1:0/mcp", ready_within=60) as lab,
        lab.client(path="/servers/x") as many,
        lab.client(path="/servers/x") as few,
    ):
        held = asyncio.ensure_future(many.call_tool("hold"))
        while not (tmp_path / "two").exists():
            await many.call_tool("other")
        async with asyncio.timeout(10):
            async with (
                many.subscribe(tools=True),
                many.subscribe(tools=True) as newest,
                few.subscribe(tools=True),
            ):
                with raises(RemoteError, code=-31000):
                    await anext(newest)
                while not (tmp_path / "cancelled").exists():
                    await asyncio.sleep(0.01)
                while len((tmp_path / "cancelled").read_text()) < 2:  # by both
                    await asyncio.sleep(0.01)
        held.cancel()
        await asyncio.wait((held,))


async def test_a_subscription_ends_with_the_last_process(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        await one.send(asked("s", "subscriptions/listen", **LISTEN))
        await one.recv()
        assert (await two.ask(call(1, "crash")))["error"]["code"] == -31004
        ended = await one.recv()
        assert (ended["id"], ended["error"]["code"]) == ("s", -31004)


async def test_a_client_of_a_legacy_era_stays_with_its_process(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "pool", size=2)
    async with lab.serving():
        clients = [await lab.connect() for _ in range(6)]
        pids = []
        for client in clients:
            found = {said(await client.ask(call(n, "echo")))["pid"] for n in range(5)}
            assert len(found) == 1
            pids += found
        assert sorted(map(pids.count, set(pids))) == [3, 3]
        victim = pids[0]
        assert (await clients[0].ask(call(9, "crash")))["error"]["code"] == -31004
        for client, pid in zip(clients, pids, strict=True):
            again = said(await client.ask(call(10, "echo")))["pid"]
            assert (again == pid) == (pid != victim)
    assert len(lab.read("initialize")) == 3


def test_sizes() -> None:
    for size in (0, 1001):
        with raises(ValueError):
            BackendConfig(target=Stdio("x"), size=size)
