"""A master that Sentinels name, and a Redis Cluster: the same stores, and what a loss costs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.hosts import Deployment, Visitor
from lab.store import MakeServer, StoreServer, free_port
from lab.task import SECRET, a_task
from lab.wording import raises

from wirespeed.cluster import Cluster, RedisEventStore, RedisTaskStore
from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import STORE_TIMEOUT
from wirespeed.errors import StoreUnavailable
from wirespeed.transport.backoff import Backoff

NAME = Script("return redis.call('INCR', KEYS[1])")
SOON = Backoff(0.01, 0.2)
SLOTS = 16384


async def until(true: Callable[[], Any]) -> None:
    while not true():
        await asyncio.sleep(0.02)


async def answer(cluster: Cluster, base: str) -> Any:
    """The answer of the store, when it is there."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await cluster.run(NAME, base)
        await asyncio.sleep(0.02)


# -- Sentinel --------------------------------------------------------------------------------------


async def test_the_next_master_is_found(new_store_server: MakeServer, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    master = new_store_server(port=ports[0])
    replica = new_store_server("--replicaof", "127.0.0.1", str(ports[0]), port=ports[1])
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"sentinel monitor main 127.0.0.1 {ports[0]} 1\n"
        "sentinel down-after-milliseconds main 200\n"
        "sentinel failover-timeout main 2000\n"
    )
    guard = new_store_server(config=file, port=free_port())
    await until(lambda: replica.ask("INFO", "replication")["master_link_status"] == "up")
    await until(lambda: guard.ask("INFO", "sentinel")["master0"]["slaves"] == 1)
    url = f"redis+sentinel://127.0.0.1:{guard.port}/main"
    async with Cluster(url, returns=SOON) as cluster:
        assert await cluster.run(NAME, "b:") == 1
        await until(lambda: replica.ask("GET", "b:") == "1")
        master.kill()
        with raises(StoreUnavailable, code=-31007):
            await cluster.run(NAME, "b:")
        assert await answer(cluster, "b:") == 2
    assert replica.ask("GET", "b:") == "2"


# -- shards ----------------------------------------------------------------------------------------


@pytest.fixture(params=[2])
def shards(
    new_store_server: MakeServer, request: pytest.FixtureRequest
) -> Iterator[list[StoreServer]]:
    """The masters of a Redis Cluster, two by default, with equal parts of the slots."""
    n: int = request.param
    buses = [free_port() for _ in range(n)]
    servers = [
        new_store_server(
            *("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"),
            *("--cluster-node-timeout", "2000", "--cluster-port", str(bus)),
            port=free_port(),
        )
        for bus in buses
    ]
    bounds = [SLOTS * number // n for number in range(n + 1)]
    for number, server in enumerate(servers):
        server.ask("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for server, bus in zip(servers[1:], buses[1:], strict=True):
        servers[0].ask("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
    yield servers


def joined_all(info: str) -> bool:
    return "cluster_slots_ok:16384" in info and "cluster_state:ok" in info


async def joined(shards: list[StoreServer]) -> str:
    """The URL of the cluster, when its shards know each other."""
    for server in shards:
        await until(lambda one=server: joined_all(one.ask("CLUSTER", "INFO")))
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in shards)


async def test_stores_of_different_servers_are_on_different_shards(
    shards: list[StoreServer],
) -> None:
    async with Cluster(await joined(shards), returns=SOON) as cluster:
        for name in "abcdefgh":
            tasks = RedisTaskStore(cluster, name, secret=SECRET)
            await tasks.open()
            task = a_task()
            await tasks.create(task)
            assert await tasks.put_result(task.id, b"{}") == await tasks.get(task.id)
            assert len((await tasks.page(task.owner)).tasks) == 1
            await tasks.close()
            events = RedisEventStore(cluster, name)
            await asyncio.gather(events.append("x", 1, b"1"), events.append("y", 1, b"1"))
            await events.append("x", 2, b"2")
            assert await events.after("x", 0) == [(1, b"1"), (2, b"2")]
            await events.forget("x")
            await events.close()
    assert all(server.ask("DBSIZE") for server in shards)


async def test_a_shard_that_is_away_costs_its_own_commands(shards: list[StoreServer]) -> None:
    async with Cluster(await joined(shards), returns=SOON, store_timeout=0.5) as cluster:
        bases = [f"{{{n}}}:" for n in range(8)]
        places = {base: shards[0].ask("CLUSTER", "KEYSLOT", base) < SLOTS // 2 for base in bases}
        assert set(places.values()) == {True, False}
        for base in bases:
            assert await cluster.run(NAME, base) == 1
        shards[1].freeze()
        found = await asyncio.gather(
            *(cluster.run(NAME, base) for base in bases), return_exceptions=True
        )
        for base, one in zip(bases, found, strict=True):
            assert one == 2 if places[base] else isinstance(one, StoreUnavailable), base
        assert (cluster.state, cluster.n_losses) == ("up", 0)
        shards[1].thaw()
        for base in bases:
            assert await answer(cluster, base) >= 2


@pytest.mark.parametrize("shards", [3], indirect=True)
async def test_a_shard_that_has_ended_costs_its_own_commands(shards: list[StoreServer]) -> None:
    async with Cluster(await joined(shards), returns=SOON, store_timeout=0.5) as cluster:
        bases = [f"{{{n}}}:" for n in range(12)]
        slots = [shards[1].ask("CLUSTER", "KEYSLOT", base) for base in bases]
        for base in bases:
            assert await cluster.run(NAME, base) == 1
        shards[0].kill()
        for n in range(2, 6):
            found = await asyncio.gather(
                *(cluster.run(NAME, base) for base in bases), return_exceptions=True
            )
            if n == 2:
                continue  # redis-py looks for the nodes anew: that costs some commands of others
            for slot, one in zip(slots, found, strict=True):
                assert isinstance(one, StoreUnavailable if slot < SLOTS // 3 else int), slot
        assert (cluster.state, cluster.n_losses) == ("up", 0)


async def test_all_shards_are_lost(shards: list[StoreServer]) -> None:
    async with Cluster(await joined(shards), returns=SOON) as cluster:
        assert await cluster.run(NAME, "b:") == 1
        for server in shards:
            server.freeze()
        with raises(StoreUnavailable, code=-31007):
            await cluster.run(NAME, "b:")
        await until(lambda: cluster.state == "down")
        for server in shards:
            server.thaw()
        assert await answer(cluster, "b:") >= 2
        assert cluster.state == "up"


@pytest.mark.parametrize("shards", [3], indirect=True)
async def test_the_shard_of_the_hosts_is_away(shards: list[StoreServer], tmp_path: Path) -> None:
    """No host renews its entry then: sessions go on where they are, as without any store."""
    slot = shards[0].ask("CLUSTER", "KEYSLOT", "wirespeed:{sessions1:shop}:")
    hosts = Deployment(tmp_path, await joined(shards))
    try:
        for name in "abc":
            await hosts.begin(name, name, store_timeout=STORE_TIMEOUT)
        one = Visitor(hosts)
        await one.initialize("a")
        for name in "abc":
            assert await one.answer(name, "who") == "a"
        await asyncio.sleep(1.5)  # each has an entry that says that it knows the others
        away = shards[slot * 3 // SLOTS]
        away.freeze()
        for _ in range(10):
            await asyncio.sleep(0.6)
            assert (await one.call("a", "who")).status == 200
        away.thaw()
        assert await one.answer("b", "who") == "a"
    finally:
        await hosts.end()
