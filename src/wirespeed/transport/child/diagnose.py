"""The reasons why a child ended or could not be started, in words."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wirespeed.transport.child.privileges import identity_of

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

__all__ = ["describe_status", "launch_faults", "launch_reason"]


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
            hint = ""
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
