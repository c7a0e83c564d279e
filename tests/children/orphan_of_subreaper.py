"""A client that is a subreaper, as init in a container is: ends a child with a grandchild.

Prints how many children, zombies included, are left when the shutdown is over.
"""

import asyncio
import ctypes
import os
import sys

from wirespeed.client.target import Stdio
from wirespeed.transport.process import Child

PR_SET_CHILD_SUBREAPER = 36


async def main() -> None:
    child = await Child.launch(Stdio("sh", [sys.argv[1]]))
    os.read(child.stdout_fd, 64)
    await child.shutdown(grace=5, term_grace=0.05)


ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
asyncio.run(main())
try:
    print("left", os.waitpid(-1, os.WNOHANG)[0])
except ChildProcessError:
    print("none left")
