"""As whom a child runs, and how much it may use.

The parent has threads, so nothing of Python runs between fork and exec: the system's own launcher
changes the user, and a shell sets the limits before it becomes the program.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home

if TYPE_CHECKING:
    from wirespeed.transport.child.command import Stdio

__all__ = ["ProcessLimits", "account_of", "command_of", "identity_of"]


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much each process of a server may use: the limits of ``setrlimit``. None leaves a limit
    as it is. Processes that a server starts inherit its limits.

    Attributes:
        memory: Bytes of address space.
        cpu: Seconds of processor time; then the process is killed.
        files: Open files.
        processes: Processes and threads of the user, of all its programs together. Root has none.
    """

    memory: int | None = None
    cpu: int | None = None
    files: int | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value < 1 << 62):
                raise ValueError(f"{name} is a count of at least 1, not {value!r}")


def account_of(user: str) -> pwd.struct_passwd:
    """The account of a user. ValueError: there is none."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise ValueError(f"there is no user {user!r}") from None


def identity_of(target: Stdio) -> dict[str, Any]:
    """The arguments of ``subprocess.Popen`` for the user and the groups of a child: the groups of
    the parent are not its own. ValueError: there is no such user or group. PermissionError: this
    process is not root's."""
    gid = None
    if target.group is not None:
        try:
            gid = grp.getgrnam(target.group).gr_gid
        except KeyError:
            raise ValueError(f"there is no group {target.group!r}") from None
    if target.user is None:
        return {} if gid is None else _checked({"group": gid, "extra_groups": []})
    account = account_of(target.user)
    if gid is None:
        gid = account.pw_gid
    groups = os.getgrouplist(target.user, gid)
    return _checked({"user": account.pw_uid, "group": gid, "extra_groups": groups})


def _checked(identity: dict[str, Any]) -> dict[str, Any]:
    # Others with CAP_SETUID can change the user, but the child keeps their groups and capabilities.
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return identity


def command_of(target: Stdio, environ: Mapping[str, str]) -> list[str]:
    """The command and its arguments, after a shell if there are limits.

    FileNotFoundError: there is no such program, which the shell could only say to its stderr.
    ValueError: a limit is above that of this process.
    """
    limits = target.limits
    if limits is None:
        return target.argv
    import resource
    import shutil

    numbers = {
        "memory": resource.RLIMIT_AS,
        "cpu": resource.RLIMIT_CPU,
        "files": resource.RLIMIT_NOFILE,
        "processes": resource.RLIMIT_NPROC,
    }
    for name, number in numbers.items():
        wanted, (_, most) = getattr(limits, name), resource.getrlimit(number)
        if wanted is not None and most != resource.RLIM_INFINITY and wanted > most:
            raise ValueError(f"the limit of {name} is above that of this process, {most}")
    command, *rest = target.argv
    at = os.path.join(target.directory, command) if "/" in command else command
    found = shutil.which(at, path=environ.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    steps = []
    if limits.memory is not None:
        steps.append(f"ulimit -v {-(-limits.memory // 1024)}")
    if limits.cpu is not None:
        steps.append(f"ulimit -t {limits.cpu}")
    if limits.files is not None:
        steps.append(f"ulimit -n {limits.files}")
    if limits.processes is not None:  # the shells differ in the letter
        n = limits.processes
        steps.append(f"if (ulimit -u {n}) 2>&-; then ulimit -u {n}; else ulimit -p {n}; fi")
    return ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh", found, *rest]


set_public_home(globals())
