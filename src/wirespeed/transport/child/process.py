"""The life of a child process: launch, watch, explain, end. It reads no stdout.

A daemon thread for each child launches it, waits for its exit and reaps it; everything else
happens in the loop's thread. That needs no child watcher and no SIGCHLD, works alike on asyncio and
uvloop, from any thread's loop, and leaves no zombie even if the loop is closed first.

The child leads its own session and so its own process group, which is what gets signalled:
wrappers such as npx, uvx or a shell die together with the server that they started.
If this process is killed, the child sees its stdin end, and the guard process ends its group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from wirespeed.errors import ChildExited, LaunchError
from wirespeed.transport.child.diagnose import describe_status, launch_reason
from wirespeed.transport.child.guard import guard
from wirespeed.transport.child.stderr import Drain, open_sink

if TYPE_CHECKING:
    # At run time this would import the whole client package from below it.
    from wirespeed.transport.child.command import Stdio

__all__ = ["Child"]

log = logging.getLogger("wirespeed.stdio")

# Seconds: for the rest of the group once the leader has left by itself, between two looks at
# the group, and for the kernel to carry out SIGKILL (only uninterruptible I/O takes longer).
_LINGER = 0.1
_POLL = 0.01
_KILL_WAIT = 5.0

# Linux lets one user hold 64 MiB of pipe buffers before it makes every further pipe of that
# user tiny, so only the first children of a process get big ones.
_PIPE_SIZE = 1 << 20
_BIG_PIPES = 8
_live: weakref.WeakSet[Child] = weakref.WeakSet()

_COMMAND_SHOWN = 1000
_SELF_STAT = "/proc/self/stat"


class _Process:
    """The part of a child that its thread and its finalizer use. It must not refer to the Child.

    ``lock`` makes reaping and signalling exclusive, so that a signal never reaches a
    stranger who was given the same number.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.pid = 0
        self.ended = False  # the leader was reaped
        self.gone = True  # no process of the group is left
        self.abandoned = False  # it is to be killed as soon as it is launched
        self.status: int | None = None
        self.stdin_fd = -1
        self.stdout_fd = -1
        self._popen: subprocess.Popen[bytes] | None = None
        self._members: list[int] = []

    def spawn(self, target: Stdio, environ: dict[str, str], fds: tuple[int, int, int]) -> None:
        stdin, stdout, stderr = fds
        popen = subprocess.Popen(
            target.argv,
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            stderr=None if stderr < 0 else stderr,
            cwd=target.cwd,
            env=environ,
            # A session rather than a group alone: a prompt on /dev/tty then fails at once
            # instead of stopping the child with SIGTTIN.
            start_new_session=True,
        )
        with self.lock:
            self._popen = popen
            self.pid = popen.pid
            self.gone = False
            abandoned = self.abandoned
            if not abandoned:
                guard.add(popen.pid)
        if abandoned:
            self.signal(signal.SIGKILL)

    def release(self) -> None:
        """Kills the group, and takes it from the guard."""
        with self.lock:
            self.abandoned = True
        self.signal(signal.SIGKILL)
        if self.pid:
            guard.remove(self.pid)

    def reap(self) -> None:
        """Blocks until the leader has exited, and takes its status."""
        popen = self._popen
        assert popen is not None
        known = True
        if hasattr(os, "waitid"):
            # Leaves it a zombie, which keeps its number taken until we hold the lock.
            try:
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                # Somebody else took the status: waitpid(-1), or SIGCHLD is ignored.
                known = False
        else:
            popen.wait()
        with self.lock:
            status = popen.wait()
            self.ended = True
            self.status = status if known else None
            self._probe()

    def alive(self) -> bool:
        """True while any process of the group is left, as far as we can tell."""
        with self.lock:
            if self.ended and not self.gone:
                # Orphans become our children if we are init (a container) or a subreaper.
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-self.pid, os.WNOHANG)[0]:
                        pass
                self._probe()
                if not self.gone and os.path.exists(_SELF_STAT):
                    # In a container whose init does not reap, zombies keep a group for good.
                    known = [pid for pid in self._members if _group_of(str(pid)) == self.pid]
                    self._members = known or _members(self.pid)
                    self.gone = not self._members
            return not self.gone

    def _probe(self) -> None:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            # EPERM: strangers or, on macOS, zombies; nothing there that we could signal.
            self.gone = True

    def signal(self, number: int) -> None:
        """Signals the whole group, if there is anything left of it."""
        with self.lock:
            if self.gone:
                return
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                self.gone = self.ended
            except PermissionError:
                log.warning("not permitted to signal process group %d", self.pid)

    def close(self) -> None:
        """Closes our ends of stdin and stdout."""
        for name in ("stdin_fd", "stdout_fd"):
            fd = getattr(self, name)
            if fd >= 0:
                setattr(self, name, -1)
                os.close(fd)


