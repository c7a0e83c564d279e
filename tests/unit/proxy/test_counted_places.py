"""Places of clients with servers of their own, in a process, over workers and over hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lab.proxy import MODERN, Lab
from lab.raw import FOREVER
from lab.store import MakeServer, StoreServer

from wirespeed import Limits
from wirespeed.cluster import Cluster
from wirespeed.cluster.places import RedisPlaces
from wirespeed.proxy.affinity import Seals
from wirespeed.proxy.flow.host_table import HostTable
from wirespeed.proxy.flow.places import HostPlaces, ProcessPlaces
from wirespeed.proxy.hosts.membership import Membership
from wirespeed.proxy.isolation.assignment import assignment_of
from wirespeed.proxy.operation.meter import Meter


def test_of_one_process() -> None:
    places = ProcessPlaces()
    assert [places.take(2, 1) for _ in range(3)] == [0, 0, 1]
    assert places.take(3, 1) == 0  # the limit has changed
    assert places.take(1, 1) == 3  # and once more
    places.give_back()
    places.give_back()
    assert [places.take(2, 1) for _ in range(2)] == [0, 1]


def test_of_all_workers() -> None:
    table = HostTable()
    one, two = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    other = HostPlaces(table, "other", 1, 2)
    assert [places.take(3, 1) for places in (one, one, two, one, two)] == [0, 0, 0, 1, 1]
    assert two.take(1, 1) == 3
    assert [other.take(1, 1), other.take(1, 1)] == [0, 1]
    one.give_back()
    assert [two.take(3, 1), one.take(3, 1)] == [0, 1]
    again = HostPlaces(table, "tea", 1, 2)  # that worker has died, and another one is there
    assert [again.take(3, 1) for _ in range(3)] == [0, 0, 1]


def test_a_worker_with_less_than_its_part() -> None:
    """It has a claim to the next place."""
    table = HostTable()
    one, two = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    assert [one.take(3, 1) for _ in range(3)] == [0, 0, 0]
    assert not one.is_claimed()
    assert two.take(3, 1) == 1
    assert one.is_claimed() and not two.is_claimed()
    one.give_back()
    assert not one.is_claimed()
    assert one.take(3, 1) == 1
    assert two.take(3, 1) == 0
    assert two.take(3, 1) == 1 and not one.is_claimed()  # it has its part
    one.give_back()
    assert one.take(3, 1) == 0


@pytest.mark.parametrize("isolation", ["session", "auto"])
async def test_a_worker_that_takes_the_place_of_another_one(tmp_path: Path, isolation: str) -> None:
    """The clients of the earlier one have left with it."""
    table = HostTable()
    dead, other = (HostPlaces(table, "tea", worker, 2) for worker in range(2))
    assert dead.take(1, 1) == 0
    member = Membership()
    member.fork(2)
    member.count_together(table)
    member.share(0)
    (config,) = Lab(tmp_path, isolation, versions=MODERN, name="tea").proxy.config.backends
    seals = Seals("tea", member, is_process=True)
    assignment = assignment_of(config, Limits(), Meter(), seals)
    await assignment.start()
    try:
        assert other.take(1, 1) == 0
    finally:
        await assignment.stop()


@contextlib.asynccontextmanager
async def process(
    store: StoreServer, server: str = "tea", *, is_local: bool = False
) -> AsyncIterator[RedisPlaces]:
    """The places of a process, which has a part of them while the store is away."""
    places = RedisPlaces(Cluster(store.url), "proxy", server, is_local=is_local)
    try:
        yield places
    finally:
        await places.close()


async def taken(places: RedisPlaces, n: int, limit: int) -> int:
    """Of n clients that come at once, how many get a place."""
    return (await asyncio.gather(*(places.take(limit, 1) for _ in range(n)))).count(0)


async def test_of_all_hosts(store_server: StoreServer) -> None:
    async with (
        process(store_server) as one,
        process(store_server) as two,
        process(store_server, "other") as other,
    ):
        assert await taken(one, 2, 5) == 2
        found = await asyncio.gather(taken(one, 5, 5), taken(two, 5, 5))
        assert sum(found) == 3
        assert await taken(other, 3, 2) == 2
        one.give_back()
        one.give_back()
        for _ in range(2):
            while await two.take(5, 1):
                await asyncio.sleep(0.01)
        assert await two.take(5, 1) == 1 and await two.take(3, 1) == 3
        assert await taken(one, 1, 6) == 1
        for key in store_server.ask("KEYS", "*places1*"):
            assert 0 < store_server.ask("PTTL", key) <= 10_000


async def test_a_process_with_less_than_its_part(store_server: StoreServer) -> None:
    async with process(store_server) as one, process(store_server) as two:
        assert await taken(one, 3, 3) == 3
        assert await two.take(3, 1) == 1
        async with asyncio.timeout(FOREVER):
            while not one.is_claimed():
                await asyncio.sleep(0.05)
        assert not one.is_claimed() and not two.is_claimed()  # it says so once
        one.give_back()
        while await two.take(3, 1):
            assert await one.take(3, 1) == 1
        assert await two.take(3, 1) == 1
        one.give_back()
        while await one.take(3, 1):
            await asyncio.sleep(0.01)


async def test_a_process_that_is_gone(store_server: StoreServer) -> None:
    """Its number counts until it should have been renewed. What another program wrote counts
    nothing."""
    async with process(store_server) as one:
        assert await taken(one, 2, 2) == 2
        (key,) = store_server.ask("KEYS", "*places1*")
        ((name, text),) = store_server.ask("HGETALL", key).items()
        n, _, until = text.partition(" ")
        assert n == "2" and await taken(one, 1, 2) == 0
        store_server.ask("HSET", key, name, f"{n} {int(until) - 10_000}", "other", "many 5")
        assert await taken(one, 3, 2) == 2
        assert list(store_server.ask("HGETALL", key)) == [name]


@pytest.mark.parametrize("is_local", [False, True])
async def test_while_the_store_is_away(new_store_server: MakeServer, is_local: bool) -> None:
    """A process has its part of the limit. When the store is back, it hears how many there are."""
    store = new_store_server()
    async with process(store, is_local=is_local) as places:
        store.kill()
        assert await taken(places, 3, 5) == is_local
        assert await places.take(5, 1) == 1
        store.start()
        while await taken(places, 1, 5) == 0:
            await asyncio.sleep(0.1)
        told = ""
        while told != str(is_local + 1):
            for key in store.ask("KEYS", "*places1*"):
                told = store.ask("HVALS", key)[0].partition(" ")[0]
            await asyncio.sleep(0.1)
