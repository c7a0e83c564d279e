"""Leaves its stdin and stdout to another process.

python leaves_its_pipes.py STATUS COMMAND…
    starts the command, which inherits the pipes, and exits
python leaves_its_pipes.py
    is a server whose tool `die` leaves its pipes to `sleep`
"""

import os
import subprocess
import sys

if len(sys.argv) > 1:
    subprocess.Popen(sys.argv[2:])
    os._exit(int(sys.argv[1]))

from wirespeed import Server

server = Server("leaves", "1")


@server.tool(inline=True)
def die(status: int) -> str:
    """Exit with a status; the pipes stay open."""
    # serving has moved the pipes away from the descriptors 0 and 1
    pipes = [fd for fd in map(int, os.listdir("/dev/fd")) if fd > 2 and is_pipe(fd)]
    subprocess.Popen(["sleep", "60"], pass_fds=pipes)
    os._exit(status)


@server.tool(inline=True)
def pid() -> int:
    """The process of this server."""
    return os.getpid()


def is_pipe(fd: int) -> bool:
    """Whether a descriptor is a pipe."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
    except OSError:
        return False


server.run()
