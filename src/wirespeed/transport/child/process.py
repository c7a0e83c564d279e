"""The life of a child process: launch, wait, end; and in words why it ended or could not be
started. This module does not read stdout.

A daemon thread for each child launches the child, waits for its exit and reaps it. All other code
runs on the thread of the loop. So asyncio and uvloop need neither a child watcher nor SIGCHLD, the
loop may run on any thread, and no zombie is left even if the loop is closed first.

The child leads a session and a process group of its own, and signals go to the group: wrappers such
as npx, uvx or a shell end together with the server that they started. If this process is killed,
the child reads the end of its stdin, and the guard process ends its group.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
import stat
import subprocess
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wirespeed._exports import set_public_home
from wirespeed.errors import ChildExited, LaunchError
from wirespeed.transport.child.command import identity_of
from wirespeed.transport.child.group import ProcessGroup, guard
from wirespeed.transport.child.stderr import Drain, open_sink
from wirespeed.transport.fd import enlarge_pipe

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

log = logging.getLogger("wirespeed.stdio")


# Seconds: for the rest of the group after the leader has exited by itself, between two looks at the
# group, and for the kernel to carry out SIGKILL (only uninterruptible I/O takes longer).
_LINGER = 0.1
_POLL = 0.01
_KILL_WAIT = 5.0

# Linux gives tiny pipes to a user whose pipes have 64 MiB, so only the first children of a process
# get big pipes.
_PIPE_SIZE = 1 << 20
_BIG_PIPES = 8
_live: weakref.WeakSet[Child] = weakref.WeakSet()

_COMMAND_SHOWN = 1000


def _work(
    group: ProcessGroup,
    spawn: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    child: weakref.ref[Child],
    launched: asyncio.Future[None],
) -> None:
    """The thread: launch, wait, reap, and tell the loop if the loop still runs."""
    error: BaseException | None = None
    try:
        spawn()
    except BaseException as exc:
        error = exc
    try:
        loop.call_soon_threadsafe(_on_launched, launched, error)
    except RuntimeError:
        group.signal(signal.SIGKILL)  # the loop was closed before the launch ended
    if error is not None:
        return
    guard.start()
    group.reap()
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_on_exit, child)


def _on_launched(launched: asyncio.Future[None], error: BaseException | None) -> None:
    if launched.done():  # launch() was cancelled, and has ended the child
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

    ``stdin_fd`` and ``stdout_fd`` are raw, blocking descriptors (-1 after they were closed) that
    belong to the Child. Code that watches one sets :attr:`release`, which is called with the
    descriptor right before the descriptor is closed.
    """

    release: Callable[[int], None] | None = None
    on_exit: Callable[[], None] | None = None
    """Called on the thread of the loop when the child itself has exited."""
    _kill_wait = _KILL_WAIT

    def __init__(self, target: Stdio) -> None:
        """Use :meth:`launch`."""
        self.target = target
        self.cwd = target.directory
        self._loop = asyncio.get_running_loop()
        self.group = ProcessGroup()
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._stderr: Drain | None = None
        self._stdout: Drain | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed = False
        self._finalizer = weakref.finalize(self, self.group.abandon)

    @classmethod
    async def launch(cls, target: Stdio) -> Child:
        """Start ``target``, and return when its program is loaded.

        Raises LaunchError with the reason, the command and the directory. A cancelled launch
        leaves no child.
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
        group, loop, target = self.group, self._loop, self.target
        try:
            environ = target.environment()
        except ValueError as exc:
            raise LaunchError(self._describe(f"cannot start the server: {exc}")) from None
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
            stdin, group.stdin_fd = os.pipe()
            theirs.append(stdin)
            group.stdout_fd, stdout = os.pipe()
            theirs.append(stdout)
            if target.stderr != "inherit":
                ours, stderr = os.pipe()
                theirs.append(stderr)
                # Before the launch: the exit may be reported in the same turn of the loop.
                self._stderr, sink = Drain(loop, ours, sink), None
            if len(_live) < _BIG_PIPES:
                enlarge_pipe(group.stdin_fd, _PIPE_SIZE)
                enlarge_pipe(group.stdout_fd, _PIPE_SIZE)

            # The thread closes the child's ends: after a cancellation it still needs them.
            fds = (stdin, stdout, stderr)
            spawn = functools.partial(group.spawn, target, environ, fds)
            threading.Thread(
                target=_work,
                args=(group, spawn, loop, weakref.ref(self), launched),
                name="wirespeed-child",
                daemon=True,
            ).start()
            theirs.clear()
            await launched
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as exc:
            reason = launch_reason(target, self.cwd, environ, exc)
            # the error of the system names the real command
            cause = exc if target.shown is None else None
            raise LaunchError(self._describe(reason)) from cause
        finally:
            for fd in theirs:
                os.close(fd)
            if sink is not None:
                sink.close()

    # -- its state -----------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self.group.pid

    @property
    def stdin_fd(self) -> int:
        """Our end of the child's stdin; -1 after it was closed."""
        return self.group.stdin_fd

    @property
    def stdout_fd(self) -> int:
        """Our end of the child's stdout; -1 after it was closed, and after `drain_stdout`."""
        return self.group.stdout_fd

    @property
    def exited(self) -> bool:
        """Whether the child itself has exited. Its own children may still run."""
        return self.group.ended

    @property
    def returncode(self) -> int | None:
        """The exit status, -N after signal N; None while the child runs, and if it is unknown."""
        return self.group.status

    def stderr_lines(self) -> list[str]:
        """The last lines of stderr (20 lines, 8 KiB); none for ``stderr="inherit"``."""
        return self._stderr.lines() if self._stderr is not None else []

    def failure(self, reason: str, hint: str = "") -> str:
        """Return an error text: reason, command, directory, exit status, hint, the end of stderr.

        The first line is complete by itself. Call :meth:`settle` first, so that the exit of a
        child that is exiting is known.
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
        """Return ``failure(reason, hint)`` as an exception to raise."""
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
        """Wait for the exit, and return :attr:`returncode`. All of stderr was read then.

        A cancelled wait has no effect on the child.
        """
        await asyncio.shield(self._exit)
        return self.returncode

    async def settle(self, timeout: float = 2.0) -> bool:
        """Wait at most ``timeout`` seconds for the exit; return whether the child has exited."""
        await asyncio.wait((self._exit,), timeout=timeout)
        return self._exit.done()

    async def shutdown(self, grace: float | None = None, term_grace: float | None = None) -> None:
        """End the child and its whole process group.

        stdin is closed; after ``grace`` seconds the group gets SIGTERM; after ``term_grace``
        further seconds it gets SIGKILL (defaults: the target's ``shutdown_grace``). Processes
        that are left when the child itself exits are ended in the same way. Then every process
        is reaped and every descriptor is closed.

        Any task of the loop may call it, and may call it again: later calls wait for the first.
        The shutdown goes on when its caller is cancelled; when the loop ends, the group is killed
        at once. Read stdout meanwhile, or call :meth:`drain_stdout` first: a child whose writes
        block does not see that its stdin is closed.
        """
        if self._ending is None:
            grace = self.target.shutdown_grace if grace is None else grace
            term_grace = self.target.shutdown_grace if term_grace is None else term_grace
            self._ending = self._loop.create_task(self._shutdown(grace, term_grace))
            # The task may be cancelled before its first step.
            self._ending.add_done_callback(lambda _: self.kill())
        await asyncio.shield(self._ending)

    async def _shutdown(self, grace: float, term_grace: float) -> None:
        group = self.group
        try:
            self.close_stdin()
            await self.settle(grace)
            if not (self.exited and await self._gone_within(min(grace, _LINGER))):
                group.signal(signal.SIGTERM)
                group.signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
                if not await self._gone_within(term_grace):
                    group.signal(signal.SIGKILL)
                    if not await self._gone_within(self._kill_wait):
                        log.warning("process group %d is still there after SIGKILL", self.pid)
        finally:
            # Closes the descriptors; after a cancellation, or at the end of the loop, kills too.
            self.kill()

    async def _gone_within(self, timeout: float) -> bool:
        deadline = self._loop.time() + timeout
        if not await self.settle(timeout):
            return False
        # The group has no event for its end.
        while self.group.alive():
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, _POLL))
        return True

    def kill(self) -> None:
        """Kill the whole group without waiting, and close every descriptor. Idempotent.

        The thread reaps the child; no running loop is needed.
        """
        self._closed = True
        self.group.release()
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
        """Close our end of stdin: the end of the child's input. Idempotent."""
        self._close("stdin_fd")

    def close_stdout(self) -> None:
        """Close our end of stdout; further writes of the child fail with EPIPE. Idempotent."""
        if self._stdout is not None:
            self._stdout.close()
        self._close("stdout_fd")

    def drain_stdout(self) -> None:
        """Read stdout from now on and drop the bytes, so that no write of the child blocks."""
        fd = self.group.stdout_fd
        if fd >= 0:
            self._released(fd)
            self.group.stdout_fd = -1
            self._stdout = Drain(self._loop, fd, None)

    def _close(self, name: str) -> None:
        fd = getattr(self.group, name)
        if fd >= 0:
            self._released(fd)
            self.group.close(name)

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


def describe_status(status: int | None) -> str:
    """Return an exit status in words: "exited with status 3", "was killed by SIGKILL"."""
    if status is None:
        return "ended with an unknown status"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def launch_reason(target: Stdio, cwd: str, environ: dict[str, str], exc: Exception) -> str:
    """Return the reason of a failed launch, in words for the author of the target."""
    code = exc.errno if isinstance(exc, OSError) else None
    reason = _cwd_fault(target, cwd)
    if reason is None and code == errno.EPERM and (target.user or target.group):
        who = f"the user {target.user!r}" if target.user else f"the group {target.group!r}"
        reason = f"only root may start it as {who}"
    if reason is None and code in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
        reason = _command_fault(target, cwd, environ, code)
    if reason is None:
        detail = exc.strerror if isinstance(exc, OSError) else None
        reason = detail or str(exc) or type(exc).__name__
    return f"cannot start the server: {reason}"


def launch_faults(target: Stdio) -> Iterator[tuple[str, str]]:
    """Look for what a launch needs, without a launch. Yields what is wrong in words, and the field
    of the target that is to blame: ``user`` stands for the group, too."""
    try:
        identity_of(target)
        environ = target.environment()
    except (ValueError, PermissionError) as exc:
        refused = isinstance(exc, PermissionError)
        yield "user", "only root may start it as another user" if refused else str(exc)
        environ = replace(target, user=None).environment()
    cwd = target.directory
    if (reason := _cwd_fault(target, cwd)) is not None:
        yield "cwd", reason
    if (reason := _command_fault(target, cwd, environ, 0)) is not None:
        yield "command", reason


def _cwd_fault(target: Stdio, cwd: str) -> str | None:
    if target.cwd is None:
        return None
    if not os.path.exists(cwd):
        return "the working directory does not exist"
    if not os.path.isdir(cwd):
        return "the working directory is not a directory"
    if not os.access(cwd, os.X_OK):
        return "the working directory may not be entered"
    return None


def _command_fault(target: Stdio, cwd: str, environ: dict[str, str], code: int) -> str | None:
    command = target.argv[0]
    shown = repr(command if target.shown is None else target.shown[0])
    if "/" in command:
        path = os.path.join(cwd, command)
        where = "" if os.path.isabs(command) else f" (that is {path})"
    else:
        found = _on_path(command, cwd, environ)
        if found is None:
            hint = "; install it, or write its whole path"
            first, *args = command.split(" ")
            if args and _on_path(first, cwd, environ):
                hint = "; give the arguments apart from the command"
                if target.shown is None:
                    hint += f": Stdio({first!r}, {[*args, *target.argv[1:]]!r})"
            return f"{shown} was not found on the server's PATH{hint}"
        path, where = found, f" (that is {found})"
    if target.shown is not None:
        where = ""
    try:
        mode = os.stat(path).st_mode
    except PermissionError:
        return f"{shown}{where} may not be looked up"
    except OSError:
        return f"{shown}{where} does not exist"
    if stat.S_ISDIR(mode):
        return f"{shown}{where} is a directory"
    if not stat.S_ISREG(mode):
        return f"{shown}{where} is not a file"
    if not os.access(path, os.X_OK):
        return f"{shown}{where} is not executable"
    if code == errno.ENOEXEC:
        return f"{shown}{where} is not a program for this system, and has no #! line"
    interpreter = _interpreter(path)
    if interpreter and not os.path.exists(os.path.join(cwd, interpreter)):
        return f"the interpreter {interpreter!r} that {shown}{where} names is missing"
    if code == errno.ENOENT:
        return f"the loader or a library that {shown}{where} needs is missing"
    return None


def _on_path(command: str, cwd: str, environ: dict[str, str]) -> str | None:
    """Return the path of the first executable file of that name, or else of the first that is
    there."""
    paths = [os.path.join(cwd, folder, command) for folder in os.get_exec_path(environ)]
    found = [path for path in paths if os.path.exists(path)]
    runs = (path for path in found if os.path.isfile(path) and os.access(path, os.X_OK))
    return next(runs, found[0] if found else None)


def _interpreter(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    return words[0] if words else None


set_public_home(globals())
