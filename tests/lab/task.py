"""Tasks and stores to try things on."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from wirespeed import Context, Server
from wirespeed.client.tasks.calls import ProgressSink
from wirespeed.client.tasks.task import TaskHandles
from wirespeed.cluster import Cluster, RedisTaskStore
from wirespeed.errors import ProtocolError
from wirespeed.server.tasks.book import TaskRuntime
from wirespeed.tasks import MemoryTaskStore, SQLiteTaskStore, Task, TaskStore
from wirespeed.tasks.model import new_task_id

FOREVER = 30.0
ANNE = b"anne's credential"
BOB = b"bob's credential"
SECRET = b"a secret of all hosts"

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
MakeStore: TypeAlias = Callable[..., TaskStore]


def kept() -> list[TaskHandles | ProgressSink]:
    """What clients still keep of tasks that were started."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, (TaskHandles, ProgressSink))]


def a_task(**fields: Any) -> Task:
    return Task(**{"id": new_task_id(), "owner": ANNE, "created": 1000, "updated": 1000} | fields)


def make_store(kind: str, folder: Path, cluster: str = "", **limits: Any) -> TaskStore:
    """A store of a kind: "memory", "sqlite" or "redis", at the URL of a cluster."""
    if kind == "memory":
        return MemoryTaskStore(**limits)
    if kind == "redis":
        return RedisTaskStore(Cluster(cluster), "workshop", secret=SECRET, **limits)
    return SQLiteTaskStore(folder / "tasks.db", durable=False, **limits)


async def bounded(main: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(FOREVER):
        return await main


def book_of(server: Server, loop: asyncio.AbstractEventLoop | None = None) -> TaskRuntime:
    """The book of a server's tasks on its event loop, by default the running one."""
    service = server.service.tasks.service
    assert service is not None
    return service.book(loop or asyncio.get_running_loop())


class Workshop:
    """A server whose tools do what a test wants, when it wants it."""

    def __init__(self, store: TaskStore | None = None, **options: Any) -> None:
        self.server = Server("workshop", "1", **options.pop("server", {}))
        if store is not None or options:
            self.server.use_tasks(store, **options)
        self.gate = asyncio.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        server = self.server

        @server.tool(task="optional", task_after=0)
        async def double(n: int, ctx: Context) -> int:
            """Twice a number, when the gate is open."""
            await ctx.progress(1, 2, "begun")
            await self.wait("double")
            await ctx.progress(2, 2)
            return 2 * n

        @server.tool(task="optional", task_after=1000)
        async def patient(n: int) -> int:
            await self.wait("patient")
            return n

        @server.tool(task="required")
        async def must(n: int = 0) -> int:
            await self.wait("must")
            return n

        @server.tool(task="optional", task_after=0)
        async def fails(text: str = "out of ink") -> None:
            raise RuntimeError(text)

        @server.tool(task="optional", task_after=0)
        async def refuses() -> None:
            raise ProtocolError(-31500, "not today", {"why": "sunday"})

        @server.tool(task="optional", task_after=0)
        def blocking(n: int) -> int:
            return n + 1

        @server.tool(task="optional", task_after=0)
        async def large(size: int) -> str:
            return "x" * size

        @server.tool
        async def plain() -> str:
            return "plain"

        @server.tool(task="optional", task_after=0)
        async def ask_roots(times: int, ctx: Context) -> list[Any]:
            asker = ctx._call.asker
            meta = [b'{"_meta":{"com.example/n":%d}}' % i for i in range(times)]
            asked = [asker.ask("roots", "roots/list", params) for params in meta]
            return [json.loads(text) for text in await asyncio.gather(*asked)]

    async def wait(self, name: str) -> None:
        self.started.append(name)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
