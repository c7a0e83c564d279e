"""A client that is a subreaper, as init in a container is: ends a child with a grandchild.

Prints which child, zombies included, is left when the shutdown is over and the guard had time.
With "late", the grandchild ends right after the shutdown has seen that it runs.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time

from wirespeed.transport.child import process
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.group import ProcessGroup
from wirespeed.transport.child.process import Child

PR_SET_CHILD_SUBREAPER = 36


async def main() -> None:
    child = await Child.launch(Stdio("sh", [sys.argv[1]]))
    os.read(child.stdout_fd, 64)
    await child.shutdown(grace=5, term_grace=0.05)


class LateGroup(ProcessGroup):
    looks = False

    def alive(self) -> bool:
        self.looks = True
        return super().alive()

    def _probe(self) -> None:
        super()._probe()
        if self.looks and not self.gone:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitid(os.P_PGID, self.pid, os.WEXITED | os.WNOWAIT)


if sys.argv[2:] == ["late"]:
    process.ProcessGroup = LateGroup
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
asyncio.run(main())
try:
    for _ in range(1500):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        time.sleep(0.02)
    print("left", os.waitpid(-1, os.WNOHANG)[0])
except ChildProcessError:
    print("none left")
