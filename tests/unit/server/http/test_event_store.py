"""What every store of events does: keeping, resuming, limits, forgetting; files that survive."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from lab.wording import raises

from wirespeed import EventStore, MemoryEventStore, SQLiteEventStore
from wirespeed.cluster import RedisEventStore

MakeStore: TypeAlias = Callable[..., EventStore]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "sqlite", "redis"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """``new_store(max_bytes=…)``: an empty store."""
    server = request.getfixturevalue("store_server") if request.param == "redis" else None

    def new(**options: Any) -> EventStore:
        if request.param == "memory":
            return MemoryEventStore(**options)
        if server is not None:
            return RedisEventStore(server.cluster(), "s", **options)
        return SQLiteEventStore(tmp_path / "events.db", **options)

    return new


async def done(value: Any) -> Any:
    """The value of a method that may be a coroutine function."""
    return await value if inspect.isawaitable(value) else value


async def fill(store: EventStore, stream: str, n: int, size: int = 1, first: int = 1) -> None:
    for i in range(first, first + n):
        await done(store.append(stream, i, b"%d" % (i % 10) * size))


async def test_events_after_a_number(new_store: MakeStore) -> None:
    store = new_store()
    await fill(store, "a", 3)
    await fill(store, "b", 1)
    assert await done(store.after("a", 0)) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert await done(store.after("a", 2)) == [(3, b"3")]
    assert await done(store.after("a", 3)) == []
    assert await done(store.after("b", 0)) == [(1, b"1")]
    # a number that the stream has not reached, and a stream that does not exist
    assert await done(store.after("a", 4)) is None
    assert await done(store.after("c", 0)) is None
    await done(store.close())


async def test_a_forgotten_stream_is_unknown(new_store: MakeStore) -> None:
    store = new_store()
    await fill(store, "a", 3)
    await fill(store, "b", 1)
    await done(store.forget("a"))
    await done(store.forget("a"))
    assert await done(store.after("a", 1)) is None
    assert await done(store.after("b", 0)) == [(1, b"1")]
    await done(store.close())


@pytest.mark.parametrize("limits", [{"max_stream_events": 3}, {"max_stream_bytes": 3 * 110}])
async def test_a_stream_drops_its_oldest_events(
    new_store: MakeStore, limits: dict[str, int]
) -> None:
    store = new_store(**limits)
    await fill(store, "other", 1, size=10)
    await fill(store, "a", 5, size=10)
    assert await done(store.after("a", 1)) is None  # number 2 is missing
    assert [n for n, _ in await done(store.after("a", 2))] == [3, 4, 5]
    assert await done(store.after("other", 0)) == [(1, b"1" * 10)]
    await done(store.close())


async def test_an_event_that_is_larger_than_its_stream_is_missing(new_store: MakeStore) -> None:
    store = new_store(max_stream_bytes=1000)
    await fill(store, "a", 2)
    await fill(store, "a", 1, size=1000, first=3)
    assert await done(store.after("a", 2)) is None
    await fill(store, "a", 1, first=4)
    assert await done(store.after("a", 2)) is None
    assert await done(store.after("a", 3)) == [(4, b"4")]
    await done(store.close())


async def test_all_streams_together_drop_the_oldest_events(new_store: MakeStore) -> None:
    store = new_store(max_bytes=3 * 110)
    for i in range(1, 3):
        await fill(store, "a", 1, size=10, first=i)
        await fill(store, "b", 1, size=10, first=i)
    assert await done(store.after("a", 0)) is None
    assert [n for n, _ in await done(store.after("a", 1))] == [2]
    assert [n for n, _ in await done(store.after("b", 0))] == [1, 2]
    await done(store.close())


async def test_old_events_are_dropped(new_store: MakeStore) -> None:
    clock = Clock()
    store = new_store(max_age=60, clock=clock)
    await fill(store, "a", 2)
    clock.now += 50
    await fill(store, "a", 1, first=3)
    assert [n for n, _ in await done(store.after("a", 0))] == [1, 2, 3]
    clock.now += 10
    assert await done(store.after("a", 0)) is None
    assert [n for n, _ in await done(store.after("a", 2))] == [3]
    clock.now += 50
    assert await done(store.after("a", 2)) is None
    await done(store.close())


async def test_a_store_may_be_used_after_its_end(new_store: MakeStore) -> None:
    store = new_store()
    await fill(store, "a", 1)
    await done(store.close())
    await done(store.close())
    await fill(store, "a", 1, first=2)
    assert [n for n, _ in await done(store.after("a", 0))] == [1, 2]
    await done(store.close())


@pytest.mark.parametrize("name", ["max_bytes", "max_stream_bytes", "max_stream_events"])
def test_limits_are_checked(new_store: MakeStore, name: str) -> None:
    with raises(ValueError):
        new_store(**{name: 0})
    with raises(ValueError):
        new_store(max_age=0)


async def test_a_file_survives_its_store(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = SQLiteEventStore(path)
    await asyncio.gather(*(store.append("a", i, b"%d" % i) for i in range(1, 21)))
    await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other = SQLiteEventStore(path, max_stream_events=10)
    assert [n for n, _ in await other.after("a", 15) or ()] == [16, 17, 18, 19, 20]
    await other.append("a", 21, b"21")  # the limits are those of the store that writes
    assert await other.after("a", 10) is None
    await other.close()


async def test_two_stores_share_a_file(tmp_path: Path) -> None:
    one, two = (SQLiteEventStore(tmp_path / "events.db") for _ in range(2))
    await one.append("a", 1, b"1")
    await two.append("b", 1, b"1")
    assert await one.after("b", 0) == [(1, b"1")]
    assert await two.after("a", 0) == [(1, b"1")]
    await one.close()
    await two.close()


def test_a_file_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SQLiteEventStore(tmp_path / "missing" / "events.db")
    with raises(ValueError):
        SQLiteEventStore(":memory:")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("PRAGMA user_version = 7")
    other.close()
    with raises(ValueError):
        SQLiteEventStore(tmp_path / "other.db")


async def test_streams_that_were_forgotten_take_no_memory() -> None:
    store = MemoryEventStore()
    await fill(store, "first", 1)
    tracemalloc.start()
    try:
        for i in range(3000):
            await fill(store, f"s{i}", 3)
            store.forget(f"s{i}")
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 100_000
    assert store.after("first", 0) == [(1, b"1")]
