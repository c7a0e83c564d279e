"""Rates that hold over the workers of a host, and over the hosts of a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from lab.http import Response
from lab.proxy import Lab
from lab.proxy_hosts import SECRET, ProxyHosts, proxies
from lab.store import MakeServer, StoreServer

from wirespeed.proxy import ClusterConfig, RateConfig
from wirespeed.proxy.flow.host_table import SETS, SLOTS, HostTable
from wirespeed.proxy.flow.rates import HostBuckets
from wirespeed.transport.token_buckets import TokenBuckets

SLOW = 1e-5  # requests a second: nothing comes back in a test


async def ask(hosts: ProxyHosts, name: str, **fields: str) -> Response:
    """Ask for the tools on a connection of its own."""
    peer = await hosts.connect(name)
    try:
        return await peer.modern("tools/list", **fields)
    finally:
        peer.close()


async def statuses(hosts: ProxyHosts, names: str, n: int) -> list[int]:
    """The statuses of n requests to each host, all at once."""
    found = await asyncio.gather(*(ask(hosts, name) for _ in range(n) for name in names))
    return [one.status for one in found]


# -- workers ---------------------------------------------------------------------------------------


def forked(n: int, work: Any) -> list[int]:
    """What a function returns in each of n processes, which begin together."""
    ready, pipes = os.pipe(), [os.pipe() for _ in range(n)]
    for _, end in pipes:
        if os.fork() == 0:
            os.close(ready[1])
            os.read(ready[0], 1)  # until all are there
            os.write(end, struct.pack("q", work()))
            os._exit(0)
    for fd in ready:
        os.close(fd)
    found = []
    for begin, end in pipes:
        os.close(end)
        with os.fdopen(begin, "rb") as answer:
            found.append(struct.unpack("q", answer.read())[0])
        os.wait()
    return found


def test_a_bucket_of_several_processes() -> None:
    buckets = HostBuckets(HostTable())

    def work() -> int:
        return [buckets.delay("10.0.0.1", SLOW, 500) for _ in range(1000)].count(0)

    assert sum(forked(4, work)) == 500
    assert buckets.delay(b"10.0.0.1", SLOW, 1) == 0  # a principal is not an address
    assert buckets.delay("10.0.0.2", SLOW, 1) == 0


@pytest.mark.parametrize("kind", ["process", "host"])
def test_an_empty_bucket_gets_another_rate(kind: str) -> None:
    """After a reload its owner waits for a token of the rate of now."""
    now = 1000.0
    buckets: Any = TokenBuckets(lambda: now)
    if kind == "host":
        buckets = HostBuckets(HostTable(), lambda: now)
    assert [buckets.delay("a", SLOW, 3) > 0 for _ in range(4)] == [False] * 3 + [True]
    assert buckets.delay("a", 0.5, 10) == 2.0
    now += 3.0
    assert buckets.delay("a", 0.5, 10) == 0
    assert buckets.delay("a", 0.5, 10) == 1.0


def test_the_number_that_is_needed_for_the_shortest_time_makes_room() -> None:
    table = HostTable()
    for n in range(SETS * SLOTS):
        with table.entry(b"%d" % n, 0.0) as entry:
            entry.keep(1.0, 10.0)
    with table.entry(b"one more", 0.0) as entry:
        assert entry.value == 0
        entry.keep(7.0, 20.0)
    for n in range(SLOTS * 30):  # some are of the same set
        with table.entry(b"more %d" % n, 0.0) as entry:
            entry.keep(1.0, 15.0)
    with table.entry(b"one more", 0.0) as entry:
        assert entry.value == 7.0
    with table.entry(b"one more", 20.0) as entry:  # its time is over
        assert entry.value == 0


def test_a_process_that_is_stopped_with_a_lock_does_not_stop_others() -> None:
    table = HostTable()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with table.entry(b"a", 0.0):
            os.write(tell, b"x")
            time.sleep(60)
        os._exit(0)
    try:
        os.read(told, 1)
        with table.entry(b"a", 0.0) as entry:
            entry.keep(3.0, 10.0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
    with table.entry(b"a", 0.0) as entry:
        assert entry.value == 3.0


@pytest.mark.own_environment
async def test_a_burst_over_workers(tmp_path: Path) -> None:
    rate = {"requests": SLOW, "burst": 20}
    async with proxies(tmp_path, "a", words=("--workers", "2"), rate=rate) as hosts:
        found = await statuses(hosts, "a", 60)
        assert [found.count(200), found.count(429)] == [20, 40]
        hosts.hosts["a"].write({**hosts.config("a", hosts.ports["a"]), "x": 1})
        hosts.hosts["a"].signal(signal.SIGHUP)
        await hosts.hosts["a"].until_said("reloaded: ", 2)  # each worker
        assert (await ask(hosts, "a")).status == 429


# -- hosts -----------------------------------------------------------------------------------------


@pytest.mark.own_environment
async def test_a_burst_over_hosts(tmp_path: Path, store_server: StoreServer) -> None:
    rate = {"requests": SLOW, "burst": 20}
    async with proxies(tmp_path, "a", "b", "c", rate=rate, store=store_server) as hosts:
        found = await statuses(hosts, "abc", 20)
        assert [found.count(200), found.count(429)] == [20, 40]
        refused = await ask(hosts, "b")
        error = refused.json["error"]
        assert (error["code"], error["message"]) == (
            -31000,
            "too many requests: the limit is a rate",
        )
        assert error["data"]["retryAfterMs"] > 1000
        assert int(refused.headers["retry-after"]) > 1
        keys = store_server.ask("KEYS", "*rate1*")
        assert len(keys) == 1 and keys[0].startswith("wirespeed:{rate1:proxy:")
        assert "127.0" not in keys[0]


async def test_requests_that_come_at_once(tmp_path: Path, store_server: StoreServer) -> None:
    """They are asked for while the server starts, and stay in order."""
    cluster = ClusterConfig(url=store_server.url, secret=SECRET)
    rate = RateConfig(requests=100)
    for isolation in ("shared", "session", "auto"):
        lab = Lab(tmp_path, isolation, cluster=cluster, rate=rate, env={"SLOW": "0.3"})
        async with lab.serving():
            client = await lab.connect(None)
            hello = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            await client.send(
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
            )
            answers = [await client.recv() for _ in range(2)]
            assert [one["id"] for one in answers] == [1, 2]
            assert all("result" in one for one in answers), answers


@pytest.mark.own_environment
@pytest.mark.parametrize("on_store_loss", ["local", "refuse"])
async def test_the_store_is_away(
    tmp_path: Path, new_store_server: MakeServer, on_store_loss: str
) -> None:
    store = new_store_server()
    cluster: dict[str, Any] = {"hosts": 2, "onStoreLoss": on_store_loss}
    cluster["storeTimeout"] = 1.0
    rate = {"requests": SLOW, "burst": 20}
    async with proxies(tmp_path, "a", "b", rate=rate, store=store, cluster=cluster) as hosts:
        assert (await ask(hosts, "a")).status == 200
        store.freeze()
        found = await statuses(hosts, "ab", 30)
        if on_store_loss == "local":
            assert [found.count(200), found.count(429)] == [20, 40]
        else:
            assert found == [503] * 60
            refused = await ask(hosts, "a")
            assert refused.json["error"]["code"] == -31007
            assert refused.headers["retry-after"] == "1"
        store.thaw()
        for name in "ab":
            log = hosts.hosts[name].log.read_text()
            assert log.count("is lost") == 1


@pytest.mark.own_environment
async def test_a_client_that_leaves_while_the_store_is_asked(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    store = new_store_server()
    cluster = {"storeTimeout": 1.0}
    rate = {"requests": SLOW, "burst": 20}
    async with proxies(tmp_path, "a", rate=rate, store=store, cluster=cluster) as hosts:
        assert (await ask(hosts, "a")).status == 200
        store.freeze()
        for _ in range(5):
            peer = await hosts.connect("a")
            peer.send_modern("tools/list")
            await peer.writer.drain()
            peer.close()
        store.thaw()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while (await ask(hosts, "a")).status != 200:
                    await asyncio.sleep(0.1)
        assert (await ask(hosts, "a")).status == 200
        assert "internal error" not in hosts.hosts["a"].log.read_text()
