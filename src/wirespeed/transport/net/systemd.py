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
from collections.abc import Callable, Sequence
from typing import Any

from wirespeed.transport.address import Address

logger = logging.getLogger("wirespeed.server")

_FIRST = 3  # the first descriptor of sd_listen_fds(3)
_ANY_HOST = ("0.0.0.0", "::")

# The variable with the descriptor of a pipe, where the process that this one succeeds waits.
READY = "WIRESPEED_READY"
# The name of a socket whose file is this server's, not a service manager's.
OWN = "wirespeed-own"


@functools.cache
def _predecessor() -> int | None:
    """The pipe to the process that this one succeeds; None without one."""
    found = os.environ.pop(READY, None)  # not for child processes
    if found is None or os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    os.set_inheritable(int(found), False)
    return int(found)


@functools.cache
def _passed() -> list[socket.socket]:
    """The listening sockets that this process was started with. They stay open until its end, and
    its workers share them."""
    _predecessor()
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    n = int(os.environ.get("LISTEN_FDS", "0"))
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for child processes
        os.environ.pop(name, None)
    found = []
    for fd in range(_FIRST, _FIRST + n):
        os.set_inheritable(fd, False)
        try:
            sock = socket.socket(fileno=fd)
        except OSError:  # not a socket
            continue
        if sock.type == socket.SOCK_STREAM:
            found.append(sock)
            if names[fd - _FIRST : fd - _FIRST + 1] == [OWN]:
                _own.add(str(sock.getsockname()))
    return found


# The names of sockets that a predecessor has passed on with their files.
_own: set[str] = set()


def owns(address: Address) -> bool:
    """Whether the file of a passed socket is this server's."""
    return os.path.abspath(address.path) in _own


def listening_at(address: Address, found: Sequence[Any]) -> list[socket.socket]:
    """Return the sockets that were passed for an address, non-blocking; none for most.

    ``found``: The results of `bind.resolve`.
    """
    if address.scheme == "unix":
        path = os.path.abspath(address.path)
        fitting = [one for one in _passed() if one.getsockname() == path]
    else:
        places = {_host_and_port(info[4]) for info in found}
        fitting = [
            one
            for one in _passed()
            if one.family != socket.AF_UNIX and _host_and_port(one.getsockname()) in places
        ]
    sockets = [one.dup() for one in fitting]
    for sock in sockets:
        sock.setblocking(False)
    return sockets


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
            predecessor = _predecessor()
            if predecessor is None:
                notify("READY=1")
            else:  # which tells the service manager
                with contextlib.suppress(OSError):
                    os.write(predecessor, b"READY=1")
                os.close(predecessor)
                _predecessor.cache_clear()

    return [functools.partial(listens, one) for one in listeners]
