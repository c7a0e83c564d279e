"""A process that ends the children of this one when this one is killed.

Nothing in this process can run after SIGKILL, and the kernel's PR_SET_PDEATHSIG is sent when the
*thread* that launched a child ends. So a shell reads from a pipe of ours which process groups there
are. At the end of the pipe it gives the groups that are left time to end by themselves, then sends
them SIGTERM, then SIGKILL.

There is one guard for all children: it starts with the first and ends with the last. A process that
leaves its group is out of its reach.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading

__all__ = ["guard"]

log = logging.getLogger("wirespeed.stdio")

# `read` returns false at the end of the pipe. 20 * 0.1 s is the grace of `Stdio.shutdown_grace`.
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
  while [ "$groups" != ' ' ] && [ $n -lt 20 ]; do
    sleep 0.1
    signal 0
    n=$((n + 1))
  done
}
grace
signal TERM
signal CONT
grace
signal KILL
"""


class Guard:
    """The groups to end, and the pipe that tells the shell. Every method is for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._fd = -1
        self._theirs = -1  # the shell's end until there is a shell

    def add(self, group: int) -> None:
        """End this process group when this process is killed; `start` must follow."""
        with self._lock:
            self._groups.add(group)
            if self._fd >= 0 and self._tell(f"+ {group}\n"):
                return
            self._close()
            self._theirs, self._fd = os.pipe()
            os.set_blocking(self._fd, False)
            self._tell("".join(f"+ {one}\n" for one in self._groups))

    def start(self) -> None:
        """Start the shell unless it runs: takes milliseconds, so not on a loop's thread."""
        with self._lock:
            if self._theirs < 0:
                return
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", SCRIPT],
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
        """This group has ended, or is being ended."""
        with self._lock:
            if group not in self._groups:
                return
            self._groups.discard(group)
            self._tell(f"- {group}\n")
            if not self._groups:
                self._close()

    def forget(self) -> None:
        """In a fork of this process: the children are not its own."""
        self._lock = threading.Lock()
        self._groups.clear()
        self._close()

    def _tell(self, text: str) -> bool:
        """False if nobody reads the pipe: the shell was killed."""
        try:
            os.write(self._fd, text.encode())
        except BlockingIOError:
            pass  # a shell that is stopped: its list stays incomplete
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
