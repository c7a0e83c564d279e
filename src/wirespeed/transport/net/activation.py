"""Sockets that listen already, from a service manager (systemd's socket activation) or from the
process before this one (hot restart); and the message that the server is ready.

The rules are those of sd_listen_fds(3) and sd_notify(3). Clients that connect while the server is
started again wait in the socket's queue and are not refused. For a hot restart the same command is
started with the same sockets. The new process says that it is ready in a pipe, whose descriptor is
in its environment.
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
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wirespeed.transport.address import Address

logger = logging.getLogger("wirespeed.server")

START_TIMEOUT = 60.0  # seconds until a successor is ready
LAST_WAIT = 5.0  # seconds that it has to end
LINGER = 1.0  # seconds in which clients send the requests for which they have connected

FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # for descriptors that are received

_FIRST = 3  # the first descriptor of sd_listen_fds(3)
_ANY_HOST = ("0.0.0.0", "::")

# The variable with the descriptor of a pipe, where the process that this one succeeds waits.
READY = "WIRESPEED_READY"
# The names of sockets: one that is a service manager's, and one that is this server's, as is its
# file. A number behind it: only this worker listens on it.
MANAGER = "wirespeed"
OWN = "wirespeed-own"


class Passed(NamedTuple):
    """A listening socket that one process passes to another, and its name."""

    socket: socket.socket
    name: str

    @property
    def worker(self) -> str:
        """The number of the only worker that listens on it; empty for a socket of all."""
        name, _, number = self.name.rpartition("-")
        return number if name == OWN and number.isdecimal() else ""


@functools.cache
def _predecessor() -> int | None:
    """The pipe to the process that this one succeeds; None without one."""
    found = os.environ.pop(READY, None)  # not for child processes
    if found is None or os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    os.set_inheritable(int(found), False)
    return int(found)


@functools.cache
def _passed() -> list[Passed]:
    """The listening sockets that this process was started with. They stay open until its end, and
    its workers share them, except those of one worker."""
    _predecessor()
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    n = int(os.environ.get("LISTEN_FDS", "0"))
    names = [*os.environ.get("LISTEN_FDNAMES", "").split(":"), *[""] * n]
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for child processes
        os.environ.pop(name, None)
    found = []
    for fd, name in zip(range(_FIRST, _FIRST + n), names, strict=False):
        os.set_inheritable(fd, False)
        try:
            sock = socket.socket(fileno=fd)
        except OSError:  # not a socket
            continue
        if sock.type == socket.SOCK_STREAM:
            found.append(Passed(sock, name))
    return found


def hold(sockets: Iterable[Passed]) -> None:
    """Let the workers that start from now on listen on their sockets of these."""
    _passed().extend(sockets)


def keep_worker(worker: int | None) -> None:
    """Of the sockets of single workers, close those of the others. None: close all of them."""
    for one in [*_passed()]:
        if one.worker not in ("", str(worker)):
            _passed().remove(one)
            one.socket.close()


def listening_at(
    address: Address, found: Sequence[Any], *, shared: bool = False
) -> tuple[list[socket.socket], bool]:
    """Return the sockets that were passed for an address, non-blocking, and whether they are this
    server's own. There are none for most addresses.

    Args:
        found: The results of `sockets.resolve`.
        shared: Leave out the sockets of single workers.
    """
    if address.file:
        path = os.path.abspath(address.file)
        fitting = [one for one in _passed() if one.socket.getsockname() == path]
    else:
        places = {_host_and_port(info[4]) for info in found}
        fitting = [
            one
            for one in _passed()
            if one.socket.family != socket.AF_UNIX
            and _host_and_port(one.socket.getsockname()) in places
        ]
    sockets = []
    _fitting().update(id(one) for one in fitting)
    for one in fitting:
        if not one.worker:
            sockets.append(one.socket.dup())
        elif not shared:  # nobody else listens on it, so it closes when its listener ends
            _passed().remove(one)
            sockets.append(one.socket)
    for sock in sockets:
        sock.setblocking(False)
    return sockets, any(one.worker or one.name == OWN for one in fitting)


@functools.cache
def _fitting() -> set[int]:
    """Those of the sockets that somebody listens with."""
    return set()


def warn_of_unused() -> None:
    """Log the sockets of the service manager with which nobody listens: it accepts their clients,
    which then wait for ever."""
    for one in _passed():
        if id(one) not in _fitting() and not one.worker:
            name = one.socket.getsockname()
            shown = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else name
            logger.error(
                "the service manager has passed a socket at %s, which is no address to listen at: "
                "clients that connect there wait for ever",
                shown,
            )


def _host_and_port(name: tuple[Any, ...]) -> tuple[str, int]:
    """The place of a socket. A socket for all hosts may be of either family."""
    return ("" if name[0] in _ANY_HOST else name[0]), name[1]


def notify(state: str) -> None:
    """Tell the service manager something, such as ``READY=1``, if one wants to be told."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    if path[0] == "@":
        path = "\0" + path[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(path)
            sock.send(state.encode())
    except OSError as exc:
        logger.warning("the service manager cannot be told %s: %s", state, exc)


def telling_ready(
    listeners: Sequence[Callable[[tuple[str, ...]], object] | None],
) -> list[Callable[[tuple[str, ...]], object]]:
    """Return the functions ``on_listening``. The last one that is called tells the service manager
    that the server is ready."""
    left = len(listeners)

    def listens(on_listening: Any, urls: tuple[str, ...]) -> None:
        nonlocal left
        if on_listening is not None:
            on_listening(urls)
        left -= 1
        if not left:
            warn_of_unused()
            predecessor = _predecessor()
            if predecessor is None:
                notify("READY=1")
            else:  # which tells the service manager
                with contextlib.suppress(OSError):
                    os.write(predecessor, b"READY=1")
                os.close(predecessor)
                _predecessor.cache_clear()

    return [functools.partial(listens, one) for one in listeners]


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


class HotRestart:
    """The start of processes that take the place of this one.

    Args:
        command: What they run: a path and arguments.
        environ: Their environment.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = command
        ours = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", READY)
        self._environ = {name: value for name, value in environ.items() if name not in ours}

    def begin(self, sockets: Sequence[Passed]) -> Successor | None:
        """Start a successor with sockets. None: it cannot be started, and the reason was logged."""
        if os.getpid() == 1:
            logger.error("no other process can take the place of process 1: its end ends all")
            return None
        ready, told = os.pipe()
        fds = [told, *(one.socket.fileno() for one in sockets)]
        environ = {**self._environ, "LISTEN_FDNAMES": ":".join(one.name for one in sockets)}
        launch = [sys.executable, "-ISc", _LAUNCH, ",".join(map(str, fds)), READY]
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

    async def start(self, sockets: Sequence[Passed]) -> Successor | None:
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
        notify(f"MAINPID={pid}\nREADY=1")
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
