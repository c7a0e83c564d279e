"""wirespeed's own server on WebSocket for the benchmark: the tools of ws_server.py, and one that
tells how many tasks and descriptors there are and how much memory is in use.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
from typing import Any

from _port import tell
from ws_server import server


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    ]  # fmt: skip


def malloc_used() -> int:
    """Bytes handed out by malloc(3), which is where buffers come from; 0 where it does not tell.

    What is free goes back to the system: else resident memory tells of malloc's reserve.
    """
    libc = ctypes.CDLL(None)
    try:
        libc.malloc_trim(0)
        mallinfo = libc.mallinfo2
    except AttributeError:
        return 0
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


@server.tool
async def held() -> str:
    """What the process holds, after a collection."""
    gc.collect()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    counts: dict[str, Any] = {
        "tasks": len(tasks),
        "files": len(os.listdir("/proc/self/fd")) - 1,  # less the one that lists them
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),  # of Python's own allocator
        "malloc": malloc_used(),
    }
    return json.dumps(counts)


if __name__ == "__main__":
    server.run(
        "ws://127.0.0.1:0/",
        on_listening=lambda urls: tell(int(urls[0].rpartition(":")[2].strip("/"))),
        max_connections=20_000,
        backlog=1024,
    )