def _members(group: int) -> list[int]:
    """The processes of a group that are not zombies, from Linux's /proc."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _group_of(pid) == group]


def _group_of(pid: str) -> int:
    """The group of a process; 0 if it is a zombie or is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name before it may contain anything, ")" included.
            state, _, group = file.read(4096).rpartition(b")")[2].split(None, 3)[:3]
    except (OSError, ValueError):
        return 0
    return 0 if state in (b"Z", b"X") else int(group)


def _abandon(process: _Process) -> None:
    """For a Child that was collected, or is still open when the interpreter exits."""
    if os.getpid() != process.owner:
        return  # a fork of the process that owns the child
    process.release()
    process.close()


def _work(
    process: _Process,
    spawn: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    child: weakref.ref[Child],
    launched: asyncio.Future[None],
) -> None:
    """The thread: launch, wait, reap, and tell the loop if there still is one."""
    error: BaseException | None = None
    try:
        spawn()
    except BaseException as exc:
        error = exc
    try:
        loop.call_soon_threadsafe(_on_launched, launched, error)
    except RuntimeError:
        process.signal(signal.SIGKILL)  # the loop was closed before the launch ended
    if error is not None:
        return
    guard.start()
    process.reap()
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_on_exit, child)


def _on_launched(launched: asyncio.Future[None], error: BaseException | None) -> None:
    if launched.done():  # launch() was cancelled, and has seen to the child
        return
    if error is None:
        launched.set_result(None)
    else:
        launched.set_exception(error)


def _on_exit(ref: weakref.ref[Child]) -> None:
    child = ref()
    if child is not None:
        child._on_exit()


