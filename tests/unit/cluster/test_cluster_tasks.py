"""Tasks in a store that hosts share: dead hosts, foreign and broken records, keys, a store that is
away. What all stores of tasks do is in tests/unit/tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lab.raw import FOREVER
from lab.store import LISTS_FOR_SCRIPTS, MakeServer, StoreServer, free_port
from lab.task import ANNE, BOB, SECRET, Workshop, a_task, make_store
from lab.wording import raises

from wirespeed import TASKS, Client
from wirespeed.cluster import Cluster, RedisTaskStore
from wirespeed.errors import ProtocolError, RemoteError, StoreUnavailable
from wirespeed.protocol import codes
from wirespeed.tasks import Task, TaskLimit, TaskStateError, TaskStatus
from wirespeed.tasks.store import INTERRUPTED
from wirespeed.transport.backoff import Backoff

CHILD = Path(__file__).parents[2] / "children" / "works_on_a_task.py"
BASE = "wirespeed:{tasks1:workshop}:"
SOON = Backoff(0.01, 0.05)


def a_store(server: StoreServer, **options: Any) -> RedisTaskStore:
    return RedisTaskStore(server.cluster(returns=SOON), "workshop", secret=SECRET, **options)


@contextlib.asynccontextmanager
async def opened(store: RedisTaskStore) -> Any:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def worker(store_server: StoreServer) -> Iterator[subprocess.Popen[str]]:
    """Another process, with three tasks in the store: one works, one asks, one is over."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), store_server.url], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().split() == ["working", "input_required", "completed"]
        yield child
        child.kill()


# -- hosts -----------------------------------------------------------------------------------------


async def test_tasks_are_there_for_every_host_and_after_a_restart(
    store_server: StoreServer,
) -> None:
    done = a_task()
    async with opened(a_store(store_server)) as one, opened(a_store(store_server)) as two:
        await one.create(done)
        await two.put_result(done.id, b'{"content":[]}')
        assert (await one.get(done.id)).status is TaskStatus.COMPLETED
    async with opened(a_store(store_server)) as store:
        assert (await store.get(done.id)).result == b'{"content":[]}'
        assert len((await store.page(ANNE)).tasks) == 1


async def test_a_store_that_closes_leaves_nothing_working(store_server: StoreServer) -> None:
    store, task = a_store(store_server), a_task()
    async with opened(store):
        await store.create(task)
    async with opened(store):
        found = await store.get(task.id)
        assert found.status is TaskStatus.FAILED and found.message == INTERRUPTED


async def test_after_sigkill_what_was_under_way_has_failed(
    store_server: StoreServer, worker: subprocess.Popen[str]
) -> None:
    worker.kill()
    worker.wait(20)
    async with opened(a_store(store_server, dead_after=0.2)) as store:
        for name in ("working", "input_required"):
            while (task := await store.get(name)).status is not TaskStatus.FAILED:
                await store.expire(0)
                await asyncio.sleep(0.01)
            assert task.message == INTERRUPTED and not task.requests
            assert msgspec.json.decode(task.error)["code"] == codes.CUT_OFF
            with pytest.raises(TaskStateError):
                await store.put_result(name, b"{}")
        assert (await store.get("completed")).status is TaskStatus.COMPLETED
        await store.expire(0)
        assert store_server.ask("ZCARD", BASE + "runners") == 1  # this store itself


async def test_a_process_that_lives_keeps_its_tasks(
    store_server: StoreServer, worker: subprocess.Popen[str]
) -> None:
    async with opened(a_store(store_server)) as store:
        assert await store.expire(0) == []
        assert (await store.get("working")).status is TaskStatus.WORKING
        await store.cancel("working", "from elsewhere")
        assert (await store.get("working")).status is TaskStatus.CANCELLED


