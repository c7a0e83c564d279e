"""A child's process group: start, wait for the leader, signal, look for members that are left; and
the guard, a process that ends the groups when this process is killed.

`Child` uses the group on the thread of the loop. A thread of the group's own starts and reaps the
leader.

No code of this process runs after SIGKILL, and the kernel's PR_SET_PDEATHSIG is sent when the
*thread* that launched a child ends. So a shell reads the list of process groups from a pipe of
ours. At the end of the pipe the groups that are left have time to end by themselves, then the shell
sends them SIGTERM, then SIGKILL. There is one guard for all children. The guard starts with the
first child and ends with the last. A process that leaves its group is out of reach.
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

from wirespeed.transport.child.command import command_of, identity_of

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

log = logging.getLogger("wirespeed.stdio")


GRACE = 20  # tenths of a second, as the default of `Stdio.shutdown_grace`
# `read` returns false at the end of the pipe. $1 is GRACE.
SCRIPT = """# wirespeed-guard
trap '' HUP INT QUIT TERM
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in
         *" $group "*) groups=${groups%%" $group "*}" "${groups#*" $group "} ;;
       esac ;;
  esac
done
signal() {
  left=' '
  for group in $groups; do
    kill -s "$1" -- "-$group" 2>/dev/null && left="$left$group "
  done
  groups=$left
}
grace() {
  n=0
  signal 0
  while [ "$groups" != ' ' ] && [ "$n" -lt "$1" ]; do
    sleep 0.1
    signal 0
    n=$((n + 1))
  done
}
grace "$1"
signal TERM
signal CONT
grace "$1"
signal KILL
"""


class Guard:
    """The groups to end, and the pipe to the shell. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._fd = -1
        self._theirs = -1  # the shell's end until there is a shell

    def add(self, group: int) -> None:
        """End a process group when this process is killed. `start` must follow."""
        with self._lock:
            self._groups.add(group)
            if self._fd >= 0 and self._tell(f"+ {group}\n"):
                return
            self._close()
            self._theirs, self._fd = os.pipe()
            os.set_blocking(self._fd, False)
            self._tell("".join(f"+ {one}\n" for one in self._groups))

    def start(self) -> None:
        """Start the shell unless it runs. That takes milliseconds: not for the thread of a loop."""
        with self._lock:
            if self._theirs < 0:
                return
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", SCRIPT, "sh", str(GRACE)],
                    stdin=self._theirs,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PATH": os.defpath},
                    start_new_session=True,
                )
                threading.Thread(target=process.wait, name="wirespeed-guard", daemon=True).start()
            except (OSError, RuntimeError, subprocess.SubprocessError) as exc:
                log.debug("children will outlive a SIGKILL of this process: %s", exc)
            finally:
                os.close(self._theirs)
                self._theirs = -1

    def remove(self, group: int) -> None:
        """Take a group from the list: it has ended, or is being ended."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            self._tell(f"- {group}\n")
            if not self._groups:
                self._close()

    def forget(self) -> None:
        """Drop the list, in a fork of this process: the children are not its own."""
        self._lock = threading.Lock()
        self._groups.clear()
        self._close()

    def _tell(self, text: str) -> bool:
        """Write to the shell. Returns False if the shell was killed."""
        try:
            os.write(self._fd, text.encode())
        except BlockingIOError:
            pass  # the shell is stopped: its list stays incomplete
        except OSError:
            return False
        return True

    def _close(self) -> None:
        for fd in (self._fd, self._theirs):
            if fd >= 0:
                os.close(fd)
        self._fd = self._theirs = -1


guard = Guard()
os.register_at_fork(after_in_child=guard.forget)


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