class Child:
    """A running child process with our ends of its pipes. Made by :meth:`launch`.

    ``stdin_fd`` and ``stdout_fd`` are raw, blocking descriptors (-1 once closed) that stay
    the Child's: whoever watches one sets :attr:`release`, which is called with the
    descriptor right before it is closed, to stop watching it.
    """

    release: Callable[[int], None] | None = None
    on_exit: Callable[[], None] | None = None
    """Called in the loop's thread when the child itself has exited."""

    def __init__(self, target: Stdio) -> None:
        """Use :meth:`launch`."""
        self.target = target
        self.cwd = target.directory
        self._loop = asyncio.get_running_loop()
        self._process = _Process()
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._stderr: Drain | None = None
        self._stdout: Drain | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed = False
        self._finalizer = weakref.finalize(self, _abandon, self._process)

    @classmethod
    async def launch(cls, target: Stdio) -> Child:
        """Starts ``target`` and returns when its program has been loaded.

        Raises LaunchError with the reason, the command and the directory. If cancelled, no
        child is left behind.
        """
        self = cls(target)
        try:
            await self._launch()
        except BaseException:
            self._finalizer()
            if self._stderr is not None:
                self._stderr.close()
            self._closed = True
            raise
        _live.add(self)
        return self

    async def _launch(self) -> None:
        process, loop, target = self._process, self._loop, self.target
        environ = target.environment()
        launched: asyncio.Future[None] = loop.create_future()
        theirs: list[int] = []
        sink, stderr = None, -1
        if target.stderr != "inherit":
            try:
                sink = open_sink(target.stderr)
            except OSError as exc:
                name = os.fspath(target.stderr)  # type: ignore[arg-type]
                reason = f"cannot open {name!r} for stderr: {exc.strerror}"
                raise LaunchError(self._describe(reason)) from exc
        try:
            stdin, process.stdin_fd = os.pipe()
            theirs.append(stdin)
            process.stdout_fd, stdout = os.pipe()
            theirs.append(stdout)
            if target.stderr != "inherit":
                ours, stderr = os.pipe()
                theirs.append(stderr)
                # Before the launch: the exit may be reported in the same tick as the launch.
                self._stderr, sink = Drain(loop, ours, sink), None
            if len(_live) < _BIG_PIPES:
                _enlarge(process.stdin_fd)
                _enlarge(process.stdout_fd)

            # The thread closes the child's ends: after a cancellation it still needs them.
            spawn = _spawner(process, target, environ, (stdin, stdout, stderr))
            threading.Thread(
                target=_work,
                args=(process, spawn, loop, weakref.ref(self), launched),
                name="wirespeed-child",
                daemon=True,
            ).start()
            theirs.clear()
            await launched
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as exc:
            reason = launch_reason(target, self.cwd, environ, exc)
            # the system's error names the real command
            cause = exc if target.shown is None else None
            raise LaunchError(self._describe(reason)) from cause
        finally:
            for fd in theirs:
                os.close(fd)
            if sink is not None:
                sink.close()

    # -- what it is ----------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id, which is the process group's id too."""
        return self._process.pid

    @property
    def stdin_fd(self) -> int:
        """Our end of the child's stdin; -1 once closed."""
        return self._process.stdin_fd

    @property
    def stdout_fd(self) -> int:
        """Our end of the child's stdout; -1 once closed or given to drain_stdout()."""
        return self._process.stdout_fd

    @property
    def exited(self) -> bool:
        """True once the child itself has exited (its own children may go on)."""
        return self._process.ended

    @property
    def returncode(self) -> int | None:
        """The exit status, -N if killed by signal N; None while it runs or if unknown."""
        return self._process.status

    def stderr_lines(self) -> list[str]:
        """The last lines of its stderr (20 lines, 8 KiB); none for ``stderr="inherit"``."""
        return self._stderr.lines() if self._stderr is not None else []

    def failure(self, reason: str, hint: str = "") -> str:
        """An error text: reason, command, directory, exit status, hint and the end of stderr.

        The first line is complete by itself. Call :meth:`settle` before, so that a child
        that is just exiting has done so.
        """
        if self.exited:
            state = f"the server {describe_status(self.returncode)}"
        else:
            state = f"the server is still running (pid {self.pid})"
        text = self._describe(reason, state + hint)
        if self._stderr is None:
            return text + "; its stderr was inherited, so look for its messages there"
        lines = self._stderr.lines()
        if not lines:
            return text + "; it wrote nothing to stderr"
        return "\n    ".join([text + "; its stderr ends:", *lines])

    def error(self, reason: str, hint: str = "") -> ChildExited:
        """``failure(reason, hint)`` as an exception to raise."""
        return ChildExited(self.failure(reason, hint), self.returncode)

    def _describe(self, reason: str, state: str = "") -> str:
        command = self.target.command_line.replace("\n", "\\n")
        if len(command) > _COMMAND_SHOWN:
            command = command[: _COMMAND_SHOWN - 1] + "…"
        text = f"{reason}: command {command}, directory {self.cwd}"
        return f"{text}; {state}" if state else text

    def __repr__(self) -> str:
        state = describe_status(self.returncode) if self.exited else "running"
        command, *_ = self.target.shown or self.target.argv
        return f"<Child {command!r} pid={self.pid} {state}>"

    # -- its end -------------------------------------------------------------------------

    async def wait(self) -> int | None:
        """Waits for the exit, after which all of its stderr has been read.

        Returns :attr:`returncode`. Cancelling it does nothing to the child.
        """
        await asyncio.shield(self._exit)
        return self.returncode

    async def settle(self, timeout: float = 0.5) -> bool:
        """Waits at most ``timeout`` seconds for the exit; True if it has exited."""
        await asyncio.wait((self._exit,), timeout=timeout)
        return self._exit.done()

    async def shutdown(self, grace: float | None = None, term_grace: float | None = None) -> None:
        """Ends the child and its whole process group, gently first.

        Closes stdin; after ``grace`` seconds SIGTERM to the group; after ``term_grace``
        more SIGKILL to the group (defaults: the target's ``shutdown_grace``). Processes
        that are left when the child itself exits are ended the same way. Afterwards all
        is reaped and every descriptor closed.

        Idempotent, for any task of the loop; later calls wait for the first. A cancelled
        caller leaves at once and the shutdown goes on; if the loop ends too, the group is
        killed right away. Keep reading stdout meanwhile, or call :meth:`drain_stdout`
        before: a child that is blocked writing does not notice that its stdin is closed.
        """
        if self._ending is None:
            grace = self.target.shutdown_grace if grace is None else grace
            term_grace = self.target.shutdown_grace if term_grace is None else term_grace
            self._ending = self._loop.create_task(self._shutdown(grace, term_grace))
            # The task may be cancelled before its first step.
            self._ending.add_done_callback(lambda _: self.kill())
        await asyncio.shield(self._ending)

    async def _shutdown(self, grace: float, term_grace: float) -> None:
        process = self._process
        try:
            self.close_stdin()
            await self.settle(grace)
            if not (self.exited and await self._gone_within(min(grace, _LINGER))):
                process.signal(signal.SIGTERM)
                process.signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
                if not await self._gone_within(term_grace):
                    process.signal(signal.SIGKILL)
                    if not await self._gone_within(_KILL_WAIT):
                        log.warning("process group %d is still there after SIGKILL", self.pid)
        finally:
            # Closes what is open; if we were cancelled, or the loop is going, kills too.
            self.kill()

    async def _gone_within(self, timeout: float) -> bool:
        deadline = self._loop.time() + timeout
        if not await self.settle(timeout):
            return False
        # The group has no event for its end.
        while self._process.alive():
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, _POLL))
        return True

    def kill(self) -> None:
        """Kills the whole group without waiting, and closes every descriptor. Idempotent.

        It is reaped in the background; needs no running loop.
        """
        self._closed = True
        self._process.release()
        self.close_stdin()
        self.close_stdout()
        if self._stderr is not None:
            self._stderr.finish()
            self._stderr.close()
        self._finalizer.detach()
        _live.discard(self)

    def _on_exit(self) -> None:
        if self._stderr is not None:
            self._stderr.finish()
        if not self._exit.done():
            self._exit.set_result(None)
            if self.on_exit is not None and not self._closed:
                self.on_exit()

    # -- its pipes -----------------------------------------------------------------------

    def close_stdin(self) -> None:
        """Closes our end of its stdin: the end of input. Idempotent."""
        self._close("stdin_fd")

    def close_stdout(self) -> None:
        """Closes our end of its stdout; what it still writes fails with EPIPE. Idempotent."""
        if self._stdout is not None:
            self._stdout.close()
        self._close("stdout_fd")

    def drain_stdout(self) -> None:
        """Reads stdout from now on and throws it away, so that the child cannot block on it."""
        fd = self._process.stdout_fd
        if fd >= 0:
            self._released(fd)
            self._process.stdout_fd = -1
            self._stdout = Drain(self._loop, fd, None)

    def _close(self, name: str) -> None:
        fd = getattr(self._process, name)
        if fd >= 0:
            self._released(fd)
            setattr(self._process, name, -1)
            os.close(fd)

    def _released(self, fd: int) -> None:
        if self.release is not None:
            try:
                self.release(fd)
            except Exception:
                log.exception("releasing a child's pipe failed")

    def __del__(self) -> None:
        if not self.__dict__.get("_closed", True):
            warnings.warn(
                f"{self!r} was never shut down", ResourceWarning, stacklevel=2, source=self
            )


def _spawner(
    process: _Process, target: Stdio, environ: dict[str, str], fds: tuple[int, int, int]
) -> Callable[[], None]:
    def spawn() -> None:
        try:
            process.spawn(target, environ, fds)
        finally:
            for fd in fds:
                if fd >= 0:
                    os.close(fd)

    return spawn


def _enlarge(fd: int) -> None:
    """A bigger pipe: fewer switches between the two processes. Linux only; best effort."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
