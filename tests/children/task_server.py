"""A server over stdio whose tasks are kept in the file that argv[1] names."""

from __future__ import annotations

import asyncio
import os
import sys

from wirespeed import Server
from wirespeed.tasks import SQLiteTaskStore

server = Server("keeps")
server.use_tasks(SQLiteTaskStore(sys.argv[1]), poll_interval=0.02)


@server.tool(task="required")
async def quick() -> int:
    return os.getpid()


@server.tool(task="required")
async def endless() -> None:
    await asyncio.Event().wait()


server.run()
