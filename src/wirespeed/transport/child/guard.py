"""A process that ends the children of this process when this process is killed.

No code of this process runs after SIGKILL, and the kernel's PR_SET_PDEATHSIG is sent when the
*thread* that launched a child ends. So a shell reads the list of process groups from a pipe of
ours. At the end of the pipe the groups that are left have time to end by themselves, then the shell
sends them SIGTERM, then SIGKILL.

There is one guard for all children. The guard starts with the first child and ends with the last. A
process that leaves its group is out of reach.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading

__all__ = ["guard"]

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
