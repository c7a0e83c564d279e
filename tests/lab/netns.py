"""Machines of a network without a route outside: each has a network namespace of its own, and two
links, one to the others and one to the store. The test is on the machine in the middle.

It takes root, or a system where any user may make namespaces. All of it ends with the program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

Link = Literal["lan", "depot"]
LINKS = ("lan", "depot")
OURS = "10.77.1.254"  # in the middle, on the lan
UNSHARE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
MARK = "WIRESPEED_IN_NAMESPACE"


def enter() -> bool:
    """Run this program in a network namespace of its own, and return True there. False: the system
    does not allow it."""
    if MARK in os.environ:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also below a shell's "&"
        return True
    try:
        subprocess.run([*UNSHARE, "ip", "link", "add", "x", "type", "bridge"], check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    command = [*UNSHARE, sys.executable, *sys.argv]
    # Ctrl-C reaches this process alone, which passes it on: once, so that the program can clean up.
    program = subprocess.Popen(command, env={**os.environ, MARK: "1"}, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _interrupt(program.pid))
    sys.exit(program.wait())


def _interrupt(pid: int) -> None:
    """Interrupt the program that a process has started in the namespace."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGINT)


def ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


class Machine:
    """A machine.

    Attributes:
        address: On the lan; the store's, on its own link.
        inside: The command that runs another one there.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        space = Path(f"/proc/{self._holder.pid}/ns/net")
        while os.readlink(space) == os.readlink("/proc/self/ns/net"):
            time.sleep(0.001)
        self.inside = ("nsenter", f"--net={space}")
        self.addresses: dict[Link, str] = {}
        ip("link", "set", "lo", "up", inside=self.inside)
        for net, link in enumerate(LINKS, 1):
            port = f"{name}-{link}"
            ip("link", "add", port, "type", "veth", "peer", link, "netns", str(self._holder.pid))
            ip("link", "set", port, "master", link, "up")
            self.addresses[link] = f"10.77.{net}.{number}"
            ip("address", "add", f"{self.addresses[link]}/24", "dev", link, inside=self.inside)
            ip("link", "set", link, "up", inside=self.inside)

    def plug(self, link: Link, state: Literal["up", "down"]) -> None:
        """Plug one of its links in, or out."""
        ip("link", "set", f"{self.name}-{link}", state)

    def end(self) -> None:
        self._holder.kill()
        self._holder.wait()


def lay_cables() -> None:
    """Make the networks."""
    ip("link", "set", "lo", "up")
    for link in LINKS:
        ip("link", "add", link, "type", "bridge")
        ip("link", "set", link, "up")
    ip("address", "add", f"{OURS}/24", "dev", "lan")
