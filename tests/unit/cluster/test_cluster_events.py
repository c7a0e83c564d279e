"""Events in a store that hosts share: keys, round trips, foreign records. What all stores of events
do is in tests/unit/server/http/test_event_store.py."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from lab.store import StoreServer
from lab.wording import raises

from wirespeed.cluster import RedisEventStore
from wirespeed.cluster.events import AT_ONCE
from wirespeed.errors import ProtocolError

BASE = "wirespeed:{events1:s}:"


@contextlib.asynccontextmanager
async def a_store(server: StoreServer, name: str = "s", **options: Any) -> Any:
    store = RedisEventStore(server.cluster(), name, **options)
    try:
        yield store
    finally:
        await store.close()


async def test_every_host_has_the_events(store_server: StoreServer) -> None:
    async with (
        a_store(store_server) as one,
        a_store(store_server) as two,
        a_store(store_server, "other") as other,
    ):
        await one.append("a", 1, b"1")
        await two.append("a", 2, b"2")
        assert await one.after("a", 0) == await two.after("a", 0) == [(1, b"1"), (2, b"2")]
        assert await other.after("a", 0) is None


async def test_keys(store_server: StoreServer) -> None:
    async with a_store(store_server, max_age=60) as store:
        await store.append("session.1", 1, b"{}")
        await store.append("session.2", 1, b"{}")
        with store_server.client() as client:
            found = client.keys("*")
            assert {key.removeprefix(BASE).partition(":")[0] for key in found} == {
                *("e", "order", "serial", "sizes")
            }
            for key in found:
                assert key.startswith(BASE) and "session" not in key
                assert 0 < client.pttl(key) <= 61_000
            await store.forget("session.1")
            await store.forget("session.2")
            left = {key.removeprefix(BASE) for key in client.keys("*")}
        assert left == {"serial", "sizes"}
        assert store_server.ask("HGETALL", BASE + "sizes") == {"*": "0"}


async def test_what_is_appended_in_one_turn_is_one_round_trip(store_server: StoreServer) -> None:
    async with a_store(store_server) as store:
        await store.append("x", 1, b"{}")
        before = store_server.ask("INFO", "stats")["total_reads_processed"]
        await asyncio.gather(*(store.append(f"s{i}", 1, b"{}") for i in range(50)))
        after = store_server.ask("INFO", "stats")["total_reads_processed"]
        assert after - before < 20  # also those of this test's own questions
        store_server.ask("CONFIG", "RESETSTAT")
        await store.append("x", 2, b"{}")
        assert store_server.calls()["evalsha"] == 1


async def test_an_event_beyond_the_bound_of_its_stream_is_not_sent(
    store_server: StoreServer,
) -> None:
    async with a_store(store_server, max_stream_bytes=1000) as store:
        await store.append("a", 1, b"{}")
        before = store_server.ask("INFO", "stats")["total_net_input_bytes"]
        await store.append("a", 2, b"x" * 100_000)
        assert store_server.ask("INFO", "stats")["total_net_input_bytes"] - before < 10_000
        assert await store.after("a", 1) is None


async def test_a_number_comes_once(store_server: StoreServer) -> None:
    async with a_store(store_server) as store:
        await store.append("a", 1, b"1")
        with raises(ProtocolError, code=-32603):
            await store.append("a", 1, b"2")
        assert await store.after("a", 0) == [(1, b"1")]


async def test_a_stream_without_one_of_its_events_cannot_be_resumed(
    store_server: StoreServer,
) -> None:
    """The store lost a write, as at a restart."""
    async with a_store(store_server) as one, a_store(store_server) as two:
        await one.append("a", 1, b"1")
        await one.append("a", 3, b"3")
        assert await two.after("a", 0) is None
        assert await two.after("a", 1) is None
        assert await two.after("a", 2) == [(3, b"3")]


async def test_what_another_program_wrote(
    store_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_store(store_server) as store:
        for name in "ab":
            await store.append(name, 1, b"1")
        with store_server.client() as client:
            first, second = client.keys(BASE + "e:*")
            client.xadd(first, {"song": "la"}, id="2-0")
            client.zadd(BASE + "order", {"a song": 0})
            client.delete(second)
            client.set(second, "a song")
        found = []
        for name in "ab":
            try:
                found.append(await store.after(name, 0))
            except ProtocolError as exc:
                found.append(exc.code)
        assert sorted(map(str, found)) == ["-32603", "None"]
        # streams of others go on, and what is not an event goes with the oldest ones
        for n in range(1, 4):
            await store.append("c", n, b"1")
        assert len(await store.after("c", 0) or ()) == 3
        assert "song" not in caplog.text


async def test_a_long_stream_is_forgotten_in_parts(store_server: StoreServer) -> None:
    """So that nobody waits long behind it."""
    async with a_store(store_server) as store:
        n = 2 * AT_ONCE + 1
        await asyncio.gather(*(store.append("a", i, b"{}") for i in range(1, n + 1)))
        await store.append("b", 1, b"{}")
        store_server.ask("CONFIG", "RESETSTAT")
        await store.forget("a")
        calls = store_server.calls()
        assert calls["evalsha"] + calls.get("eval", 0) >= 3
        assert await store.after("a", n) is None and await store.after("b", 0) == [(1, b"{}")]
        assert store_server.ask("ZCARD", BASE + "order") == 1
