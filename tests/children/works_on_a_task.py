"""Opens a store of tasks, creates one task of each kind, says so, and waits to be killed."""

from __future__ import annotations

import asyncio
import sys

from wirespeed.tasks import SQLiteTaskStore, Task


async def main(path: str) -> None:
    store = SQLiteTaskStore(path)
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
