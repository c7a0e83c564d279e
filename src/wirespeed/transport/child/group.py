"""A child's process group: start, wait for the leader, signal, look for members that are left.

`Child` uses it on the thread of the loop. A thread of the group's own starts and reaps the leader.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wirespeed.transport.child.guard import guard
from wirespeed.transport.child.privileges import command_of, identity_of

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

log = logging.getLogger("wirespeed.stdio")

_SELF_STAT = "/proc/self/stat"


class ProcessGroup:
    """The leader, its group, and our ends of its pipes. It must not refer to the `Child`.

    `lock` makes reaping and signalling exclusive, so that a signal never reaches a stranger
    that got the same number.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.pid = 0
        self.ended = False  # the leader was reaped
        self.gone = True  # no process of the group is left
        self.abandoned = False  # the group is to be killed as soon as it is launched
        self.status: int | None = None
        self.stdin_fd = -1
        self.stdout_fd = -1
        self._popen: subprocess.Popen[bytes] | None = None
        self._members: list[int] = []

    def spawn(self, target: Stdio, environ: dict[str, str], fds: Sequence[int]) -> None:
        """Launch the leader. Its ends of the pipes, `fds` (-1: inherited), are closed here."""
        try:
            popen = subprocess.Popen(
                command_of(target, environ),
                bufsize=0,
                stdin=fds[0],
                stdout=fds[1],
                stderr=None if fds[2] < 0 else fds[2],
                cwd=target.cwd,
                env=environ,
                # A session rather than a group alone: a prompt on /dev/tty then fails at once
                # instead of stopping the child with SIGTTIN.
                start_new_session=True,
                **identity_of(target),
            )
        finally:
            for fd in fds:
                if fd >= 0:
                    os.close(fd)
        with self.lock:
            self._popen = popen
            self.pid = popen.pid
            self.gone = False
            abandoned = self.abandoned
            if not abandoned:
                guard.add(popen.pid)
        if abandoned:
            self.signal(signal.SIGKILL)

    def reap(self) -> None:
        """Wait until the leader has exited, and take its status."""
        popen = self._popen
        assert popen is not None
        known = True
        if hasattr(os, "waitid"):
            # The leader stays a zombie, which keeps its number taken until we hold the lock.
            try:
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                # Other code took the status: waitpid(-1), or SIGCHLD is ignored.
                known = False
        else:
            popen.wait()
        with self.lock:
            status = popen.wait()
            self.ended = True
            self.status = status if known else None
            self._probe()

    def alive(self) -> bool:
        """Whether a process of the group is left, as far as this process can know."""
        with self.lock:
            if self.ended and not self.gone:
                self._reap_orphans()
                self._probe()
                if not self.gone and os.path.exists(_SELF_STAT):
                    # In a container whose init does not reap, zombies keep a group for ever.
                    known = [pid for pid in self._members if _group_of(str(pid)) == self.pid]
                    self._members = known or _members(self.pid)
                    if not self._members:
                        self._reap_orphans()  # one may have ended since the first time
                        self.gone = True
            return not self.gone

    def _reap_orphans(self) -> None:
        """Orphans become our children if we are init (a container) or a subreaper."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass

    def _probe(self) -> None:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            # EPERM: strangers or, on macOS, zombies. Neither can be signalled.
            self.gone = True

    def signal(self, number: int) -> None:
        """Signal the whole group, if a process of it is left."""
        with self.lock:
            if self.gone:
                return
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                self.gone = self.ended
            except PermissionError:
                log.warning("not permitted to signal process group %d", self.pid)

    def release(self) -> None:
        """Kill the group, and take it from the guard."""
        with self.lock:
            self.abandoned = True
        self.signal(signal.SIGKILL)
        if self.pid:
            guard.remove(self.pid)

    def close(self, name: str) -> None:
        """Close our end of a pipe: "stdin_fd" or "stdout_fd"."""
        fd = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            os.close(fd)

    def abandon(self) -> None:
        """End all of it: for a `Child` that was collected, or that is open at the exit of the
        interpreter. Does nothing in a fork of the process that owns the child."""
        if os.getpid() == self.owner:
            self.release()
            self.close("stdin_fd")
            self.close("stdout_fd")


def _members(group: int) -> list[int]:
    """The processes of a group that are not zombies, from Linux's /proc."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _group_of(pid) == group]


def _group_of(pid: str) -> int:
    """The group of a process; 0 for a zombie and for a process that does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name before the state may contain any character, ")" included.
            state, _, group = file.read(4096).rpartition(b")")[2].split(None, 3)[:3]
    except (OSError, ValueError):
        return 0
    return 0 if state in (b"Z", b"X") else int(group)