async def test_nobody_is_dead_where_the_store_was_away(store_server: StoreServer) -> None:
    """No runner could give a sign of life meanwhile."""
    task = a_task()
    async with opened(a_store(store_server)) as one:
        await one.create(task)
        (runner,) = store_server.ask("ZRANGE", BASE + "runners", 0, -1)
        store_server.ask("ZADD", BASE + "runners", 1_700_000_000_000, runner)  # long ago
        async with opened(a_store(store_server, dead_after=1000)) as two:
            await two.expire(0)
            assert (await two.get(task.id)).status is TaskStatus.WORKING
        async with opened(a_store(store_server, dead_after=0.05)) as two:
            while (await two.get(task.id)).status is TaskStatus.WORKING:
                await asyncio.sleep(0.01)  # it looks by itself


# -- what it keeps ---------------------------------------------------------------------------------


def keys(server: StoreServer) -> dict[str, str]:
    """The keys by their names, with what they hold, as texts."""
    found = {}
    with server.client() as client:
        for key in sorted(client.keys("*")):
            found[key] = str(client.dump(key)) if client.type(key) != "hash" else "hash"
            assert client.pttl(key) > 0, key
    return found


async def test_every_key_ends_and_none_names_a_principal(store_server: StoreServer) -> None:
    store_server.ask("CONFIG", "RESETSTAT")
    async with opened(a_store(store_server)) as store:
        owner = store.owner_of(ANNE)
        assert owner != store.owner_of(BOB) and owner != ANNE
        forever, soon = a_task(owner=owner, principal=True), a_task(owner=owner, ttl=60_000)
        for task in (forever, soon):
            await store.create(task)
        await store.put_result(soon.id, b'{"n":1}')
        found = keys(store_server)
        assert all(key.startswith(BASE) for key in found)
        parts = {key.removeprefix(BASE).partition(":")[0] for key in found}
        assert parts == {
            *("all", "e", "ended", "expires", "forever", "held", "o", "runners", "serial", "t"),
            "w",
        }
        assert not any("anne" in key + held for key, held in found.items())
        body = store_server.ask("HGET", BASE + f"t:{soon.id}", "expires")
        assert body == str(soon.expires)
        await store.expire(1 << 60)
        await store.delete(forever.id)
        left = {key.removeprefix(BASE) for key in keys(store_server)}
        assert left == {"held", "runners", "serial"}
        assert store_server.ask("GET", BASE + "held") == "0"


def test_owners_depend_on_the_secret_and_the_server() -> None:
    cluster = Cluster("redis://store")
    stores = [
        RedisTaskStore(cluster, name, secret=secret)
        for name in "ab"
        for secret in (SECRET, SECRET[::-1])
    ]
    assert len({store.owner_of(ANNE) for store in stores}) == 4
    again = RedisTaskStore(cluster, "a", secret=SECRET)
    assert again.owner_of(ANNE) == stores[0].owner_of(ANNE)
    with raises(ValueError):
        RedisTaskStore(cluster, "a", secret=b"short")
    with raises(ValueError):
        RedisTaskStore(cluster, "a", secret=SECRET, dead_after=0)


async def test_each_change_is_one_round_trip(store_server: StoreServer) -> None:
    async with opened(a_store(store_server)) as store:
        warm = a_task()
        await store.create(warm)
        await store.replace(warm, warm.completed(b"{}", 2000))
        task = a_task()
        for work in (
            store.create(task),
            store.replace(task, task.noted("x", 1)),
            store.get(task.id),
            store.page(ANNE),
        ):
            store_server.ask("CONFIG", "RESETSTAT")
            await work
            calls = store_server.calls()
            assert (calls["evalsha"], calls.get("eval", 0)) == (1, 0)


async def test_a_task_has_its_bound(store_server: StoreServer) -> None:
    async with opened(a_store(store_server)) as store:
        task = a_task()
        await store.create(task)
        with raises(TaskLimit):
            await store.put_result(task.id, b'"%b"' % (b"x" * (4 << 20)))
        assert await store.get("x" * 300) is None
        assert await store.delete(task.id)


# -- what is not its own ---------------------------------------------------------------------------


