"""Rates that hosts share: token buckets in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from lab.http import serving
from lab.store import MakeServer, StoreServer
from lab.task import SECRET
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.cluster import Cluster, RedisTokenBuckets
from wirespeed.errors import RemoteError, StoreUnavailable
from wirespeed.middleware import LimitRate
from wirespeed.transport.backoff import Backoff

SLOW = 1e-6  # requests a second: nothing comes back in a test
SOON = Backoff(0.01, 0.05)


@contextlib.asynccontextmanager
async def hosts(url: str, n: int = 3, **options: Any) -> AsyncIterator[list[RedisTokenBuckets]]:
    found = [
        RedisTokenBuckets(Cluster(url, returns=SOON), "mill", secret=SECRET, **options)
        for _ in range(n)
    ]
    try:
        yield found
    finally:
        for buckets in found:
            await buckets.close()


async def taken(found: list[RedisTokenBuckets], key: Any, n: int, burst: int = 20) -> int:
    """How many of n requests at each host get a token."""
    delays = await asyncio.gather(
        *(buckets.delay(key, SLOW, burst) for _ in range(n) for buckets in found)
    )
    return delays.count(0)


async def test_a_burst_is_one_for_all_hosts(store_server: StoreServer) -> None:
    async with hosts(store_server.url) as found:
        assert await taken(found, b"anne", 30) == 20
        assert await taken(found, b"anne", 1) == 0
        # others have buckets of their own
        assert await taken(found, "anne", 30) == 20
        assert await taken(found, "10.0.0.1", 30, burst=1) == 1


async def test_tokens_come_back_by_the_clock_of_the_store(store_server: StoreServer) -> None:
    async with hosts(store_server.url) as (one, two, _):
        assert await one.delay("x", 50.0, 1) == 0
        delay = await two.delay("x", 50.0, 1)
        assert 0 < delay <= 1 / 50
        while await two.delay("x", 50.0, 1):
            await asyncio.sleep(0.002)
        # a bucket that is full again has no key
        while store_server.ask("DBSIZE"):
            await asyncio.sleep(0.002)


async def test_an_empty_bucket_gets_another_rate(store_server: StoreServer) -> None:
    """Its owner waits for a token of the rate of now. The same shows where the clock of a store
    is behind that of the store before it."""
    async with hosts(store_server.url) as (one, two, _):
        assert await taken([one], b"anne", 21) == 20
        assert 0 < await one.delay(b"anne", 50.0, 10) <= 1 / 50
        while await two.delay(b"anne", 50.0, 10):
            await asyncio.sleep(0.002)


async def test_keys_end_and_name_nobody(store_server: StoreServer) -> None:
    async with hosts(store_server.url) as (one, *_):
        await one.delay(b"anne", 0.1, 5)
        await one.delay("10.0.0.1", 0.1, 5)
        with store_server.client() as client:
            keys = client.keys("*")
            assert len(keys) == 2
            for key in keys:
                assert key.startswith("wirespeed:{rate1:mill:")
                assert "anne" not in key and "10.0" not in key
                assert 0 < client.pttl(key) <= 10_000


async def test_a_connection_is_of_one_host(store_server: StoreServer) -> None:
    async with hosts(store_server.url) as found:
        assert await taken(found, 7, 2, burst=1) == 3
        assert store_server.ask("DBSIZE") == 0


async def test_each_host_has_its_part_while_the_store_is_away(
    new_store_server: MakeServer,
) -> None:
    server = new_store_server()
    async with hosts(server.url, hosts=3) as found:
        assert await taken(found, b"anne", 1) == 3
        server.freeze()
        assert await taken(found, b"bob", 30) == 3 * (20 // 3)
        server.thaw()


async def test_requests_are_refused_while_the_store_is_away(new_store_server: MakeServer) -> None:
    server = new_store_server()
    async with hosts(server.url, 1, on_store_loss="refuse") as (one,):
        server.freeze()
        with raises(StoreUnavailable, code=-31007):
            await one.delay(b"anne", SLOW, 1)
        server.thaw()


async def test_a_key_of_somebody_else(store_server: StoreServer) -> None:
    """It is not a time, or not a text: the host counts for itself."""
    async with (
        hosts(store_server.url, 1) as (one,),
        hosts(store_server.url, 1, on_store_loss="refuse") as (strict,),
    ):
        assert await one.delay(b"anne", SLOW, 1) == 0
        with store_server.client() as client:
            (key,) = client.keys("*")
            client.set(key, "a song")
            assert await one.delay(b"anne", SLOW, 1) == 0  # as if there was no bucket
            client.delete(key)
            client.lpush(key, "a song")
        assert await one.delay(b"anne", SLOW, 1) == 0
        assert await one.delay(b"anne", SLOW, 1) > 0
        with raises(StoreUnavailable, code=-31007):
            await strict.delay(b"anne", SLOW, 1)
        assert await strict.delay(b"bob", SLOW, 1) == 0


def test_options_are_checked() -> None:
    cluster = Cluster("redis://store")
    for wrong in ({"secret": b"short"}, {"on_store_loss": "wait"}, {"hosts": 0}):
        with raises(ValueError):
            RedisTokenBuckets(cluster, "mill", **{"secret": SECRET} | wrong)  # type: ignore[arg-type]


async def test_servers_share_the_rate_of_a_client(store_server: StoreServer) -> None:
    async with hosts(store_server.url, 2) as found, contextlib.AsyncExitStack() as stack:
        clients = []
        for buckets in found:
            server = Server("mill")
            server.add_middleware(LimitRate(SLOW, burst=3, buckets=buckets))

            @server.tool
            async def grind() -> str:
                return "flour"

            place = await stack.enter_async_context(serving(server))
            clients.append(await stack.enter_async_context(Client(place.url, era="modern")))
        for n in range(3):
            assert (await clients[n % 2].call_tool("grind")).text == "flour"
        for client in clients:
            with raises(RemoteError, code=-31000):
                await client.call_tool("grind")
