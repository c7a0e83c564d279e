"""Launches the shell script argv[1], prints what it prints, and exits without a shutdown."""

import asyncio
import os
import sys

from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.process import Child


async def main() -> Child:
    child = await Child.launch(Stdio("sh", [sys.argv[1]], stderr="discard"))
    print(os.read(child.stdout_fd, 64).decode().strip(), flush=True)
    return child


kept = asyncio.run(main())
