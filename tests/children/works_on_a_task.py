"""Opens a store of tasks (a file, or the URL of a cluster), creates one task of each kind, says so,
and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

from wirespeed.tasks import SQLiteTaskStore, Task, TaskStore


def store_at(place: str) -> TaskStore:
    if "://" not in place:
        return SQLiteTaskStore(place)
    from wirespeed.cluster import Cluster, RedisTaskStore

    return RedisTaskStore(Cluster(place), "workshop", secret=b"a secret of all hosts")


async def main(place: str) -> None:
    store = store_at(place)
    await store.open()
    names = ("working", "input_required", "completed")
    for name in names:
        task = Task(id=name, owner=b"anne", created=1, updated=1)
        await store.create(task)
        if name == "input_required":
            await store.update(name, lambda task: task.asking(b'{"method":"roots/list"}', 2)[0])
        elif name == "completed":
            await store.put_result(name, b'{"content":[]}')
    print(*names, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
