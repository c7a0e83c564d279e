"""A process that takes the place of this one: the same command, with the same listening sockets.

The sockets are passed as a service manager does (`systemd`), so clients that connect meanwhile wait
in their queues. The successor says that it is ready in a pipe, whose descriptor is in its
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from wirespeed.transport.net import systemd

logger = logging.getLogger("wirespeed.server")

START_TIMEOUT = 60.0  # seconds until a successor is ready
LAST_WAIT = 5.0  # seconds that it has to end
LINGER = 1.0  # seconds in which clients send the requests for which they have connected

# The launcher sets the descriptor numbers and LISTEN_PID, then becomes the command.
_LAUNCH = """
import fcntl, os, sys
passed = [*map(int, sys.argv[1].split(","))]
above = max(*passed, 3 + len(passed))
ready, *given = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in passed]
for fd in passed:
    os.close(fd)
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

    def begin(self, sockets: Sequence[systemd.Passed]) -> Successor | None:
        """Start a successor with sockets. None: it cannot be started, and the reason was logged."""
        if os.getpid() == 1:
            logger.error("no other process can take the place of process 1: its end ends all")
            return None
        ready, told = os.pipe()
        fds = [told, *(one.socket.fileno() for one in sockets)]
        environ = {**self._environ, "LISTEN_FDNAMES": ":".join(one.name for one in sockets)}
        launch = [sys.executable, "-ISc", _LAUNCH, ",".join(map(str, fds)), systemd.READY]
        try:
            process = subprocess.Popen([*launch, *self._command], env=environ, pass_fds=fds)
        except OSError as exc:
            os.close(ready)
            logger.error("the new process cannot be started: %s; this one goes on", exc)
            return None
        finally:
            os.close(told)
        logger.info("process %d is to take the place of this one", process.pid)
        return Successor(process, ready)

    async def start(self, sockets: Sequence[systemd.Passed]) -> Successor | None:
        """The same, until the successor is ready. None: it has ended, and the reason was logged."""
        successor = self.begin(sockets)
        if successor is None:
            return None
        loop = asyncio.get_running_loop()
        verdict = None
        while verdict is None:
            try:
                await _readable(loop, successor)
            except BaseException:
                await loop.run_in_executor(None, successor.end)
                raise
            # in a thread: it may wait for the end of the process
            verdict = await loop.run_in_executor(None, successor.judge)
        return successor if verdict else None


class Successor:
    """A process that is to take the place of this one.

    Attributes:
        deadline: When it has to be ready, by `time.monotonic`.
    """

    def __init__(self, process: subprocess.Popen[bytes], ready: int) -> None:
        self.deadline = time.monotonic() + START_TIMEOUT
        self._process = process
        self._ready = ready
        os.set_blocking(ready, False)

    def fileno(self) -> int:
        """The descriptor that is readable when the process is ready or has ended."""
        return self._ready

    def judge(self) -> bool | None:
        """Return whether the process is ready; None: that is not known yet. If it failed, it has
        ended, and the reason was logged."""
        try:
            if os.read(self._ready, 64):
                return True
            why = "ended before it was ready ({})"
        except BlockingIOError:
            if time.monotonic() < self.deadline:
                return None
            why = f"was not ready in {START_TIMEOUT:g} s"
            self._process.terminate()
        logger.error("the new process %s; this one goes on", why.format(self._ended()))
        return False

    def take_over(self) -> None:
        """The process is ready, and this one accepts no clients any more: all that connect from
        now on are those of the other. The service manager is told."""
        pid = self._process.pid
        os.close(self._ready)
        systemd.notify(f"MAINPID={pid}\nREADY=1")
        logger.info("process %d takes the place of this one", pid)
        self._process.returncode = 0  # nobody waits for it

    def end(self) -> None:
        """End the process. This one ends meanwhile."""
        if self._process.returncode is None:
            self._process.terminate()
            self._ended()

    def _ended(self) -> str:
        """Wait for the end of the process, or end it. Returns the status in words."""
        os.close(self._ready)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WAIT)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        status = self._process.returncode
        return f"status {status}" if status >= 0 else f"signal {-status}"


async def _readable(loop: asyncio.AbstractEventLoop, successor: Successor) -> None:
    """Wait until something is known of a successor, or until its deadline."""
    readable = asyncio.Event()
    loop.add_reader(successor.fileno(), readable.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(successor.deadline - time.monotonic()):
                await readable.wait()
    finally:
        loop.remove_reader(successor.fileno())
