"""Launches the shell scripts that it is given and prints the pids that they say on one line.

A line "more" on its stdin launches the first once more; "fork" leaves a fork behind.
"""

import asyncio
import os
import signal
import sys

from wirespeed import Stdio
from wirespeed.transport.child import group
from wirespeed.transport.child.process import Child

group.GRACE = 3


async def launch(script: str) -> tuple[Child, str]:
    child = await Child.launch(Stdio("sh", [script], stderr="discard"))
    read = asyncio.get_running_loop().run_in_executor(None, os.read, child.stdout_fd, 64)
    return child, (await read).decode().strip()


async def main() -> None:
    children = [await launch(script) for script in sys.argv[1:]]
    print(*(pid for _, pid in children), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line == "more\n":
            children.append(await launch(sys.argv[1]))
            print(children[-1][1], flush=True)
        elif line == "fork\n":
            pid = os.fork()
            if not pid:
                signal.pause()
            print(pid, flush=True)


asyncio.run(main())