async def test_a_record_that_is_broken_is_not_shown(
    store_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(a_store(store_server)) as store:
        good, bad, newer = a_task(), a_task(), a_task()
        for task in (good, bad, newer):
            await store.create(task)
        store_server.ask("HSET", BASE + f"t:{bad.id}", "body", "of a secret kind")
        other = msgspec.msgpack.encode({"id": newer.id, "state": "of a secret kind"})
        with store_server.client() as client:
            client.hset(BASE + f"t:{newer.id}", "body", other)
        for _ in range(3):
            assert await store.get(bad.id) is None and await store.get(newer.id) is None
            assert [task.id for task in (await store.page(ANNE)).tasks] == [good.id]
    said = [one.getMessage() for one in caplog.records if one.name == "wirespeed.cluster"]
    assert len(said) == 1 and "a task" in said[0] and "secret" not in said[0]
    # their runners are gone, and have left no result
    assert store_server.ask("EXISTS", BASE + f"t:{bad.id}", BASE + f"t:{newer.id}") == 0


async def test_keys_of_somebody_else(
    store_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(a_store(store_server)) as store:
        theirs = a_task()
        store_server.ask("SET", BASE + f"t:{theirs.id}", "a song")
        mine = a_task()
        await store.create(mine)
        for _ in range(3):
            with raises(ProtocolError, code=-32603):
                await store.get(theirs.id)
        assert await store.get(mine.id) == mine
        assert store_server.ask("GET", BASE + f"t:{theirs.id}") == "a song"
    assert caplog.text.count("WRONGTYPE") == 1 and "song" not in caplog.text


# -- a store that is away --------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_whose_store_is_away(
    new_store_server: MakeServer, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls without tasks go on, tasks are refused, and the end of one that worked is stored when
    the store is back."""
    server = new_store_server()
    cluster = Cluster(server.url, returns=SOON)
    shop = Workshop(RedisTaskStore(cluster, "workshop", secret=SECRET), poll_interval=0.02)
    async with Client(shop.server, era=era, extensions=[TASKS]) as client:
        task = await client.start_tool("double", {"n": 3})
        while not shop.started:
            await asyncio.sleep(0.01)
        server.freeze()
        shop.gate.set()
        for _ in range(3):
            for work in (task.status(), client.start_tool("must", {"n": 1})):
                with raises(RemoteError, code=-31007):
                    await work
            assert (await client.call_tool("plain")).text == "plain"
        server.thaw()
        while cluster.state != "up":
            await asyncio.sleep(0.01)
        assert (await task.result()).structured_content == {"result": 6}
    said = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert {one.name for one in said} == {"wirespeed.cluster"}, said
    assert len(said) == 2 * cluster.n_losses


async def test_a_server_that_ends_while_its_store_is_away(new_store_server: MakeServer) -> None:
    server = new_store_server()
    shop = Workshop(make_store("redis", Path(), server.url), poll_interval=0.02)
    async with Client(shop.server, era="modern", extensions=[TASKS]) as client:
        await client.start_tool("double", {"n": 3})
        server.freeze()
        with raises(RemoteError, code=-31007):
            await client.start_tool("double", {"n": 3})
    server.thaw()
    assert shop.cancelled == ["double"]


async def test_a_store_that_is_away_at_first(new_store_server: MakeServer) -> None:
    server = new_store_server()
    server.kill()
    store = a_store(server)
    with raises(StoreUnavailable, code=-31007):
        await store.open()
    server.start()
    async with opened(store):
        task: Task = a_task()
        await store.create(task)
        assert await store.get(task.id) == task


async def test_a_store_whose_answers_cannot_be_read(
    new_store_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The process gives signs of life again, once it gets an answer."""
    port = free_port()
    right = new_store_server(port=port)
    store = a_store(right, dead_after=0.5)
    async with opened(store), asyncio.timeout(FOREVER):
        right.kill()
        wrong = new_store_server(*LISTS_FOR_SCRIPTS, port=port)
        while "what is said of runners in the store" not in caplog.text:
            await asyncio.sleep(0.05)
        wrong.kill()
        again = new_store_server(port=port)
        while not again.ask("KEYS", "*runners"):
            await asyncio.sleep(0.05)
