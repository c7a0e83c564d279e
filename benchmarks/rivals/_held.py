"""What a process holds: tasks, descriptors, memory.  A tool of the servers that are measured."""

import asyncio
import ctypes
import gc
import json
import os
import sys
from typing import Any

from wirespeed.transport.taskpool import TaskPool


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


async def held() -> str:
    """What the process holds, after a collection."""
    gc.collect()
    objects = gc.get_objects()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    parked = sum(one.idle for one in objects if isinstance(one, TaskPool))
    counts: dict[str, Any] = {
        "tasks": len(tasks) - parked,  # less those that wait for the next request
        "files": len(os.listdir("/proc/self/fd")) - 1,  # less the one that lists them
        "objects": len(objects),
        "sessions": sum(type(one).__name__ == "HttpSession" for one in objects),
        "blocks": sys.getallocatedblocks(),  # of Python's own allocator
        "malloc": malloc_used(),
    }
    return json.dumps(counts)
