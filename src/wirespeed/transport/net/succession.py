"""A process that takes the place of this one: the same command, with the same listening sockets.

The sockets are passed as a service manager does (`systemd`), so clients that connect meanwhile wait
in their queues. The successor says that it is ready in a pipe, whose descriptor is in its
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from wirespeed.transport.net import systemd

logger = logging.getLogger("wirespeed.server")

START_TIMEOUT = 60.0  # seconds until a successor is ready
LAST_WAIT = 5.0  # seconds that it has to end
LINGER = 1.0  # seconds in which clients send the requests for which they have connected

# The launcher sets the descriptor numbers and LISTEN_PID, then becomes the command.
_LAUNCH = """
import fcntl, os, sys
ready, *given = map(int, sys.argv[1].split(","))
above = max(ready, *given, 3 + len(given)) + 1
ready, *given = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in (ready, *given)]
for i, fd in enumerate(given):
    os.dup2(fd, 3 + i)
    os.close(fd)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)))
os.environ[sys.argv[2]] = str(ready)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Succession:
    """Starts successors.

    Args:
        command: What they run: a path and arguments.
        environ: Their environment.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = command
        ours = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", systemd.READY)
        self._environ = {name: value for name, value in environ.items() if name not in ours}

    async def start(self, sockets: Sequence[tuple[socket.socket, str]]) -> bool:
        """Start a successor with sockets and their names. Returns whether it is ready; if not, it
        has ended, and the reason was logged."""
        if os.getpid() == 1:
            logger.error("no other process can take the place of process 1: its end ends all")
            return False
        ready, told = os.pipe()
        fds = [told, *(sock.fileno() for sock, _ in sockets)]
        environ = {**self._environ, "LISTEN_FDNAMES": ":".join(name for _, name in sockets)}
        launch = [sys.executable, "-ISc", _LAUNCH, ",".join(map(str, fds)), systemd.READY]
        try:
            process = subprocess.Popen([*launch, *self._command], env=environ, pass_fds=fds)
        except OSError as exc:
            os.close(ready)
            logger.error("the new process cannot be started: %s; this one goes on", exc)
            return False
        finally:
            os.close(told)
        logger.info("process %d is to take the place of this one", process.pid)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                said = await _read(ready)
        except BaseException as exc:
            process.terminate()
            await _ended(process)
            if not isinstance(exc, TimeoutError):
                raise
            logger.error("the new process was not ready in %g s; this one goes on", START_TIMEOUT)
            return False
        finally:
            os.close(ready)
        if not said:
            how = await _ended(process)
            logger.error("the new process ended before it was ready (%s); this one goes on", how)
            return False
        systemd.notify(f"MAINPID={process.pid}\nREADY=1")
        logger.info("process %d takes the place of this one", process.pid)
        process.returncode = 0  # nobody waits for it
        return True


async def _read(fd: int) -> bytes:
    """Read what comes first; nothing at the end."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 64)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _ended(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process, or end it. Returns the status in words."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(subprocess.TimeoutExpired):
        await loop.run_in_executor(None, functools.partial(process.wait, LAST_WAIT))
    if process.returncode is None:
        process.kill()
        process.wait()
    status = process.returncode
    return f"status {status}" if status >= 0 else f"signal {-status}"
