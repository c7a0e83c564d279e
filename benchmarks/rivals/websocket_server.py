"""wirespeed's own server on WebSocket for the benchmark: the tools of ws_server.py, and one that
tells how many tasks and descriptors there are.
"""

import asyncio
import gc
import json
import os
from typing import Any

from _port import tell
from ws_server import server


@server.tool
async def held() -> str:
    """What the process holds, after a collection."""
    gc.collect()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    counts: dict[str, Any] = {
        "tasks": len(tasks),
        "files": len(os.listdir("/proc/self/fd")) - 1,  # less the one that lists them
        "objects": len(gc.get_objects()),
    }
    return json.dumps(counts)


if __name__ == "__main__":
    server.run(
        "ws://127.0.0.1:0/",
        on_listening=lambda urls: tell(int(urls[0].rpartition(":")[2].strip("/"))),
        max_connections=20_000,
        backlog=1024,
    )
