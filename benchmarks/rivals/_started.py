"""Servers that do not tell when they listen: a port for them, and the word that they are there."""

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence

from _port import tell

WAITING_S = 30.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def become(command: Callable[[int], Sequence[str]]) -> None:
    """Become the command for a port.  A child tells the port once somebody listens there."""
    port = free_port()
    if os.fork() == 0:
        deadline = time.monotonic() + WAITING_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                time.sleep(0.05)
            else:
                tell(port)
                break
        os._exit(0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    arguments = command(port)
    os.execvp(arguments[0], arguments)
