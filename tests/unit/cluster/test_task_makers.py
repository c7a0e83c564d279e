"""The makers of tasks, which the hosts of a proxy share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from lab.store import StoreServer
from lab.task import SECRET

from wirespeed.cluster.task_makers import AT_ONCE, LONGEST, MAX_TOOL, RedisTaskMakers

URL = "http://mill.example/mcp?key=hidden"


@contextlib.asynccontextmanager
async def makers(
    store: StoreServer, *urls: str, max_tasks: int = 20, max_of_owner: int = 10
) -> AsyncIterator[list[RedisTaskMakers]]:
    """Those of a host for each URL."""
    async with contextlib.AsyncExitStack() as stack:
        bounds = {"max_tasks": max_tasks, "max_of_owner": max_of_owner}
        yield [
            RedisTaskMakers(
                await stack.enter_async_context(store.cluster()), "mill", url, SECRET, **bounds
            )
            for url in urls or (URL,)
        ]


async def test_a_task_has_one_maker_at_all_hosts(store_server: StoreServer) -> None:
    async with makers(store_server, URL, URL, "http://other.example") as (one, two, other):
        ids = ["1", "\ud800" * 500, "2"]
        await one.note(ids[0], b"anne", "grind", None)
        await one.note(ids[1], b"anne", "\ud800", 60)
        assert await two.tools(b"anne", ids) == {ids[0]: "grind", ids[1]: "\ud800"}
        assert await two.tools(b"bob", ids) == {ids[0]: None, ids[1]: None}
        assert await other.tools(b"anne", ids) == {}
        await two.note("1", b"bob", "bake", None)  # the server has begun to count anew
        assert await one.tools(b"anne", ["1"]) == {"1": None}
        assert await one.tools(b"bob", ["1"]) == {"1": "bake"}
        await two.note("1", b"anne", "x" * (MAX_TOOL + 1), None)
        while await one.tools(b"bob", ["1"]):
            await asyncio.sleep(0.01)


async def test_many_tasks_are_asked_about_at_once(store_server: StoreServer) -> None:
    async with makers(store_server) as (one,):
        ids = [str(n) for n in range(2 * AT_ONCE + 1)]
        for task_id in (ids[0], ids[-1]):
            await one.note(task_id, b"anne", task_id, None)
        assert await one.tools(b"anne", ids) == {ids[0]: ids[0], ids[-1]: ids[-1]}
        assert await one.tools(b"anne", []) == {}


async def test_a_long_list_does_not_hold_up_others(store_server: StoreServer) -> None:
    async with makers(store_server) as (one,):
        await one.note("1", b"anne", "grind", None)
        ids = [str(n) for n in range(100 * AT_ONCE)]
        long = asyncio.create_task(one.tools(b"anne", ids))
        await asyncio.sleep(0)  # it has begun
        assert await one.tools(b"anne", ["1"]) == {"1": "grind"}
        assert not long.done()
        assert await long == {"1": "grind"}


def dump(store: StoreServer) -> dict[str, Any]:
    kinds: dict[str, tuple[Any, ...]] = {"zset": ("ZRANGE", 0, -1), "string": ("GET",)}
    found = {}
    for key in store.ask("KEYS", "*"):
        command, *more = kinds[store.ask("TYPE", key)]
        found[key] = store.ask(command, key, *more)
    return found


async def test_what_the_store_holds(store_server: StoreServer) -> None:
    """Each key ends by itself, and nothing names an owner, a task or a URL."""
    async with makers(store_server) as (one,):
        await one.note("task-1", b"anne", "grind", None)
        await one.note("task-2", b"anne", "grind", 60.0)
        await one.note("task-3", b"bob", "grind", 1e9)
    found = dump(store_server)
    assert len(found) == 7  # three tasks, two owners, the lists of tasks and of owners
    for key in found:
        assert key.startswith("wirespeed:{makers1:mill:")
        assert 0 < store_server.ask("PTTL", key) <= LONGEST * 1000
    for hidden in ("anne", "bob", "task-", "hidden", "example"):
        assert hidden not in str(found)


async def test_tasks_are_bounded(store_server: StoreServer) -> None:
    async with makers(store_server, max_tasks=5, max_of_owner=3) as (one,):

        async def make(owner: str, *numbers: int) -> None:
            for n in numbers:
                await one.note(f"{owner}{n}", owner.encode(), "grind", 1000.0 + n)

        async def known(owner: str) -> list[str]:
            return [*await one.tools(owner.encode(), [f"{owner}{n}" for n in range(9)])]

        await make("anne", 0, 1, 2, 3)
        assert await known("anne") == ["anne1", "anne2", "anne3"]
        await make("bob", 0, 1)
        await make("carol", 0)  # whoever has most loses one
        assert await known("anne") == ["anne2", "anne3"]
        assert len(await known("bob")) == 2 and len(await known("carol")) == 1


async def test_tasks_that_are_over_make_room(store_server: StoreServer) -> None:
    async with makers(store_server, max_tasks=3) as (one,):
        for n in range(3):
            await one.note(f"short-{n}", b"anne", "grind", 0.001)
        while await one.tools(b"anne", ["short-2"]):
            await asyncio.sleep(0.01)
        for n in range(3):
            await one.note(str(n), b"bob", "grind", None)
        assert len(await one.tools(b"bob", ["0", "1", "2"])) == 3
    (owners,) = [value for key, value in dump(store_server).items() if key.endswith(":owners")]
    assert len(owners) == 1
