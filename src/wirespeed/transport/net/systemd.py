"""What a service manager gives a server: sockets that listen already, and someone to tell that the
server is ready.

The rules are those of sd_listen_fds(3) and sd_notify(3). Clients that connect while the server is
started again wait in the socket's queue and are not refused.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from wirespeed.transport.address import Address

logger = logging.getLogger("wirespeed.server")

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
        found: The results of `bind.resolve`.
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
