"""Quotas: calls of tools by principal and day."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lab.http import Response
from lab.principals import TOKENS
from lab.process import free_port
from lab.proxy_hosts import ProxyHosts, proxies, tea, two_of
from lab.store import MakeServer, StoreServer
from lab.wording import raises

from wirespeed.cluster import Cluster
from wirespeed.cluster.quotas import RedisCounts
from wirespeed.errors import ConfigError
from wirespeed.proxy.file import load
from wirespeed.proxy.flow.host_table import HostTable
from wirespeed.proxy.flow.quotas import HostCounts, ProcessCounts, Quotas

DAY = 86_400.0


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("kind", ["process", "host"])
def test_a_day(kind: str) -> None:
    clock = Clock(1000 * DAY + 100)
    counts: Any = ProcessCounts(clock)
    if kind == "host":
        counts = HostCounts(HostTable(), clock, clock)
    assert [counts.take(b"a", 3) for _ in range(5)] == [0, 0, 0, DAY - 100, DAY - 100]
    assert counts.take(b"b", 3) == 0
    counts.give_back(b"a", 50)
    counts.give_back(b"nobody", 50)
    clock.now += 100
    assert [counts.take(b"a", 3) for _ in range(2)] == [0, DAY - 200]
    assert counts.take(b"nobody", 1) == 0
    clock.now += DAY - 200  # midnight
    assert [counts.take(b"a", 3) for _ in range(4)] == [0, 0, 0, DAY]
    clock.now += 10
    counts.give_back(b"a", 20)  # it was counted yesterday
    assert counts.take(b"a", 3) == DAY - 10
    counts.give_back(b"a", 5)
    assert counts.take(b"a", 3) == 0


def test_the_first_glob_decides() -> None:
    quotas = Quotas({"a_*": 2, "*": 3}, {b"vip": {"a_x": 5}, b"free": {}}, ProcessCounts())

    def spent(who: bytes | str, *tools: str) -> list[bool | None]:
        found = (quotas.spend(who, tool) for tool in tools)
        return [None if one is None else one.delay == 0 for one in found]

    assert spent("1.2.3.4", "a_x", "a_y", "a_z", "b") == [True, True, False, True]
    assert spent("1.2.3.5", "a_x", "a_y", "a_z") == [True, True, False]
    assert spent(b"vip", *["a_x"] * 6, "b") == [True] * 5 + [False, None]
    assert spent(b"free", "a_x", "b") == [None, None]
    assert spent(b"1.2.3.4", "a_x") == [True]  # a principal is not an address


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    document: Any = {
        "mcpServers": {"a": {"command": "a"}},
        "proxy": {
            "quotas": {"*": 5},
            "principals": [{"name": "a", "tokenSha256": "0" * 64, "quotas": {"x": 1}}],
        },
    }
    file.write_text(json.dumps(document))
    found = load(file)
    assert found.quotas == {"*": 5} and found.principals[0].quotas == {"x": 1}
    for wrong in ({"*": 0}, {"*": "many"}, 5):
        document["proxy"]["quotas"] = wrong
        file.write_text(json.dumps(document))
        with raises(ConfigError):
            load(file)


async def call(hosts: ProxyHosts, name: str, tool: str = "who", **fields: Any) -> Response:
    """Call a tool on a connection of its own."""
    peer = await hosts.connect(name)
    try:
        return await peer.modern("tools/call", {"name": tool, "arguments": {}}, **fields)
    finally:
        peer.close()


async def statuses(hosts: ProxyHosts, names: str, n: int, **fields: Any) -> list[int]:
    found = await asyncio.gather(*(call(hosts, name, **fields) for _ in range(n) for name in names))
    return [one.status for one in found]


@pytest.mark.own_environment
@pytest.mark.parametrize("where", ["process", "workers", "hosts"])
async def test_a_quota_holds(tmp_path: Path, store_server: StoreServer, where: str) -> None:
    names, options = ("a", {}) if where == "process" else two_of(where, store_server)
    tokens = {"authorization": f"Bearer {TOKENS['anne']}"}
    principals: list[Any] = [
        {"name": "anne", "token": TOKENS["anne"]},
        {"name": "bob", "token": TOKENS["bob"], "quotas": {"*": 2}},
    ]
    options |= {"quotas": {"who": 5}, "principals": principals}
    async with proxies(tmp_path, *names, **options) as hosts:
        found = await statuses(hosts, names, 10, **tokens)
        assert [found.count(200), found.count(429)] == [5, len(found) - 5]
        refused = await call(hosts, names[-1], **tokens)
        error = refused.json["error"]
        assert error["code"] == -31000
        assert error["message"] == "too many calls today: the limit is the quota of the tool"
        assert 0 < error["data"]["retryAfterMs"] <= DAY * 1000
        assert 0 < int(refused.headers["retry-after"]) <= DAY
        path = "/servers/tea"  # the same tool
        assert (await call(hosts, "a", path=path, **tokens)).status == 429
        assert (await call(hosts, "a", "nothing", **tokens)).status == 200
        tokens = {"authorization": f"Bearer {TOKENS['bob']}"}
        found = await statuses(hosts, names, 4, **tokens)
        assert found.count(200) == 2
        if where == "hosts":
            keys = store_server.ask("KEYS", "*quota1*")
            assert len(keys) == 2
            for key in keys:
                assert "anne" not in key and "who" not in key
                assert 3600 < store_server.ask("TTL", key) <= DAY + 3600
            assert sorted(store_server.ask("GET", key) for key in keys) == ["2", "5"]


async def test_a_call_of_yesterday_is_not_one_of_today(store_server: StoreServer) -> None:
    counts = RedisCounts(Cluster(store_server.url), "proxy", b"x" * 16, ProcessCounts(), 1)
    assert await counts.take(b"a", 1) == 0
    counts.give_back(b"a", DAY)
    assert await counts.take(b"a", 1) > 0
    counts.give_back(b"a", 0)
    assert await counts.take(b"a", 1) == 0
    await counts.close()


async def test_what_is_given_back_while_the_store_is_away(new_store_server: MakeServer) -> None:
    store = new_store_server()
    counts = RedisCounts(Cluster(store.url), "proxy", b"x" * 16, ProcessCounts(), 1)
    assert await counts.take(b"a", 2) == 0
    store.kill()
    assert await counts.take(b"a", 1) == 0
    counts.give_back(b"a", 0)
    await asyncio.sleep(0)
    assert await counts.take(b"a", 1) == 0
    assert await counts.take(b"a", 1) > 0
    await counts.close()


@pytest.mark.own_environment
@pytest.mark.parametrize("several", [False, True], ids=["one", "all"])
async def test_what_was_never_sent_is_given_back(
    tmp_path: Path, store_server: StoreServer, several: bool
) -> None:
    """Calls that the limits of the server refuse, and those that are cancelled while they wait."""
    servers = {"tea": tea(tmp_path, flow={"maxInFlight": 1, "maxQueued": 1})}
    if several:
        servers["other"] = tea(tmp_path)
    tool = "tea_wait" if several else "wait"
    options = {"servers": servers, "quotas": {"*wait": 100}, "store": store_server}
    params = {"name": tool, "arguments": {"seconds": 60}}

    def counted() -> int:
        keys = store_server.ask("KEYS", "*quota1*")
        return int(store_server.ask("GET", keys[0])) if keys else 0

    async with proxies(tmp_path, "a", **options) as hosts:
        peers = [await hosts.connect("a") for _ in range(3)]
        for n, peer in enumerate(peers):
            peer.send_modern("tools/call", params)
            await peer.writer.drain()
            while counted() <= n and n < 2:  # one runs, one waits
                await asyncio.sleep(0.01)
        refused = await peers[2].response()
        assert refused.json["error"]["code"] == -31000
        async with asyncio.timeout(10):
            while counted() != 2:
                await asyncio.sleep(0.01)
        if not several:
            peers[1].close()  # it has waited
            async with asyncio.timeout(10):
                while counted() != 1:
                    await asyncio.sleep(0.01)
        peers[0].close()  # it has run
        await asyncio.sleep(0.2)
        assert counted() >= 1


@pytest.mark.own_environment
@pytest.mark.parametrize("on_store_loss", ["local", "refuse"])
async def test_the_store_refuses_commands(
    tmp_path: Path, new_store_server: MakeServer, on_store_loss: str
) -> None:
    """Its user lacks rights."""
    store = new_store_server(port=free_port())
    store.ask("ACL", "SETUSER", "mill", "on", ">word", "~other:*", "+ping", "+eval", "+evalsha")
    url = store.url.replace("redis://", "redis://mill:word@")
    cluster = {"url": url, "onStoreLoss": on_store_loss}
    options = {"quotas": {"who": 2}, "rate": {"requests": 1e-5, "burst": 10}, "cluster": cluster}
    async with proxies(tmp_path, "a", meet=False, **options) as hosts:
        found = [(await call(hosts, "a")).status for _ in range(4)]
        assert found == ([200, 200, 429, 429] if on_store_loss == "local" else [503] * 4)
        log = hosts.hosts["a"].log.read_text()
        assert log.count("refused a command") == 1 and "word" not in log


@pytest.mark.own_environment
@pytest.mark.parametrize("on_store_loss", ["local", "refuse"])
async def test_the_store_is_away(
    tmp_path: Path, new_store_server: MakeServer, on_store_loss: str
) -> None:
    store = new_store_server()
    cluster = {"hosts": 2, "onStoreLoss": on_store_loss}
    async with proxies(
        tmp_path, "a", "b", quotas={"who": 20}, store=store, cluster=cluster
    ) as hosts:
        assert (await call(hosts, "a")).status == 200
        store.kill()
        found = await statuses(hosts, "ab", 15)
        if on_store_loss == "local":
            assert [found.count(200), found.count(429)] == [20, 10]
        else:
            assert found == [503] * 30
        assert (await call(hosts, "a", "nothing")).status == 200  # nothing counts it
        store.start()
        async with asyncio.timeout(30):
            while (await call(hosts, "a")).status != 200:
                await asyncio.sleep(0.05)
